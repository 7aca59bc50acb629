"""Claims and fences, of one store and of two on the same threads; the end of a store."""

from __future__ import annotations

import asyncio
from typing import Any

from treadle.store.contract import (
    Claim,
    Compaction,
    Counters,
    CutTurns,
    DeleteThread,
    DropItem,
    EventPage,
    Loaded,
    PruneEvents,
    Release,
    Store,
    StoreError,
)
from treadle.testing.store_checks.sample_records import (
    A,
    B,
    event,
    fence_of,
    history,
    item,
    keep,
    refusal,
    thread,
    turn,
)

# --- one store -------------------------------------------------------------------------------------------------------


async def a_claim_counts_the_fence_and_says_nothing_when_nothing_happened(store: Store) -> None:
    await keep(store, thread())
    assert await store.claim(A, 0) == Claim(1, None)
    await store.commit(A, 1, [item(1), Release(A)])
    assert await store.claim(A, 1) == Claim(2, None)
    assert await store.load(A) == Loaded(thread(), Counters(item=1), 2)


async def a_claim_with_another_fence_tells_what_is_there(store: Store) -> None:
    await keep(store, thread(), item(1))
    assert await store.claim(A, -1) == Claim(1, Loaded(thread(), Counters(item=1), 1))
    await store.commit(A, 1, [Release(A)])
    assert await store.claim(A, 0) == Claim(2, Loaded(thread(), Counters(item=1), 2))


async def a_claim_on_nothing_is_refused(store: Store) -> None:
    error = await refused_claim(store, A)
    assert error.kind == "missing"
    assert A in error.message


async def a_write_under_any_other_fence_fails(store: Store) -> None:
    await keep(store, thread(), event(1))
    first = (await store.claim(A, 0)).fence
    await store.commit(A, first, [event(2)])
    second = (await store.claim(A, first)).fence
    for fence in (-1, 0, first, second + 1):
        for write in (thread(name="no"), turn(1), item(1), history(1), event(3), Release(A), DeleteThread(A)):
            assert (await refusal(store, A, fence, write)).kind == "stale"
    await store.commit(A, second, [event(3)])
    assert await store.events(A, 0, 9) == EventPage([event(1), event(2), event(3)], 1, 3)
    assert await store.load(A) == Loaded(thread(), Counters(seq=3), second)


async def a_running_turn_is_in_progress_while_the_claim_is_held(store: Store) -> None:
    await keep(store, thread(), thread(B))
    await store.claim(A, 0)
    await store.commit(A, 1, [turn(1), turn(2, status="inProgress")])
    assert [found.status for found in await store.turns(A)] == ["completed", "inProgress"]
    running = await store.turn(A, "turn-2")
    assert running is not None
    assert running.status == "inProgress"
    # A claim by its own holder changes nothing in it.
    await store.claim(A, 1)
    assert [found.status for found in await store.turns(A)] == ["completed", "inProgress"]


async def a_turn_that_was_left_running_is_interrupted_and_stays_so(store: Store) -> None:
    await keep(store, thread())
    await store.claim(A, 0)
    await store.commit(A, 1, [turn(1), turn(2, status="inProgress"), Release(A)])
    assert [found.status for found in await store.turns(A)] == ["completed", "interrupted"]
    left = await store.turn(A, "turn-2")
    assert left is not None
    assert left.status == "interrupted"
    await store.claim(A, 1)
    assert [found.status for found in await store.turns(A)] == ["completed", "interrupted"]


async def a_claim_that_was_cancelled_is_not_held(store: Store) -> None:
    await keep(store, thread(), turn(1, status="inProgress"))
    claim = asyncio.ensure_future(store.claim(A, 0))
    await asyncio.sleep(0)
    claim.cancel()
    await asyncio.wait([claim])
    assert claim.cancelled()
    fence = (await store.claim(A, -1)).fence  # the release of the first was submitted before
    await store.commit(A, fence, [turn(1, status="inProgress"), Release(A)])
    assert [found.status for found in await store.turns(A)] == ["interrupted"]


# --- two stores ------------------------------------------------------------------------------------------------------


async def a_thread_belongs_to_one_store_until_it_is_released(store: Store, other: Store) -> None:
    await keep(store, thread())
    await store.claim(A, 0)
    assert (await refused_claim(other, A)).kind == "claimed"
    await store.commit(A, 1, [Release(A)])
    assert await other.claim(A, -1) == Claim(2, Loaded(thread(), Counters(), 2))
    assert (await refused_claim(store, A)).kind == "claimed"


