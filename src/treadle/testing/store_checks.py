"""What a store must do with what is written to it: give it back, in order, all or nothing; remove and copy; queue.

Each public function that takes a `store` alone, or a `store` and an `other` on the same threads, is one check of
`check_store`. Before them: records with everything filled in that a check does not care about.
"""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from treadle.store.contract import (
    Compaction,
    CopyTurns,
    Counters,
    CutTurns,
    DeleteThread,
    Done,
    DropItem,
    DropQueued,
    EventPage,
    EventRecord,
    HistoryRecord,
    ItemRecord,
    Loaded,
    PruneEvents,
    QueuedRecord,
    Release,
    Store,
    StoreError,
    ThreadRecord,
    TurnRecord,
    Write,
)

# --- sample records --------------------------------------------------------------------------------------------------

A = "0199a213-81a0-7e00-8000-00000000000a"
B = "0199a213-81a0-7e00-8000-00000000000b"
C = "0199a213-81a0-7e00-8000-00000000000c"


def thread(thread_id: str = A, **fields: Any) -> ThreadRecord:
    values: dict[str, Any] = {
        "id": thread_id,
        "created_at": 1_000,
        "updated_at": 2_000,
        "recency_at": 3_000,
        "cwd": "/work",
        "model": "a-model",
        "model_provider": "a-provider",
        "source": "cli",
        "state": b'{"effort":"low"}',
        "listed": True,
    }
    return ThreadRecord(**{**values, **fields})


def turn(number: int, thread_id: str = A, **fields: Any) -> TurnRecord:
    return TurnRecord(
        **{"thread_id": thread_id, "number": number, "id": f"turn-{number}", "status": "completed", **fields}
    )


def item(number: int, thread_id: str = A, **fields: Any) -> ItemRecord:
    values: dict[str, Any] = {
        "thread_id": thread_id,
        "number": number,
        "turn": 1,
        "id": f"item-{number}",
        "type": "agentMessage",
        "data": b'{"n":%d}' % number,
    }
    return ItemRecord(**{**values, **fields})


def history(number: int, thread_id: str = A, turn: int = 1, data: bytes = b"{}") -> HistoryRecord:
    return HistoryRecord(thread_id, number, turn, data)


def event(seq: int, thread_id: str = A, frame: bytes = b"{}") -> EventRecord:
    return EventRecord(thread_id, seq, frame)


def queued(name: str, position: int, thread_id: str = A, data: bytes = b"{}") -> QueuedRecord:
    return QueuedRecord(thread_id, name, position, data)


async def commit(store: Store, *writes: Any) -> None:
    """Write to any number of threads, each under the claim that it has now."""
    by_thread: dict[str, list[Write]] = {}
    for write in writes:
        match write:
            case ThreadRecord():
                thread_id = write.id
            case CopyTurns():
                thread_id = write.target_id
            case _:
                thread_id = write.thread_id
        by_thread.setdefault(thread_id, []).append(write)
    for thread_id, group in by_thread.items():
        loaded = await store.load(thread_id)
        await store.commit(thread_id, 0 if loaded is None else loaded.fence, group)


async def refusal(store: Store, thread_id: str, fence: int, *writes: Any) -> StoreError:
    """How the store refuses these writes."""
    try:
        await store.commit(thread_id, fence, writes)
    except StoreError as error:
        return error
    raise AssertionError(f"this was written under fence {fence}: {writes}")


async def fence_of(store: Store, thread_id: str) -> int:
    loaded = await store.load(thread_id)
    assert loaded is not None
    return loaded.fence


async def events_of(store: Store, thread_id: str, after_seq: int, limit: int) -> EventPage:
    """A page of events, as it is in every epoch."""
    page = await store.events(thread_id, after_seq, limit)
    assert page.epoch in (store.epoch, ""), f"events of {page.epoch!r}, and the store is in {store.epoch!r}"
    return replace(page, epoch="")


