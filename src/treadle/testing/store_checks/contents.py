"""What is written comes back, in order, all or nothing."""

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
    EventPage,
    Loaded,
    PruneEvents,
    Release,
    Store,
    StoreError,
)
from treadle.testing.store_checks.sample_records import A, B, C, event, history, item, keep, refusal, thread, turn

# --- records come back as they were written --------------------------------------------------------------------------


async def a_thread_comes_back(store: Store) -> None:
    full = thread(
        originator="a client", name="Ñame ☃", preview="π\n\0x", forked_from_id=B, archived=True, state=b"\x00\xff"
    )
    await keep(store, full, thread(B))
    assert await store.load(A) == Loaded(full, Counters(), 0)
    assert await store.load(B) == Loaded(thread(B), Counters(), 0)
    assert await store.load(C) is None


async def a_thread_is_replaced_with_its_content_kept(store: Store) -> None:
    await keep(store, thread(), turn(1), item(1, text="hello"), history(1), event(1))
    await store.claim(A, 0)
    await keep(store, thread(name="new", listed=False))
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
    await keep(store, thread(), *turns, *items, *rows, *events)
    assert await store.turns(A) == turns
    assert await store.items(A) == items
    assert await store.history(A) == rows
    assert await store.events(A, 0, 10) == EventPage(events, 1, 2)


async def a_turn_or_an_item_is_replaced(store: Store) -> None:
    await keep(store, thread(), turn(1), item(1, open=True))
    after: list[Any] = [turn(1, status="failed"), item(1, data=b'"new"', text="word")]
    await keep(store, *after)
    assert [*await store.turns(A), *await store.items(A)] == after


async def what_is_written_again_in_one_call_is_as_it_was_last(store: Store) -> None:
    await keep(store, thread(), item(1, text="loom"))
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
    await keep(store, thread(), history(1), event(1), event(2), event(3))
    for again in (event(1, frame=b'"n"'), event(2), event(3), history(1, data=b'"new"')):
        error = await refusal(store, A, 0, item(1), again, event(4))
        assert error.kind == "failed", error
    assert (await refusal(store, A, 0, event(4), event(4, frame=b'"n"'))).kind == "failed"
    assert await store.history(A) == [history(1)]
    assert await store.events(A, 0, 9) == EventPage([event(1), event(2), event(3)], 1, 3)
    assert await store.items(A) == []


async def big_values(store: Store) -> None:
    blob = b'"%b"' % ("ä x" * 1_000_000).encode()
    text = "wörd " * 200_000
    await keep(store, thread(state=blob), item(1, data=blob, text=text), history(1, data=blob), event(1, frame=blob))
    loaded = await store.load(A)
    assert loaded is not None
    assert loaded.record.state == blob
    assert await store.items(A) == [item(1, data=blob, text=text)]
    assert await store.history(A) == [history(1, data=blob)]
    assert (await store.events(A, 0, 1)).events == [event(1, frame=blob)]


async def a_thread_that_is_unknown_has_nothing(store: Store) -> None:
    assert await store.load(A) is None
    assert (await store.turns(A), await store.items(A), await store.history(A)) == ([], [], [])
    assert await store.turn(A, "turn-1") is None
    assert await store.events(A, 0, 10) == EventPage([], 0, 0)


async def nothing_is_written_for_a_thread_that_is_unknown(store: Store) -> None:
    for write in (turn(1), item(1), history(1), event(1), Compaction(A, 1, 1), DropItem(A, 1), DeleteThread(A)):
        error = await refusal(store, A, 0, write, thread())
        assert error.kind == "missing", error
        assert A in error.message
    assert (await refusal(store, A, 1, thread())).kind == "missing"
    assert await store.load(A) is None


async def a_call_writes_to_one_thread(store: Store) -> None:
    """Or the fence of one would be a way around that of the other."""
    await keep(store, thread(), thread(B))
    for write in (thread(B, name="x"), turn(1, B), event(1, B), DropItem(B, 1), CopyTurns(A, B), DeleteThread(B)):
        assert (await refusal(store, A, 0, item(1), write)).kind == "failed"
    assert await store.items(A) == []
    assert await store.load(B) == Loaded(thread(B), Counters(), 0)


async def taking_away_what_is_not_there_is_no_error(store: Store) -> None:
    await keep(store, thread())
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
    page = await store.events(A, 0, 1000)
    assert [found.seq for found in page.events] == [number for number in range(1, 100) if number % 10]


async def what_follows_writes_that_failed_fails_too(store: Store) -> None:
    await keep(store, thread(), event(1), event(2))
    errors: list[StoreError | None] = []
    store.submit(A, 0, [event(3)], errors.append, 2)
    store.submit(A, 7, [event(4)], errors.append, 3)
    store.submit(A, 0, [event(5), item(1)], errors.append, 4)
    store.submit(A, 0, [item(2)], errors.append, 4)
    store.submit(A, 0, [item(3)], errors.append, 3)
    await store.commit(A, 0, [event(6)])
    assert [error and error.kind for error in errors] == [None, "stale", "failed", "failed", None]
    assert [found.seq for found in (await store.events(A, 0, 9)).events] == [1, 2, 3, 6]
    assert [found.number for found in await store.items(A)] == [3]
    store.submit(A, 0, [PruneEvents(A, 6)], errors.append, 6)
    store.submit(A, 0, [event(7)], errors.append, 6)
    store.submit(B, 0, [thread(B), event(1, B)], errors.append, 0)
    await store.commit(B, 0, [event(2, B)])
    assert errors[5:] == [None, None, None]


async def a_call_is_all_or_nothing(store: Store) -> None:
    await keep(store, thread(), turn(1), item(1, text="old"), history(1), event(1))
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
        await keep(store, thread(thread_id))
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
