"""The small events: what each is made from, and what makes none."""

from __future__ import annotations

from typing import Any

import pytest

from treadle.client import (
    CommandFinished,
    CommandOutput,
    CommandStarted,
    Done,
    Event,
    EventReader,
    FileChange,
    Notification,
    Plan,
    PlanStep,
    Problem,
    Reasoning,
    Text,
    TextDelta,
    TextRestarted,
    TokensUsed,
    ToolCall,
    TurnFailed,
    Usage,
    make,
)

ABOUT = {"threadId": "t", "turnId": "turn-1"}
COMMAND: dict[str, Any] = {
    "type": "commandExecution",
    "id": "i",
    "command": "ls",
    "cwd": "/w",
    "commandActions": [],
    "status": "inProgress",
}
CHANGE = {"path": "/w/a", "kind": {"type": "add"}, "diff": "+x"}


def read(method: str, **params: Any) -> Event | None:
    events = list(EventReader("turn-1").read(make(method, {**ABOUT, **params})))
    assert len(events) <= 1
    return events[0] if events else None


def item_completed(**item: Any) -> Event | None:
    return read("item/completed", item={"id": "i", **item}, completedAtMs=0)


def test_text() -> None:
    assert read("item/agentMessage/delta", itemId="i", delta="he") == TextDelta(text="he", item_id="i")
    for phase, final in (("final_answer", True), ("commentary", False)):
        found = item_completed(type="agentMessage", text="hello", phase=phase)
        assert found == Text(text="hello", item_id="i", final=final)


def test_reasoning() -> None:
    found = item_completed(type="reasoning", summary=["one", "two"], content=["raw"])
    assert found == Reasoning(text="one\n\ntwo", item_id="i")
    assert item_completed(type="reasoning", summary=[], content=["raw"]) == Reasoning(text="raw", item_id="i")
    assert item_completed(type="reasoning", summary=[], content=[]) is None


def test_commands() -> None:
    assert read("item/started", item=COMMAND, startedAtMs=0) == CommandStarted(
        command="ls", command_line="ls", cwd="/w", item_id="i"
    )
    assert read("item/commandExecution/outputDelta", itemId="i", delta="a\n") == CommandOutput(text="a\n", item_id="i")
    ended = {**COMMAND, "status": "completed", "aggregatedOutput": "a\n", "exitCode": 0, "durationMs": 5}
    assert item_completed(**ended) == CommandFinished(
        command="ls", command_line="ls", output="a\n", exit_code=0, status="completed", duration_ms=5, item_id="i"
    )
    assert item_completed(**{**COMMAND, "status": "declined"}) == CommandFinished(
        command="ls", command_line="ls", output="", exit_code=None, status="declined", duration_ms=None, item_id="i"
    )


@pytest.mark.parametrize("event", ["item/started", "item/completed"])
def test_a_command_is_what_the_model_asked_for(event: str) -> None:
    line = "/bin/bash -lc 'echo $HOME | wc -c'"
    found = read(event, item={**COMMAND, "command": line}, startedAtMs=0, completedAtMs=0)
    assert isinstance(found, CommandStarted | CommandFinished)
    assert (found.command, found.command_line) == ("echo $HOME | wc -c", line)


def test_a_text_that_starts_again() -> None:
    reader = EventReader("turn-1")

    def told(method: str, **params: Any) -> list[Event]:
        return list(reader.read(make(method, {**ABOUT, **params})))

    def said(item_id: str) -> list[Event]:
        item = {"type": "agentMessage", "id": item_id, "text": "whole"}
        return told("item/completed", item=item, completedAtMs=0)

    def failed(*, retry: bool) -> list[Event]:
        return told("error", error={"message": "Reconnecting... 1/5"}, willRetry=retry)

    problem = Problem(message="Reconnecting... 1/5", will_retry=True)
    assert failed(retry=True) == [problem], "nothing was shown"
    told("item/agentMessage/delta", itemId="ended", delta="who")
    said("ended")
    told("item/agentMessage/delta", itemId="begun", delta="he")
    told("item/agentMessage/delta", itemId="begun", delta="ll")
    assert failed(retry=True) == [problem, TextRestarted(item_id="begun")]
    assert failed(retry=True) == [problem], "it was told once"
    told("item/agentMessage/delta", itemId="again", delta="he")
    assert TextRestarted(item_id="again") not in failed(retry=False), "it does not start again"


def test_changes_of_files() -> None:
    found = item_completed(type="fileChange", changes=[CHANGE], status="completed")
    assert isinstance(found, FileChange)
    assert (found.paths, found.status, found.changes[0].diff) == (("/w/a",), "completed", "+x")


def test_calls_of_tools() -> None:
    ours = item_completed(type="dynamicToolCall", tool="add", arguments={"a": 1}, status="completed")
    assert ours == ToolCall(tool="add", arguments={"a": 1}, status="completed", server=None, item_id="i")
    theirs = item_completed(type="mcpToolCall", server="s", tool="find", arguments={}, status="failed")
    assert theirs == ToolCall(tool="find", arguments={}, status="failed", server="s", item_id="i")