async def filled(store: Store, turns: int = 4) -> None:
    """Turns of two items, two rows of history and two events each; every first item is a message."""
    await commit(store, thread())
    for number in range(1, turns + 1):
        first, second = 2 * number - 1, 2 * number
        await commit(
            store,
            turn(number),
            item(first, turn=number, text=f"question {number}"),
            item(second, turn=number),
            history(first, turn=number),
            history(second, turn=number),
            event(first),
            event(second),
        )


# --- records come back as they were written --------------------------------------------------------------------------


async def a_thread_comes_back(store: Store) -> None:
    full = thread(
        originator="a client",
        name="Ñame ☃",
        preview="π\n\0x",
        forked_from_id=B,
        parent_thread_id=C,
        archived=True,
        state=b"\x00\xff",
    )
    await commit(store, full, thread(B))
    assert await store.load(A) == Loaded(full, Counters(), 0)
    assert await store.load(B) == Loaded(thread(B), Counters(), 0)
    assert await store.load(C) is None


async def a_thread_is_replaced_with_its_content_kept(store: Store) -> None:
    await commit(store, thread(), turn(1), item(1, text="hello"), history(1), event(1))
    await store.claim(A, 0)
    await commit(store, thread(name="new", listed=False))
    loaded = await store.load(A)
    assert loaded == Loaded(thread(name="new", listed=False), Counters(seq=1, turn=1, item=1, history=1), 1)
    assert len(await store.search("hello")) == 1


async def turns_items_history_and_events_come_back(store: Store) -> None:
    turns = [
        turn(1, started_at=5, completed_at=7, duration_ms=1234, error=b'{"message":"x"}', status="failed"),
        turn(2, status="interrupted"),
    ]
    items = [
        item(1, text="", open=True, started_at_ms=1, completed_at_ms=2),
        item(2, turn=2, data=b"[]", text="☃ \0 𝄞"),
    ]
    rows = [history(1, data=b"0"), history(2, turn=2, data='" ☃ é"'.encode())]
    events = [event(1, frame=b"null"), event(2, frame=b'{"a": [1, 2]}')]
    await commit(store, thread(), *turns, *items, *rows, *events)
    assert await store.turns(A) == turns
    assert await store.items(A) == items
    assert await store.history(A) == rows
    assert await events_of(store, A, 0, 10) == EventPage(events, 1, 2)


async def a_turn_or_an_item_is_replaced(store: Store) -> None:
    await commit(store, thread(), turn(1), item(1, open=True))
    after: list[Any] = [turn(1, status="failed"), item(1, data=b'"new"', text="word")]
    await commit(store, *after)
    assert [*await store.turns(A), *await store.items(A)] == after


async def what_is_written_again_in_one_call_is_as_it_was_last(store: Store) -> None:
    await commit(store, thread(), item(1, text="loom"))
    writes: list[Any] = [
        *(thread(name="first"), turn(1, status="inProgress"), item(1, text="wheel"), item(2, open=True), event(1)),
        *(DropItem(A, 2), item(3, open=True), turn(1), item(3, text="thread"), event(2), DropItem(A, 1)),
        *(item(4), CutTurns(A, 1), turn(1, status="failed"), item(3, turn=1), thread(name="last")),
    ]
    await store.commit(A, 0, writes)
    loaded = await store.load(A)
    assert loaded is not None
    assert (loaded.record.name, loaded.counters) == ("last", Counters(seq=2, turn=1, item=3))
    assert await store.turns(A) == [turn(1, status="failed")]
    assert await store.items(A) == [item(3, turn=1)]
    assert [await store.search(word) for word in ("loom", "wheel", "thread")] == [[], [], []]


async def an_event_or_history_is_never_replaced(store: Store) -> None:
    await commit(store, thread(), history(1), event(1), event(2), event(3))
    for again in (event(1, frame=b'"n"'), event(2), event(3), history(1, data=b'"new"')):
        error = await refusal(store, A, 0, item(1), again, event(4))
        assert error.kind == "failed", error
    assert (await refusal(store, A, 0, event(4), event(4, frame=b'"n"'))).kind == "failed"
    assert await store.history(A) == [history(1)]
    assert await events_of(store, A, 0, 9) == EventPage([event(1), event(2), event(3)], 1, 3)
    assert await store.items(A) == []


