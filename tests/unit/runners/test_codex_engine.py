"""`codex exec --json`: its command line, and what its lines mean."""

from __future__ import annotations

import json
from typing import Any

import pytest

from treadle.errors import ArgumentValueError
from treadle.runners import (
    ActionEvent,
    CodexRunner,
    CompletedEvent,
    Ending,
    OutputReader,
    ResumeToken,
    RunOptions,
    RunRequest,
    StartedEvent,
    find_exec_only_flag,
)
from treadle.runners.codex import ENGINE

SESSION = "019b73c4-0c3f-7701-a0bb-aac6b4d8a3bc"
TOKEN = ResumeToken("codex", SESSION)
STARTED = {"type": "thread.started", "thread_id": SESSION}
TURN = {"type": "turn.started"}
DONE: dict[str, Any] = {
    "type": "turn.completed",
    "usage": {"input_tokens": 30, "cached_input_tokens": 4, "output_tokens": 7},
}


def play(
    *messages: dict[str, Any],
    code: int = 0,
    resume: ResumeToken | None = None,
    carried: dict[str, Any] | None = None,
    stopped: str | None = None,
) -> list[Any]:
    reading = OutputReader(ENGINE, RunRequest(prompt="", resume=resume, cwd="/project", carried=carried))
    events: list[Any] = []
    for message in messages:
        events += reading.receive(json.dumps(message).encode() + b"\n")
    return [*events, *reading.end(Ending(exit_code=code, stopped=stopped, lines=len(messages)))]


def item(step: str, /, **members: object) -> dict[str, Any]:
    return {"type": f"item.{step}", "item": {"id": "item_0", **members}}


def message(text: str, phase: str | None = None) -> dict[str, Any]:
    return item("completed", type="agent_message", text=text, **({"phase": phase} if phase else {}))


def arguments(runner: CodexRunner, resume: ResumeToken | None = None, options: RunOptions | None = None) -> list[str]:
    state = runner.new_state("hi", resume)
    return runner.build_args("hi", resume, state=state, options=options)


def test_the_command_line() -> None:
    base = ["exec", "--json", "--skip-git-repo-check", "--color=never"]
    assert arguments(CodexRunner(codex_cmd="codex", extra_args=[])) == [*base, "-"]
    assert arguments(CodexRunner(extra_args=["-c", "notify=[]"])) == ["-c", "notify=[]", *base, "-"]
    assert arguments(CodexRunner(), TOKEN) == [*base, "resume", SESSION, "-"]
    options = RunOptions(model="gpt-5.5", effort="high")
    assert arguments(CodexRunner(model="other"), None, options) == [
        "--model",
        "gpt-5.5",
        "-c",
        "model_reasoning_effort=high",
        *base,
        "-",
    ]


def test_an_option_is_never_a_session() -> None:
    with pytest.raises(ArgumentValueError):
        arguments(CodexRunner(), ResumeToken("codex", "--dangerously-bypass-approvals-and-sandbox"))


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], None),
        (["-c", "a=b", "--model", "m", "--output"], None),
        (["--json"], "--json"),
        (["-c", "x=1", "--color=always"], "--color=always"),
        (["--output-schema=s.json"], "--output-schema=s.json"),
        (["--output-last-message", "f"], "--output-last-message"),
        (["-o", "f"], "-o"),
        (["--skip-git-repo-check"], "--skip-git-repo-check"),
        (["--ephemeral"], "--ephemeral"),
        (["--thread-source", "bot"], "--thread-source"),
    ],
)
def test_flags_that_belong_behind_exec(words: list[str], found: str | None) -> None:
    assert find_exec_only_flag(words) == found
    assert CodexRunner().find_exec_only_flag(words) == found
    if found is not None:
        with pytest.raises(ValueError, match=found):
            CodexRunner(extra_args=words)


def test_a_warning_before_the_start_keeps_its_place() -> None:
    warning, started, completed = play({"type": "error", "message": "old config"}, STARTED, DONE)
    assert isinstance(warning, ActionEvent)
    assert (warning.action.kind, warning.action.title, warning.phase, warning.ok) == (
        "warning",
        "old config",
        "completed",
        False,
    )
    assert started == StartedEvent("codex", TOKEN)
    assert isinstance(completed, CompletedEvent)


@pytest.mark.parametrize("reason", ["", " (high demand)"])
def test_reconnecting_is_one_note_that_is_updated(reason: str) -> None:
    notices = [{"type": "error", "message": f"Reconnecting... {attempt}/5{reason}"} for attempt in (1, 2, 3)]
    events = play(STARTED, TURN, *notices, message("hi"), DONE)
    told = [event for event in events if isinstance(event, ActionEvent) and event.action.id == "codex.reconnect"]
    assert [(event.phase, event.ok, event.action.kind) for event in told] == [
        ("started", None, "note"),
        ("updated", None, "note"),
        ("updated", None, "note"),
    ]
    assert told[-1].action.title == f"Reconnecting... 3/5{reason}"
    assert events[-1].ok


def test_waiting_for_a_provider_is_a_note() -> None:
    text = "Waiting for provider `x`: 5 of its requests are running (3 waiting)"
    events = play(STARTED, TURN, {"type": "error", "message": text}, message("hi"), DONE)
    assert [event.action.title for event in events if isinstance(event, ActionEvent)][1] == text
    assert events[-1].ok


@pytest.mark.parametrize(
    ("messages", "answer"),
    [
        ([message("one"), message("two")], "two"),
        ([message("final", "final_answer"), message("later")], "final"),
        ([message("a", "final_answer"), message("b", "final_answer")], "b"),
        ([message("plain"), message("aside", "commentary")], "plain"),
        ([message("aside", "commentary")], ""),
        ([], ""),
    ],
)
def test_which_message_is_the_answer(messages: list[dict[str, Any]], answer: str) -> None:
    assert play(STARTED, TURN, *messages, DONE)[-1].answer == answer


