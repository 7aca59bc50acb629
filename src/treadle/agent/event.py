"""`Event`: a notification about a thread, and how it looks on the wire."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Struct


class _Frame(Struct, omit_defaults=True):
    method: str
    params: Struct
    emittedAtMs: int
    seq: int | None = None


_encode = msgspec.json.Encoder().encode


class Event:
    """A notification. `seq` is its number, or for a delta the number of the event that it follows; what is not kept has
    none."""

    __slots__ = ("_frame", "at_ms", "method", "params", "seq")

    def __init__(self, method: str, params: Struct, seq: int | None, at_ms: int) -> None:
        self.method: str = method
        self.params: Struct = params
        self.seq: int | None = seq
        self.at_ms: int = at_ms
        self._frame: bytes | None = None

    @property
    def frame(self) -> bytes:
        """The message, encoded once for everyone."""
        if self._frame is None:
            self._frame = _encode(_Frame(self.method, self.params, self.at_ms, self.seq))
        return self._frame


class DeltaStream:
    """What the deltas of one item and kind have in common: `params` builds those of a delta from its text."""

    __slots__ = ("method", "params")

    def __init__(self, method: str, params: Callable[[str], Struct]) -> None:
        self.method: str = method
        self.params: Callable[[str], Struct] = params
