"""Plans, tokens and costs, from the events of a thread."""

from __future__ import annotations

import pytest

from thread_samples import frames, rich_thread
from treadle.pages import ThreadExtras, Tokens


def test_tokens_of_each_turn_and_of_all() -> None:
    facts = ThreadExtras()
    facts.take(frames(rich_thread().turns))
    assert facts.of("turn-1").tokens == Tokens(9_000, 0, 1_900, 950)
    assert facts.of("turn-2").tokens == Tokens(18_000, 8_000, 2_600, 1_300)
    assert facts.tokens == Tokens(54_000, 20_000, 7_800, 3_900)
    assert facts.cost_usd == pytest.approx(0.0738)
    assert facts.of("turn-3").cost_usd == pytest.approx(0.0369)


def test_what_came_before_the_first_event_is_in_the_sum_alone() -> None:
    facts = ThreadExtras()
    facts.take(frames(rich_thread().turns)[-2:])  # as of a fork, or after old events were dropped
    assert facts.of("turn-1").tokens is None
    assert facts.of("turn-3").tokens == Tokens(27_000, 12_000, 3_300, 1_650)
    assert facts.tokens == Tokens(54_000, 20_000, 7_800, 3_900)


def test_the_last_plan_counts() -> None:
    facts = ThreadExtras()
    facts.take(frames(rich_thread().turns))
    assert [str(step.status) for step in facts.of("turn-2").plan] == ["completed", "completed", "pending"]
    assert facts.of("turn-3").plan == ()


def test_a_price_that_is_not_known_is_not_nothing() -> None:
    facts = ThreadExtras()
    facts.take(frames(rich_thread().turns, cost=False))
    assert facts.cost_usd is None
    assert facts.of("turn-1").cost_usd is None