async def big_values(store: Store) -> None:
    blob = b'"%b"' % ("ä x" * 1_000_000).encode()
    text = "wörd " * 200_000
    await commit(store, thread(state=blob), item(1, data=blob, text=text), history(1, data=blob), event(1, frame=blob))
    loaded = await store.load(A)
    assert loaded is not None
    assert loaded.record.state == blob
    assert await store.items(A) == [item(1, data=blob, text=text)]
    assert await store.history(A) == [history(1, data=blob)]
    assert (await events_of(store, A, 0, 1)).events == [event(1, frame=blob)]


async def a_thread_that_is_unknown_has_nothing(store: Store) -> None:
    assert await store.load(A) is None
    assert (await store.turns(A), await store.items(A), await store.history(A)) == ([], [], [])
    assert await store.turn(A, "turn-1") is None
    assert await events_of(store, A, 0, 10) == EventPage([], 0, 0)


async def nothing_is_written_for_a_thread_that_is_unknown(store: Store) -> None:
    for write in (turn(1), item(1), history(1), event(1), Compaction(A, 1, 1), DropItem(A, 1), DeleteThread(A)):
        error = await refusal(store, A, 0, write, thread())
        assert error.kind == "missing", error
        assert A in error.message
    assert (await refusal(store, A, 1, thread())).kind == "missing"
    assert await store.load(A) is None


async def a_call_writes_to_one_thread(store: Store) -> None:
    """Or the fence of one would be a way around that of the other."""
    await commit(store, thread(), thread(B))
    for write in (thread(B, name="x"), turn(1, B), event(1, B), DropItem(B, 1), CopyTurns(A, B), DeleteThread(B)):
        assert (await refusal(store, A, 0, item(1), write)).kind == "failed"
    assert await store.items(A) == []
    assert await store.load(B) == Loaded(thread(B), Counters(), 0)


async def taking_away_what_is_not_there_is_no_error(store: Store) -> None:
    await commit(store, thread())
    await store.commit(A, 0, [DropItem(A, 1), CutTurns(A, 1), PruneEvents(A, 5), Release(A)])
    await store.commit(A, 0, [])
    assert await store.load(A) == Loaded(thread(), Counters(), 0)


# --- order, and all or nothing ---------------------------------------------------------------------------------------


async def dones_of_a_thread_come_in_order_and_once(store: Store) -> None:
    heard: list[tuple[int, str | None]] = []
    ended = asyncio.Event()

    def done(number: int) -> Done:
        def call(error: StoreError | None) -> None:
            heard.append((number, error.kind if error else None))
            if number == 99:
                ended.set()

        return call

    store.submit(A, 0, [thread()], done(0))
    for number in range(1, 100):
        # Every tenth fails, and the others do not suffer from it.
        store.submit(A, 7 if number % 10 == 0 else 0, [event(number)], done(number))
    assert heard == []
    await ended.wait()
    assert heard == [(number, "stale" if number % 10 == 0 and number else None) for number in range(100)]
    page = await events_of(store, A, 0, 1000)
    assert [found.seq for found in page.events] == [number for number in range(1, 100) if number % 10]


