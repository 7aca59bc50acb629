"""`claude -p`: its command line, and what its lines mean."""

from __future__ import annotations

import json
from typing import Any

import pytest

from treadle.errors import ArgumentTypeError
from treadle.runners import (
    MAX_OPEN,
    ActionEvent,
    ApprovalAnswer,
    ApprovalAsk,
    ClaudeRunner,
    CloseInput,
    CompletedEvent,
    Ending,
    OutputReader,
    Reply,
    ResumeToken,
    RunOptions,
    RunRequest,
    StartedEvent,
    TextDelta,
    Withdrawn,
)
from treadle.runners.claude import ENGINE

SESSION = "5575bb59-b940-4a07-bfd2-c614e3347b63"
TOKEN = ResumeToken("claude", SESSION)
INIT = {
    "type": "system",
    "subtype": "init",
    "session_id": SESSION,
    "model": "opus",
    "cwd": "/project",
    "tools": ["Bash"],
}
BASE = ["-p", "--output-format", "stream-json", "--verbose"]


async def yes(ask: ApprovalAsk) -> bool:
    return True


ASKING = RunOptions(approve=yes)


def play(
    *messages: dict[str, Any],
    code: int | None = 0,
    resume: ResumeToken | None = None,
    options: RunOptions | None = None,
    stopped: str | None = None,
) -> list[Any]:
    reading = OutputReader(
        ENGINE, RunRequest(prompt="", resume=resume, cwd="/project", options=options or RunOptions())
    )
    events: list[Any] = []
    for message in messages:
        events += reading.receive(json.dumps(message).encode() + b"\n")
    return [*events, *reading.end(Ending(exit_code=code, stopped=stopped, lines=len(messages)))]


def says(*blocks: dict[str, Any], parent: str | None = None, **members: object) -> dict[str, Any]:
    message = {"role": "assistant", "content": list(blocks)}
    return {"type": "assistant", "message": message, "parent_tool_use_id": parent, **members}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def tool(id: str = "t1", name: str = "Bash", **given: object) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": given}


def tool_said(content: object, id: str = "t1", **members: object) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": id, "content": content, **members}
    return {"type": "user", "message": {"role": "user", "content": [block]}}


def result(words: str | None = "done", **members: object) -> dict[str, Any]:
    return {"type": "result", "subtype": "success", "is_error": False, "result": words, **members}


def retry(attempt: int, **members: object) -> dict[str, Any]:
    about = {"attempt": attempt, "max_retries": 3, "error_status": 529, "error": "overloaded"}
    return {"type": "system", "subtype": "api_retry", **about, **members}


def told(events: list[Any]) -> list[tuple[str, str, str, bool | None]]:
    """The actions in short: id, phase, title, ok."""
    actions = [event for event in events if isinstance(event, ActionEvent)]
    return [(event.action.id, event.phase, event.action.title, event.ok) for event in actions]


def arguments(runner: ClaudeRunner, resume: ResumeToken | None = None, options: RunOptions | None = None) -> list[str]:
    return runner.build_args("hi", resume, state=runner.new_state("hi", resume), options=options)


# --- the command line and what is written ---


def test_the_command_line() -> None:
    assert arguments(ClaudeRunner()) == BASE
    assert arguments(ClaudeRunner(), TOKEN) == [*BASE, "--resume", SESSION]
    options = RunOptions(model="opus", effort="high")
    assert arguments(ClaudeRunner(model="other"), None, options) == [*BASE, "--model", "opus", "--effort", "high"]
    asking = [*BASE, "--input-format", "stream-json", "--permission-prompt-tool", "stdio"]
    assert arguments(ClaudeRunner(approve=yes)) == asking
    assert arguments(ClaudeRunner(), None, ASKING) == asking


