"""The engine opencode: its command line, what its lines mean, and when it has gone wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from treadle.runners import (
    DEFAULTS,
    MAX_CIRCLES,
    ActionEvent,
    CompletedEvent,
    Ending,
    GiveUp,
    OpenCodeRunner,
    Output,
    OutputReader,
    ResumeToken,
    RunOptions,
    RunRequest,
    StartedEvent,
    Timeouts,
)
from treadle.runners.opencode import ENGINE

SESSION = "ses_e2333c05affecKbXD55LAz3oq1"
TOKEN = ResumeToken("opencode", SESSION)
CWD = "/home/me/project"
USED = {"input": 5, "output": 7, "reasoning": 2, "cache": {"write": 1, "read": 3}}


def line(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "timestamp": 1, "sessionID": SESSION, **fields}


def start() -> dict[str, Any]:
    return line("step_start", part={"type": "step-start"})


def text(said: str) -> dict[str, Any]:
    return line("text", part={"type": "text", "text": said})


def end(reason: str, cost: float = 0.25) -> dict[str, Any]:
    return line("step_finish", part={"type": "step-finish", "reason": reason, "tokens": USED, "cost": cost})


def tool(name: str = "bash", **state: Any) -> dict[str, Any]:
    given = {"status": "completed", "input": {"command": "ls"}, "output": "a\n", "metadata": {"exit": 0}, **state}
    return line("tool_use", part={"type": "tool", "tool": name, "callID": "call_1", "state": given})


def read(
    *lines: dict[str, Any], rc: int = 0, stopped: str | None = None, resume: ResumeToken | None = None
) -> list[Output]:
    reading = OutputReader(ENGINE, RunRequest(prompt="hi", resume=resume, cwd=CWD))
    data = b"".join(json.dumps(message).encode() + b"\n" for message in lines)
    outputs = list(reading.receive(data))
    return [*outputs, *reading.end(Ending(exit_code=rc, stopped=stopped, lines=reading.lines))]


def actions(outputs: list[Output]) -> list[tuple[str, str, str, bool | None]]:
    return [
        (out.action.kind, out.action.title, out.phase, out.ok)
        for out in outputs
        if isinstance(out, ActionEvent) and out.action.kind != "turn"
    ]


def completed(outputs: list[Output]) -> CompletedEvent:
    last = outputs[-1]
    assert isinstance(last, CompletedEvent)
    return last


def test_the_command_line() -> None:
    runner = OpenCodeRunner(extra_args=["--thinking"], model="mock/m", effort="high")
    state = runner.new_state("hi", None)
    own = ["run", "--format", "json", "--thinking"]
    assert runner.build_args("hi", None, state=state) == [*own, "--model", "mock/m", "--variant", "high"]
    again = runner.build_args("hi", TOKEN, state=state, options=RunOptions(model="mock/n"))
    assert again == [*own, "--session", SESSION, "--model", "mock/n", "--variant", "high"]
    assert OpenCodeRunner().build_args("hi", None, state=state) == ["run", "--format", "json"]


@pytest.mark.parametrize(
    "word", ["--format", "--format=default", "-s", "--session", "--continue", "--fork", "--attach"]
)
def test_words_that_would_take_the_run_out_of_our_hands_are_refused(word: str) -> None:
    with pytest.raises(ValueError, match="opencode"):
        OpenCodeRunner(extra_args=[word])


def test_the_answer_is_the_text_of_the_last_step_and_the_rest_are_notes() -> None:
    outputs = read(start(), text("Running it."), tool(), end("tool-calls"), start(), text("done"), end("stop"))
    assert outputs[0] == StartedEvent("opencode", TOKEN)
    assert actions(outputs) == [("note", "Running it.", "completed", True), ("command", "ls", "completed", True)]
    assert completed(outputs) == CompletedEvent(
        "opencode",
        ok=True,
        answer="done",
        resume=TOKEN,
        usage={
            "input_tokens": 18,
            "cached_input_tokens": 6,
            "cache_write_input_tokens": 2,
            "output_tokens": 18,
            "reasoning_output_tokens": 4,
            "cost_usd": 0.5,
        },
    )


def test_a_step_that_was_not_the_last_one_after_all_becomes_a_note() -> None:
    outputs = read(start(), text("first"), end("stop"), start(), text("second"), end("stop"))
    assert actions(outputs) == [("note", "first", "completed", True)]
    assert completed(outputs).answer == "second"


def test_a_step_after_the_verdict_takes_it_back_until_the_next_one() -> None:
    reading = OutputReader(ENGINE, RunRequest(prompt="hi", cwd=CWD))
    said = []
    for message in (start(), end("stop"), start(), end("stop")):
        list(reading.receive(json.dumps(message).encode() + b"\n"))
        said.append(reading.said_all)
    assert said == [False, True, False, True]


def test_stop_together_with_a_tool_is_no_end() -> None:
    reading = OutputReader(ENGINE, RunRequest(prompt="hi", cwd=CWD))
    said = []
    for message in (start(), tool(), end("stop"), start(), end("stop")):
        list(reading.receive(json.dumps(message).encode() + b"\n"))
        said.append(reading.said_all)
    assert said == [False, False, False, False, True]


@pytest.mark.parametrize(
    ("state", "ok", "message"),
    [
        ({"metadata": {"exit": 3}}, False, None),
        ({"metadata": {"exit": None}}, True, None),
        ({"metadata": {}}, True, None),
        ({"status": "error", "error": "no such file", "metadata": None}, False, "no such file"),
    ],
)
def test_how_a_tool_ended(state: dict[str, Any], ok: bool, message: str | None) -> None:
    (event,) = [
        out for out in read(start(), tool(**state)) if isinstance(out, ActionEvent) and out.action.id == "call_1"
    ]
    assert (event.phase, event.ok, event.message) == ("completed", ok, message)


def test_a_tool_that_has_only_begun() -> None:
    assert ("command", "ls", "started", None) in actions(read(start(), tool(status="running")))


def test_a_file_is_named_as_seen_from_the_project() -> None:
    outputs = read(start(), tool("edit", input={"filePath": f"{CWD}/src/a.py"}))
    assert ("file_change", "edit src/a.py", "completed", True) in actions(outputs)


def test_thoughts_are_notes() -> None:
    outputs = read(start(), line("reasoning", part={"text": "let me see"}), text("yes"), end("stop"))
    assert actions(outputs) == [("note", "let me see", "completed", True)]
    assert completed(outputs).answer == "yes"


def test_an_error_before_anything_else_still_tells_the_session() -> None:
    error = {"name": "APIError", "data": {"message": "mock error 401", "responseHeaders": {"x": "secret"}}}
    outputs = read(line("error", error=error), rc=1)
    assert outputs == [
        StartedEvent("opencode", TOKEN),
        CompletedEvent("opencode", ok=False, answer="", resume=TOKEN, error="mock error 401"),
    ]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ({"name": "UnknownError"}, "UnknownError"),
        ({"message": "flat"}, "flat"),
        ({"name": "X", "data": "text"}, "X"),
        ("text", "opencode reported an error"),
        (None, "opencode reported an error"),
    ],
)
def test_errors_of_other_shapes(error: object, told: str) -> None:
    assert completed(read(line("error", error=error), rc=1)).error == told


def test_steps_that_never_end_properly_are_given_up() -> None:
    outputs = read(*[start(), end("unknown")] * 20, rc=143, stopped="given up")
    (gave_up,) = [out for out in outputs if isinstance(out, GiveUp)]
    assert outputs.index(gave_up) == 1 + MAX_CIRCLES  # started, and the steps
    assert completed(outputs).ok is False
    assert completed(outputs).error == gave_up.reason
    assert "circles" in gave_up.reason


def test_steps_without_a_proper_end_that_get_somewhere_are_not_given_up() -> None:
    some = [start(), end("unknown")] * (MAX_CIRCLES - 1)
    outputs = read(*some, start(), tool(), end("unknown"), *some, start(), text("done"), end("stop"))
    assert not [out for out in outputs if isinstance(out, GiveUp)]
    assert completed(outputs).answer == "done"


def test_an_answer_that_was_cut_off_says_so() -> None:
    outputs = read(start(), text("half an ans"), end("length"))
    assert [kind for kind, *_ in actions(outputs)] == ["warning"]
    assert (completed(outputs).ok, completed(outputs).answer) == (True, "half an ans")
    nothing = completed(read(start(), end("length")))
    assert (nothing.ok, "cut off" in (nothing.error or "")) == (False, True)


def test_an_answer_that_is_withheld_is_a_failure() -> None:
    last = completed(read(start(), end("content-filter")))
    assert (last.ok, last.error) == (False, "the model gave no answer (content-filter)")


@pytest.mark.parametrize(
    ("lines", "rc", "ok", "error"),
    [
        ([], 1, False, "opencode failed (rc=1)."),
        ([], 0, False, "opencode ended without an answer."),
        ([start(), text("so far")], 0, True, None),
        ([start(), text("so far")], 137, False, "opencode failed (rc=137)."),
        ([start(), text("first"), tool(), end("tool-calls")], 0, False, "opencode ended without an answer"),
    ],
)
def test_an_end_without_a_verdict(lines: list[dict[str, Any]], rc: int, ok: bool, error: str | None) -> None:
    last = completed(read(*lines, rc=rc))
    assert last.ok is ok
    assert (last.error or "").startswith(error or "")
    assert (error is None) == (last.error is None)


def test_what_was_used_until_the_end_is_told_when_it_was_stopped() -> None:
    last = completed(read(start(), tool(), end("tool-calls"), start(), stopped="cancelled", rc=143))
    assert (last.ok, last.error) == (False, "cancelled")
    assert last.usage is not None
    assert last.usage["input_tokens"] == 9


def test_other_lines_mean_nothing() -> None:
    reading = OutputReader(ENGINE, RunRequest(prompt="hi", cwd=CWD))
    noise = b'not json\n[1]\n"text"\n{"type":"new_thing"}\n{"type":"text","part":7}\n{"type":"step_finish"}\n'
    outputs = list(reading.receive(noise + json.dumps(start()).encode() + b"\n"))
    assert [type(out).__name__ for out in outputs] == ["StartedEvent", "ActionEvent"]


@pytest.mark.parametrize(
    "written",
    [
        f"opencode --session {SESSION}",
        f"`opencode --session {SESSION}`",
        f"opencode -s {SESSION}",
        f"opencode run -s {SESSION}",
        f"`opencode run --session {SESSION}`",
        f'opencode --session "{SESSION}"',
    ],
)
def test_resume_lines_that_are_read(written: str) -> None:
    assert OpenCodeRunner().extract_resume(f"the answer\n\n{written}\n") == TOKEN


@pytest.mark.parametrize(
    "written",
    [
        "opencode --session abc",
        "opencode --session --fork",
        "opencode -s ses_a-b",
        f"opencode {SESSION}",
        "opencode -s",
    ],
)
def test_lines_that_are_no_resume_lines(written: str) -> None:
    assert OpenCodeRunner().extract_resume(written) is None


def test_the_resume_line_that_is_written() -> None:
    assert OpenCodeRunner().format_resume(TOKEN) == f"`opencode --session {SESSION}`"


def test_it_may_be_silent_for_long_but_not_for_ever() -> None:
    limits = Timeouts().over(ENGINE.timeouts).over(DEFAULTS)
    assert limits.idle is not None
    assert 600 <= limits.idle < (DEFAULTS.idle or 0)
    assert ENGINE.first_signal == "terminate"
