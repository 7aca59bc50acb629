"""Any sequence of writes, cut into any calls, leaves what plain Python says that it leaves."""

from __future__ import annotations

import asyncio
import tempfile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.store import (
    Compaction,
    CopyTurns,
    CutTurns,
    DeleteThread,
    DropItem,
    EphemeralStore,
    PruneEvents,
    Store,
    ThreadQuery,
    open_sqlite,
)
from treadle.testing import event, history, item, thread, turn
from unit.store.plain_store import PlainStore, PlainThread

WORDS = ["warp", "weft", "heddle", "☃", None]
KINDS = ["thread", "turn", "item", "change", "drop", "history", "compact", "cut", "copy", "event", "prune", "delete"]

steps = st.lists(
    st.tuples(
        # Growth is likelier than loss, or there would be little to lose.
        st.sampled_from([*KINDS, "turn", "item", "item", "history", "event"]),
        st.integers(0, 2),
        st.integers(0, 9),
        st.booleans(),
    ),
    max_size=60,
)


def _write(plain: PlainStore, kind: str, thread_id: str, number: int) -> Any:
    """A write that makes sense where things stand; None when there is none of this kind."""
    there = plain.threads.get(thread_id)
    if there is None:
        return thread(thread_id, listed=number > 0)
    last, counters = max(there.turns, default=0), there.counters()
    if kind == "copy":
        source = f"t{number % 3}"
        fits = source in plain.threads and source != thread_id and not (there.turns or there.items or there.history)
        return CopyTurns(source, thread_id, number or None) if fits and not there.compactions else None
    if kind == "change":
        old = there.items.get(number)
        return item(number, thread_id, turn=old.turn, text=WORDS[number % 5], data=b'"new"') if old else None
    made: dict[str, Any] = {
        "thread": thread(thread_id, name=f"name {number}", updated_at=number, archived=number > 7),
        "turn": turn(counters.turn + 1, thread_id),
        "item": item(counters.item + 1, thread_id, turn=last, text=WORDS[number % 5]),
        "drop": DropItem(thread_id, number),
        "history": history(counters.history + 1, thread_id, last),
        "compact": Compaction(thread_id, last, number),
        "cut": CutTurns(thread_id, max(last - number, 0)),
        "event": event(counters.seq + 1, thread_id),
        "prune": PruneEvents(thread_id, number),
        "delete": DeleteThread(thread_id) if number == 0 else None,
    }
    return made[kind]


async def _assert_same(store: Store, thread_id: str, plain: PlainThread | None) -> None:
    loaded = await store.load(thread_id)
    if plain is None:
        assert loaded is None
        plain = PlainThread(thread(thread_id))
    else:
        assert loaded is not None
        assert (loaded.record, loaded.counters) == (plain.record, plain.counters())
    assert await store.turns(thread_id) == [row for _, row in sorted(plain.turns.items())]
    assert await store.items(thread_id) == [row for _, row in sorted(plain.items.items())]
    assert await store.items(thread_id, turns=(2, 3), descending=True) == [
        row for _, row in sorted(plain.items.items(), reverse=True) if 2 <= row.turn <= 3
    ]
    assert await store.history(thread_id) == plain.model_input()
    page = await store.events(thread_id, 0, 1000)
    assert page.events == [row for _, row in sorted(plain.events.items())]
    assert (page.first_seq, page.last_seq) == (min(plain.events, default=0), max(plain.events, default=0))


async def _assert_found(store: Store, plain: PlainStore) -> None:
    for word in WORDS[:3]:
        assert word is not None
        expected = {
            (thread_id, row.id)
            for thread_id, there in plain.threads.items()
            if not there.record.archived
            for row in there.items.values()
            if row.text == word
        }
        hits = await store.search(word, limit=1000)
        assert {(hit.thread_id, hit.item_id) for hit in hits} == expected
        assert len(hits) == len(expected)
    listed = {there.record.id for there in plain.threads.values() if there.record.listed and not there.record.archived}
    assert {found.id for found in (await store.threads(ThreadQuery())).threads} == listed


async def _play(store: Store, chosen: list[tuple[str, int, int, bool]]) -> PlainStore:
    plain = PlainStore()
    calls: dict[str, list[Any]] = {}
    after: dict[str, int] = {}  # the last event before the call
    waiting: list[asyncio.Future[Any]] = []
    for kind, which, number, ends_call in chosen:
        thread_id = f"t{which}"
        write = _write(plain, kind, thread_id, number)
        if write is None:
            continue
        there = plain.threads.get(thread_id)
        seq = 0 if there is None else there.counters().seq
        plain.write(write)
        if isinstance(write, CopyTurns):  # it reads from another thread
            waiting += _submit(store, calls, after)
        calls.setdefault(thread_id, []).append(write)
        if which:  # one of the threads never says what it follows
            after.setdefault(thread_id, seq)
        if ends_call:
            waiting += _submit(store, calls, after)
    waiting += _submit(store, calls, after)
    assert set(await asyncio.gather(*waiting)) <= {None}
    return plain


def _submit(store: Store, calls: dict[str, list[Any]], after: dict[str, int]) -> list[asyncio.Future[Any]]:
    """One call for each thread; what becomes of them."""
    done: list[asyncio.Future[Any]] = []
    for thread_id, writes in calls.items():
        done.append(asyncio.get_running_loop().create_future())
        store.submit(thread_id, 0, writes, done[-1].set_result, after.get(thread_id))
    calls.clear()
    after.clear()
    return done


async def _compare(store: Store, plain: PlainStore) -> None:
    for which in range(3):
        await _assert_same(store, f"t{which}", plain.threads.get(f"t{which}"))
    await _assert_found(store, plain)


@given(steps)
@settings(max_examples=75, deadline=None)
def test_writes_mean_what_they_say_in_memory(chosen: list[tuple[str, int, int, bool]]) -> None:
    async def run() -> None:
        async with EphemeralStore() as store:
            await _compare(store, await _play(store, chosen))

    asyncio.run(run())


@given(steps)
@settings(max_examples=30, deadline=None)
def test_writes_mean_what_they_say_on_disk(chosen: list[tuple[str, int, int, bool]]) -> None:
    async def run(home: str) -> None:
        async with await open_sqlite(home) as store:
            plain = await _play(store, chosen)
            await _compare(store, plain)
        async with await open_sqlite(home) as store:
            await _compare(store, plain)

    with tempfile.TemporaryDirectory() as home:
        asyncio.run(run(home))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_step_can_be_made(kind: str) -> None:
    plain = PlainStore()
    for write in (thread("t0"), thread("t1"), turn(1, "t1"), item(1, "t1")):
        plain.write(write)
    target, number = {"copy": ("t0", 1), "change": ("t1", 1), "delete": ("t1", 0)}.get(kind, ("t1", 1))
    assert _write(plain, kind, target, number) is not None