async def what_follows_writes_that_failed_fails_too(store: Store) -> None:
    await commit(store, thread(), event(1), event(2))
    errors: list[StoreError | None] = []
    store.submit(A, 0, [event(3)], errors.append, 2)
    store.submit(A, 7, [event(4)], errors.append, 3)
    store.submit(A, 0, [event(5), item(1)], errors.append, 4)
    store.submit(A, 0, [item(2)], errors.append, 4)
    store.submit(A, 0, [item(3)], errors.append, 3)
    await store.commit(A, 0, [event(6)])
    assert [error and error.kind for error in errors] == [None, "stale", "failed", "failed", None]
    assert [found.seq for found in (await events_of(store, A, 0, 9)).events] == [1, 2, 3, 6]
    assert [found.number for found in await store.items(A)] == [3]
    store.submit(A, 0, [PruneEvents(A, 6)], errors.append, 6)
    store.submit(A, 0, [event(7)], errors.append, 6)
    store.submit(B, 0, [thread(B), event(1, B)], errors.append, 0)
    await store.commit(B, 0, [event(2, B)])
    assert errors[5:] == [None, None, None]


async def a_call_is_all_or_nothing(store: Store) -> None:
    await commit(store, thread(), turn(1), item(1, text="old"), history(1), event(1))
    before = (await store.load(A), await store.items(A), await store.turns(A))
    changes = [thread(name="x"), turn(2), item(1, text="new"), CutTurns(A, 2), PruneEvents(A, 1), history(1)]
    assert (await refusal(store, A, 0, *changes)).kind == "failed"
    assert (await store.load(A), await store.items(A), await store.turns(A)) == before
    assert [hit.item_id for hit in await store.search("old")] == ["item-1"]
    assert await store.search("new") == []


async def what_cannot_be_stored_is_an_error_of_its_caller_alone(store: Store) -> None:
    broken: list[Any] = [item(2, text="\ud800"), item(2**63), item(2, data=None), "no write"]
    for number, write in enumerate(broken):
        thread_id = f"thread-{number}"
        if not isinstance(write, str):
            write = replace(write, thread_id=thread_id)
        await commit(store, thread(thread_id))
        errors: list[StoreError | None] = []
        store.submit(thread_id, 0, [item(1, thread_id)], errors.append)
        store.submit(thread_id, 0, [item(3, thread_id), write], errors.append)
        await store.commit(thread_id, 0, [item(4, thread_id)])
        assert [error and error.kind for error in errors] == [None, "failed"]
        assert [found.number for found in await store.items(thread_id)] == [1, 4]


async def a_done_that_raises_does_not_keep_the_others_from_being_called(store: Store) -> None:
    problems: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda loop, context: problems.append(context))

    def fails(error: StoreError | None) -> None:
        raise ValueError("of the caller")

    try:
        store.submit(A, 0, [thread()], fails)
        await store.commit(A, 0, [event(1)])
    finally:
        loop.set_exception_handler(before)
    assert [str(problem["exception"]) for problem in problems] == ["of the caller"]


async def writes_are_taken_when_submitted(store: Store) -> None:
    writes: list[Any] = [thread()]
    heard: list[StoreError | None] = []
    store.submit(A, 0, writes, heard.append)
    writes.clear()
    await store.commit(A, 0, [])
    assert heard == [None]
    assert await store.load(A) is not None


# --- removals and copies ---------------------------------------------------------------------------------------------


# --- what takes away -------------------------------------------------------------------------------------------------


async def an_item_is_dropped(store: Store) -> None:
    await filled(store)
    await commit(store, DropItem(A, 3), DropItem(A, 8))
    assert [found.number for found in await store.items(A)] == [1, 2, 4, 5, 6, 7]
    assert await store.search("question 2") == []
    loaded = await store.load(A)
    assert loaded is not None
    assert loaded.counters == Counters(seq=8, turn=4, item=7, history=8)


async def turns_are_cut(store: Store) -> None:
    await filled(store)
    await commit(store, thread(B), turn(3, B), item(1, B, turn=3), CutTurns(A, 3))
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
    await commit(store, Compaction(A, 2, 3), Compaction(A, 4, 7))
    assert [found.number for found in await store.history(A)] == [7, 8]
    await commit(store, Compaction(A, 4, 8))
    assert [found.number for found in await store.history(A)] == [8]
    await commit(store, CutTurns(A, 4))
    assert [found.number for found in await store.history(A)] == [3, 4, 5, 6]
    await commit(store, CutTurns(A, 2))
    assert [found.number for found in await store.history(A)] == [1, 2]


