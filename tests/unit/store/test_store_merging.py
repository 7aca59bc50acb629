"""Fewer writes with the same outcome, compared with what plain Python says that each of them does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from treadle.store import (
    Compaction,
    CopyTurns,
    CutTurns,
    DeleteThread,
    DropItem,
    DropQueued,
    ItemRecord,
    PruneEvents,
    Release,
    merged,
)
from treadle.testing import A, B, event, history, item, queued, thread, turn
from unit.store.plain_store import PlainStore, PlainThread


def runs(*writes: Any) -> list[list[Any]]:
    return [list(run) for run in merged(writes)]


def test_a_record_is_written_once_as_it_ends_up() -> None:
    first, last = thread(name="first"), thread(name="last")
    begun, over = turn(1, status="inProgress"), turn(1)
    opened, done = item(1, open=True), item(1, text="done")
    assert runs(first, begun, opened, event(1), done, event(2), over, last) == [
        [last],
        [over],
        [done],
        [event(1), event(2)],
    ]


def test_other_threads_and_numbers_are_other_records() -> None:
    writes: list[Any] = [thread(), thread(B), turn(1), turn(2), turn(1, B), item(1), item(2), item(1, B)]
    assert [write for run in merged(writes) for write in run] == writes


def test_history_and_events_are_all_kept() -> None:
    """Also those that use a number twice: whoever writes them has to find that out."""
    assert runs(history(1), event(1), history(1), event(1)) == [[history(1), history(1)], [event(1), event(1)]]


def test_an_item_that_is_begun_and_dropped_is_never_written() -> None:
    assert runs(item(1, open=True), DropItem(A, 1), item(2)) == [[item(2)], [DropItem(A, 1)]]
    assert runs(DropItem(A, 1), item(1)) == [[item(1)]]


def test_nothing_is_nothing() -> None:
    assert runs() == []


@pytest.mark.parametrize(
    "act", [Release(A), DeleteThread(A), CutTurns(A, 1), CopyTurns(B, A), PruneEvents(A, 1)], ids=lambda act: type(act)
)
def test_what_acts_on_more_than_one_record_keeps_its_place(act: Any) -> None:
    before, after = item(1, text="before"), item(1, text="after")
    assert runs(thread(), before, act, after, thread()) == [[thread()], [before], [act], [thread()], [after]]


# --- any writes ------------------------------------------------------------------------------------------------------

names = st.sampled_from([A, B])
numbers = st.integers(1, 3)
words = st.sampled_from([None, "warp", "weft"])
writes = st.lists(
    st.one_of(
        st.builds(lambda name, word: thread(name, name=word), names, words),
        st.builds(lambda number, name, word: turn(number, name, error=word and b"{}"), numbers, names, words),
        st.builds(lambda number, name, word: item(number, name, turn=number, text=word), numbers, names, words),
        st.builds(lambda number, name: history(number, name, turn=number), numbers, names),
        st.builds(lambda number, name: event(number, name), numbers, names),
        st.builds(DropItem, names, numbers),
        st.builds(lambda number, name: queued(f"q{number}", number, name), numbers, names),
        st.builds(lambda number, name: DropQueued(name, f"q{number}"), numbers, names),
        st.builds(Compaction, names, numbers, numbers),
        st.builds(CutTurns, names, numbers),
        st.builds(PruneEvents, names, numbers),
        st.just(CopyTurns(A, B)),
        st.builds(DeleteThread, st.just(B)),
    ),
    max_size=30,
)


def outcome(made: Sequence[Any]) -> dict[str, Any] | None:
    """None where something is written to a thread that was deleted: a store refuses the whole call."""
    store = PlainStore()
    try:
        for write in (thread(), thread(B), *made):
            store.write(write)
    except KeyError:
        return None
    return {thread_id: _content(there) for thread_id, there in store.threads.items()}


def _content(there: PlainThread) -> Any:
    rows = (there.turns, there.items, there.history, there.compactions, there.events, there.queue)
    return there.record, there.pruned, [sorted(row.items()) for row in rows]


@given(writes)
@settings(max_examples=150, deadline=None)
def test_any_writes_come_to_the_same(made: list[Any]) -> None:
    expected = outcome(made)
    assume(expected is not None)
    assert outcome([write for run in merged(made) for write in run]) == expected


@given(writes)
@settings(max_examples=100, deadline=None)
def test_runs_are_of_one_type_and_change_a_record_once(made: list[Any]) -> None:
    for run in merged(made):
        assert len({type(write) for write in run}) == 1
        items = {(write.thread_id, write.number) for write in run if isinstance(write, ItemRecord)}
        assert len(items) in (0, len(run))
