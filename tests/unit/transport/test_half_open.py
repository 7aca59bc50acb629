"""Who makes room: limits hold, the greedy lose, and whoever came last stays."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from treadle.transport.half_open import HalfOpen


def test_below_the_limits_nobody_goes() -> None:
    waiting: HalfOpen[int] = HalfOpen(total=4, per_peer=2)
    assert [waiting.add(peer, item) for peer, item in (("a", 1), ("a", 2), ("b", 3), ("c", 4))] == [None] * 4
    assert len(waiting) == 4


def test_a_peer_pushes_out_its_own_oldest() -> None:
    waiting: HalfOpen[int] = HalfOpen(total=100, per_peer=2)
    waiting.add("other", 0)
    assert [waiting.add("a", item) for item in (1, 2, 3, 4)] == [None, None, 1, 2]


def test_the_greediest_makes_room_for_others() -> None:
    waiting: HalfOpen[int] = HalfOpen(total=4, per_peer=4)
    for item in (1, 2, 3):
        waiting.add("greedy", item)
    assert waiting.add("b", 10) is None
    assert [waiting.add(peer, item) for peer, item in (("c", 20), ("d", 30), ("e", 40))] == [1, 2, 3]


def test_taking_until_nobody_is_left() -> None:
    waiting: HalfOpen[int] = HalfOpen()
    for item in range(5):
        waiting.add(item % 2, item)
    assert sorted(filter(lambda item: item is not None, (waiting.take_oldest() for _ in range(6)))) == [0, 1, 2, 3, 4]
    assert waiting.take_oldest() is None
    assert len(waiting) == 0


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=200))
def test_limits_hold_and_the_newest_stays(steps: list[tuple[int, bool]]) -> None:
    waiting: HalfOpen[int] = HalfOpen(total=8, per_peer=3)
    present: dict[int, int] = {}
    for number, (peer, leaves) in enumerate(steps):
        if leaves and present:
            gone = next(iter(present))
            waiting.remove(present.pop(gone), gone)
            waiting.remove(peer, gone)
        present[number] = peer
        pushed_out = waiting.add(peer, number)
        assert pushed_out != number
        if pushed_out is not None:
            del present[pushed_out]
        assert len(waiting) == len(present) <= 8
        assert max(list(present.values()).count(one) for one in range(6)) <= 3
