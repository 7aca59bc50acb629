"""What came of a turn: the final response, the items, the usage; and when two results are equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.client import (
    CodexError,
    Collector,
    Notification,
    OutputError,
    OutputType,
    RunResult,
    TokensUsed,
    TurnFailed,
    TurnLimitReached,
    final_response,
    make,
)
from treadle.protocol.app import ThreadItem, TurnStatus, convert

FINAL, COMMENTARY, PARTIAL = "final_answer", "commentary", "partial_answer"


def message(text: str, phase: str | None = None) -> dict[str, Any]:
    return {"type": "agentMessage", "id": text or "empty", "text": text, "phase": phase}


def item(value: dict[str, Any]) -> Any:
    return convert(value, ThreadItem)


def completed(value: dict[str, Any], turn: str = "turn-1") -> Notification:
    return make("item/completed", {"threadId": "t", "turnId": turn, "item": value, "completedAtMs": 0})


def ended(status: str = "completed", turn: str = "turn-1", **members: Any) -> Notification:
    told = {"id": turn, "items": [], "status": status, **members}
    return make("turn/completed", {"threadId": "t", "turn": told})


def usage(total: int, turn: str = "turn-1") -> Notification:
    counts = {
        "cachedInputTokens": 0,
        "inputTokens": total,
        "outputTokens": 0,
        "reasoningOutputTokens": 0,
        "totalTokens": total,
        "cacheWriteInputTokens": 0,
    }
    told = {"last": counts, "total": counts, "modelContextWindow": None}
    return make("thread/tokenUsage/updated", {"threadId": "t", "turnId": turn, "tokenUsage": told})


def collected(*events: Notification, output_type: Any = None) -> RunResult:
    collector = Collector("turn-1")
    for event in events:
        collector.add(event)
    return collector.result(output_type)


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([], None),
        ([("a", None)], "a"),
        ([("a", None), ("b", None)], "b"),
        ([("a", FINAL), ("b", None)], "a"),
        ([("a", FINAL), ("b", FINAL)], "b"),
        ([("a", FINAL), ("b", COMMENTARY)], "a"),
        ([("a", None), ("b", COMMENTARY)], "a"),
        ([("a", COMMENTARY)], None),
        ([("a", COMMENTARY), ("b", COMMENTARY)], None),
        ([("a", None), ("", None)], ""),
        ([("a", None), ("", FINAL)], ""),
        ([("a", PARTIAL)], None),
        ([("a", "a newer phase")], None),
    ],
)
def test_the_final_response(messages: list[tuple[str, str | None]], expected: str | None) -> None:
    assert final_response([item(message(text, phase)) for text, phase in messages]) == expected


@given(st.lists(st.tuples(st.text(max_size=3), st.sampled_from([FINAL, COMMENTARY, None]))))
def test_the_rule_of_the_final_response(messages: list[tuple[str, str | None]]) -> None:
    finals: list[str | None] = [text for text, phase in messages if phase == FINAL]
    plain: list[str | None] = [text for text, phase in messages if phase is None]
    expected = (finals or plain or [None])[-1]
    assert final_response([item(message(text, phase)) for text, phase in messages]) == expected


def test_items_that_are_not_known_are_passed_over() -> None:
    strange = [{"type": "holographic", "text": "not this"}, {"text": "nor this"}]
    assert final_response([item(message("a")), *map(item, strange)]) == "a"


def test_everything_that_the_agent_did_is_in_the_result() -> None:
    said = {"type": "userMessage", "id": "u", "content": [{"type": "text", "text": "hello"}]}
    result = collected(
        completed(said),
        completed(message("wait", COMMENTARY)),
        completed({"type": "holographic", "depth": 3}),
        usage(1),
        usage(2),
        completed(message("done")),
        ended(startedAt=1, completedAt=3, durationMs=1500),
    )
    assert [each.type for each in result.items] == ["agentMessage", "holographic", "agentMessage"]
    assert result.final_response == "done"
    assert result.usage is not None
    assert result.usage.total.total_tokens == 2
    assert (result.id, result.started_at, result.completed_at, result.duration_ms) == ("turn-1", 1, 3, 1500)
    assert (result.status, result.error, result.output) == (TurnStatus.completed, None, None)


def test_what_the_turn_used_is_apart_from_what_the_thread_used() -> None:
    def update(last: int, total: int, cost: Any) -> Notification:
        counts = {"cachedInputTokens": 0, "outputTokens": 1, "reasoningOutputTokens": 0}
        used = {
            name: {**counts, "inputTokens": tokens, "totalTokens": tokens + 1}
            for name, tokens in (("last", last), ("total", total))
        }
        told = {**used, **({} if cost is None else {"cost": cost})}
        return make("thread/tokenUsage/updated", {"threadId": "t", "turnId": "turn-1", "tokenUsage": told})

    cost = {"turnUsd": 0.5, "threadUsd": 2.0}
    result = collected(update(10, 110, None), update(5, 115, cost), ended())
    assert result.turn_usage == TokensUsed(input_tokens=15, output_tokens=1, total_tokens=16, cost_usd=0.5)
    assert result.thread_usage == TokensUsed(input_tokens=115, output_tokens=1, total_tokens=116, cost_usd=2.0)
    unknown = collected(update(10, 110, None), ended())
    assert unknown.turn_usage == TokensUsed(input_tokens=10, output_tokens=1, total_tokens=11, cost_usd=None)
    nothing = collected(ended())
    assert (nothing.turn_usage, nothing.thread_usage) == (None, None)


def test_the_limit_that_ended_a_turn_is_in_its_result_or_its_error() -> None:
    limit = {"kind": "turnIterations", "limit": 1, "threadId": "t", "used": 1}
    other = make("warning", {"message": "of another turn", "threadId": "t", "turnId": "turn-2", "limit": limit})
    plain = make("warning", {"message": "about something else", "threadId": "t"})
    assert collected(other, plain, ended()).limit is None
    warning = make("warning", {"message": "at its limit", "threadId": "t", "turnId": "turn-1", "limit": limit})
    ended_at = collected(warning, ended()).limit
    assert ended_at is not None
    assert (ended_at.kind, ended_at.used) == ("turnIterations", 1)
    error = {"message": "used up", "limit": {**limit, "kind": "threadCostUsd"}}
    with pytest.raises(TurnLimitReached, match="used up") as caught:
        collected(ended("failed", error=error))
    assert caught.value.limit.kind == "threadCostUsd"


def test_what_belongs_to_other_turns_is_left_out() -> None:
    result = collected(
        completed(message("other"), "turn-2"),
        usage(9, "turn-2"),
        ended("failed", "turn-2"),
        completed(message("mine")),
        ended(),
    )
    assert (result.final_response, len(result.items), result.usage) == ("mine", 1, None)


def test_what_cannot_be_read_is_left_out() -> None:
    strange = [
        make("item/completed", {"turnId": "turn-1", "item": 7}),
        make("thread/tokenUsage/updated", {"turnId": "turn-1"}),
        make("turn/completed", {"turn": {"id": "turn-1"}}),
        make("who/knows", {}),
    ]
    assert collected(*strange, ended()).items == []


def test_a_failed_turn() -> None:
    with pytest.raises(RuntimeError, match=r"^boom$") as caught:
        collected(ended("failed", error={"message": "boom"}))
    assert isinstance(caught.value, TurnFailed)
    assert caught.value.turn is not None
    assert caught.value.turn.id == "turn-1"


@pytest.mark.parametrize("error", [None, {"message": ""}])
def test_a_failed_turn_without_a_word(error: Any) -> None:
    with pytest.raises(TurnFailed, match="does not say why"):
        collected(ended("failed", error=error))


def test_an_interrupted_turn_is_no_failure() -> None:
    result = collected(completed(message("half")), ended("interrupted"))
    assert (result.status, result.final_response) == (TurnStatus.interrupted, "half")
    assert isinstance(result.status, TurnStatus)


def test_a_stream_without_an_end() -> None:
    with pytest.raises(CodexError, match="without its completion"):
        collected(completed(message("half")))


def test_results_compare_by_what_was_done() -> None:
    first = collected(completed(message("a")), usage(1), ended(startedAt=1))
    second = collected(completed(message("a")), usage(1), ended(startedAt=2, durationMs=7))
    assert first == second
    assert first == RunResult(final_response="a", items=first.items, usage=first.usage)
    assert first != collected(completed(message("b")), usage(1), ended())
    assert first != collected(completed(message("a")), usage(2), ended())
    assert first != collected(completed(message("a")), completed(message("a")), usage(1), ended())
    assert RunResult(output=1) != RunResult(output=2)


@dataclass
class Point:
    x: int


def test_an_output_of_a_type() -> None:
    wanted = OutputType(Point)
    assert collected(completed(message('{"x": 3}')), ended(), output_type=wanted).output == Point(3)
    assert collected(completed(message('{"x": ')), ended("interrupted"), output_type=wanted).output is None
    with pytest.raises(OutputError, match="Point"):
        collected(completed(message('{"x": "three"}')), ended(), output_type=wanted)
    with pytest.raises(OutputError, match="no final response"):
        collected(ended(), output_type=wanted)
