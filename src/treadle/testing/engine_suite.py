"""`check_engine`: what must hold for every engine of `treadle.runners`, ours and yours.

from treadle.testing import check_engine

def test_my_engine():
    check_engine(ENGINE, recorded=Path("a_run.jsonl").read_bytes(), session="bird-1")
"""

from __future__ import annotations

import os
from tempfile import TemporaryDirectory
from typing import Any

from treadle.runners.engine import Ending, Engine, RunOptions, RunRequest
from treadle.runners.logins import LoginStatus
from treadle.runners.output_reader import OutputReader
from treadle.runners.run_events import ActionEvent, CompletedEvent, Event, ResumeToken, StartedEvent
from treadle.runners.status import read_version

_SECRET_PROMPT = "a prompt -- that is --nobody's `business`"
_ENDINGS = (
    Ending(exit_code=0),
    Ending(exit_code=1),
    Ending(exit_code=143),
    Ending(exit_code=None),
    Ending(exit_code=None, stopped="cancelled"),
    Ending(exit_code=0, stopped="cancelled"),
)
_NOISE = (b"", b"null\n", b"[]\n", b'"text"\n', b"{}\n", b"{\n", b'{"type": 7}\n', b"\xff\xfe\n", b"warning: odd\n" * 3)


def check_engine(engine: Engine[Any], *, recorded: bytes, session: str) -> None:
    """Raises `AssertionError` with what does not hold.

    Args:
        engine: The engine.
        recorded: What a run of it printed that went well, in a new session.
        session: That session.
    """
    token = ResumeToken(engine.name, session)
    # What `treadle engines` and `treadle doctor` show of it.
    assert engine.tested is None or read_version(engine.tested) == engine.tested, f"{engine.tested!r} is no version"
    with TemporaryDirectory() as home:
        login = engine.login({"HOME": home, "PATH": os.defpath})
    assert isinstance(login, LoginStatus), f"login gives {login!r}, which is no LoginStatus"
    assert login.ok is None or login.where, f"{login} does not say where the login is, or what is missing"
    assert login.ok is not False or engine.log_in, "there is no login, and log_in does not say how to get one"
    # The resume line is read as it is written, and nothing else passes for a session.
    line = engine.resume.format(token)
    assert engine.resume.fits(token.value), f"the session {token.value!r} has not the shape of one"
    found = engine.resume.extract(f"an answer\n\n{line}")
    assert found == token, f"the resume line {line} is read as {found}"
    for word in ("--last", "-x", "", "a b", "`"):
        assert not engine.resume.fits(word), f"{word!r} passes for a session"
    # The command line has all that was asked for but the prompt, which every user of the machine could read there.
    options = RunOptions(model="the-model")
    for resume in (None, token):
        request = RunRequest(prompt=_SECRET_PROMPT, resume=resume, options=options, extra_args=["--extra"], cwd="/")
        words = engine.arguments(request)
        assert all(isinstance(word, str) for word in words), f"arguments are not all strings: {words}"
        assert not any(_SECRET_PROMPT in word for word in words), "the prompt is on the command line"
        assert "--extra" in words, "the user's own words are not on the command line"
        assert any("the-model" in word for word in words), "the model is not on the command line"
        named = any(token.value in word for word in words)
        assert named == (resume is not None), "the session is on the command line exactly when it is resumed"
        assert _SECRET_PROMPT in engine.prompt(request).decode().replace("\\", ""), "the prompt is not written"
    events = _check_stream(engine, recorded, token)
    # In pieces of any size, and without the last line end, it is the same run.
    for size in (1, 7, 100):
        chunks = [recorded[at : at + size] for at in range(0, len(recorded), size)]
        assert _play(engine, chunks, Ending(exit_code=0)) == events, f"pieces of {size} bytes give other events"
    assert _play(engine, [recorded.rstrip(b"\n")], Ending(exit_code=0))[-1] == events[-1], "the last line end matters"
    # Noise is no run that went well, and a stream may end anywhere.
    lines = recorded.splitlines(keepends=True)
    for ending in _ENDINGS:
        for noise in _NOISE:
            outputs = _play(engine, [noise], ending)
            _check_promises(outputs, ending)
            assert not outputs[-1].ok, f"a run that printed {noise!r} and ended with {ending} went well"
        for count in range(len(lines) + 1):
            _check_promises(_play(engine, lines[:count], ending), ending)


def _play(engine: Engine[Any], chunks: list[bytes], ending: Ending, resume: ResumeToken | None = None) -> list[Any]:
    reading = OutputReader(engine, RunRequest(prompt=_SECRET_PROMPT, resume=resume, cwd="/project"))
    outputs: list[Any] = []
    for chunk in chunks:
        outputs += reading.receive(chunk)
    return [*outputs, *reading.end(ending)]


def _check_stream(engine: Engine[Any], recorded: bytes, token: ResumeToken) -> list[Event]:
    events = _play(engine, [recorded], Ending(exit_code=0))
    started = [event for event in events if isinstance(event, StartedEvent)]
    assert len(started) == 1, f"{len(started)} starts"
    assert started[0].resume == token, f"the session is {started[0].resume}"
    last = events[-1]
    assert isinstance(last, CompletedEvent), "the last event is no CompletedEvent"
    assert last.ok, f"the run failed: {last.error}"
    assert last.answer, "there is no answer"
    assert last.resume == token, "the end does not name the session"
    for event in events:
        assert event.engine == engine.name, f"{event} is not of {engine.name}"
    kinds: dict[str, str] = {}
    over: set[str] = set()
    for event in events:
        if isinstance(event, ActionEvent):
            action = event.action
            assert action.title, f"{action} has no title"
            assert "\n" not in action.title, f"the title has more than one line: {action.title!r}"
            assert kinds.setdefault(action.id, action.kind) == action.kind, f"{action.id} changes its kind"
            assert action.id not in over, f"{action.id} goes on after its end"
            if event.phase == "completed":
                over.add(action.id)
    return events


def _check_promises(outputs: list[Any], ending: Ending) -> None:
    ends = [out for out in outputs if isinstance(out, CompletedEvent)]
    assert len(ends) == 1, f"{len(ends)} ends with {ending}"
    assert outputs[-1] is ends[0], "something follows the end"
    assert ends[0].ok == (ends[0].error is None), f"ok and error disagree: {ends[0]}"
    assert sum(isinstance(out, StartedEvent) for out in outputs) <= 1, "more than one start"