def test_commentary_is_a_note() -> None:
    note = play(STARTED, TURN, message("looking at it", "commentary"), DONE)[2]
    assert (note.action.kind, note.action.title, note.phase, note.ok) == ("note", "looking at it", "completed", True)


def test_every_turn_begins_anew() -> None:
    events = play(STARTED, TURN, message("first", "final_answer"), DONE, TURN, message("second"), DONE)
    assert events[-1].answer == "second"
    assert [e.action.id for e in events if isinstance(e, ActionEvent)] == ["turn_1", "turn_2"]


def test_unknown_things_change_nothing() -> None:
    odd = [item("completed", type="collab_tool_call", tool="spawn"), item("started", type="hologram"), {"type": "new"}]
    assert play(STARTED, TURN, *odd, DONE) == play(STARTED, TURN, DONE)


def test_an_end_without_a_verdict() -> None:
    assert play(STARTED, TURN, message("half"))[-1] == CompletedEvent("codex", True, "half", TOKEN)
    nothing = play()[-1]
    assert (nothing.ok, nothing.error) == (False, "codex exec ended without an answer.")
    foreign = play({"kind": "v0"})[-1]
    assert "version" in foreign.error


def test_a_failed_process_says_only_its_code() -> None:
    *_, warning, completed = play(STARTED, TURN, code=3)
    assert (warning.action.kind, warning.ok) == ("warning", False)
    assert completed == CompletedEvent("codex", False, "", TOKEN, "codex exec failed (rc=3).")


def test_an_answer_stands_when_the_process_fails_after_it() -> None:
    *_, warning, completed = play(STARTED, TURN, message("hi"), DONE, code=5)
    assert "rc=5" in warning.action.title
    assert (completed.ok, completed.answer) == (True, "hi")


def test_a_failure_is_reported_once() -> None:
    failed = {"type": "turn.failed", "error": {"message": "status 401"}}
    events = play(STARTED, TURN, {"type": "error", "message": "status 401"}, failed, code=1)
    assert [type(event).__name__ for event in events] == ["StartedEvent", "ActionEvent", "CompletedEvent"]
    assert (events[-1].ok, events[-1].error) == (False, "status 401")
    other = play(STARTED, TURN, {"type": "error", "message": "disk is slow"}, failed, code=1)
    assert other[2].action.title == "disk is slow"
    left = play(STARTED, TURN, {"type": "error", "message": "disk is slow"}, code=1)
    assert left[2].action.title == "disk is slow"


def test_usage_is_that_of_the_run() -> None:
    assert play(STARTED, TURN, DONE)[-1].usage == DONE["usage"]
    carried = {"usage": {"input_tokens": 11, "cached_input_tokens": 3}}
    assert play(STARTED, TURN, DONE, resume=TOKEN, carried=carried)[-1].usage == {
        "input_tokens": 19,
        "cached_input_tokens": 1,
        "output_tokens": 7,
    }
    unknown = play(STARTED, TURN, DONE, resume=TOKEN)[-1].usage
    assert unknown == {**DONE["usage"], "scope": "session"}


def test_what_the_next_run_must_know() -> None:
    reading = OutputReader(ENGINE, RunRequest(prompt=""))
    list(reading.receive(json.dumps(DONE).encode() + b"\n"))
    assert reading.carry() == {"usage": DONE["usage"]}


def test_a_command() -> None:
    command = {"type": "command_execution", "command": "/bin/bash -lc 'cat /project/a.txt'"}
    started = item("started", **command, aggregated_output="", exit_code=None, status="in_progress")
    failed = item("completed", **command, aggregated_output="no\n", exit_code=3, status="failed")
    _, _, first, second, _ = play(STARTED, TURN, started, failed, DONE)
    assert (first.action.kind, first.action.title, first.phase, first.ok) == ("command", "cat a.txt", "started", None)
    assert (second.action.id, second.phase, second.ok) == ("item_0", "completed", False)
    assert second.action.detail["exit_code"] == 3
    assert second.action.detail["output"] == "no\n"


@pytest.mark.parametrize(
    ("members", "kind", "title", "ok"),
    [
        ({"type": "mcp_tool_call", "server": "docs", "tool": "find", "status": "completed"}, "tool", "docs.find", True),
        ({"type": "mcp_tool_call", "server": "docs", "tool": "find", "status": "failed"}, "tool", "docs.find", False),
        ({"type": "web_search", "query": "asyncio"}, "web_search", "asyncio", True),
        ({"type": "reasoning", "text": "**Thinking**\n\nabout it"}, "note", "**Thinking** about it", True),
        ({"type": "error", "message": "no metadata"}, "warning", "no metadata", False),
        (
            {"type": "todo_list", "items": [{"text": "a", "completed": True}, {"text": "b", "completed": False}]},
            "note",
            "todo 1/2: b",
            True,
        ),
        (
            {
                "type": "file_change",
                "status": "completed",
                "changes": [{"path": "/project/a.py", "kind": "add"}, {"path": "/b.py", "kind": "update"}],
            },
            "file_change",
            "add a.py, update /b.py",
            True,
        ),
    ],
)
def test_items(members: dict[str, Any], kind: str, title: str, ok: bool) -> None:
    event = play(STARTED, TURN, item("completed", **members), DONE)[2]
    assert (event.action.kind, event.action.title, event.phase, event.ok) == (kind, title, "completed", ok)