def test_what_is_chosen_for_claude_comes_first() -> None:
    runner = ClaudeRunner(
        extra_args=["--max-turns", "3"], allowed_tools=["Read", "Bash(git *)"], permission_mode="plan", stream=True
    )
    chosen = ["--max-turns", "3", "--allowedTools", "Read,Bash(git *)", "--permission-mode", "plan"]
    assert arguments(runner) == [*chosen, "--include-partial-messages", *BASE]


def test_nothing_is_allowed_that_nobody_has_allowed() -> None:
    assert "--allowedTools" not in arguments(ClaudeRunner())


@pytest.mark.parametrize(
    "words",
    [["-c", "a=b"], ["--resume=x"], ["--model", "m", "--input-format", "text"], ["--fork-session"], ["--", "x"]],
)
def test_words_that_would_lead_to_another_session_or_another_language_are_refused(words: list[str]) -> None:
    with pytest.raises(ValueError, match=r"cannot be added to the arguments of claude"):
        ClaudeRunner(extra_args=words)


def test_one_tool_is_still_a_list() -> None:
    with pytest.raises(ArgumentTypeError, match="allowed_tools"):
        ClaudeRunner(allowed_tools="Bash")


def test_the_prompt_is_text_and_all_that_is_written() -> None:
    request = RunRequest(prompt="say “hi”\n")
    assert ENGINE.prompt(request) == "say “hi”\n".encode()
    assert not ENGINE.keeps_input_open(request)


def test_the_prompt_is_a_message_when_claude_may_ask() -> None:
    request = RunRequest(prompt='two\nlines "quoted" ä', options=ASKING)
    hello, user = [json.loads(line) for line in ENGINE.prompt(request).splitlines()]
    assert (hello["type"], hello["request"]["subtype"]) == ("control_request", "initialize")
    assert user == {"type": "user", "message": {"role": "user", "content": 'two\nlines "quoted" ä'}}
    assert ENGINE.keeps_input_open(request)


@pytest.mark.parametrize("flag", ["--resume", "-r"])
def test_resume_lines(flag: str) -> None:
    runner = ClaudeRunner()
    assert runner.extract_resume(f"done\n`claude {flag} {SESSION}`") == TOKEN
    assert runner.format_resume(TOKEN) == f"`claude --resume {SESSION}`"
    assert runner.extract_resume(f"claude {flag} --dangerously-skip-permissions") is None


# --- a run ---


def test_an_answer() -> None:
    events = play(INIT, says(text("done")), result(session_id=SESSION))
    meta = {"cwd": "/project", "model": "opus", "tools": ["Bash"]}
    assert events == [StartedEvent("claude", TOKEN, "opus", meta), CompletedEvent("claude", True, "done", TOKEN)]


def test_what_is_said_on_the_way_becomes_a_note_at_its_place() -> None:
    events = play(
        INIT,
        says(text("First I look.")),
        says(tool(command="ls")),
        tool_said("a.py", is_error=False),
        says(text("Now\n I know.")),
        says(text("done")),
        result(),
    )
    assert told(events) == [
        ("claude.note.1", "completed", "First I look.", True),
        ("t1", "started", "ls", None),
        ("t1", "completed", "ls", True),
        ("claude.note.2", "completed", "Now I know.", True),
    ]
    assert events[-1].answer == "done"


def test_a_last_text_that_is_not_the_answer_is_not_lost() -> None:
    events = play(INIT, says(text("By the way.")), result("done"))
    assert told(events) == [("claude.note.1", "completed", "By the way.", True)]
    assert events[-1].answer == "done"


def test_thoughts_are_notes_and_empty_ones_are_nothing() -> None:
    events = play(
        INIT,
        says({"type": "thinking", "thinking": ""}, {"type": "thinking", "thinking": "hm " * 200}),
        says({"type": "redacted_thinking", "data": "x"}),
        result(),
    )
    (note,) = [event for event in events if isinstance(event, ActionEvent)]
    assert (note.action.kind, note.message, len(note.action.title)) == ("note", "hm " * 200, 300)


