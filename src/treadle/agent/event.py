"""`Event`: a notification about a thread, and how it looks on the wire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec
from msgspec import Struct


class Frame(Struct, omit_defaults=True):
    """The message that a client is sent."""

    method: str
    params: Struct
    emittedAtMs: int
    seq: int | None = None


encode_frame: Callable[[Frame], bytes] = msgspec.json.Encoder().encode


class Event(Struct, eq=False):
    """A notification. `seq` is its number, or for a delta the number of the event that it follows; what is not kept has
    none."""

    method: str
    params: Struct
    seq: int | None
    at_ms: int
    encoded: bytes | None = None

    @property
    def frame(self) -> bytes:
        """The message, encoded once for everyone."""
        if self.encoded is None:
            self.encoded = encode_frame(Frame(self.method, self.params, self.at_ms, self.seq))
        return self.encoded


class _DeltaParams(Protocol):
    def __call__(self, *, delta: str) -> Struct: ...


class DeltaStream(Struct, eq=False):
    """What the deltas of one item and kind have in common: `params` builds those of a delta from its text."""

    method: str
    params: _DeltaParams
