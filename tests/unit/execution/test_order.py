"""Each number once, in order, whatever the order of arrival; and no more held than is honest."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.execution import MAX_HELD_BYTES, MAX_HELD_EVENTS, ReorderBuffer, TooFarAhead


@given(st.permutations(range(1, 13)), st.lists(st.integers(1, 12), max_size=12), st.randoms(use_true_random=False))
def test_any_order_with_repeats_comes_out_in_order(
    order: list[int], repeats: list[int], shuffle: random.Random
) -> None:
    arriving = [*order, *repeats]
    shuffle.shuffle(arriving)
    reorder: ReorderBuffer[str] = ReorderBuffer()
    out: list[str] = []
    for seq in arriving:
        out += reorder.offer(seq, f"event {seq}", size=seq)
        assert out == [f"event {number}" for number in range(1, reorder.next_seq)]
    assert reorder.next_seq == 13
    assert not reorder._held
    assert reorder._held_bytes == 0


@given(st.permutations(range(1, 10)))
def test_events_go_out_as_soon_as_they_can(order: list[int]) -> None:
    reorder: ReorderBuffer[int] = ReorderBuffer()
    come: set[int] = set()
    for seq in order:
        come.add(seq)
        reorder.offer(seq, seq)
        missing = min(set(range(1, 11)) - come)
        assert reorder.next_seq == missing


def test_first_of_two_with_the_same_number_counts() -> None:
    reorder: ReorderBuffer[str] = ReorderBuffer()
    assert reorder.offer(2, "held") == []
    assert reorder.offer(2, "again") == []
    assert reorder.offer(1, "first") == ["first", "held"]
    assert reorder.offer(1, "late") == []
    assert reorder.offer(0, "never") == []
    assert reorder.offer(-5, "never") == []


def test_start_in_the_middle() -> None:
    reorder: ReorderBuffer[str] = ReorderBuffer(next_seq=10)
    assert reorder.offer(9, "old") == []
    assert reorder.offer(10, "new") == ["new"]


def test_number_of_held_events_is_limited() -> None:
    reorder: ReorderBuffer[int] = ReorderBuffer()
    for seq in range(2, MAX_HELD_EVENTS + 2):
        reorder.offer(seq, seq)
    with pytest.raises(TooFarAhead, match=r"event 1 is missing"):
        reorder.offer(MAX_HELD_EVENTS + 2, 0)


def test_size_of_held_events_is_limited() -> None:
    reorder: ReorderBuffer[int] = ReorderBuffer()
    reorder.offer(2, 2, size=MAX_HELD_BYTES)
    with pytest.raises(TooFarAhead):
        reorder.offer(3, 3, size=1)


def test_limits_are_for_what_is_held_not_for_what_has_passed() -> None:
    reorder: ReorderBuffer[int] = ReorderBuffer()
    for seq in range(1, 4 * MAX_HELD_EVENTS, 2):
        assert reorder.offer(seq + 1, seq + 1, size=MAX_HELD_BYTES) == []
        assert reorder.offer(seq, seq, size=MAX_HELD_BYTES + 1) == [seq, seq + 1]
