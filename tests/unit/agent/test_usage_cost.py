"""What a turn and a thread cost: known sums stay known, and an unknown price makes no sum that looks right."""

from __future__ import annotations

from treadle.agent import Usage, read_usage
from treadle.llm import TokenUsage
from treadle.protocol.app import encode

SOME = TokenUsage(input_tokens=5, output_tokens=2, total_tokens=7)


def costs(usage: Usage) -> tuple[float | None, float | None]:
    return usage.cost_usd, usage.thread_cost_usd


def test_a_turn_adds_up_and_the_thread_goes_on() -> None:
    usage = Usage().add(SOME, "a", 1.0).add(SOME, "a", 2.0)
    assert costs(usage) == (3.0, 3.0)
    assert costs(usage.add(SOME, "b", 0.5)) == (0.5, 3.5)


def test_a_turn_without_a_price_leaves_the_thread_without_a_sum() -> None:
    usage = Usage().add(SOME, "a", 1.0).add(SOME, "b", None)
    assert costs(usage) == (None, None)
    usage = usage.add(SOME, "b", 1.0)
    assert costs(usage) == (None, None)
    assert costs(usage.add(SOME, "c", 1.0)) == (1.0, None)


def test_what_was_used_before_costs_were_kept_is_not_free() -> None:
    old = read_usage(b'{"total": {"total_tokens": 7}, "last": {"total_tokens": 7}, "turn_id": "a"}', None)
    assert costs(old.add(SOME, "b", 1.0)) == (1.0, None)


def test_a_review_costs_something_beside_the_conversation() -> None:
    usage = Usage().add(SOME, "a", 1.0)
    reviewed = usage.spend("a", 0.5)
    assert costs(reviewed) == (1.5, 1.5)
    assert (reviewed.total, reviewed.last) == (usage.total, usage.last)
    assert costs(usage.spend("b", 0.5)) == (0.5, 1.5)
    assert costs(usage.spend("a", None)) == (None, None)


def test_a_compaction_changes_no_cost_and_a_provider_that_does_not_count_has_none() -> None:
    usage = Usage().add(SOME, "a", 1.0)
    assert costs(usage.resized(3, "a")) == (1.0, 1.0)
    assert usage.resized(3, "a").last == TokenUsage(total_tokens=3)
    assert costs(usage.resized(3, "b")) == (None, None)
    assert costs(Usage().resized(3, "a").add(SOME, "b", 1.0)) == (1.0, None)


def test_costs_are_kept_with_the_usage() -> None:
    usage = Usage().add(SOME, "a", 0.25)
    assert read_usage(encode(usage), None) == usage
    told = usage.on_wire(10)
    assert (told.cost_usd, told.thread_cost_usd) == (0.25, 0.25)