@pytest.mark.parametrize(
    ("block", "kind", "title"),
    [
        (tool(command="cat /project/a.py"), "command", "cat a.py"),
        (tool(name="Edit", file_path="/project/src/a.py"), "file_change", "edit src/a.py"),
        (tool(name="Read", file_path="/etc/hosts"), "tool", "Read: /etc/hosts"),
        (tool(name="WebSearch", query="weather"), "web_search", "weather"),
        ({**tool(name="web_search", query="weather"), "type": "server_tool_use"}, "web_search", "weather"),
        (tool(name="Task", description="look", prompt="go and look"), "subagent", "look"),
        (tool(name="Agent", description="look", prompt="go and look"), "subagent", "look"),
        (tool(name="TaskCreate", subject="look", description="look at it"), "tool", "TaskCreate: look"),
        (tool(name="TodoWrite", todos=[{"content": "a", "status": "completed"}]), "note", "todo 1/1"),
        (tool(name="mcp__my_server__get__it"), "tool", "my_server.get__it"),
    ],
)
def test_tools(block: dict[str, Any], kind: str, title: str) -> None:
    started = play(INIT, says(block))[1]
    assert (started.phase, started.action.kind, started.action.title) == ("started", kind, title)
    assert started.action.detail == {"tool": block["name"], "input": block["input"]}


@pytest.mark.parametrize(
    ("ended", "ok", "more"),
    [
        (tool_said("hi", is_error=False), True, {"output": "hi"}),
        (tool_said([text("a"), {"type": "image"}, text("b")]), True, {"output": "a\nb"}),
        (tool_said("", is_error=False), True, {}),
        (tool_said("Exit code 3\nno", is_error=True), False, {"output": "Exit code 3\nno", "exit_code": 3}),
        (tool_said("Exit code 3 is what it says"), True, {"output": "Exit code 3 is what it says"}),
        (tool_said("x" * 9000), True, {"output": "…" + "x" * 4000}),
    ],
)
def test_the_end_of_a_tool(ended: dict[str, Any], ok: bool, more: dict[str, Any]) -> None:
    completed = play(INIT, says(tool(command="x")), ended)[2]
    assert (completed.action.id, completed.phase, completed.ok) == ("t1", "completed", ok)
    assert completed.action.detail == {"tool": "Bash", "input": {"command": "x"}, **more}


def test_the_end_of_a_tool_that_nobody_has_heard_of_is_nothing() -> None:
    assert told(play(INIT, tool_said("x", id="other"), result())) == []


def test_tools_without_an_end_do_not_pile_up() -> None:
    state = ENGINE.start(RunRequest(prompt=""))
    for number in range(MAX_OPEN + 50):
        list(ENGINE.translate(state, json.dumps(says(tool(id=f"t{number}"))).encode()))
    assert len(state.open) == MAX_OPEN


def test_a_subagent_is_seen_and_never_taken_for_the_answer() -> None:
    events = play(
        INIT,
        says(text("I'll ask.")),
        says(tool(id="t0", name="Task", description="look")),
        {"type": "user", "message": {"role": "user", "content": [text("go and look")]}, "parent_tool_use_id": "t0"},
        says({"type": "thinking", "thinking": "hm"}, parent="t0"),
        says(tool(command="ls"), parent="t0"),
        tool_said("a"),
        says(text("I found a."), parent="t0"),
        tool_said([text("I found a.")], id="t0"),
        code=1,
    )
    assert told(events)[:-1] == [
        ("claude.note.1", "completed", "I'll ask.", True),
        ("t0", "started", "look", None),
        ("claude.note.2", "completed", "hm", True),
        ("t1", "started", "ls", None),
        ("t1", "completed", "ls", True),
        ("claude.note.3", "completed", "I found a.", True),
        ("t0", "completed", "look", True),
    ]
    below = [event.action.id for event in events[1:-1] if event.action.detail.get("parent_tool_use_id") == "t0"]
    assert below == ["claude.note.2", "t1", "t1", "claude.note.3"]
    assert events[-1].answer == ""


