"""What the runs of real engines said, as the events of a turn, and what their failures are."""

from __future__ import annotations

from typing import Any

import pytest

from engine_streams import Stream, cases
from treadle.host import Delta, EngineItems, ItemCompleted, ItemStarted, Notice, RuntimeEvent, ThreadNamed, engine_fault
from treadle.runners import (
    Action,
    ActionEvent,
    CompletedEvent,
    Ending,
    Event,
    OutputReader,
    ResumeToken,
    RunRequest,
    StartedEvent,
    TextDelta,
    find_engine,
)

ENGINES = ("codex", "claude", "opencode", "pi")


def told(*events: Event) -> list[RuntimeEvent]:
    items = EngineItems("t", "/project")
    return [out for event in events for out in items.receive(event)]


def action(kind: Any, title: str, phase: Any = "completed", *, id: str = "a", **more: Any) -> ActionEvent:
    detail = more.pop("detail", {})
    return ActionEvent("claude", Action(id, kind, title, detail), phase, **{"ok": True, **more})


def completed(events: list[RuntimeEvent]) -> list[Any]:
    return [event.item for event in events if isinstance(event, ItemCompleted)]


def played(stream: Stream) -> list[Event]:
    reading = OutputReader(find_engine(stream.engine), RunRequest(prompt="x", cwd="/project"))
    code = stream.rc if stream.rc >= 0 else 128 - stream.rc
    outputs: list[Any] = [*reading.receive(b"".join(stream.lines)), *reading.end(Ending(exit_code=code))]
    return [out for out in outputs if hasattr(out, "engine")]


@pytest.mark.parametrize("stream", [stream for engine in ENGINES for stream in cases(engine)], ids=str)
def test_recorded_runs(stream: Stream) -> None:
    events = played(stream)
    out = told(*events)
    started = [event.item.id for event in out if isinstance(event, ItemStarted)]  # type: ignore[union-attr]
    ended = [item.id for item in completed(out)]
    assert len(set(started)) == len(started)
    assert len(set(ended)) == len(ended)
    assert set(started) <= set(ended)
    last = events[-1]
    assert isinstance(last, CompletedEvent)
    if last.answer:
        answer = completed(out)[-1]
        assert (answer.type, answer.text) == ("agentMessage", last.answer)
        assert answer.phase == ("final_answer" if last.ok else "partial_answer")
    begun = [event.action.kind for event in events if isinstance(event, ActionEvent) and event.phase == "completed"]
    assert sum(item.type == "commandExecution" for item in completed(out)) >= begun.count("command")
    assert sum(item.type == "fileChange" for item in completed(out)) >= begun.count("file_change")


def test_a_command_a_patch_a_search_and_a_tool() -> None:
    out = told(
        StartedEvent("claude", ResumeToken("claude", "s1")),
        action("command", "ls", "started", detail={"input": {"command": "ls -l"}}),
        action("command", "ls", ok=False, detail={"input": {"command": "ls -l"}, "output": "no", "exit_code": 2}),
        action("file_change", "edit a.py", id="b", detail={"tool": "Edit", "input": {"file_path": "/project/a.py"}}),
        action("web_search", "weather", id="c"),
        action("tool", "Grep: x", id="d", detail={"tool": "Grep", "input": {"pattern": "x"}, "output": "found"}),
    )
    assert out[0] == ThreadNamed("s1")
    assert isinstance(out[1], ItemStarted)
    command, change, search, tool = completed(out)
    assert (command.command, command.status, command.exit_code) == ("ls -l", "failed", 2)
    assert (command.aggregated_output, command.cwd) == ("no", "/project")
    assert [(each.path, each.kind.type) for each in change.changes] == [("/project/a.py", "update")]
    assert search.query == "weather"
    assert (tool.tool, tool.arguments, tool.success) == ("Grep", {"pattern": "x"}, True)
    assert tool.content_items[0].text == "found"


def test_ids_of_two_runs_are_not_the_same() -> None:
    first, second = (EngineItems(turn, "/") for turn in ("t1", "t2"))
    ids = {completed(items.receive(action("tool", "x")))[0].id for items in (first, second)}
    assert len(ids) == 2