async def a_claim_ends_with_its_store(store: Store, other: Store) -> None:
    await keep(store, thread())
    await other.claim(A, 0)
    await other.commit(A, 1, [turn(1, status="inProgress")])
    assert [found.status for found in await store.turns(A)] == ["inProgress"]
    await other.close()
    assert [found.status for found in await store.turns(A)] == ["interrupted"]
    assert await store.claim(A, 0) == Claim(2, Loaded(thread(), Counters(turn=1), 2))


async def who_only_read_a_fence_cannot_write_under_it(store: Store, other: Store) -> None:
    await keep(store, thread())
    assert (await refusal(other, A, 0, event(1))).kind == "stale"
    await store.claim(A, 0)
    assert (await refusal(other, A, 1, event(1))).kind == "stale"
    assert (await refusal(other, A, 1, Release(A))).kind == "stale"
    assert (await refused_claim(other, A)).kind == "claimed"
    assert await store.events(A, 0, 9) == EventPage([], 0, 0)


async def an_owner_that_comes_back_too_late_changes_nothing(store: Store, other: Store) -> None:
    await keep(store, thread(), turn(1), item(1), history(1), event(1))
    late = (await store.claim(A, 0)).fence
    await store.commit(A, late, [turn(2, status="inProgress"), event(2), Release(A)])
    fence = (await other.claim(A, -1)).fence
    await other.commit(A, fence, [turn(3), item(2, turn=3), history(2, turn=3), event(3), thread(name="theirs")])
    before = await _all(other)
    for write in (
        *(thread(name="mine"), turn(2), turn(3, status="failed"), item(2, data=b"0"), history(2), history(3)),
        *(event(3, frame=b"0"), event(4), DropItem(A, 1), CutTurns(A, 1), Compaction(A, 2, 2), PruneEvents(A, 3)),
        *(DeleteThread(A), Release(A)),
    ):
        error = await refusal(store, A, late, write)
        assert error.kind == "stale", error
        assert A in error.message
    assert await _all(store) == await _all(other) == before
    # It can have the thread again, and goes on from what is there.
    await other.commit(A, fence, [Release(A)])
    claim = await store.claim(A, late)
    assert claim.news is not None
    assert (claim.news.record.name, claim.news.counters) == ("theirs", Counters(3, 3, 2, 2))
    await store.commit(A, claim.fence, [event(4)])


async def what_another_store_wrote_after_the_fence_was_read_is_told(store: Store, other: Store) -> None:
    await keep(store, thread())
    await other.claim(A, 0)
    seen = await fence_of(store, A)
    await other.commit(A, 1, [item(1), Release(A)])
    await other.close()
    assert await store.claim(A, seen) == Claim(seen + 1, Loaded(thread(), Counters(item=1), seen + 1))


async def each_sees_what_the_other_committed(store: Store, other: Store) -> None:
    await keep(store, thread(A))
    await keep(other, thread(B))
    for number in range(1, 20):
        await store.commit(A, 0, [event(number)])
        await other.commit(B, 0, [event(number, B)])
        assert ((await other.events(A, 0, 0)).last_seq, (await store.events(B, 0, 0)).last_seq) == (number, number)


async def refused_claim(store: Store, thread_id: str) -> StoreError:
    try:
        claim = await store.claim(thread_id, 0)
    except StoreError as error:
        return error
    raise AssertionError(f"a thread that cannot be had is claimed: {claim}")


async def _all(store: Store) -> list[Any]:
    rows = [await store.turns(A), await store.items(A), await store.history(A)]
    return [await store.load(A), *rows, await store.events(A, 0, 100)]


# --- cancelling and closing ------------------------------------------------------------------------------------------


async def cancelled_callers_change_nothing_for_the_others(store: Store) -> None:
    await keep(store, thread())
    calls: list[asyncio.Future[Any]] = []
    for number in range(1, 101):
        calls.append(asyncio.ensure_future(store.commit(A, 0, [event(number)])))
        calls.append(asyncio.ensure_future(store.load(A)))
    await asyncio.sleep(0)
    for call in calls[::3]:
        call.cancel()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes[1::3]} == {type(None), Loaded}
    assert (await store.events(A, 0, 0)).last_seq == 100


async def close_writes_what_was_submitted_and_refuses_what_comes_later(store: Store) -> None:
    heard: list[StoreError | None] = []
    await keep(store, thread())
    for number in range(1, 501):
        store.submit(A, 0, [event(number)], heard.append)
    await store.close()
    assert heard == [None] * 500
    await store.close()
    assert (await refusal(store, A, 0, event(501))).kind == "failed"
    assert (await refused_claim(store, A)).kind == "failed"
    try:
        await store.load(A)
    except StoreError:
        return
    raise AssertionError("a store that is closed is read")