def test_pieces_of_the_answer() -> None:
    def piece(kind: str, parent: str | None = None, **delta: str) -> dict[str, Any]:
        event = {"type": "content_block_delta", "delta": {"type": kind, **delta}}
        return {"type": "stream_event", "event": event, "parent_tool_use_id": parent}

    events = play(
        INIT,
        {"type": "stream_event", "event": {"type": "message_start", "message": {}}},
        piece("text_delta", text="do"),
        piece("text_delta", "t0", text="not mine"),
        piece("input_json_delta", partial_json="{"),
        piece("thinking_delta", thinking="hm"),
        piece("text_delta", text="ne"),
        says(text("done")),
        result(),
    )
    assert events[1:-1] == [TextDelta("claude", "do"), TextDelta("claude", "ne")]


# --- trying again ---


def test_trying_again_is_one_note() -> None:
    events = play(INIT, retry(1), retry(2), says(text("done")), result())
    assert told(events) == [
        ("claude.retry", "started", "retry 1/3: 529 overloaded", None),
        ("claude.retry", "updated", "retry 2/3: 529 overloaded", None),
        ("claude.retry", "completed", "retry 2/3: 529 overloaded", True),
    ]


def test_trying_again_later_is_another_note() -> None:
    events = play(INIT, retry(1), says(tool(command="x")), retry(1, error=None), says(text("done")), result())
    ids = [(id, phase) for id, phase, _, _ in told(events) if id != "t1"]
    assert ids == [(id, phase) for id in ("claude.retry", "claude.retry.2") for phase in ("started", "completed")]


def test_trying_again_in_vain() -> None:
    words = "API Error: 500"
    events = play(INIT, retry(1), says(text(words), error="server_error"), result(words, is_error=True), code=1)
    assert [ok for *_, ok in told(events)] == [None, False]
    assert events[-1] == CompletedEvent("claude", False, "", TOKEN, words)  # said once


# --- ends ---


@pytest.mark.parametrize(
    ("last", "error"),
    [
        (result(None, is_error=True, errors=["no such session", "really"]), "no such session\nreally"),
        (result("API Error: 401", is_error=True), "API Error: 401"),
        (
            result(None, is_error=True, subtype="error_max_turns"),
            "claude stopped: it had reached its maximum number of turns",
        ),
        (
            result(None, is_error=True, subtype="error_during_execution", errors=["[ede_diagnostic] result_type=user"]),
            "claude was interrupted",
        ),
        (result(None, is_error=True, subtype="error_of_tomorrow"), "claude failed: error of tomorrow"),
        (result(""), "claude gave no answer: the model's reply was empty or cut off"),
    ],
)
def test_failures(last: dict[str, Any], error: str) -> None:
    assert play(INIT, last, code=1)[-1] == CompletedEvent("claude", False, "", TOKEN, error)


def test_what_was_said_before_a_failure_is_kept() -> None:
    completed = play(INIT, says(text("Half of it")), result(None, is_error=True, errors=["boom"]), code=1)[-1]
    assert (completed.answer, completed.error) == ("Half of it", "boom")


def test_a_session_that_is_not_there_fails_without_a_start() -> None:
    events = play(result(None, is_error=True, errors=["No conversation found"]), resume=TOKEN, code=1)
    assert events == [CompletedEvent("claude", False, "", TOKEN, "No conversation found")]


def test_another_session_than_asked_for() -> None:
    other = ResumeToken("claude", "123e4567-e89b-12d3-a456-426614174000")
    completed = play(INIT, result(), resume=other)[-1]
    assert not completed.ok
    assert "answered for another session" in completed.error


@pytest.mark.parametrize(
    ("messages", "code", "error"),
    [
        ([], 1, "claude failed (rc=1)."),
        ([INIT], 143, "claude failed (rc=143)."),
        ([INIT], None, "claude failed (rc=unknown)."),
        ([INIT], 0, "claude ended without a result."),
        ([], 0, "claude ended without an answer."),
    ],
)
def test_an_end_without_a_result(messages: list[dict[str, Any]], code: int | None, error: str) -> None:
    completed = play(*messages, code=code)[-1]
    assert (completed.ok, completed.error) == (False, error)