def test_a_plan() -> None:
    found = read("turn/plan/updated", plan=[{"step": "look", "status": "inProgress"}], explanation="why")
    assert found == Plan(steps=(PlanStep(step="look", status="inProgress"),), explanation="why")


def test_usage() -> None:
    counts = {"cachedInputTokens": 1, "inputTokens": 2, "outputTokens": 3, "reasoningOutputTokens": 0, "totalTokens": 5}
    total = {**counts, "inputTokens": 12, "totalTokens": 15}
    told = {"last": counts, "total": total, "modelContextWindow": 9, "cost": {"turnUsd": 0.5, "threadUsd": 2.0}}
    thread = TokensUsed(input_tokens=12, cached_input_tokens=1, output_tokens=3, total_tokens=15, cost_usd=2.0)
    assert read("thread/tokenUsage/updated", tokenUsage=told) == Usage(
        input_tokens=12,
        cached_input_tokens=1,
        output_tokens=3,
        total_tokens=15,
        context_window=9,
        cost_usd=0.5,
        turn_usage=TokensUsed(input_tokens=2, cached_input_tokens=1, output_tokens=3, total_tokens=5, cost_usd=0.5),
        thread_usage=thread,
    )


def test_problems() -> None:
    assert read("error", error={"message": "hm"}, willRetry=True) == Problem(message="hm", will_retry=True)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("turn/started", {"turn": {"id": "turn-1", "items": [], "status": "inProgress"}}),
        ("item/started", {"item": {"type": "agentMessage", "id": "i", "text": ""}, "startedAtMs": 0}),
        ("item/started", {"item": {"type": "holographic"}, "startedAtMs": 0}),
        ("item/completed", {"item": {"type": "holographic"}, "completedAtMs": 0}),
        ("item/completed", {"item": {"no": "type"}, "completedAtMs": 0}),
        ("item/completed", {"item": {"type": "userMessage", "id": "i", "content": []}, "completedAtMs": 0}),
        ("item/completed", {"item": 7}),
        ("item/agentMessage/delta", {"delta": 7}),
        ("turn/plan/updated", {"plan": "none"}),
        ("error", {"error": None}),
        ("who/knows", {"new": True}),
    ],
)
def test_everything_else_is_no_event_and_no_error(method: str, params: dict[str, Any]) -> None:
    assert read(method, **params) is None


def test_the_end() -> None:
    reader = EventReader("turn-1")
    item = {"type": "agentMessage", "id": "i", "text": "hello"}
    assert not list(reader.read(make("item/completed", {**ABOUT, "item": item, "completedAtMs": 0})))
    turn = {"id": "turn-1", "items": [], "status": "completed"}
    text, done = reader.read(make("turn/completed", {"threadId": "t", "turn": turn}))
    assert text == Text(text="hello", item_id="i", final=True)
    assert isinstance(done, Done)
    assert done.result.final_response == "hello"


def test_the_end_of_a_turn_that_failed() -> None:
    turn = {"id": "turn-1", "items": [], "status": "failed", "error": {"message": "boom"}}
    reader = EventReader("turn-1")
    item = {"type": "agentMessage", "id": "i", "text": "half of it"}
    assert not list(reader.read(make("item/completed", {**ABOUT, "item": item, "completedAtMs": 0})))
    events = reader.read(make("turn/completed", {"threadId": "t", "turn": turn}))
    assert next(events) == Text(text="half of it", item_id="i", final=False)
    with pytest.raises(TurnFailed, match="boom"):
        next(events)


def test_which_message_is_the_answer() -> None:
    """The mark of the model says so; without one, what the turn did next."""
    tokens = dict.fromkeys(("cachedInputTokens", "inputTokens", "outputTokens", "reasoningOutputTokens"), 1)
    usage = {"last": {**tokens, "totalTokens": 2}, "total": {**tokens, "totalTokens": 2}}
    used = make("thread/tokenUsage/updated", {**ABOUT, "tokenUsage": usage})
    ran = make("item/started", {**ABOUT, "item": COMMAND, "startedAtMs": 0})
    planned = make("turn/plan/updated", {**ABOUT, "plan": []})
    ended = make("turn/completed", {"threadId": "t", "turn": {"id": "turn-1", "items": [], "status": "completed"}})

    def said(text: str, phase: str | None = None) -> Notification:
        item = {"type": "agentMessage", "id": text, "text": text, "phase": phase}
        return make("item/completed", {**ABOUT, "item": item, "completedAtMs": 0})

    def read_all(*told: Notification) -> list[str]:
        reader = EventReader("turn-1")
        events = [event for notification in told for event in reader.read(notification)]
        return [
            f"{event.text}!" if isinstance(event, Text) and event.final else getattr(event, "text", event.kind)
            for event in events
        ]

    assert read_all(said("a"), used, ran, said("b"), used, ended) == (
        ["a", "usage", "command_started", "b!", "usage", "done"]
    )
    assert read_all(said("a"), planned, said("b"), said("c"), ended) == ["a", "plan", "b", "c!", "done"]
    assert read_all(said("a", "final_answer"), said("b"), ended) == ["a!", "b", "done"]
    assert read_all(said("a", "commentary"), said("b"), ended) == ["a", "b!", "done"]
