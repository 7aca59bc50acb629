"""`Event`: a notification about a thread, and how it looks on the wire; ids and times for whatever happens in one.

Thread, turn and message ids are UUIDs of version 7: they sort by the time they were made.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Protocol

import msgspec
from msgspec import Struct

_last = 0
# Unique, not secret: a system call for each id would cost more than the rest of it.
_random = Random()


def new_id() -> str:
    """A new UUIDv7; later ones of one process are greater, also within a millisecond."""
    global _last
    # 48 bits of milliseconds, then 12 bits below them, so that ids of one millisecond keep their order.
    stamp = max(time.time_ns() * 4096 // 1_000_000, _last + 1)
    _last = stamp
    number = (stamp >> 12) << 80 | 7 << 76 | (stamp & 0xFFF) << 64 | 2 << 62 | _random.getrandbits(62)
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class EventFrame(Struct, omit_defaults=True):
    """The message that a client is sent."""

    method: str
    params: Struct
    emittedAtMs: int
    seq: int | None = None


encode_frame: Callable[[EventFrame], bytes] = msgspec.json.Encoder().encode


class Event(Struct, eq=False):
    """A notification. `seq` is its number, or for a delta the number of the event that it follows; what is not stored
    has none."""

    method: str
    params: Struct
    seq: int | None
    at_ms: int
    encoded: bytes | None = None

    @property
    def frame(self) -> bytes:
        """The message, encoded once for everyone."""
        if self.encoded is None:
            self.encoded = encode_frame(EventFrame(self.method, self.params, self.at_ms, self.seq))
        return self.encoded


class _DeltaParams(Protocol):
    def __call__(self, *, delta: str) -> Struct: ...


class DeltaStream(Struct, eq=False):
    """What the deltas of one item and kind have in common: `params` builds those of a delta from its text."""

    method: str
    params: _DeltaParams