def test_cancelled() -> None:
    interrupted = result(None, is_error=True, subtype="error_during_execution")
    for messages in ([INIT, says(text("Half"))], [INIT, says(text("Half")), interrupted]):
        completed = play(*messages, stopped="cancelled", code=0)[-1]
        assert completed == CompletedEvent("claude", False, "Half", TOKEN, "cancelled")


def test_an_answer_by_schema_stands_beside_an_empty_text() -> None:
    assert play(INIT, result("", structured_output={"a": [1]}))[-1].answer == '{"a":[1]}'


def test_claude_may_go_on_by_itself_after_a_result() -> None:
    events = play(INIT, says(text("It builds.")), result("It builds."), INIT, says(text("Built.")), result("Built."))
    assert told(events) == [("claude.note.1", "completed", "It builds.", True)]
    assert events[-1] == CompletedEvent("claude", True, "Built.", TOKEN)


@pytest.mark.parametrize(
    "line",
    [b"Warning: something", b"[]", b"3", b"", b'{"type": "weather"}', b'{"type": "system", "subtype": "status"}'],
)
def test_what_is_not_known_is_nothing(line: bytes) -> None:
    assert list(ENGINE.translate(ENGINE.start(RunRequest(prompt="")), line)) == []


def test_a_shorter_conversation_is_told() -> None:
    compact = {"type": "system", "subtype": "compact_boundary", "compact_metadata": {"pre_tokens": 9}}
    note = play(INIT, compact, result())[1]
    assert (note.action.title, note.action.detail) == ("the conversation was compacted", {"pre_tokens": 9})


# --- usage ---


def test_usage_is_that_of_all_models() -> None:
    models = {
        "opus": {"inputTokens": 3, "outputTokens": 4, "cacheReadInputTokens": 5, "cacheCreationInputTokens": 6},
        "haiku": {"inputTokens": 10, "outputTokens": 20, "costUSD": 1},
    }
    completed = play(INIT, result(usage={"input_tokens": 1}, modelUsage=models, total_cost_usd=0.5))[-1]
    assert completed.usage == {
        "input_tokens": 24,
        "cached_input_tokens": 5,
        "cache_write_input_tokens": 6,
        "output_tokens": 24,
        "cost_usd": 0.5,
    }


def test_usage_without_models_is_that_of_the_conversation() -> None:
    used = {"input_tokens": 1, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 3, "output_tokens": 4}
    used_by = play(INIT, result(usage=used, modelUsage={}))[-1].usage
    assert [used_by[name] for name in ("input_tokens", "cached_input_tokens", "cache_write_input_tokens")] == [6, 2, 3]
    assert used_by["output_tokens"] == 4
    assert play(INIT, result())[-1].usage is None


# --- questions ---


def asks(subtype: str = "can_use_tool", **members: object) -> dict[str, Any]:
    request = {"subtype": subtype, "tool_name": "Bash", "input": {"command": "ls"}, **members}
    return {"type": "control_request", "request_id": "q1", "request": request}


def question() -> ApprovalAsk:
    (ask,) = ENGINE.translate(ENGINE.start(RunRequest(prompt="")), json.dumps(asks(blocked_path="/etc")).encode())
    assert isinstance(ask, ApprovalAsk)
    return ask


def response(ask: ApprovalAsk, said: ApprovalAnswer) -> dict[str, Any]:
    assert ENGINE.answer is not None
    line = ENGINE.answer(ask, said)
    assert line.endswith(b"\n")
    message = json.loads(line)
    assert (message["type"], message["response"]["subtype"]) == ("control_response", "success")
    assert message["response"]["request_id"] == "q1"
    decision: dict[str, Any] = message["response"]["response"]
    return decision