def test_what_was_begun_and_not_ended_is_ended_with_the_run() -> None:
    out = told(
        action("command", "sleep 1000", "started"),
        CompletedEvent("claude", ok=False, answer="", error="cancelled"),
    )
    assert [(item.type, item.status) for item in completed(out)] == [("commandExecution", "failed")]


def test_words_on_the_way_are_thoughts_and_notes_are_told_once() -> None:
    out = told(
        action("note", "I look", id="n1", message="I look at it first"),
        action("note", "retry 1/3", "started", id="r"),
        action("note", "retry 2/3", "updated", id="r"),
        action("note", "retry 2/3", id="r"),
        action("warning", "Bash was not allowed", id="w", message="allow it"),
        action("turn", "turn 1", "started", id="t"),
        action("telemetry", "x", id="y"),
    )
    assert completed(out)[0].summary == ("I look at it first",)
    assert [event.message for event in out if isinstance(event, Notice)] == [
        "retry 1/3",
        "retry 2/3",
        "Bash was not allowed: allow it",
    ]


def test_an_answer_that_grows() -> None:
    out = told(
        TextDelta("claude", "I "),
        TextDelta("claude", "look"),
        action("note", "I look", message="I look"),
        TextDelta("claude", "done"),
        CompletedEvent("claude", ok=True, answer="done"),
    )
    said = completed(out)
    assert [(item.text, item.phase) for item in said] == [("I look", "commentary"), ("done", "final_answer")]
    grown = [(event.item_id, event.text) for event in out if isinstance(event, Delta)]
    assert grown == [(said[0].id, "I "), (said[0].id, "look"), (said[1].id, "done")]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("Invalid API key · Please run /login", "auth"),
        ("401 mock error 401", "auth"),
        ("Credit balance is too low", "usage_limit"),
        ("You have hit your limit", "usage_limit"),
        ("Prompt is too long", "context_window"),
        ("exceeded retry limit, last status: 429 Too Many Requests", "rate_limited"),
        ("API Error: 529 Overloaded", "overloaded"),
        ("Unable to connect to API (ECONNREFUSED)", "network"),
        ("the model gave up", "other"),
    ],
)
def test_failures_by_their_words(error: str, kind: str) -> None:
    fault = engine_fault("claude", error, ending=Ending(exit_code=0), log_in="claude, and in it /login")
    assert fault.kind == kind
    assert ("Log in: claude" in fault.advice) == (kind == "auth")


def test_a_program_that_died_tells_its_code_and_its_last_words_without_secrets() -> None:
    stderr = "\x1b[31mpanic\x1b[0m: token hunter2hunter2 and Bearer abcdefghijkl"
    fault = engine_fault(
        "pi", "pi failed (rc=137).", ending=Ending(exit_code=137), stderr=stderr, secrets=["hunter2hunter2"]
    )
    assert (fault.kind, fault.exit_code, fault.retire) == ("dead", 137, False)
    assert "killed by signal 9" in fault.message
    assert fault.stderr_tail == "panic: token [redacted] and Bearer [redacted]"
    killed = engine_fault("pi", "pi failed (rc=137).", ending=Ending(exit_code=137), stderr="plugin: 429, again later")
    assert (killed.kind, killed.retryable) == ("dead", False)
    gone = engine_fault("pi", "pi failed (rc=1).", ending=Ending(exit_code=1), lost_session=True)
    assert gone.retire
    assert engine_fault("pi", "stopped", ending=Ending(exit_code=None, stopped="stopped")).kind == "deadline"


def test_a_login_that_is_missing_is_only_a_guess() -> None:
    failed, killed = (
        engine_fault("pi", "pi failed.", ending=Ending(exit_code=code), no_login=True, log_in="pi, and in it /login")
        for code in (1, 137)
    )
    assert (failed.kind, failed.advice) == ("dead", "There seems to be no login; log in: pi, and in it /login")
    assert (killed.kind, killed.advice) == ("dead", "")
