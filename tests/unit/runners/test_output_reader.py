"""Whatever an engine prints, in whatever pieces: at most one start, exactly one end, and that one last."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_streams import cases
from treadle.runners import (
    BUILT_IN,
    Action,
    ActionEvent,
    CompletedEvent,
    Ending,
    Engine,
    GiveUp,
    OutputReader,
    ResumeToken,
    RunRequest,
    StartedEvent,
    TextDelta,
    find_engine,
)

SESSION = "019b73c4-0c3f-7701-a0bb-aac6b4d8a3bc"
OTHER = "123e4567-e89b-12d3-a456-426614174000"


def line(**members: object) -> bytes:
    return json.dumps(members).encode()


CODEX_LINES = [
    line(type="thread.started", thread_id=SESSION),
    line(type="thread.started", thread_id=OTHER),
    line(type="turn.started"),
    line(type="turn.completed", usage={"input_tokens": 3}),
    line(type="turn.failed", error={"message": "no"}),
    line(type="error", message="Reconnecting... 1/5"),
    line(type="error", message="broken"),
    line(type="item.completed", item={"id": "item_0", "type": "agent_message", "text": "hi"}),
    line(type="item.started", item={"id": "item_1", "type": "command_execution", "command": "ls"}),
    line(type="item.completed", item={"id": "item_1", "type": "hologram"}),
    line(type="item.completed"),
    line(type="item.completed", item=None),
    line(type="turn.completed", usage="much"),
    b"null",
    b"[1]",
    b"{",
    b"warning: \xff\xfe",
    b'{"type": 7}',
    b"",
]


def run(engine: Engine[Any], chunks: list[bytes], ending: Ending, resume: ResumeToken | None = None) -> list[Any]:
    reading = OutputReader(engine, RunRequest(prompt="", resume=resume, cwd="/project"))
    outputs: list[Any] = []
    for chunk in chunks:
        outputs += reading.receive(chunk)
    return [*outputs, *reading.end(ending)]


@st.composite
def pieces(draw: st.DrawFn, lines: list[bytes]) -> list[bytes]:
    """Some lines in some order, cut anywhere, the last one perhaps without its end."""
    text = b"\n".join(draw(st.lists(st.sampled_from(lines) | st.binary(max_size=30), max_size=25)))
    if draw(st.booleans()):
        text += b"\n"
    cuts = sorted(draw(st.sets(st.integers(0, len(text)), max_size=8)))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


endings = st.builds(
    Ending,
    exit_code=st.sampled_from([None, 0, 0, 1, 2, 143]),
    stopped=st.sampled_from([None, None, "cancelled"]),
    lines=st.integers(0, 3),
)


@given(pieces(CODEX_LINES), endings, st.sampled_from([None, SESSION]))
def test_one_end_and_it_is_last(chunks: list[bytes], ending: Ending, session: str | None) -> None:
    resume = None if session is None else ResumeToken("codex", session)
    outputs = run(find_engine("codex"), chunks, ending, resume)
    assert sum(isinstance(out, StartedEvent) for out in outputs) <= 1
    assert [isinstance(out, CompletedEvent) for out in outputs].count(True) == 1
    last = outputs[-1]
    assert isinstance(last, CompletedEvent)
    assert last.ok == (last.error is None)
    if ending.exit_code not in (0, None) and not any(b"turn.completed" in part for part in [b"".join(chunks)]):
        assert not last.ok


RECORDED = {
    name: [line.rstrip(b"\n") for stream in cases(name) for line in stream.lines if len(line) < 20_000]
    for name in ("codex", "claude", "opencode", "pi")
}


@given(data=st.data(), ending=endings)
@pytest.mark.parametrize("name", list(RECORDED))
def test_recorded_lines_in_any_order(name: str, data: st.DataObject, ending: Ending) -> None:
    outputs = run(find_engine(name), data.draw(pieces(RECORDED[name])), ending)
    assert sum(isinstance(out, StartedEvent) for out in outputs) <= 1
    assert [isinstance(out, CompletedEvent) for out in outputs].count(True) == 1
    last = outputs[-1]
    assert isinstance(last, CompletedEvent)
    assert last.ok == (last.error is None)
    assert all(out.engine == name for out in outputs if isinstance(out, ActionEvent | StartedEvent | TextDelta))


@given(chunks=st.lists(st.binary(max_size=200), max_size=20), ending=endings)
@pytest.mark.parametrize("name", list(BUILT_IN))
def test_any_bytes_from_any_engine(name: str, chunks: list[bytes], ending: Ending) -> None:
    outputs = run(find_engine(name), chunks, ending)
    assert isinstance(outputs[-1], CompletedEvent)
    assert not any(isinstance(out, CompletedEvent | StartedEvent) for out in outputs[:-1])


def test_where_the_pieces_are_cut_changes_nothing() -> None:
    text = b"\n".join(CODEX_LINES[i] for i in (0, 2, 5, 8, 7, 3))
    engine, ending = find_engine("codex"), Ending(exit_code=0)
    whole = run(engine, [text], ending)
    for at in range(len(text)):
        assert run(engine, [text[:at], text[at:]], ending) == whole
    assert run(engine, [bytes([byte]) for byte in text], ending) == whole


def test_the_last_line_counts_without_its_end() -> None:
    text = CODEX_LINES[0] + b"\n" + CODEX_LINES[2] + b"\n" + CODEX_LINES[7] + b"\n" + CODEX_LINES[3]
    last = run(find_engine("codex"), [text], Ending(exit_code=0))[-1]
    assert last == CompletedEvent("codex", True, "hi", ResumeToken("codex", SESSION), usage={"input_tokens": 3})


def test_the_same_start_again_is_swallowed() -> None:
    outputs = run(find_engine("codex"), [CODEX_LINES[0] + b"\n" + CODEX_LINES[0] + b"\n"], Ending(exit_code=0))
    assert [type(out) for out in outputs] == [StartedEvent, CompletedEvent]


@pytest.mark.parametrize("resume", [None, ResumeToken("codex", SESSION)])
def test_another_session_on_the_way_is_a_failure(resume: ResumeToken | None) -> None:
    first = b"" if resume else CODEX_LINES[0] + b"\n"
    *_, give_up, last = run(
        find_engine("codex"), [first + CODEX_LINES[1] + b"\n" + CODEX_LINES[3] + b"\n"], Ending(exit_code=0), resume
    )
    assert isinstance(give_up, GiveUp)
    assert not last.ok
    assert OTHER in last.error
    assert SESSION in last.error
    assert last.resume == ResumeToken("codex", SESSION)


# How each engine names its session.
NAMED = {
    "codex": lambda id: line(type="thread.started", thread_id=id),
    "treadle": lambda id: line(type="thread.started", thread_id=id),
    "claude": lambda id: line(type="system", subtype="init", session_id=id),
    "opencode": lambda id: line(type="step_start", sessionID=id, part={}),
    "pi": lambda id: line(type="session", id=id, cwd="/project"),
}


@pytest.mark.parametrize(
    "id", ["--last", "-x", "", "a b", f"{SESSION}\n{OTHER}", f"{SESSION}`; rm", "../../x", "x" * 5000, "a\0", "ä"]
)
@pytest.mark.parametrize("name", BUILT_IN)
def test_a_session_that_is_none_of_the_engine_is_refused(name: str, id: str) -> None:
    events = run(find_engine(name), [NAMED[name](id) + b"\n"], Ending(exit_code=0))
    assert not any(isinstance(event, StartedEvent) for event in events)
    last = events[-1]
    assert (last.ok, last.resume) == (False, None)
    assert "which is no id of it" in last.error
    assert len(last.error) < 300


@pytest.mark.parametrize("id", [7, None, ["x"], {"a": 1}])
@pytest.mark.parametrize("name", BUILT_IN)
def test_a_session_that_is_no_text_is_none(name: str, id: object) -> None:
    events = run(find_engine(name), [NAMED[name](id) + b"\n"], Ending(exit_code=0))
    assert not any(isinstance(event, StartedEvent) for event in events)
    assert (events[-1].ok, events[-1].resume) == (False, None)


@pytest.mark.parametrize("answer", ["", " \n"])
def test_an_end_without_an_answer_is_not_ok(answer: str) -> None:
    said = line(type="item.completed", item={"id": "item_0", "type": "agent_message", "text": answer})
    for lines in ([], [CODEX_LINES[0]], [*CODEX_LINES[2:4]], [CODEX_LINES[0], CODEX_LINES[2], said, CODEX_LINES[3]]):
        last = run(find_engine("codex"), [each + b"\n" for each in lines], Ending(exit_code=0))[-1]
        assert not last.ok
        assert "ended without an answer" in last.error


def test_a_line_without_end_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.transport.stdio.LineFramer.__init__.__kwdefaults__", {"max_line": 100})
    reading = OutputReader(find_engine("codex"), RunRequest(prompt=""))
    (give_up,) = reading.receive(b"x" * 200)
    assert isinstance(give_up, GiveUp)
    assert "too long" in give_up.reason
    assert reading.end(Ending(exit_code=0))[-1].error == give_up.reason  # type: ignore[union-attr]


def engine_of(*outputs: object, finish: object = ()) -> Engine[Any]:
    """One that says all of this at its first line."""
    codex = find_engine("codex")

    def last(state: object, ending: Ending, completed: CompletedEvent | None) -> Any:
        if isinstance(finish, Exception):
            raise finish
        return [completed] if completed is not None else finish

    def translate(state: object, line: bytes) -> Any:
        for output in outputs:
            if isinstance(output, Exception):
                raise output
        return outputs

    return Engine(
        name="odd",
        program="odd",
        install="",
        arguments=lambda request: [],
        start=lambda request: None,
        translate=translate,
        finish=last,
        resume=codex.resume,
    )


def test_an_engine_that_raises_is_a_warning_and_the_run_goes_on() -> None:
    outputs = run(engine_of(KeyError("thread_id")), [b"{}\n{}\n"], Ending(exit_code=0))
    assert [out.action.kind for out in outputs[:-1]] == ["warning", "warning"]
    assert len({out.action.id for out in outputs[:-1]}) == 2
    assert outputs[-1].error == "odd ended without an answer."


def test_an_end_that_raises_is_an_end_all_the_same() -> None:
    outputs = run(engine_of(finish=ValueError("x")), [], Ending(exit_code=0))
    assert not outputs[-1].ok


def test_what_was_said_last_counts() -> None:
    first, second = (CompletedEvent("odd", ok=False, answer="", error="e"), CompletedEvent("odd", ok=True, answer="2"))
    assert run(engine_of(first, second), [b"x\n"], Ending(exit_code=0)) == [second]


def test_a_stop_after_the_end_does_not_undo_it() -> None:
    done = CompletedEvent("odd", ok=True, answer="2")
    assert run(engine_of(done), [b"x\n"], Ending(exit_code=None, stopped="cancelled")) == [done]
    note = ActionEvent("odd", Action("a", "note", "more"), "started")
    *_, last = run(engine_of(done, note), [b"x\n"], Ending(exit_code=None, stopped="cancelled"))
    assert (last.ok, last.error, last.answer) == (False, "cancelled", "2")


def test_text_goes_through() -> None:
    assert run(engine_of(TextDelta("odd", "a")), [b"x\n"], Ending(exit_code=0))[0] == TextDelta("odd", "a")
