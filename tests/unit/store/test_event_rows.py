"""Events in rows: what is joined comes apart again, and what cannot be joined is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.store import MAX_EVENT_BYTES, MAX_EVENTS, EventRecord, EventRow, Unreadable, join, split
from treadle.testing import A, B, event


def size(row: EventRow) -> int:
    return row.last_seq - row.first_seq + 1


def test_events_that_follow_each_other_share_a_row() -> None:
    (row,) = join([event(5, frame=b"[1]"), event(6, frame=b"[2]"), event(7, frame=b"[3]")])
    assert row == EventRow(A, 5, 7, b"[1]\n[2]\n[3]")


def test_other_threads_and_gaps_begin_a_row() -> None:
    rows = list(join([event(1), event(2), event(4), event(1, B), event(2, B), event(2, B), event(1, B)]))
    assert [(row.thread_id, row.first_seq, row.last_seq) for row in rows] == [
        (A, 1, 2),
        (A, 4, 4),
        (B, 1, 2),
        (B, 2, 2),
        (B, 1, 1),
    ]


def test_a_frame_of_several_lines_is_alone() -> None:
    odd = event(2, frame=b'{\n"a": 1\n}')
    rows = list(join([event(1), odd, event(3), event(4)]))
    assert [size(row) for row in rows] == [1, 1, 2]
    assert split(*rows[1]) == [odd]


def test_a_row_has_an_end() -> None:
    many = [event(number) for number in range(1, 2 * MAX_EVENTS + 2)]
    assert [size(row) for row in join(many)] == [MAX_EVENTS, MAX_EVENTS, 1]
    large = [event(number, frame=b'"%b"' % (b"x" * (MAX_EVENT_BYTES // 2 - 10))) for number in range(1, 6)]
    assert [size(row) for row in join(large)] == [2, 2, 1]
    huge = [event(number, frame=b'"%b"' % (b"x" * MAX_EVENT_BYTES)) for number in range(1, 3)]
    assert [size(row) for row in join(huge)] == [1, 1]


@given(
    st.lists(st.tuples(st.sampled_from([A, B]), st.integers(1, 4), st.sampled_from([b"{}", b"[1,2]", b"[\n]", b""])))
)
def test_what_is_joined_comes_apart_again(made: list[tuple[str, int, bytes]]) -> None:
    events: list[EventRecord] = []
    for thread_id, step, frame in made:
        last = events[-1].seq if events and events[-1].thread_id == thread_id else 0
        events.append(EventRecord(thread_id, last + min(step, 2), frame))
    assert [found for row in join(events) for found in split(*row)] == events


@pytest.mark.parametrize("frames", [b"{}", b"{}\n{}\n{}", b"", None, 5, "{}\n{}"])
def test_a_row_that_holds_more_or_less_than_it_says_is_unreadable(frames: object) -> None:
    with pytest.raises(Unreadable, match=f"the row of event 7 of thread {A}"):
        split(A, 6, 7, frames)
