"""The engine pi: its command line, what its lines mean, and how its end is judged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from treadle.runners import (
    MAX_RUNNING,
    ActionEvent,
    CompletedEvent,
    Ending,
    Output,
    OutputReader,
    PiRunner,
    PiState,
    ResumeToken,
    RunOptions,
    RunRequest,
    StartedEvent,
    TextDelta,
)
from treadle.runners.pi import ENGINE, translate

SESSION = "01a1dccd-8b27-754e-a23f-66ba2db61da3"
TOKEN = ResumeToken("pi", SESSION)
FILE = ResumeToken("pi", "/home/me/.pi/agent/sessions/--p--/2026-11-15T21-48-38-794Z_x.jsonl")
CWD = "/home/me/project"
HEADER = {"type": "session", "version": 3, "id": SESSION, "timestamp": "2026-11-15T01:23:40.456Z", "cwd": CWD}
TURN = {"type": "turn_start"}
END = {"type": "agent_end", "messages": []}
USED = {"input": 5, "output": 7, "cacheRead": 3, "cacheWrite": 1, "totalTokens": 16, "cost": {"total": 0.25}}
UNUSED = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0, "cost": {"total": 0}}


def message(*content: dict[str, Any], stop: str = "stop", usage: dict[str, Any] = USED, **more: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": list(content), "usage": usage, "stopReason": stop, **more}
    return {"type": "message_end", "message": said}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def failed(error: str = "500 mock error 500", stop: str = "error") -> dict[str, Any]:
    return message(stop=stop, usage=UNUSED, errorMessage=error)


def retry(attempt: int) -> dict[str, Any]:
    return {"type": "auto_retry_start", "attempt": attempt, "maxAttempts": 3, "delayMs": 2500, "errorMessage": "500 x"}


def tool(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": f"tool_execution_{kind}", "toolCallId": "call_1", "toolName": "bash", **more}


def encoded(*lines: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)


def read(
    *lines: dict[str, Any], rc: int = 0, stopped: str | None = None, resume: ResumeToken | None = None
) -> list[Output]:
    reading = OutputReader(ENGINE, RunRequest(prompt="hi", resume=resume, cwd=CWD))
    outputs = list(reading.receive(encoded(*lines)))
    return [*outputs, *reading.end(Ending(exit_code=rc, stopped=stopped, lines=reading.lines))]


def actions(outputs: list[Output]) -> list[tuple[str, str, str, bool | None]]:
    return [
        (out.action.id, out.action.title, out.phase, out.ok)
        for out in outputs
        if isinstance(out, ActionEvent) and out.action.kind != "turn"
    ]


def completed(outputs: list[Output]) -> CompletedEvent:
    last = outputs[-1]
    assert isinstance(last, CompletedEvent)
    return last


# --- the command line and the session ---


def test_the_command_line() -> None:
    runner = PiRunner(extra_args=["--tools", "read"], provider="mock", model="m", effort="low")
    state = runner.new_state("hi", None)
    own = ["--print", "--mode", "json", "--provider", "mock", "--tools", "read"]
    assert runner.build_args("hi", None, state=state) == [*own, "--model", "m", "--thinking", "low"]
    again = runner.build_args("hi", TOKEN, state=state, options=RunOptions(effort="off"))
    assert again == [*own, "--model", "m", "--thinking", "off", "--session", SESSION]
    assert PiRunner().build_args("hi", None, state=state) == ["--print", "--mode", "json"]


@pytest.mark.parametrize("word", ["--mode", "--mode=text", "--session", "-c", "--continue", "-r", "--fork", "--export"])
def test_words_that_would_take_the_run_out_of_our_hands_are_refused(word: str) -> None:
    with pytest.raises(ValueError, match="pi"):
        PiRunner(extra_args=[word])


@pytest.mark.parametrize(
    "written",
    [
        f"pi --session {SESSION}",
        f"`pi --session {SESSION}`",
        f'pi --session "{SESSION}"',
        f"`pi --session '{SESSION}'`",
        f"pi  --session\t{SESSION}",
    ],
)
def test_resume_lines_that_are_read(written: str) -> None:
    assert PiRunner().extract_resume(f"the answer\n\n{written}\n") == TOKEN


@pytest.mark.parametrize("quote", ["", '"', "'"])
def test_a_session_may_be_named_by_its_file(quote: str) -> None:
    assert PiRunner().extract_resume(f"pi --session {quote}{FILE.value}{quote}") == FILE
    assert ENGINE.resume.fits(FILE.value)


@pytest.mark.parametrize(
    "value",
    [
        "01a1dccd",
        SESSION[:-1],
        "--continue",
        "-c",
        "x.jsonl",
        "/a b.jsonl",
        "/a.json",
        f"{SESSION} -c",
        f"\"{SESSION}'",
        "",
    ],
)
def test_what_is_no_session(value: str) -> None:
    assert PiRunner().extract_resume(f"pi --session {value}") is None
    assert not ENGINE.resume.fits(value)


def test_the_resume_line_has_the_full_id() -> None:
    assert PiRunner().format_resume(TOKEN) == f"`pi --session {SESSION}`"


def test_the_session_is_known_from_the_first_line() -> None:
    outputs = read(HEADER, TURN, message(text("hello")), END)
    assert outputs[0] == StartedEvent("pi", TOKEN, meta={"session": SESSION, "cwd": CWD})


def test_a_session_named_by_its_file_keeps_that_name() -> None:
    outputs = read(HEADER, TURN, message(text("hello")), END, resume=FILE)
    assert outputs[0] == StartedEvent("pi", FILE, meta={"session": SESSION, "cwd": CWD})
    assert completed(outputs).resume == FILE


def test_another_session_than_the_one_asked_for_is_a_failure() -> None:
    other = ResumeToken("pi", "01a1dccd-0000-754e-a23f-66ba2db61da3")
    assert completed(read(HEADER, TURN, message(text("hello")), END, resume=other)).ok is False


# --- what the model says ---


def test_the_answer_is_the_last_message_and_usage_is_the_sum() -> None:
    call = {"type": "toolCall", "id": "call_1", "name": "bash", "arguments": {"command": "ls"}}
    outputs = read(
        HEADER, TURN, message(text("Running it."), call, stop="toolUse"), TURN, message(text("a"), text("b")), END
    )
    assert actions(outputs) == [("pi.note.1", "Running it.", "completed", True)]
    assert completed(outputs) == CompletedEvent(
        "pi",
        ok=True,
        answer="a\n\nb",
        resume=TOKEN,
        usage={
            "input_tokens": 18,
            "cached_input_tokens": 6,
            "cache_write_input_tokens": 2,
            "output_tokens": 14,
            "cost_usd": 0.5,
        },
    )


def test_what_was_said_before_a_tool_is_not_the_answer_of_a_run_that_was_stopped() -> None:
    last = completed(read(HEADER, TURN, message(text("Running it."), stop="toolUse"), rc=143, stopped="cancelled"))
    assert (last.ok, last.answer, last.error) == (False, "", "cancelled")
    assert last.usage is not None


def test_thoughts_are_notes() -> None:
    outputs = read(HEADER, TURN, message({"type": "thinking", "thinking": "let me see"}, text("yes")), END)
    assert actions(outputs) == [("pi.note.1", "let me see", "completed", True)]
    assert completed(outputs).answer == "yes"


@pytest.mark.parametrize("said", ["hello", 'a "quoted"\n\\ back\\\\slash', "zwölf — 十二 \U0001f600", "\\"])
def test_text_is_told_while_it_is_written(said: str) -> None:
    partial = {"role": "assistant", "content": [text(said)]}
    event = {"type": "text_delta", "contentIndex": 0, "delta": said, "partial": partial}
    update = {"type": "message_update", "assistantMessageEvent": event, "message": partial}
    assert [out for out in read(HEADER, update) if isinstance(out, TextDelta)] == [TextDelta("pi", said)]


def test_half_a_character_does_not_cost_the_line() -> None:
    delta = (
        b'{"type":"message_update","assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"a\\ud83d",'
    )
    line = encoded(message(text("yes HALF"))).replace(b"HALF", b"\\ud83d")
    reading = OutputReader(ENGINE, RunRequest(prompt="hi", cwd=CWD))
    outputs = list(reading.receive(encoded(HEADER, TURN) + delta + b"\n" + line + encoded(END)))
    assert [out.text for out in outputs if isinstance(out, TextDelta)] == ["a?"]
    assert completed(list(reading.end(Ending(exit_code=0)))).answer == "yes ?"


@pytest.mark.parametrize("kind", ["text_start", "text_end", "thinking_delta", "toolcall_delta"])
def test_other_pieces_are_not_text(kind: str) -> None:
    event = {"type": kind, "contentIndex": 0, "delta": "x", "partial": {"content": [text('"delta":"y"')]}}
    outputs = read(HEADER, {"type": "message_update", "assistantMessageEvent": event, "message": {}})
    assert not [out for out in outputs if isinstance(out, TextDelta)]


def test_lines_that_repeat_everything_are_not_decoded() -> None:
    state = ENGINE.start(RunRequest(prompt="hi"))
    for kind in (b"message_update", b"turn_end", b"message_start"):
        assert list(translate(state, b'{"type":"' + kind + b'","message":{"this is not JSON')) == []
    assert [type(out) for out in translate(state, b'{"type":"agent_end","messages":[{"nor this')] == [CompletedEvent]


def test_the_order_of_the_fields_does_not_matter() -> None:
    swapped = [dict(reversed(list(line.items()))) for line in (HEADER, message(text("yes")), {**END, "a": 1})]
    assert completed(read(swapped[0], {"a": 1, **TURN}, *swapped[1:])).answer == "yes"


# --- the end ---


@pytest.mark.parametrize("stop", ["error", "aborted"])
def test_a_failure_is_a_failure_although_it_ends_with_0(stop: str) -> None:
    last = completed(read(HEADER, TURN, failed("401 mock error 401", stop), END))
    assert (last.ok, last.answer, last.error, last.resume) == (False, "", "401 mock error 401", TOKEN)


def test_a_failure_without_words() -> None:
    assert completed(read(HEADER, TURN, failed("", "aborted"), END)).error == "the model's answer ended with: aborted"


def test_a_stream_that_was_cut_is_not_taken_for_an_empty_answer() -> None:
    last = completed(read(HEADER, TURN, message(usage=UNUSED), END))
    assert (last.ok, last.error) == (False, "pi gave no answer: the model's stream ended before it said anything.")


def test_an_empty_answer_is_none() -> None:
    last = completed(read(HEADER, TURN, message(), END))
    assert (last.ok, last.answer, last.error) == (False, "", "pi ended without an answer.")


def test_an_answer_that_was_cut_off_says_so() -> None:
    outputs = read(HEADER, TURN, message(text("half an ans"), stop="length"), END)
    assert [title for _, title, _, _ in actions(outputs)] == [
        "the answer was cut off: the model has reached its limit of output"
    ]
    assert (completed(outputs).ok, completed(outputs).answer) == (True, "half an ans")
    assert completed(read(HEADER, TURN, message(stop="length"), END)).ok is False


def test_a_retry_that_worked_is_one_note_and_the_run_is_good() -> None:
    worked = {"type": "auto_retry_end", "success": True, "attempt": 2}
    first: list[dict[str, Any]] = [HEADER, TURN, failed(), END, retry(1), TURN, failed(), END, retry(2)]
    outputs = read(*first, TURN, message(text("yes")), worked, END)
    assert actions(outputs) == [
        ("pi.retry", "retry 1/3 in 2.5 s: 500 x", "started", None),
        ("pi.retry", "retry 2/3 in 2.5 s: 500 x", "updated", None),
        ("pi.retry", "the retry worked", "completed", True),
    ]
    assert (completed(outputs).ok, completed(outputs).answer) == (True, "yes")


def test_retries_that_ended_in_vain() -> None:
    over = {"type": "auto_retry_end", "success": False, "attempt": 3, "finalError": "500 x"}
    outputs = read(HEADER, TURN, failed(), END, retry(1), TURN, failed(), END, over)
    assert actions(outputs)[-1] == ("pi.retry", "no more retries: 500 x", "completed", False)
    assert completed(outputs).error == "500 mock error 500"


def test_a_second_row_of_retries_is_another_note() -> None:
    worked = {"type": "auto_retry_end", "success": True, "attempt": 1}
    row: list[dict[str, Any]] = [failed(), END, retry(1), TURN, message(text("yes")), worked]
    assert [id for id, *_ in actions(read(HEADER, TURN, *row, *row, END))] == ["pi.retry"] * 2 + ["pi.retry.2"] * 2


@pytest.mark.parametrize("more", [retry(1), TURN, {"type": "compaction_start", "reason": "threshold"}])
def test_what_follows_the_end_takes_it_back(more: dict[str, Any]) -> None:
    """Else a run that only waits for its next attempt would be taken for one that does not go away."""
    reading = OutputReader(ENGINE, RunRequest(prompt="hi", cwd=CWD))
    list(reading.receive(encoded(HEADER, TURN, failed(), END)))
    assert reading.said_all
    list(reading.receive(encoded(more)))
    assert not reading.said_all


@pytest.mark.parametrize(
    ("end", "ok"),
    [({"aborted": False, "result": {}}, True), ({"aborted": True}, False), ({"errorMessage": "no"}, False)],
)
def test_the_context_made_smaller_is_a_note(end: dict[str, Any], ok: bool) -> None:
    outputs = read(HEADER, {"type": "compaction_start"}, {"type": "compaction_end", **end})
    told = [(id, phase, good) for id, _, phase, good in actions(outputs)]
    assert told == [("pi.compaction", "started", None), ("pi.compaction", "completed", ok)]


@pytest.mark.parametrize(
    ("lines", "rc", "error"),
    [
        ([], 1, "pi failed (rc=1)."),
        ([HEADER, TURN], 143, "pi failed (rc=143)."),
        ([HEADER], 0, "pi ended without an answer: the model was asked nothing."),
        ([HEADER, TURN, message(text("x"), stop="toolUse")], 0, "pi ended in the middle of its work."),
        ([{"type": "new"}], 0, "pi ended without an answer: what it printed was not understood"),
    ],
)
def test_an_end_without_a_verdict(lines: list[dict[str, Any]], rc: int, error: str) -> None:
    last = completed(read(*lines, rc=rc))
    assert last.ok is False
    assert (last.error or "").startswith(error)


def test_a_session_of_another_folder_is_not_silently_nothing() -> None:
    assert "only in the folder" in (completed(read(resume=TOKEN)).error or "")


# --- tools ---


def test_a_tool_from_its_start_to_its_end() -> None:
    args = {"command": "ls"}
    result = {"content": [text("a\n")]}
    outputs = read(
        HEADER,
        tool("start", args=args),
        tool("update", args=args, partialResult={"content": []}),
        tool("update", args=args, partialResult=result),
        tool("end", result=result, isError=False),
    )
    events = [out for out in outputs if isinstance(out, ActionEvent)]
    assert [(event.phase, event.ok) for event in events] == [("started", None), ("updated", None), ("completed", True)]
    assert {(event.action.kind, event.action.title) for event in events} == {("command", "ls")}
    assert events[-1].action.detail == {"tool": "bash", "input": args, "output": "a\n"}


def test_a_tool_that_failed() -> None:
    outputs = read(HEADER, tool("start", args={"command": "x"}), tool("end", result={"content": []}, isError=True))
    assert actions(outputs)[-1] == ("call_1", "x", "completed", False)


def test_the_end_of_a_tool_that_nobody_saw_start() -> None:
    assert actions(read(HEADER, tool("end", result=None, isError=False))) == [("call_1", "bash", "completed", True)]


def test_tools_that_never_end_are_not_remembered_for_ever() -> None:
    state: PiState = ENGINE.start(RunRequest(prompt="hi"))
    for number in range(MAX_RUNNING + 50):
        list(translate(state, encoded({**tool("start", args={}), "toolCallId": f"call_{number}"}).strip()))
    assert len(state.running) == MAX_RUNNING


def test_tools_that_have_ended_are_forgotten() -> None:
    state: PiState = ENGINE.start(RunRequest(prompt="hi"))
    for line in (tool("start", args={}), tool("end", result={}, isError=False)):
        list(translate(state, encoded(line).strip()))
    assert state.running == {}


def test_other_lines_mean_nothing() -> None:
    reading = OutputReader(ENGINE, RunRequest(prompt="hi", cwd=CWD))
    noise = b'not json\n[1]\n"text"\n{"type":"queue_update"}\n{"type":"message_end"}\n{"type":"tool_execution\n'
    assert list(reading.receive(noise + b'{"type":"message_end","message":{"role":"user","content":"x"}}\n')) == []
