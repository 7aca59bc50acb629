"""The scheduler with real runners and programs: the next job of a session starts when nothing is left of the last."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from system.runners.fake_engine import SESSION, fake
from treadle.runners import CodexRunner, Job, ResumeToken, Scheduler, process_start_time

pytestmark = pytest.mark.anyio
ENGINE = """
prompt = sys.stdin.read()
mark("pid of " + prompt, str(os.getpid()))
start()
if prompt == "long":
    wait_for("never")
answer(prompt + " " + " ".join(sys.argv[-3:-1]) + " in " + os.getcwd())
done()
"""


async def test_a_cancelled_program_is_gone_before_the_next_one_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path / "home"))
    engine = fake(tmp_path, ENGINE)
    place = tmp_path / "place"
    place.mkdir()
    async with asyncio.timeout(60), Scheduler(lambda job: CodexRunner(engine)) as scheduler:
        long = await scheduler.submit(Job(engine="codex", prompt="long"))
        after = await scheduler.submit(Job(engine="codex", prompt="next", cwd=str(place)), after=long)
        assert (await anext(long.events())).type == "started"
        assert long.session == ResumeToken("codex", SESSION)
        pid = int((tmp_path / "pid of long").read_text())
        assert process_start_time(pid)
        assert await long.cancel()
        completed = await long.wait()
        assert not process_start_time(pid)
        assert (completed.ok, completed.resume) == (False, ResumeToken("codex", SESSION))
        assert (await after.wait()).answer == f"next resume {SESSION} in {place}"