def test_a_question() -> None:
    ask = question()
    assert (ask.id, ask.tool, ask.input, ask.detail["blocked_path"]) == ("q1", "Bash", {"command": "ls"}, "/etc")


def test_answers() -> None:
    ask = question()
    assert response(ask, ApprovalAnswer(allow=True)) == {"behavior": "allow", "updatedInput": {"command": "ls"}}
    changed = ApprovalAnswer(allow=True, input={"command": "pwd"})
    assert response(ask, changed) == {"behavior": "allow", "updatedInput": {"command": "pwd"}}
    assert response(ask, ApprovalAnswer(allow=False, message="no!")) == {"behavior": "deny", "message": "no!"}
    assert response(ask, ApprovalAnswer(allow=False))["message"]  # claude wants a reason


def test_who_watches_is_asked_before_every_call_and_a_yes_leaves_it_to_the_rules() -> None:
    watching = RunOptions(watch=ASKING.approve)
    hello = json.loads(ENGINE.prompt(RunRequest(prompt="x", cwd="/", options=watching)).splitlines()[0])
    [hook] = hello["request"]["hooks"]["PreToolUse"]
    call = {"hook_event_name": "PreToolUse", "tool_name": "Read", "tool_input": {"file_path": "a"}, "tool_use_id": "t1"}
    given = {"subtype": "hook_callback", "callback_id": hook["hookCallbackIds"][0], "input": call}
    line = {"type": "control_request", "request_id": "q1", "request": given}
    [ask] = [event for event in play(INIT, line, options=watching) if isinstance(event, ApprovalAsk)]
    assert (ask.tool, ask.input, ask.detail, ask.early) == ("Read", {"file_path": "a"}, {"tool_use_id": "t1"}, True)
    assert response(ask, ApprovalAnswer(allow=True)) == {}
    denied = response(ask, ApprovalAnswer(allow=False, message="no!"))["hookSpecificOutput"]
    assert (denied["permissionDecision"], denied["permissionDecisionReason"]) == ("deny", "no!")


def test_what_nobody_can_answer_is_answered_with_an_error() -> None:
    (reply,) = [event for event in play(INIT, asks("hook_callback"), options=ASKING) if isinstance(event, Reply)]
    refusal = {"subtype": "error", "request_id": "q1", "error": "hook_callback is not supported"}
    assert json.loads(reply.data) == {"type": "control_response", "response": refusal}


def test_a_question_can_be_withdrawn() -> None:
    assert Withdrawn("q1") in play(INIT, {"type": "control_cancel_request", "request_id": "q1"}, options=ASKING)


@pytest.mark.parametrize(("options", "closed"), [(ASKING, True), (RunOptions(), False)])
def test_the_input_is_closed_after_the_result_when_it_is_open(options: RunOptions, closed: bool) -> None:
    assert (CloseInput() in play(INIT, result(), options=options)) == closed


def denied(*ids: str) -> dict[str, Any]:
    denials = [{"tool_name": "Bash", "tool_use_id": id, "tool_input": {"command": "rm x"}} for id in ids]
    return result(permission_denials=denials)


def test_what_was_not_allowed_is_told_once_before_the_end() -> None:
    events = play(INIT, denied("t1"), denied("t1", "t2"))
    warnings = [event for event in events if isinstance(event, ActionEvent)]
    assert [event.action.detail["tool_use_id"] for event in warnings] == ["t1", "t2"]
    first = warnings[0]
    assert (first.action.kind, first.ok, first.level) == ("warning", False, "warning")
    assert first.action.title == "Bash was not allowed: rm x"
    assert first.message is not None
    assert "allowed_tools=['Bash']" in first.message
    assert events[-1].ok


def test_who_said_no_is_not_told_how_to_say_yes() -> None:
    (warning,) = [e for e in play(INIT, denied("t1"), options=ASKING) if isinstance(e, ActionEvent)]
    assert warning.message is None
