"""A session that two programs want, and one whose program was killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from system.runners.fake_engine import SESSION, fake
from treadle.runners import ActionEvent, CodexRunner, CompletedEvent, ResumeToken, StartedEvent, process_start_time

pytestmark = pytest.mark.anyio
DEADLINE_S = 60.0
TOKEN = ResumeToken("codex", SESSION)
PROGRAM = """
import asyncio, sys
from treadle.runners import ResumeToken
from treadle.runners.codex import CodexRunner

async def main():
    async for event in CodexRunner(sys.argv[1]).run("other", ResumeToken("codex", sys.argv[2])):
        print(event.type, flush=True)

asyncio.run(main())
"""
ENGINE = """
mark("me", str(os.getpid()))
prompt = sys.stdin.read()
if prompt == "other":
    start()
    wait_for("gate")
    answer(prompt)
    done()
else:
    start()
    answer(prompt + " " + str(os.path.exists(HERE + "/gate")))
    done()
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


async def other_program(command: str) -> asyncio.subprocess.Process:
    """Another Treadle, which runs the session now."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, command, SESSION, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        assert await child.stdout.readline() == b"started\n"
    return child


async def test_the_second_program_waits_and_says_so(tmp_path: Path) -> None:
    command = fake(tmp_path, ENGINE)
    child = await other_program(command)
    try:
        run = CodexRunner(command).run("mine", TOKEN)
        async with asyncio.timeout(DEADLINE_S):
            notice = await anext(run)
            assert isinstance(notice, ActionEvent)
            assert (notice.phase, notice.action.kind) == ("started", "note")
            assert "another program" in notice.action.title
            (tmp_path / "gate").touch()
            events = [event async for event in run]
        assert [type(event) for event in events] == [ActionEvent, StartedEvent, ActionEvent, CompletedEvent]
        assert isinstance(events[0], ActionEvent)
        assert (events[0].action.id, events[0].phase) == (notice.action.id, "completed")
        assert isinstance(events[-1], CompletedEvent)
        assert events[-1].answer == "mine True"
        assert await child.wait() == 0
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


async def test_a_program_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    command = fake(tmp_path, ENGINE)
    child = await other_program(command)
    engine = int((tmp_path / "me").read_text())
    assert process_start_time(engine)
    os.kill(child.pid, signal.SIGKILL)
    await child.wait()
    async with asyncio.timeout(DEADLINE_S):
        events = [event async for event in CodexRunner(command).run("mine", TOKEN)]
    assert isinstance(events[-1], CompletedEvent)
    assert events[-1].answer == "mine False"
    assert process_start_time(engine) == 0
