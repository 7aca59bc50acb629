"""Who may run when: one run at a time per session, everything else side by side."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from treadle.runners import (
    CodexRunner,
    CompletedEvent,
    Event,
    JournalFile,
    LastError,
    LastErrors,
    ResumeToken,
    SessionLock,
    SessionState,
    StartedEvent,
    check_locks,
    journal_path,
    process_start_time,
    remove_old_records,
)

pytestmark = pytest.mark.anyio
DEADLINE_S = 30.0


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def token(value: str) -> ResumeToken:
    return ResumeToken("codex", value)


class Scripted:
    """In the place of `run_impl`: counts who is inside, and lets them go when told."""

    def __init__(self, session: str | None = None) -> None:
        self.session = session
        self.inside = self.most = 0
        self.entered = asyncio.Event()
        self.gate = asyncio.Event()

    async def __call__(self, prompt: str, resume: ResumeToken | None) -> AsyncIterator[Event]:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.entered.set()
        try:
            if self.session is not None:
                yield StartedEvent("codex", token(self.session))
            await self.gate.wait()
            yield CompletedEvent("codex", ok=True, answer=prompt, resume=resume)
        finally:
            self.inside -= 1


async def drain(run: Any) -> list[Event]:
    async with asyncio.timeout(DEADLINE_S):
        return [event async for event in run]


@pytest.mark.parametrize(
    ("first", "second", "most"),
    [("sid", "sid", 1), ("a", "b", 2), (None, None, 2), (None, "a", 2)],
)
async def test_how_many_at_once(first: str | None, second: str | None, most: int) -> None:
    runner = CodexRunner(codex_cmd="codex", extra_args=[])
    runner.run_impl = scripted = Scripted()
    async with asyncio.TaskGroup() as group:
        for value in (first, second):
            group.create_task(drain(runner.run("x", None if value is None else token(value))))
        await asyncio.sleep(0)
        scripted.gate.set()
    assert scripted.most == most


async def test_two_runners_share_the_lock() -> None:
    scripted = Scripted()
    runners = [CodexRunner(), CodexRunner()]
    async with asyncio.TaskGroup() as group:
        for runner in runners:
            runner.run_impl = scripted
            group.create_task(drain(runner.run("x", token("sid"))))
        await scripted.entered.wait()
        scripted.gate.set()
    assert scripted.most == 1


async def test_two_new_runs_of_the_same_session() -> None:
    runner = CodexRunner()
    runner.run_impl = scripted = Scripted("same")
    first, second = runner.run("1"), runner.run("2")
    assert isinstance(await anext(first), StartedEvent)
    waiting = asyncio.ensure_future(anext(second))
    while scripted.inside < 2:  # its process runs on
        await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()  # but its events wait
    scripted.gate.set()
    assert [type(event) for event in await drain(first)] == [CompletedEvent]
    async with asyncio.timeout(DEADLINE_S):
        assert isinstance(await waiting, StartedEvent)
    await drain(second)


async def test_a_session_is_free_when_its_end_is_told() -> None:
    runner = CodexRunner()
    runner.run_impl = scripted = Scripted()
    scripted.gate.set()
    async for event in runner.run("1", token("sid")):
        assert isinstance(event, CompletedEvent)
        assert len(await drain(runner.run("2", token("sid")))) == 1


async def test_who_stops_reading_frees_the_session() -> None:
    runner = CodexRunner()
    runner.run_impl = scripted = Scripted("sid")
    async for _ in runner.run("1"):
        break
    run = runner.run("2", token("sid"))
    assert isinstance(await anext(run), StartedEvent)
    await run.aclose()
    assert scripted.inside == 0
    scripted.gate.set()
    assert len(await drain(runner.run("3", token("sid")))) == 2


async def test_who_waits_can_be_cancelled_either_way() -> None:
    runner = CodexRunner()
    runner.run_impl = scripted = Scripted()
    holder = asyncio.ensure_future(drain(runner.run("1", token("sid"))))
    await scripted.entered.wait()
    asked = runner.run("2", token("sid"))
    waiting = asyncio.ensure_future(drain(asked))
    dropped = asyncio.ensure_future(drain(runner.run("3", token("sid"))))
    await asyncio.sleep(0)
    asked.cancel()
    assert await waiting == [
        CompletedEvent("codex", False, "", token("sid"), "cancelled before it started"),
    ]
    dropped.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dropped
    scripted.gate.set()
    await holder
    assert len(await drain(runner.run("4", token("sid")))) == 1
    assert scripted.most == 1


async def test_a_run_that_is_cancelled_before_it_begins_never_begins() -> None:
    runner = CodexRunner()
    runner.run_impl = scripted = Scripted()
    run = runner.run("1", token("sid"))
    run.cancel()
    (completed,) = await drain(run)
    assert isinstance(completed, CompletedEvent)
    assert not completed.ok
    assert scripted.most == 0


async def test_a_session_of_another_engine() -> None:
    (completed,) = await drain(CodexRunner().run("x", ResumeToken("claude", "sid")))
    assert isinstance(completed, CompletedEvent)
    assert completed.error is not None
    assert "claude:sid" in completed.error


async def test_an_end_without_a_last_event_has_one() -> None:
    async def nothing(prompt: str, resume: ResumeToken | None) -> AsyncIterator[Event]:
        return
        yield

    runner = CodexRunner()
    runner.run_impl = nothing
    (completed,) = await drain(runner.run("x"))
    assert completed == CompletedEvent("codex", False, "", error="codex ended without an answer.")


async def test_the_file_is_gone_after_the_run_and_private_before(home: Path) -> None:
    lock = SessionLock(token("sid"))
    await lock.queue()
    assert lock.take()
    (file,) = (home / "runs" / "sessions").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    lock.release()
    assert not list(file.parent.iterdir())


WRITERS: dict[str, Callable[[Path], object]] = {
    "locks": lambda home: check_locks(),
    "records": lambda home: SessionState(pid=1).store(token("sid")),
    "errors": lambda home: LastErrors().keep("codex", LastError("no", 0.0)),
    "journal": lambda home: JournalFile(journal_path(home)).open(),
}


@pytest.mark.parametrize("before", [None, 0o755], ids=["new", "wide"])
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o177], ids=oct)
@pytest.mark.parametrize("writer", WRITERS)
def test_runs_is_for_its_owner_alone(home: Path, writer: str, umask: int, before: int | None) -> None:
    runs = home / "runs"
    if before is not None:
        runs.mkdir(parents=True)
        runs.chmod(before)
    else:
        home.mkdir()
    old = os.umask(umask)
    try:
        WRITERS[writer](home)
    finally:
        os.umask(old)
    folders = [runs, *(path for path in runs.rglob("*") if path.is_dir())]
    assert {oct(path.stat().st_mode & 0o777) for path in folders} == {"0o700"}


@pytest.mark.parametrize("session", ["sid", None])
async def test_a_home_that_cannot_be_written(home: Path, session: str | None) -> None:
    home.write_text("a file")
    runner = CodexRunner()
    runner.run_impl = scripted = Scripted()
    (completed,) = await drain(runner.run("x", None if session is None else token(session)))
    assert isinstance(completed, CompletedEvent)
    assert completed.error is not None
    assert "TREADLE_HOME" in completed.error
    assert scripted.most == 0  # told before anything is run


async def test_records(home: Path) -> None:
    assert SessionState.load(token("sid")) == SessionState()
    record = SessionState(carried={"usage": {"input_tokens": 3}})
    record.store(token("sid"))
    assert SessionState.load(token("sid")) == record
    assert SessionState.load(token("other")) == SessionState()
    (file,) = (home / "runs" / "sessions").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_bytes(b"{")
    assert SessionState.load(token("sid")) == SessionState()
    SessionState().store(token("sid"))
    assert not list(file.parent.iterdir())


async def test_only_the_newest_records_are_kept(home: Path) -> None:
    import os

    for number in range(5):
        SessionState(carried={}).store(token(str(number)))
        newest = max((home / "runs" / "sessions").iterdir(), key=lambda path: path.stat().st_ctime_ns)
        os.utime(newest, (number, number))
    remove_old_records(keep=2)
    kept = [number for number in range(5) if SessionState.load(token(str(number))).carried is not None]
    assert kept == [3, 4]


async def test_a_process_is_known_by_its_birth() -> None:
    import os

    mine = process_start_time(os.getpid())
    assert mine > 0
    assert SessionState(os.getpid(), mine).still_runs
    assert not SessionState(os.getpid(), mine + 1).still_runs
    assert not SessionState().still_runs