async def turns_are_copied(store: Store) -> None:
    await filled(store)
    await commit(store, Compaction(A, 1, 2), Compaction(A, 3, 6))
    source = (await store.turns(A), await store.items(A))
    cases: tuple[tuple[int | None, int], ...] = ((None, 4), (2, 2), (0, 0), (99, 4))
    for last, count in cases:
        copy = f"copy-{last}"
        await store.commit(copy, 0, [thread(copy, forked_from_id=A), CopyTurns(A, copy, last)])
        assert await store.turns(copy) == [replace(found, thread_id=copy) for found in source[0][:count]]
        assert await store.items(copy) == [replace(found, thread_id=copy) for found in source[1][: 2 * count]]
        start = 6 if count > 2 else 2
        assert [found.number for found in await store.history(copy)] == list(range(start, 2 * count + 1))
        assert await events_of(store, copy, 0, 9) == EventPage([], 0, 0)
    assert (await store.turns(A), await store.items(A)) == source
    # The copies are found by themselves, and live on without their source.
    await commit(store, DeleteThread(A))
    assert {hit.thread_id for hit in await store.search("question")} == {f"copy-{last}" for last, n in cases if n}
    assert len(await store.items("copy-2")) == 4


async def what_cannot_be_copied(store: Store) -> None:
    await filled(store)
    assert (await refusal(store, B, 0, CopyTurns(A, B))).kind == "missing"
    assert (await refusal(store, B, 0, thread(B), CopyTurns(C, B))).kind == "missing"
    assert (await refusal(store, B, 0, thread(B), turn(1, B), CopyTurns(A, B))).kind == "failed"
    assert await store.load(B) is None


async def a_copy_of_a_running_turn_is_interrupted(store: Store) -> None:
    await commit(store, thread(), thread(B))
    await store.claim(A, 0)
    await store.claim(B, 0)
    await commit(store, turn(1, status="inProgress"), CopyTurns(A, B))
    assert [found.status for found in await store.turns(A)] == ["inProgress"]
    assert [found.status for found in await store.turns(B)] == ["interrupted"]


async def events_are_pruned_and_their_numbers_stay_used(store: Store) -> None:
    await filled(store)
    await commit(store, PruneEvents(A, 3))
    assert await events_of(store, A, 0, 2) == EventPage([event(4), event(5)], 4, 8)
    await commit(store, PruneEvents(A, 1000))
    assert await events_of(store, A, 0, 2) == EventPage([], 0, 0)
    loaded = await store.load(A)
    assert loaded is not None
    assert loaded.counters.seq == 8


async def events_that_were_written_together_are_pruned_one_by_one(store: Store) -> None:
    events = [event(number, frame=b"%d" % number) for number in range(1, 9)]
    await commit(store, thread(), *events[:5])
    await commit(store, *events[5:])
    for last in (0, 2, 1, 4, 5, 7):
        await commit(store, PruneEvents(A, last))
        kept = events[max(last, 2 if last == 1 else 0) :]
        assert await events_of(store, A, 0, 9) == EventPage(kept, kept[0].seq, 8)
        assert await events_of(store, A, kept[0].seq, 1) == EventPage(kept[1:2], kept[0].seq, 8)
    for used in (1, 5, 7, 8):
        assert (await refusal(store, A, 0, event(used))).kind == "failed"
    await commit(store, PruneEvents(A, 8))
    assert (await refusal(store, A, 0, event(8))).kind == "failed"
    assert await events_of(store, A, 0, 9) == EventPage([], 0, 0)
    await commit(store, event(9))
    assert await events_of(store, A, 0, 9) == EventPage([event(9)], 9, 9)


