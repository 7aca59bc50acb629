"""`EventLog` against a plain list: nothing lost, nothing doubled, gaps exact, bounds kept, the flow account right."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from treadle.events import Cursor, EventLog, Gap, Numbered, Subscription

pytestmark = pytest.mark.anyio

MAX_BYTES = 100
MAX_EVENTS = 8
HIGH_WATER = 50
DEADLINE_S = 30


@dataclass
class Written:
    """An event as the model remembers it, for ever."""

    name: str
    size: int
    keep: bool


@dataclass
class Reader:
    """A cursor and where the model thinks it is."""

    cursor: Cursor[str]
    position: int
    consumed: int


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.log: EventLog[str] = EventLog(max_bytes=MAX_BYTES, max_events=MAX_EVENTS, high_water=HIGH_WATER)
        self.log.on_progress = self._progressed
        self.progress = 0
        self.written: list[Written] = []
        self.first = 1  # everything before it is gone, unless it was to be kept
        self.readers: list[Reader] = []

    def _progressed(self) -> None:
        self.progress += 1

    # --- the model ---

    def _here(self, seq: int) -> bool:
        return seq >= self.first or self.written[seq - 1].keep

    def _bytes_before(self, seq: int) -> int:
        return sum(event.size for event in self.written[: seq - 1])

    def _offset(self, position: int) -> int:
        """Bytes that a reader at `position` need not wait for: read, or gone."""
        return max(self._bytes_before(position + 1), self._bytes_before(self.first))

    def _next(self, position: int) -> Numbered[str] | Gap | None:
        seq = position + 1
        if seq > len(self.written):
            return None
        if self._here(seq):
            return Numbered(seq, self.written[seq - 1].name)
        last = seq
        while last < len(self.written) and not self._here(last + 1):
            last += 1
        return Gap(seq, last)

    # --- what can happen ---

    @precondition(lambda self: not self.log.closed)
    @rule(size=st.integers(0, MAX_BYTES + 20), keep=st.sampled_from([False, False, False, True]))
    def append(self, size: int, keep: bool) -> None:
        name = f"event {len(self.written) + 1}"
        self.written.append(Written(name, size, keep))
        assert self.log.append(name, size, keep=keep) == len(self.written)
        while (
            self._bytes_before(len(self.written) + 1) - self._bytes_before(self.first) > MAX_BYTES
            or len(self.written) + 1 - self.first > MAX_EVENTS
        ):
            self.first += 1

    @rule(after=st.integers(0, 30))
    def open(self, after: int) -> None:
        self.readers.append(Reader(self.log.cursor(after), after, self._offset(after)))

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), times=st.integers(1, 5))
    def take(self, data: st.DataObject, times: int) -> None:
        reader = data.draw(st.sampled_from(self.readers))
        for _ in range(times):
            self._take(reader)

    def _take(self, reader: Reader) -> Numbered[str] | Gap | None:
        expected, before = self._next(reader.position), self.progress
        assert reader.cursor.take() == expected
        assert self.progress - before == (expected is not None)
        if isinstance(expected, Gap):
            reader.position = expected.last
        elif expected is not None:
            reader.position = expected.seq
        if expected is not None:
            reader.consumed = self._offset(reader.position)
        return expected

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), seq=st.integers(0, 30))
    def advance(self, data: st.DataObject, seq: int) -> None:
        reader = data.draw(st.sampled_from(self.readers))
        before = self.progress
        reader.cursor.advance(seq)
        target = min(seq, len(self.written))
        assert self.progress - before == (target > reader.position)
        if target > reader.position:
            reader.position = target
            reader.consumed = self._offset(target)

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def close_reader(self, data: st.DataObject) -> None:
        reader = data.draw(st.sampled_from(self.readers))
        self.readers.remove(reader)
        before = self.progress
        reader.cursor.close()
        reader.cursor.close()
        assert self.progress - before == 1

    @rule(seq=st.integers(0, 30))
    def discard(self, seq: int) -> None:
        self.log.discard(seq)
        self.first = max(self.first, min(seq, len(self.written)) + 1)

    @rule()
    def close(self) -> None:
        self.log.close()

    # --- what must be true ---

    @invariant()
    def numbers_are_gapless(self) -> None:
        assert self.log.last_seq == len(self.written)
        assert self.log.next_seq == len(self.written) + 1

    @invariant()
    def bounds_are_kept(self) -> None:
        stats = self.log.stats()
        assert stats.retained_events == len(self.written) + 1 - self.first <= MAX_EVENTS
        assert stats.retained_bytes == sum(event.size for event in self.written[self.first - 1 :]) <= MAX_BYTES
        assert stats.evicted_events == sum(not event.keep for event in self.written[: self.first - 1])
        assert stats.cursors == len(self.readers)

    @invariant()
    def history_is_what_is_here(self) -> None:
        for after in (0, self.first - 1, self.first, len(self.written), len(self.written) + 3):
            numbers = [seq for seq in range(after + 1, len(self.written) + 1) if self._here(seq)]
            assert list(self.log.retained(after)) == [Numbered(seq, self.written[seq - 1].name) for seq in numbers]

    @invariant()
    def the_missing_are_told(self) -> None:
        for after in range(len(self.written) + 2):
            gone = [seq for seq in range(after + 1, len(self.written) + 1) if not self._here(seq)]
            expected = self._next(gone[0] - 1) if gone else None
            assert self.log.missing(after) == expected

    @invariant()
    def the_flow_account_is_right(self) -> None:
        total = self._bytes_before(len(self.written) + 1)
        backlog = max((total - r.consumed for r in self.readers if r.position < len(self.written)), default=0)
        assert self.log.backlog == self.log.stats().backlog_bytes == backlog
        assert self.log.consumed_bytes == total - backlog
        assert self.log.consumed_seq == min((reader.position for reader in self.readers), default=len(self.written))
        assert self.log.full == (backlog > HIGH_WATER)
        assert self.log.has_room == (backlog <= HIGH_WATER // 2)

    def teardown(self) -> None:
        for reader in self.readers:
            number = reader.position
            while (item := self._take(reader)) is not None:
                first, last = (item.first, item.last) if isinstance(item, Gap) else (item.seq, item.seq)
                assert first == number + 1
                number = last
            assert number >= len(self.written)
        assert self.log.backlog == 0


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=75, stateful_step_count=40, deadline=None)


def test_event_larger_than_the_log_does_not_stop_the_producer_for_ever() -> None:
    log: EventLog[str] = EventLog(max_bytes=10, high_water=5)
    cursor = log.cursor()
    log.append("too big", 20)
    assert cursor.take() == Gap(1, 1)
    assert not log.full
    assert log.consumed_bytes == 20


def test_cursor_for_the_future_does_not_stop_the_producer() -> None:
    log: EventLog[str] = EventLog(max_bytes=10, high_water=5)
    cursor = log.cursor(after_seq=3)
    for name in ("one", "two", "three"):
        log.append(name, 4)
        assert not log.full
        assert cursor.take() is None
    log.append("four", 4)
    assert cursor.take() == Numbered(4, "four")


def test_append_after_close_is_refused() -> None:
    log: EventLog[str] = EventLog()
    log.close()
    with pytest.raises(RuntimeError, match="closed"):
        log.append("late")
    assert log.next_seq == 1


def test_notify_is_called_for_every_append_and_the_close_until_the_cursor_closes() -> None:
    log: EventLog[str] = EventLog()
    seen: list[int] = []
    cursor = log.cursor(notify=lambda: seen.append(log.last_seq))
    other = log.cursor(notify=lambda: seen.append(-1))
    other.close()
    log.append("a")
    log.append("b")
    log.close()
    log.close()
    cursor.close()
    assert seen == [1, 2, 2]


def test_notified_cursor_may_take_and_close_at_once() -> None:
    log: EventLog[str] = EventLog()
    taken: list[object] = []

    def notified() -> None:
        taken.append(cursor.take())
        cursor.close()

    cursor = log.cursor(notify=notified)
    log.append("a")
    log.append("b")
    assert taken == [Numbered(1, "a")]
    assert log.stats().cursors == 0


# --- waiting ---------------------------------------------------------------------------------------------------------


async def test_wait_returns_at_once_when_there_is_something() -> None:
    log: EventLog[str] = EventLog()
    log.append("a")
    async with asyncio.timeout(DEADLINE_S):
        await log.wait(0)
        log.close()
        await log.wait(1)
        await log.wait(100)


async def test_wait_wakes_all_waiters_for_the_right_event() -> None:
    log: EventLog[str] = EventLog()
    early = [asyncio.create_task(log.wait(0)) for _ in range(3)]
    late = asyncio.create_task(log.wait(1))
    await _turns()
    log.append("a")
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*early)
    await _turns()
    assert not late.done()
    log.append("b")
    async with asyncio.timeout(DEADLINE_S):
        await late


async def test_cancelled_waiters_leave_nothing_behind() -> None:
    log: EventLog[str] = EventLog()
    waiters = [asyncio.create_task(log.wait(0)) for _ in range(10)]
    await _turns()
    assert len(log._waiters) == 10
    for waiter in waiters:
        waiter.cancel()
    await asyncio.gather(*waiters, return_exceptions=True)
    assert not log._waiters
    log.append("a")  # wakes nobody, and does not fail on the cancelled ones


async def test_waiter_cancelled_in_the_turn_of_the_append_is_cancelled() -> None:
    log: EventLog[str] = EventLog()
    waiter = asyncio.create_task(log.wait(0))
    await _turns()
    waiter.cancel()
    log.append("a")
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert not log._waiters


# --- subscriptions ---------------------------------------------------------------------------------------------------


async def test_subscription_gives_history_then_live_then_ends() -> None:
    log: EventLog[int] = EventLog()
    log.append(10)
    subscription = Subscription(log)

    async def read() -> list[Numbered[int] | Gap]:
        return [item async for item in subscription]

    reading = asyncio.create_task(read())
    await _turns()
    log.append(20)
    await _turns()
    log.append(30)
    log.close()
    async with asyncio.timeout(DEADLINE_S):
        assert await reading == [Numbered(1, 10), Numbered(2, 20), Numbered(3, 30)]
    assert log.stats().cursors == 0


async def test_subscriber_after_the_close_gets_what_is_retained_and_the_gap() -> None:
    log: EventLog[int] = EventLog(max_events=2)
    for number in range(1, 6):
        log.append(number)
    log.close()
    items = [item async for item in Subscription(log, after_seq=1)]
    assert items == [Gap(2, 3), Numbered(4, 4), Numbered(5, 5)]


async def test_dropped_subscription_releases_its_hold() -> None:
    log: EventLog[str] = EventLog(max_bytes=100, high_water=50)
    freed: list[bool] = []
    log.on_progress = lambda: freed.append(log.has_room)
    subscription = Subscription(log)
    log.append("much", 60)
    assert log.full
    del subscription
    gc.collect()
    await _turns()
    assert not log.full
    assert freed == [True]
    assert log.stats().cursors == 0


async def test_breaking_out_of_a_subscription_releases_its_hold() -> None:
    log: EventLog[str] = EventLog(max_bytes=100, high_water=50)
    log.append("first", 10)
    async for _ in Subscription(log):
        break
    await _turns()
    log.append("more", 60)
    assert log.stats().cursors == 0
    assert not log.full


async def test_cancelled_reader_of_a_subscription_releases_its_hold() -> None:
    log: EventLog[str] = EventLog()

    async def read() -> None:
        async for _ in Subscription(log):
            pass

    task = asyncio.create_task(read())
    await _turns()
    assert log.stats().cursors == 1
    task.cancel()
    await asyncio.wait([task])
    del task
    gc.collect()
    await _turns()
    assert log.stats().cursors == 0
    assert not log._waiters


async def test_cancelled_read_loses_no_event() -> None:
    log: EventLog[int] = EventLog()
    subscription = Subscription(log)
    items: list[Numbered[int] | Gap] = []
    cancelled = 0
    for number in range(1, 20):
        reading = asyncio.create_task(subscription.__anext__())
        await _turns()
        if number % 3:
            reading.cancel()
        log.append(number)
        await asyncio.wait([reading])
        cancelled += reading.cancelled()
        if not reading.cancelled():
            items.append(reading.result())
    log.close()
    items += [item async for item in subscription]
    assert items == [Numbered(number, number) for number in range(1, 20)]
    assert cancelled


async def _turns() -> None:
    """Let every task that can run do so."""
    for _ in range(5):
        await asyncio.sleep(0)
