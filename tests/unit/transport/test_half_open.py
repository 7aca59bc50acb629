"""Who makes room: limits hold, the greedy lose, and whoever came last stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.transport.half_open import FORGET_S, GRACE_S, RESTORING_CLIENTS, HalfOpen

NOW = 1000.0


def test_below_the_limits_nobody_goes_and_nobody_waits() -> None:
    waiting: HalfOpen[int] = HalfOpen(total=4, per_peer=2)
    assert waiting.wait_s(NOW) == 0
    for peer, item in (("a", 1), ("b", 2), ("c", 3)):
        assert waiting.add(peer, item, NOW) is None
        assert waiting.wait_s(NOW) == 0
    assert len(waiting) == 3


def test_a_peer_pushes_out_its_own_oldest() -> None:
    waiting: HalfOpen[int] = HalfOpen(total=100, per_peer=2)
    waiting.add("other", 0, NOW)
    assert [waiting.add("a", item, NOW) for item in (1, 2, 3, 4)] == [None, None, 1, 2]


def test_the_greediest_makes_room_for_others() -> None:
    waiting: HalfOpen[int] = HalfOpen(total=4, per_peer=4)
    for item in (1, 2, 3):
        waiting.add("greedy", item, NOW)
    assert waiting.add("b", 10, NOW) is None
    assert [waiting.add(peer, item, NOW) for peer, item in (("c", 20), ("d", 30), ("e", 40))] == [1, 2, 3]


def test_taking_until_nobody_is_left() -> None:
    waiting: HalfOpen[int] = HalfOpen()
    for item in range(5):
        waiting.add(item % 2, item, NOW)
    taken = [waiting.evict_oldest() for _ in range(5)]
    assert set(taken) == {0, 1, 2, 3, 4}
    assert waiting.evict_oldest() is None
    assert waiting.evict_slow(NOW) is None
    assert len(waiting) == 0


@pytest.mark.parametrize("limits", [(3, 100), (100, 3)])
def test_at_a_limit_newcomers_wait_until_the_oldest_has_had_its_time(limits: tuple[int, int]) -> None:
    waiting: HalfOpen[int] = HalfOpen(*limits)
    for item in range(3):
        waiting.add("a", item, NOW + item)
    assert waiting.wait_s(NOW + 0.1) == pytest.approx(GRACE_S - 0.1)
    assert waiting.evict_slow(NOW + 0.1) is None
    assert waiting.wait_s(NOW + GRACE_S) == 0
    assert waiting.evict_slow(NOW + GRACE_S) == 0


def test_who_says_nothing_uses_up_the_patience_with_all() -> None:
    waiting: HalfOpen[int] = HalfOpen(total=100, per_peer=2)
    waiting.add("a", 0, NOW)
    waiting.add("a", 1, NOW)
    for item in range(2, 12):
        waiting.add("a", item, NOW)
    assert waiting.wait_s(NOW) < 0.001
    waiting.left("a", 11, NOW)
    waiting.left("a", 10, NOW)
    for item in range(20, 20 + RESTORING_CLIENTS):
        waiting.add("a", item, NOW)
        waiting.passed("a", item)
    waiting.add("a", 30, NOW)
    waiting.add("a", 31, NOW)
    assert waiting.wait_s(NOW) == GRACE_S, "those who spoke have restored it"


def test_leaving_before_the_time_is_up_uses_it_up_too() -> None:
    waiting: HalfOpen[int] = HalfOpen(total=100, per_peer=2)
    for item in range(20):
        waiting.add("a", item, NOW)
        waiting.add("a", 100 + item, NOW)
        waiting.left("a", item, NOW)
        waiting.left("a", 100 + item, NOW)
        waiting.left("a", 100 + item, NOW)
    waiting.add("a", 50, NOW)
    waiting.add("a", 51, NOW)
    assert waiting.wait_s(NOW) < 0.001


def test_an_attack_is_forgotten_after_a_while() -> None:
    waiting: HalfOpen[int] = HalfOpen(total=100, per_peer=2)
    for item in range(12):
        waiting.add("a", item, NOW)
    assert waiting.wait_s(NOW) < 0.001
    later = NOW + FORGET_S + 1
    waiting.left("a", 10, NOW)
    waiting.left("a", 11, NOW)
    waiting.add("a", 20, later)
    waiting.add("a", 21, later)
    assert waiting.wait_s(later) == GRACE_S


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=200))
def test_limits_hold_and_the_newest_stays(steps: list[tuple[int, bool]]) -> None:
    waiting: HalfOpen[int] = HalfOpen(total=8, per_peer=3)
    present: dict[int, int] = {}
    for number, (peer, leaves) in enumerate(steps):
        if leaves and present:
            gone = next(iter(present))
            waiting.left(present.pop(gone), gone, NOW)
            waiting.left(peer, gone, NOW)
        present[number] = peer
        pushed_out = waiting.add(peer, number, NOW + number)
        assert pushed_out != number
        if pushed_out is not None:
            del present[pushed_out]
        assert len(waiting) == len(present) <= 8
        assert max(list(present.values()).count(one) for one in range(6)) <= 3
