"""What a store must do when a server is stopped, cut off, or does not hear what has become of its writes.

The checks are those functions that take a `store` (see `store_checks`); most also take `faults`, which bring about what
cannot be brought about by the interface.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Protocol

from treadle.store.contract import Counters, Loaded, Release, Store, StoreError
from treadle.testing.store_checks import A, commit, event, events_of, item, refusal, thread, turn

# For what comes after a halt or a loss, on a busy machine.
_DEADLINE_S = 30.0


class StoreFaults(Protocol):
    """What may happen to a server that has a store open."""

    async def halt(self, store: Store) -> None:
        """Bring it to a halt, as a process that is stopped, wherever it is; returns when its lease has run out."""

    async def go_on(self, store: Store) -> None:
        """Let one that was halted go on."""

    async def lose_answer(self, store: Store) -> None:
        """The answer to its next write is lost, when the write is made. Where an answer cannot be lost: nothing."""


async def a_store_knows_who_has_it_open(store: Store, other: Store) -> None:
    before = {server.id for server in await store.servers()}
    assert len(before) >= 2, before
    assert before == {server.id for server in await other.servers()}
    assert all(server.alive and server.name for server in await store.servers())
    await other.close()
    left = {server.id for server in await store.servers() if server.alive}
    assert left < before


async def the_owner_of_a_thread_is_who_has_claimed_it(store: Store, other: Store) -> None:
    await commit(store, thread())
    assert await store.owner_of(A) is None
    await other.claim(A, -1)
    owner = await store.owner_of(A)
    assert owner is not None
    assert owner == await other.owner_of(A) or owner.id in {server.id for server in await other.servers()}
    assert owner.alive
    await commit(other, Release(A))
    assert await store.owner_of(A) is None
    assert await store.owner_of("unknown") is None


async def an_epoch_is_the_same_for_all(store: Store, other: Store) -> None:
    assert store.epoch == other.epoch != ""
    await commit(store, thread(), event(1))
    assert (await other.events(A, 0, 9)).epoch == store.epoch


async def what_is_claimed_is_surely_held_for_a_while(store: Store) -> None:
    await commit(store, thread())
    await store.claim(A, -1)
    assert store.held_until > time.monotonic()


async def a_lease_that_runs_out_lets_another_take_over(store: Store, other: Store, faults: StoreFaults) -> None:
    await commit(store, thread())
    late = (await store.claim(A, -1)).fence
    await store.commit(A, late, [turn(1, status="inProgress"), event(1)])
    await faults.halt(store)
    try:
        assert store.held_until < time.monotonic()
        owner = await other.owner_of(A)
        assert owner is not None
        assert not owner.alive
        claim = await other.claim(A, -1)
        assert claim.news == Loaded(thread(), Counters(seq=1, turn=1), claim.fence)
        assert [found.status for found in await other.turns(A)] == ["interrupted"]
        await other.commit(A, claim.fence, [event(2), item(1)])
    finally:
        await faults.go_on(store)
    async with asyncio.timeout(_DEADLINE_S):
        assert (await refusal(store, A, late, event(3))).kind == "stale"
    assert [found.seq for found in (await events_of(other, A, 0, 9)).events] == [1, 2]


async def an_owner_that_is_halted_in_the_middle_of_its_writes_loses_none_that_it_reported(
    store: Store, other: Store, faults: StoreFaults
) -> None:
    await commit(store, thread())
    late = (await store.claim(A, -1)).fence
    ended: list[tuple[int, StoreError | None]] = []
    all_ended = asyncio.Event()
    for number in range(1, 301):

        def done(error: StoreError | None, number: int = number) -> None:
            ended.append((number, error))
            if len(ended) == 300:
                all_ended.set()

        store.submit(A, late, [event(number)], done, number - 1)
        if number % 100 == 0:
            await asyncio.sleep(0)
    await faults.halt(store)
    try:
        claim = await other.claim(A, -1)
        assert claim.news is not None
        last = claim.news.counters.seq
        await other.commit(A, claim.fence, [event(last + 1, frame=b'"of the heir"')])
    finally:
        await faults.go_on(store)
    async with asyncio.timeout(_DEADLINE_S):
        await all_ended.wait()
    assert [number for number, _ in ended] == list(range(1, 301))
    assert [number for number, error in ended if error is None] == list(range(1, last + 1))
    found = (await events_of(other, A, 0, 400)).events
    assert [each.seq for each in found] == list(range(1, last + 2))
    assert found[-1].frame == b'"of the heir"'


async def a_write_whose_answer_is_lost_is_made_once_or_its_caller_is_told(store: Store, faults: StoreFaults) -> None:
    await commit(store, thread())
    fence = (await store.claim(A, -1)).fence
    for number in range(1, 6):
        await faults.lose_answer(store)
        kind = await _outcome(store.commit(A, fence, [event(number), item(number)]))
        loaded = await store.load(A)
        assert loaded is not None
        assert kind in ("done", "unknown"), kind
        if kind == "unknown" and loaded.counters.seq < number:
            await store.commit(A, fence, [event(number), item(number)])
    assert [each.seq for each in (await events_of(store, A, 0, 9)).events] == [1, 2, 3, 4, 5]
    assert [each.number for each in await store.items(A)] == [1, 2, 3, 4, 5]
    # A claim whose answer is lost is held by nobody else, and can be had again.
    await faults.lose_answer(store)
    assert await _outcome(store.claim(A, fence)) in ("done", "unknown")
    again = await store.claim(A, -1)
    await store.commit(A, again.fence, [event(6), Release(A)])


async def clocks_that_differ_change_nothing(store: Store, other: Store) -> None:
    await commit(store, thread())
    for hours in (-48, 48):
        with _wall_clock(hours * 3600.0):
            fence = (await store.claim(A, -1)).fence
            assert await _outcome(other.claim(A, -1)) == "claimed"
            owner = await other.owner_of(A)
            assert owner is not None
            assert owner.alive
            await store.commit(A, fence, [Release(A)])


async def _outcome(call: Awaitable[object]) -> str:
    try:
        await call
    except StoreError as error:
        return error.kind
    return "done"


@contextmanager
def _wall_clock(ahead_s: float) -> Iterator[None]:
    """The time of day is another in this process; what counts seconds goes on as before."""
    clock, clock_ns = time.time, time.time_ns
    time.time, time.time_ns = lambda: clock() + ahead_s, lambda: clock_ns() + int(ahead_s * 1e9)
    try:
        yield
    finally:
        time.time, time.time_ns = clock, clock_ns
