"""`EventLog`: numbered events with bounded retention, read late or live without gap or repeat.

One primitive for processes, turns and runs. It owns numbering, eviction, wake-ups and the account of how far the
slowest reader is behind. It knows nothing of what the events mean, and it belongs to one event loop: no locks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

E = TypeVar("E")

DEFAULT_MAX_BYTES = 1 << 20
DEFAULT_MAX_EVENTS = 50_000


class Gap(NamedTuple):
    """Numbers `first` to `last` have been evicted."""

    first: int
    last: int


class Numbered(NamedTuple, Generic[E]):
    seq: int
    event: E


class LogStats(NamedTuple):
    next_seq: int
    retained_events: int
    retained_bytes: int
    evicted_events: int
    backlog_bytes: int
    cursors: int


class _Entry(NamedTuple, Generic[E]):
    event: E
    size: int
    end: int  # bytes appended to the log up to and including this event
    keep: bool


class EventLog(Generic[E]):
    """An append-only log that numbers its events from 1.

    Retention: the oldest events go when more than `max_bytes` or `max_events` are held, except those appended with
    `keep=True` (the owner promises that they are few). Readers get a `Gap` for what was dropped.

    Flow: `full` is true while the slowest cursor is more than `high_water` bytes behind. A producer that can stop its
    source does so while the log is full and goes on when it `has_room`; `on_progress` is called when a reader moved.
    """

    def __init__(
        self,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        max_events: int = DEFAULT_MAX_EVENTS,
        high_water: int | None = None,
    ) -> None:
        self._max_bytes = max_bytes
        self._max_events = max_events
        self._high_water = max_bytes // 2 if high_water is None else high_water
        self._entries: deque[_Entry[E]] = deque()
        self._kept: dict[int, E] = {}
        self._first_seq = 1
        self._bytes = 0
        self._total = 0
        self._evicted = 0
        self._closed = False
        self._waiters: set[asyncio.Future[None]] = set()
        self._cursors: set[Cursor[E]] = set()
        self.on_progress: Callable[[], None] | None = None

    @property
    def next_seq(self) -> int:
        """The number that the next event will get."""
        return self._first_seq + len(self._entries)

    @property
    def last_seq(self) -> int:
        return self._first_seq + len(self._entries) - 1

    @property
    def closed(self) -> bool:
        return self._closed

    def append(self, event: E, size: int = 0, *, keep: bool = False) -> int:
        """Add an event and return its number."""
        if self._closed:
            raise RuntimeError("the log is closed: nothing can be appended after its last event")
        self._total += size
        self._bytes += size
        self._entries.append(_Entry(event, size, self._total, keep))
        seq = self.last_seq
        while self._bytes > self._max_bytes or len(self._entries) > self._max_events:
            self._evict()
        self._wake()
        return seq

    def discard(self, seq: int) -> None:
        """Retain nothing up to this number: there will be no later reader for it."""
        while self._entries and self._first_seq <= seq:
            self._evict()

    def _evict(self) -> None:
        entry = self._entries.popleft()
        self._bytes -= entry.size
        if entry.keep:
            self._kept[self._first_seq] = entry.event
        else:
            self._evicted += 1
        self._first_seq += 1

    def close(self) -> None:
        """No more events will come: readers end after the last one."""
        if not self._closed:
            self._closed = True
            self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        for cursor in tuple(self._cursors):
            if cursor.notify is not None:
                cursor.notify()

    def retained(self, after_seq: int = 0) -> Iterator[Numbered[E]]:
        """The events after `after_seq` that are still here, oldest first."""
        for seq in sorted(self._kept):
            if seq > after_seq:
                yield Numbered(seq, self._kept[seq])
        skip = max(0, after_seq + 1 - self._first_seq)
        for seq, entry in enumerate(islice(self._entries, skip, None), self._first_seq + skip):
            yield Numbered(seq, entry.event)

    def missing(self, after_seq: int = 0) -> Gap | None:
        """The first run of numbers after `after_seq` that has been evicted."""
        seq = after_seq + 1
        while seq < self._first_seq:
            if seq not in self._kept:
                return self._gap_at(seq)
            seq += 1
        return None

    def _gap_at(self, seq: int) -> Gap:
        later = [kept for kept in self._kept if kept > seq]
        return Gap(seq, min([*later, self._first_seq]) - 1)

    async def wait(self, after_seq: int) -> None:
        """Return when there is an event after `after_seq`, or when the log is closed."""
        while self.last_seq <= after_seq and not self._closed:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)

    def cursor(self, after_seq: int = 0, *, notify: Callable[[], None] | None = None) -> Cursor[E]:
        """A reading position that the flow account waits for until it is closed."""
        cursor = Cursor(self, after_seq, notify)
        self._cursors.add(cursor)
        return cursor

    @property
    def backlog(self) -> int:
        """How many bytes the slowest cursor has not taken yet; 0 without cursors."""
        last = self.last_seq
        return max((self._total - cursor.consumed for cursor in self._cursors if cursor.position < last), default=0)

    @property
    def full(self) -> bool:
        return self.backlog > self._high_water

    @property
    def has_room(self) -> bool:
        """Half the mark, so that a producer is not stopped and started for every event."""
        return self.backlog <= self._high_water // 2

    @property
    def consumed_bytes(self) -> int:
        """How many bytes every reader is done with."""
        return self._total - self.backlog

    @property
    def consumed_seq(self) -> int:
        """The last number that every reader is done with."""
        return min((cursor.position for cursor in self._cursors), default=self.last_seq)

    def stats(self) -> LogStats:
        return LogStats(self.next_seq, len(self._entries), self._bytes, self._evicted, self.backlog, len(self._cursors))

    def _cursor_moved(self) -> None:
        if self.on_progress is not None:
            self.on_progress()

    def _take(self, cursor: Cursor[E]) -> Numbered[E] | Gap | None:
        seq = cursor.position + 1
        index = seq - self._first_seq
        if index >= len(self._entries):
            return None
        if index >= 0:
            entry = self._entries[index]
            cursor.position, cursor.consumed = seq, entry.end
            return Numbered(seq, entry.event)
        item = Numbered(seq, self._kept[seq]) if seq in self._kept else self._gap_at(seq)
        cursor.position = item.last if isinstance(item, Gap) else seq
        cursor.consumed = self._offset_after(cursor.position)
        return item

    def _offset_after(self, seq: int) -> int:
        """How many bytes had been appended when event `seq` was the last."""
        index = seq - self._first_seq
        if index >= len(self._entries):
            return self._total
        if index >= 0:
            return self._entries[index].end
        return self._total - self._bytes


class Cursor(Generic[E]):
    """A position in a log. `notify` is called, without arguments, after every append and at the close."""

    __slots__ = ("_log", "consumed", "notify", "position")

    def __init__(self, log: EventLog[E], after_seq: int, notify: Callable[[], None] | None) -> None:
        self._log = log
        self.position: int = after_seq
        self.consumed: int = log._offset_after(after_seq)
        self.notify = notify

    def take(self) -> Numbered[E] | Gap | None:
        """The next event, the gap in its place, or None when there is nothing yet."""
        item = self._log._take(self)
        if item is not None:
            self._log._cursor_moved()
        return item

    def advance(self, seq: int) -> None:
        """Move to `seq` without looking at the events in between; never backwards."""
        seq = min(seq, self._log.last_seq)
        if seq > self.position:
            self.position = seq
            self.consumed = self._log._offset_after(seq)
            self._log._cursor_moved()

    @property
    def is_open(self) -> bool:
        return self in self._log._cursors

    def close(self) -> None:
        """Stop counting in the flow account. Idempotent."""
        self.notify = None
        if self in self._log._cursors:
            self._log._cursors.discard(self)
            self._log._cursor_moved()


class Subscription(Generic[E]):
    """An async iterator over a log: first what is retained, then what comes, until the log closes.

    Dropping it, or `close()`, releases its hold on the producer.
    """

    def __init__(self, log: EventLog[E], after_seq: int = 0) -> None:
        self._log = log
        self._cursor = log.cursor(after_seq)
        self._loop = asyncio.get_running_loop()

    def __aiter__(self) -> Subscription[E]:
        return self

    async def __anext__(self) -> Numbered[E] | Gap:
        while True:
            item = self._cursor.take()
            if item is not None:
                return item
            if self._log.closed:
                self.close()
                raise StopAsyncIteration
            await self._log.wait(self._cursor.position)

    def close(self) -> None:
        self._cursor.close()

    def __del__(self) -> None:
        # The garbage collector may run in any thread, and closing wakes the producer.
        if self._cursor.is_open and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._cursor.close)
