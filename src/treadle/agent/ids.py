"""Ids and times. Thread, turn and message ids are UUIDs of version 7: they sort by the time they were made."""

from __future__ import annotations

import time
from random import Random

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
