"""Putting pushed and fetched events in order. Pure.

A server may push out of order (the real Codex one does), and after a reconnect the same events can come twice: once
pushed, once read. Each number is let through once, in order.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from treadle.errors import TreadleError

E = TypeVar("E")

MAX_HELD_EVENTS = 1024
MAX_HELD_BYTES = 4 << 20


class TooFarAhead(TreadleError):
    """More is held than can be waiting for honest reasons: the missing event will not come."""


class ReorderBuffer(Generic[E]):
    """`offer` events in any order; get them back in order."""

    def __init__(self, next_seq: int = 1) -> None:
        self.next_seq: int = next_seq
        self._held: dict[int, tuple[E, int]] = {}
        self._held_bytes = 0

    def offer(self, seq: int, event: E, size: int = 0) -> list[E]:
        """The events that can go out now."""
        if seq < self.next_seq or seq in self._held:
            return []
        if seq > self.next_seq:
            self._held[seq] = (event, size)
            self._held_bytes += size
            if len(self._held) > MAX_HELD_EVENTS or self._held_bytes > MAX_HELD_BYTES:
                raise TooFarAhead(f"event {self.next_seq} is missing and {len(self._held)} later ones have come")
            return []
        ready = [event]
        self.next_seq += 1
        while self.next_seq in self._held:
            held, held_size = self._held.pop(self.next_seq)
            self._held_bytes -= held_size
            ready.append(held)
            self.next_seq += 1
        return ready
