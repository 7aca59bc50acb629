"""What takes away: dropped items, cut and copied turns, pruned events, deleted threads."""

from __future__ import annotations

from msgspec.structs import replace

from treadle.store.contract import (
    Compaction,
    CopyTurns,
    Counters,
    CutTurns,
    DeleteThread,
    DropItem,
    EventPage,
    Loaded,
    PruneEvents,
    Store,
)
from treadle.testing.store_checks.sample_records import (
    A,
    B,
    C,
    event,
    filled,
    history,
    item,
    keep,
    refusal,
    thread,
    turn,
)

# --- what takes away -------------------------------------------------------------------------------------------------


async def an_item_is_dropped(store: Store) -> None:
    await filled(store)
    await keep(store, DropItem(A, 3), DropItem(A, 8))
    assert [found.number for found in await store.items(A)] == [1, 2, 4, 5, 6, 7]
    assert await store.search("question 2") == []
    loaded = await store.load(A)
    assert loaded is not None
    assert loaded.counters == Counters(seq=8, turn=4, item=7, history=8)


async def turns_are_cut(store: Store) -> None:
    await filled(store)
    await keep(store, thread(B), turn(3, B), item(1, B, turn=3), CutTurns(A, 3))
    assert [found.number for found in await store.turns(A)] == [1, 2]
    assert [found.number for found in await store.items(A)] == [1, 2, 3, 4]
    assert [found.number for found in await store.history(A)] == [1, 2, 3, 4]
    assert (await store.search("question 3"), len(await store.search("question"))) == ([], 2)
    loaded = await store.load(A)
    assert loaded is not None
    assert loaded.counters == Counters(seq=8, turn=2, item=4, history=4)
    assert (len(await store.turns(B)), len(await store.items(B))) == (1, 1)


async def history_begins_at_the_last_compaction_until_that_is_cut(store: Store) -> None:
    await filled(store)
    await keep(store, Compaction(A, 2, 3), Compaction(A, 4, 7))
    assert [found.number for found in await store.history(A)] == [7, 8]
    await keep(store, Compaction(A, 4, 8))
    assert [found.number for found in await store.history(A)] == [8]
    await keep(store, CutTurns(A, 4))
    assert [found.number for found in await store.history(A)] == [3, 4, 5, 6]
    await keep(store, CutTurns(A, 2))
    assert [found.number for found in await store.history(A)] == [1, 2]


async def turns_are_copied(store: Store) -> None:
    await filled(store)
    await keep(store, Compaction(A, 1, 2), Compaction(A, 3, 6))
    source = (await store.turns(A), await store.items(A))
    cases: tuple[tuple[int | None, int], ...] = ((None, 4), (2, 2), (0, 0), (99, 4))
    for last, count in cases:
        copy = f"copy-{last}"
        await store.commit(copy, 0, [thread(copy, forked_from_id=A), CopyTurns(A, copy, last)])
        assert await store.turns(copy) == [replace(found, thread_id=copy) for found in source[0][:count]]
        assert await store.items(copy) == [replace(found, thread_id=copy) for found in source[1][: 2 * count]]
        start = 6 if count > 2 else 2
        assert [found.number for found in await store.history(copy)] == list(range(start, 2 * count + 1))
        assert await store.events(copy, 0, 9) == EventPage([], 0, 0)
    assert (await store.turns(A), await store.items(A)) == source
    # The copies are found by themselves, and live on without their source.
    await keep(store, DeleteThread(A))
    assert {hit.thread_id for hit in await store.search("question")} == {f"copy-{last}" for last, n in cases if n}
    assert len(await store.items("copy-2")) == 4


async def what_cannot_be_copied(store: Store) -> None:
    await filled(store)
    assert (await refusal(store, B, 0, CopyTurns(A, B))).kind == "missing"
    assert (await refusal(store, B, 0, thread(B), CopyTurns(C, B))).kind == "missing"
    assert (await refusal(store, B, 0, thread(B), turn(1, B), CopyTurns(A, B))).kind == "failed"
    assert await store.load(B) is None


async def a_copy_of_a_running_turn_is_interrupted(store: Store) -> None:
    await keep(store, thread(), thread(B))
    await store.claim(A, 0)
    await store.claim(B, 0)
    await keep(store, turn(1, status="inProgress"), CopyTurns(A, B))
    assert [found.status for found in await store.turns(A)] == ["inProgress"]
    assert [found.status for found in await store.turns(B)] == ["interrupted"]


async def events_are_pruned_and_their_numbers_stay_used(store: Store) -> None:
    await filled(store)
    await keep(store, PruneEvents(A, 3))
    assert await store.events(A, 0, 2) == EventPage([event(4), event(5)], 4, 8)
    await keep(store, PruneEvents(A, 1000))
    assert await store.events(A, 0, 2) == EventPage([], 0, 0)
    loaded = await store.load(A)
    assert loaded is not None
    assert loaded.counters.seq == 8


async def events_that_were_written_together_are_pruned_one_by_one(store: Store) -> None:
    events = [event(number, frame=b"%d" % number) for number in range(1, 9)]
    await keep(store, thread(), *events[:5])
    await keep(store, *events[5:])
    for last in (0, 2, 1, 4, 5, 7):
        await keep(store, PruneEvents(A, last))
        kept = events[max(last, 2 if last == 1 else 0) :]
        assert await store.events(A, 0, 9) == EventPage(kept, kept[0].seq, 8)
        assert await store.events(A, kept[0].seq, 1) == EventPage(kept[1:2], kept[0].seq, 8)
    for used in (1, 5, 7, 8):
        assert (await refusal(store, A, 0, event(used))).kind == "failed"
    await keep(store, PruneEvents(A, 8))
    assert (await refusal(store, A, 0, event(8))).kind == "failed"
    assert await store.events(A, 0, 9) == EventPage([], 0, 0)
    await keep(store, event(9))
    assert await store.events(A, 0, 9) == EventPage([event(9)], 9, 9)


async def a_thread_is_deleted_with_all_that_is_in_it(store: Store) -> None:
    await filled(store)
    await keep(store, thread(B), item(1, B, text="question other"), Compaction(A, 1, 5), DeleteThread(A))
    assert await store.load(A) is None
    assert (await store.turns(A), await store.items(A), await store.history(A)) == ([], [], [])
    assert await store.events(A, 0, 10) == EventPage([], 0, 0)
    assert [hit.thread_id for hit in await store.search("question")] == [B]
    # Nothing comes back with a thread of the same id.
    await keep(store, thread(), history(1))
    assert await store.load(A) == Loaded(thread(), Counters(history=1), 0)
    assert [found.number for found in await store.history(A)] == [1]
    await keep(store, event(1), event(2))
    await keep(store, DeleteThread(A), thread(), event(1, frame=b'"anew"'))
    assert await store.events(A, 0, 9) == EventPage([event(1, frame=b'"anew"')], 1, 1)
