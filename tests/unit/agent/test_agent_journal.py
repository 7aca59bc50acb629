"""What was emitted first is told first, and nothing before it is kept."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from treadle.agent import MERGE_BEYOND, DeltaStream, Event, Journal
from treadle.store import Claim, Counters, Done, EventRecord, HistoryRecord, Loaded, StoreError, Write
from treadle.testing import thread

pytestmark = pytest.mark.anyio

NOTE = HistoryRecord("t", 1, 1, b"{}")


class Params(Struct):
    n: int = 0
    text: str = ""


class SlowStore:
    """Commits when it is told to."""

    held_until = math.inf

    def __init__(self) -> None:
        self.batches: list[list[Write]] = []
        self.fences: list[int] = []
        self.waiting: list[Done] = []
        self.after: list[int | None] = []
        self.claims: asyncio.Queue[Claim | StoreError] = asyncio.Queue()
        self.known: list[int] = []

    async def claim(self, thread_id: str, known_fence: int) -> Claim:
        self.known.append(known_fence)
        claim = await self.claims.get()
        if isinstance(claim, StoreError):
            raise claim
        return claim

    def submit(
        self, thread_id: str, fence: int, writes: Sequence[Write], done: Done, after_seq: int | None = None
    ) -> None:
        self.after.append(after_seq)
        self.fences.append(fence)
        self.batches.append(list(writes))
        self.waiting.append(done)

    def finish(self, error: StoreError | None = None) -> None:
        self.waiting.pop(0)(error)


class Bench:
    def __init__(self, seq: int = 0) -> None:
        self.store = SlowStore()
        self.told: list[Event] = []
        self.journal = Journal("t", self.store, self.told.append, seq=seq)  # type: ignore[arg-type]

    @property
    def methods(self) -> list[str]:
        return [event.method for event in self.told]

    async def turn_of_the_loop(self) -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)


GROWTH = DeltaStream("delta", lambda delta: Params(text=delta))


async def test_nothing_is_told_before_it_is_kept() -> None:
    bench = Bench()
    bench.journal.emit("a", Params(), NOTE)
    bench.journal.emit("b", Params())
    await bench.turn_of_the_loop()
    assert bench.told == []
    (batch,) = bench.store.batches
    assert [type(write) for write in batch] == [HistoryRecord, EventRecord, EventRecord]
    bench.store.finish()
    assert bench.methods == ["a", "b"]
    assert [event.seq for event in bench.told] == [1, 2]


async def test_the_frame_that_is_kept_is_the_one_that_is_told() -> None:
    bench = Bench(seq=41)
    bench.journal.emit("a", Params(n=1))
    await bench.turn_of_the_loop()
    (record,) = bench.store.batches[0]
    assert isinstance(record, EventRecord)
    bench.store.finish()
    assert record.frame == bench.told[0].frame
    frame = json.loads(record.frame)
    assert (frame["method"], frame["seq"], frame["params"]["n"]) == ("a", 42, 1)
    assert isinstance(frame["emittedAtMs"], int)


async def test_one_batch_is_under_way_at_a_time() -> None:
    bench = Bench()
    bench.journal.emit("a", Params())
    await bench.turn_of_the_loop()
    bench.journal.emit("b", Params())
    bench.journal.emit("c", Params())
    await bench.turn_of_the_loop()
    assert len(bench.store.batches) == 1
    bench.store.finish()
    assert bench.methods == ["a"]
    assert len(bench.store.batches) == 2
    bench.store.finish()
    assert bench.methods == ["a", "b", "c"]


async def test_a_delta_with_nothing_before_it_is_told_at_once() -> None:
    bench = Bench(seq=5)
    bench.journal.append(GROWTH, "x")
    assert [(event.method, event.seq) for event in bench.told] == [("delta", 5)]
    assert not bench.journal.busy


async def test_a_delta_waits_for_what_it_follows() -> None:
    bench = Bench()
    bench.journal.emit("a", Params())
    bench.journal.append(GROWTH, "x")
    bench.journal.emit("b", Params())
    bench.journal.append(GROWTH, "y")
    await bench.turn_of_the_loop()
    assert bench.told == []
    bench.store.finish()
    assert [(event.method, event.seq) for event in bench.told] == [("a", 1), ("delta", 1), ("b", 2), ("delta", 2)]


async def test_a_delta_is_not_published_when_another_server_may_have_the_thread() -> None:
    bench = Bench()
    bench.journal.emit("a", Params())
    bench.journal.append(GROWTH, "before")
    bench.journal.append(GROWTH, "before, too")
    await bench.turn_of_the_loop()
    bench.store.held_until = time.monotonic() - 1
    bench.store.finish()
    bench.journal.append(GROWTH, "after")
    assert bench.methods == ["a"]  # which was committed under its fence
    bench.store.held_until = math.inf
    bench.journal.append(GROWTH, "again")
    assert bench.methods == ["a", "delta"]


async def test_deltas_are_joined_when_many_wait() -> None:
    bench = Bench()
    bench.journal.emit("a", Params())
    texts = [chr(97 + n % 26) for n in range(10 * MERGE_BEYOND)]
    for text in texts:
        bench.journal.append(GROWTH, text)
    other = DeltaStream("delta", lambda delta: Params(text=delta))
    bench.journal.append(other, "!")
    await bench.turn_of_the_loop()
    bench.store.finish()
    assert len(bench.told) <= MERGE_BEYOND + 4
    assert "".join(json.loads(event.frame)["params"]["text"] for event in bench.told) == "".join(texts) + "!"
    assert json.loads(bench.told[-1].frame)["params"]["text"] == "!", "another item's deltas stay apart"


async def test_after_runs_in_its_place() -> None:
    bench = Bench()
    seen: list[list[str]] = []
    bench.journal.after(lambda: seen.append(bench.methods))
    assert seen == [[]], "at once, when nothing waits"
    bench.journal.emit("a", Params())
    bench.journal.after(lambda: seen.append(bench.methods))
    bench.journal.emit("b", Params())
    await bench.turn_of_the_loop()
    assert len(seen) == 1
    bench.store.finish()
    assert seen[1] == ["a"]


async def test_after_waits_for_a_write_that_nobody_is_told_of() -> None:
    bench = Bench()
    seen: list[str] = []
    bench.journal.write(NOTE)
    bench.journal.after(lambda: seen.append("kept"))
    await bench.turn_of_the_loop()
    assert seen == []
    bench.store.finish()
    assert seen == ["kept"]


async def test_a_failure_tells_nothing_more_until_reset() -> None:
    bench = Bench()
    done: list[str] = []
    bench.journal.emit("a", Params())
    bench.journal.after(lambda: done.append("after"))
    await bench.turn_of_the_loop()
    bench.journal.emit("b", Params())
    bench.store.finish(StoreError("disk full", "full"))
    assert bench.told == []
    assert done == ["after"], "whoever waits is not left waiting"
    with pytest.raises(StoreError, match="disk full"):
        bench.journal.emit("c", Params())
    with pytest.raises(StoreError, match="disk full"):
        bench.journal.write(NOTE)
    with pytest.raises(StoreError, match="disk full"):
        await bench.journal.flush()
    bench.journal.append(GROWTH, "x")
    assert bench.told == []
    bench.journal.publish_unnumbered("sorry", Params())
    assert bench.methods == ["sorry"]
    bench.journal.reset(loaded(seq=0, fence=3))
    bench.journal.emit("d", Params())
    await bench.turn_of_the_loop()
    bench.store.finish()
    assert [(event.method, event.seq) for event in bench.told] == [("sorry", None), ("d", 1)]


async def test_after_a_failure_the_number_is_that_of_the_last_kept_event() -> None:
    bench = Bench(seq=40)
    bench.journal.emit("a", Params())
    await bench.turn_of_the_loop()
    bench.journal.emit("b", Params())
    bench.journal.emit("c", Params())
    bench.store.finish()
    await bench.turn_of_the_loop()
    bench.journal.emit("d", Params())
    assert bench.journal.seq == 44
    bench.store.finish(StoreError("disk full", "full"))
    assert bench.journal.seq == 41
    assert [(event.method, event.seq) for event in bench.told] == [("a", 41)]


async def test_flush_waits_until_everything_is_told() -> None:
    bench = Bench()
    bench.journal.emit("a", Params())
    flushing = asyncio.ensure_future(bench.journal.flush())
    await bench.turn_of_the_loop()
    assert not flushing.done()
    bench.store.finish()
    await flushing
    assert bench.methods == ["a"]
    await bench.journal.flush()


async def two_under_way(bench: Bench) -> asyncio.Future[None]:
    """`a`, and behind it `b`, which somebody waits for."""
    bench.journal.emit("a", Params())
    await bench.turn_of_the_loop()
    bench.journal.emit("b", Params())
    flushing = asyncio.ensure_future(bench.journal.flush())
    await bench.turn_of_the_loop()
    return flushing


async def test_for_who_waits_a_second_batch_is_submitted_behind_the_first() -> None:
    bench = Bench(seq=7)
    flushing = await two_under_way(bench)
    assert bench.store.after == [7, 8], "the store keeps it only if the first was kept"
    bench.journal.emit("c", Params())
    more = asyncio.ensure_future(bench.journal.flush())
    await bench.turn_of_the_loop()
    assert len(bench.store.batches) == 2, "no more than two"
    bench.store.finish()
    assert bench.methods == ["a"]
    bench.store.finish()
    await flushing
    assert bench.methods == ["a", "b"]
    bench.store.finish()
    await more
    assert bench.methods == ["a", "b", "c"]


async def test_nothing_is_submitted_behind_writes_without_a_number() -> None:
    """The store could not tell that they were not kept."""
    bench = Bench()
    bench.journal.write(NOTE)
    await bench.turn_of_the_loop()
    bench.journal.emit("a", Params())
    flushing = asyncio.ensure_future(bench.journal.flush())
    await bench.turn_of_the_loop()
    assert len(bench.store.batches) == 1
    bench.store.finish()
    bench.store.finish()
    await flushing
    assert bench.methods == ["a"]


async def test_when_the_first_of_two_fails_the_second_is_given_up() -> None:
    bench = Bench(seq=7)
    flushing = await two_under_way(bench)
    bench.store.finish(StoreError("disk full", "full"))
    with pytest.raises(StoreError, match="disk full"):
        await flushing
    assert (bench.told, bench.journal.seq, bench.journal.busy) == ([], 7, False)
    await claimed(bench, Claim(9, loaded(seq=7, fence=9)))
    bench.journal.emit("c", Params())
    bench.store.finish(StoreError("event 8 was not kept"))
    assert bench.journal.failure is None
    await bench.turn_of_the_loop()
    bench.store.finish()
    assert [(event.method, event.seq) for event in bench.told] == [("c", 8)]
    assert bench.store.after == [7, 8, 7]


# --- claims ---


def loaded(seq: int, fence: int) -> Loaded:
    return Loaded(thread(), Counters(seq=seq), fence)


async def claimed(bench: Bench, claim: Claim | StoreError) -> Loaded | None:
    bench.store.claims.put_nowait(claim)
    return await bench.journal.claim()


async def test_writes_carry_the_fence_that_the_store_has_given() -> None:
    bench = Bench(seq=5)
    assert await claimed(bench, Claim(7, None)) is None
    bench.journal.emit("a", Params())
    await bench.turn_of_the_loop()
    bench.store.finish()
    news = loaded(seq=20, fence=11)
    assert await claimed(bench, Claim(11, news)) is news
    bench.journal.emit("b", Params())
    await bench.turn_of_the_loop()
    assert (bench.store.known, bench.store.fences) == ([0, 7], [7, 11])
    assert bench.journal.seq == 21


async def test_what_is_written_during_a_claim_is_written_under_it() -> None:
    bench = Bench()
    seen: list[str] = []
    claiming = asyncio.ensure_future(bench.journal.claim())
    await bench.turn_of_the_loop()
    bench.journal.after(lambda: seen.append("before"))
    bench.journal.write(NOTE)
    bench.journal.after(lambda: seen.append("after"))
    await bench.turn_of_the_loop()
    assert (bench.store.batches, seen) == ([], [])
    bench.store.claims.put_nowait(Claim(4, None))
    await claiming
    assert (bench.store.batches, bench.store.fences, seen) == ([[NOTE]], [4], ["before"])
    bench.store.finish()
    assert seen == ["before", "after"]


async def test_what_is_written_during_a_claim_is_dropped_when_somebody_else_has_written() -> None:
    bench = Bench()
    seen: list[str] = []
    claiming = asyncio.ensure_future(bench.journal.claim())
    await bench.turn_of_the_loop()
    bench.journal.write(NOTE)
    bench.journal.after(lambda: seen.append("after"))
    bench.store.claims.put_nowait(Claim(4, loaded(seq=9, fence=4)))
    await claiming
    assert (bench.store.batches, seen, bench.journal.busy) == ([], ["after"], False)
    bench.journal.emit("a", Params())
    await bench.turn_of_the_loop()
    bench.store.finish()
    assert [event.seq for event in bench.told] == [10]


async def test_a_claim_waits_for_what_is_under_way() -> None:
    bench = Bench()
    bench.journal.write(NOTE)
    claiming = asyncio.ensure_future(claimed(bench, Claim(1, None)))
    await bench.turn_of_the_loop()
    assert (bench.store.known, len(bench.store.batches)) == ([], 1)
    bench.store.finish()
    await claiming
    assert bench.store.known == [0]


async def test_a_claim_that_is_refused_leaves_the_journal_as_it_was() -> None:
    bench = Bench()
    with pytest.raises(StoreError, match="another"):
        await claimed(bench, StoreError("another", "claimed"))
    bench.journal.emit("a", Params())
    await bench.turn_of_the_loop()
    bench.store.finish()
    assert (bench.methods, bench.store.fences) == (["a"], [0])


async def test_after_a_failure_a_claim_asks_for_everything() -> None:
    bench = Bench(seq=3)
    bench.journal.emit("a", Params())
    await bench.turn_of_the_loop()
    bench.store.finish(StoreError("taken over", "stale"))
    assert bench.journal.is_stale
    bench.journal.release()
    assert bench.store.fences == [0, 0]
    await claimed(bench, Claim(9, loaded(seq=30, fence=9)))
    assert (bench.store.known, bench.journal.failure, bench.journal.seq) == ([-1], None, 30)


steps = st.lists(st.sampled_from(["emit", "grow", "write", "after", "place", "flush", "loop", "finish"]), max_size=60)


@given(steps)
def test_the_order_is_that_of_the_calls(todo: list[str]) -> None:
    asyncio.run(_play(todo))


async def _play(todo: list[str]) -> None:
    bench = Bench()
    journal, store = bench.journal, bench.store
    expected: list[Any] = []
    seen: list[Any] = []
    journal._publish = lambda event: seen.append((event.method, event.seq))
    numbers = iter(range(1000))
    flushes: list[asyncio.Future[None]] = []
    for step in todo:
        number = next(numbers)
        match step:
            case "emit":
                journal.emit(f"e{number}", Params())
                expected.append((f"e{number}", journal.seq))
            case "grow":
                journal.append(DeltaStream(f"d{number}", lambda delta: Params(text=delta)), "x")
                expected.append((f"d{number}", journal.seq))
            case "write":
                journal.write(NOTE)
            case "after":
                journal.after(lambda number=number: seen.append(number))  # type: ignore[misc]
                expected.append(number)
            case "place":
                place = journal.barrier()
                if place.done():  # then whoever waits for it does not wait
                    seen.append(number)
                else:
                    place.add_done_callback(lambda _, number=number: seen.append(number))  # type: ignore[misc]
                expected.append(number)
            case "flush":
                flushes.append(asyncio.ensure_future(journal.flush()))
            case "loop":
                await bench.turn_of_the_loop()
            case "finish":
                if store.waiting:
                    store.finish()
        assert len(store.waiting) <= 2
        done = store.batches[: len(store.batches) - len(store.waiting)]
        kept = sum(isinstance(write, EventRecord) for batch in done for write in batch)
        assert sum(isinstance(entry, tuple) and entry[0][0] == "e" for entry in seen) <= kept
    while journal.busy:
        await bench.turn_of_the_loop()
        if store.waiting:
            store.finish()
    await asyncio.gather(*flushes)
    await bench.turn_of_the_loop()
    assert seen == expected
    assert store.after == [max(0, *_numbers(store.batches[:number])) for number in range(len(store.batches))]


def _numbers(batches: list[list[Write]]) -> list[int]:
    """Of all events in these."""
    return [0, *(write.seq for batch in batches for write in batch if isinstance(write, EventRecord))]