async def a_thread_is_deleted_with_all_that_is_in_it(store: Store) -> None:
    await filled(store)
    await commit(store, thread(B), item(1, B, text="question other"), Compaction(A, 1, 5), DeleteThread(A))
    assert await store.load(A) is None
    assert (await store.turns(A), await store.items(A), await store.history(A)) == ([], [], [])
    assert await events_of(store, A, 0, 10) == EventPage([], 0, 0)
    assert [hit.thread_id for hit in await store.search("question")] == [B]
    # Nothing comes back with a thread of the same id.
    await commit(store, thread(), history(1))
    assert await store.load(A) == Loaded(thread(), Counters(history=1), 0)
    assert [found.number for found in await store.history(A)] == [1]
    await commit(store, event(1), event(2))
    await commit(store, DeleteThread(A), thread(), event(1, frame=b'"anew"'))
    assert await events_of(store, A, 0, 9) == EventPage([event(1, frame=b'"anew"')], 1, 1)


# --- the queue of a thread -------------------------------------------------------------------------------------------


async def _ids(store: Store, thread_id: str = A) -> list[str]:
    return [found.id for found in await store.queue(thread_id)]


async def _is_queued(store: Store, thread_id: str = A) -> bool:
    loaded = await store.load(thread_id)
    assert loaded is not None
    return loaded.queued


async def messages_wait_in_the_order_of_their_positions(store: Store) -> None:
    assert await store.queue(A) == []
    await commit(store, thread(), thread(B), queued("x", 2), queued("y", 1), queued("x", 7, B, b'"other"'))
    assert await store.queue(A) == [queued("y", 1), queued("x", 2)]
    assert await store.queue(B) == [queued("x", 7, B, b'"other"')]
    await commit(store, queued("y", 3, data=b'"changed"'), queued("z", -1))
    assert await store.queue(A) == [queued("z", -1), queued("x", 2), queued("y", 3, data=b'"changed"')]
    assert (await _is_queued(store), await _is_queued(store, B)) == (True, True)


async def a_message_that_is_dropped_waits_no_longer(store: Store) -> None:
    await commit(store, thread(), queued("x", 1), queued("y", 2))
    await commit(store, DropQueued(A, "x"), DropQueued(A, "never there"))
    assert await _ids(store) == ["y"]
    await commit(store, queued("z", 3), DropQueued(A, "z"), DropQueued(A, "y"), queued("y", 4))
    assert await store.queue(A) == [queued("y", 4)]
    await commit(store, DropQueued(A, "y"))
    assert (await _ids(store), await _is_queued(store)) == ([], False)


async def a_message_is_sent_or_waits_and_never_both(store: Store) -> None:
    """What takes it out of the queue and what puts it into the turn are one call: all or nothing."""
    await filled(store)
    await commit(store, queued("x", 1))
    said = [turn(5), item(9, turn=5, text="wool"), history(9, turn=5), DropQueued(A, "x")]
    await refusal(store, A, await fence_of(store, A), *said, event(1))  # the number of an event that was published
    assert (await _ids(store), await store.search("wool")) == (["x"], [])
    await commit(store, *said, event(9))
    assert (await _ids(store), len(await store.search("wool"))) == ([], 1)


async def a_queue_goes_with_its_thread_and_not_with_its_turns(store: Store) -> None:
    await filled(store)
    await commit(store, queued("x", 1), CutTurns(A, 1))
    await commit(store, thread(B), CopyTurns(A, B))
    assert (await _ids(store), await _ids(store, B)) == (["x"], [])
    await commit(store, DeleteThread(A))
    await commit(store, thread())
    assert await _ids(store) == []


async def a_queue_is_known_to_the_next_claim(store: Store, other: Store) -> None:
    await commit(store, thread())
    first = await store.claim(A, 0)
    await store.commit(A, first.fence, [queued("x", 1), Release(A)])
    second = await other.claim(A, -1)
    assert second.news is not None
    assert second.news.queued
    assert await _ids(other) == ["x"]
    late = await refusal(store, A, first.fence, DropQueued(A, "x"))
    assert (late.kind, await _ids(other)) == ("stale", ["x"])
