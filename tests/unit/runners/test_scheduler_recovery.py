"""What a scheduler finds of the one before it: after a death at any moment (its home is copied while it lives), and
after an end in order."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from treadle.errors import ArgumentValueError, TreadleError
from treadle.runners import (
    Event,
    Interrupted,
    Job,
    JobHandle,
    JournalError,
    JournalInUse,
    Limits,
    Policy,
    Recovery,
    Scheduler,
)
from unit.runners.scripted_runner import ENGINE, PoliteRun, ScriptedRun, ScriptedRunner, token

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]


def job(prompt: str, session: str | None = None, **more: Any) -> Job:
    return Job(engine=ENGINE, prompt=prompt, resume=token(session) if session else None, id=prompt, **more)


class Machine:
    """Homes as they are found after the power came back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "0"

    def dies(self) -> None:
        """What is on disk now is all that is left."""
        before, self.home = self.home, self.folder / f"{int(self.home.name) + 1}"
        shutil.copytree(before, self.home)

    def scheduler(self, runner: ScriptedRunner, **more: Any) -> Scheduler:
        return Scheduler(runner, home=self.home, **more)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


async def started(handle: JobHandle, run: ScriptedRun, session: str) -> None:
    run.start(session)
    async for event in handle.events():
        assert event.type == "started"
        return


async def found(machine: Machine, policy: Policy = "drop") -> Recovery:
    """A look at what is left, which leaves it there."""
    copy = machine.folder / "look"
    shutil.copytree(machine.home, copy)
    async with Scheduler(ScriptedRunner(), home=copy, limits=Limits(running=0)) as scheduler:
        recovery = await scheduler.recover(policy)
    shutil.rmtree(copy)
    return recovery


def names(handles: list[JobHandle]) -> list[str]:
    return [handle.id for handle in handles]


async def test_queued_jobs_are_queued_again_in_order_and_running_ones_go_on(machine: Machine) -> None:
    runner = ScriptedRunner()
    async with machine.scheduler(runner, at_exit="cancel") as scheduler:
        first = await scheduler.submit(job("first", model="m", meta={"chat": 7}))
        for prompt in ("second", "third"):
            await scheduler.submit(job(prompt), after=first)
        await started(first, await runner.begun("first"), "s")
        machine.dies()
    heard: list[tuple[str, str]] = []

    def listen(job: Job, event: Event) -> None:
        heard.append((job.id, event.type))

    runner = ScriptedRunner()
    async with machine.scheduler(runner) as scheduler:
        recovery = await scheduler.recover("continue", listen)
        assert names(recovery.queued) == ["first", "second", "third"]
        (interrupted,) = recovery.interrupted
        assert (interrupted.job.prompt, interrupted.session, interrupted.starts) == ("first", token("s"), 1)
        assert interrupted.continued
        run = await runner.begun("continue")
        assert run.resume == token("s")
        assert run.options is not None
        assert run.options.model == "m"
        assert recovery.queued[0].job.meta == {"chat": 7}
        assert [handle.state for handle in recovery.queued] == ["running", "queued", "queued"]
        for prompt in ("continue", "second", "third"):
            run = await runner.begun(prompt)
            assert run.resume == token("s")
            run.finish()
        for handle in recovery.queued:
            assert (await handle.wait()).ok
        assert runner.order == ["continue", "second", "third"]
        assert heard == [(name, "completed") for name in ("first", "second", "third")]
        assert await scheduler.recover("continue") == Recovery([], [], [])
    assert await found(machine) == Recovery([], [], [])


async def test_a_running_job_can_be_dropped_and_what_waits_for_its_session_runs(machine: Machine) -> None:
    runner = ScriptedRunner()
    async with machine.scheduler(runner, at_exit="cancel") as scheduler:
        first = await scheduler.submit(job("first", "s"))
        await scheduler.submit(job("second", "s"))
        await runner.begun("first")
        machine.dies()
    assert first.state == "done"
    runner = ScriptedRunner()
    async with machine.scheduler(runner) as scheduler:
        recovery = await scheduler.recover("drop")
        assert recovery.interrupted == [Interrupted(job("first", "s"), token("s"), 1)]
        assert names(recovery.queued) == ["second"]
        (await runner.begun("second")).finish()
        await recovery.queued[0].wait()
    assert await found(machine) == Recovery([], [], [])


async def test_without_a_session_it_cannot_go_on_and_neither_can_its_follow_ups(machine: Machine) -> None:
    runner = ScriptedRunner()
    async with machine.scheduler(runner, at_exit="cancel") as scheduler:
        first = await scheduler.submit(job("first"))
        await scheduler.submit(job("second"), after=first)
        await runner.begun("first")
        machine.dies()
    async with machine.scheduler(ScriptedRunner()) as scheduler:
        recovery = await scheduler.recover("continue")
        assert recovery == Recovery([], [Interrupted(job("first"), None, 1)], [job("second")])
    assert await found(machine) == Recovery([], [], [])


async def test_a_follow_up_of_a_queued_job_still_follows_it(machine: Machine) -> None:
    runner = ScriptedRunner()
    async with machine.scheduler(runner, limits=Limits(running=1), at_exit="cancel") as scheduler:
        await scheduler.submit(job("blocker"))
        first = await scheduler.submit(job("first"))
        await scheduler.submit(job("second"), after=first)
        machine.dies()
    runner = ScriptedRunner()
    async with machine.scheduler(runner) as scheduler:
        recovery = await scheduler.recover("drop")
        run = await runner.begun("first")
        assert "second" not in runner.order
        run.start("s")
        run.finish()
        run = await runner.begun("second")
        assert run.resume == token("s")
        run.finish()
        assert [(await handle.wait()).ok for handle in recovery.queued] == [True, True]


async def test_the_policy_can_be_a_function_that_sees_how_often_it_was_tried(machine: Machine) -> None:
    def policy(job: Interrupted) -> Any:
        return "continue" if job.starts < 3 else "drop"

    runner = ScriptedRunner()
    async with machine.scheduler(runner, at_exit="cancel") as scheduler:
        await started(await scheduler.submit(job("x")), await runner.begun("x"), "s")
        machine.dies()
    for expected in (True, True, False):
        runner = ScriptedRunner()
        async with machine.scheduler(runner, at_exit="cancel") as scheduler:
            recovery = await scheduler.recover(policy)
            assert [found.continued for found in recovery.interrupted] == [expected]
            if expected:
                await runner.begun("continue")
            machine.dies()
    assert await found(machine) == Recovery([], [], [])


async def test_what_was_found_must_be_dealt_with_first(machine: Machine) -> None:
    runner = ScriptedRunner()
    async with machine.scheduler(runner, at_exit="cancel") as scheduler:
        await scheduler.submit(job("x"))
        await runner.begun("x")
        machine.dies()
    async with machine.scheduler(ScriptedRunner()) as scheduler:
        with pytest.raises(TreadleError, match=r"jobs of an earlier scheduler \(1\): .*`await scheduler\.recover"):
            await scheduler.submit(job("y"))
        with pytest.raises(ArgumentValueError, match="'perhaps'"):
            await scheduler.recover(lambda found: "perhaps")  # type: ignore[arg-type,return-value]
    assert len((await found(machine)).interrupted) == 1


# --- what is safe when ---


async def test_a_second_scheduler_in_the_same_home_is_refused(machine: Machine) -> None:
    async with machine.scheduler(ScriptedRunner()):
        with pytest.raises(JournalInUse, match="durable=False"):
            await machine.scheduler(ScriptedRunner()).__aenter__()
    async with machine.scheduler(ScriptedRunner()):
        pass


async def test_a_cancelled_or_finished_job_does_not_come_back(machine: Machine) -> None:
    runner = ScriptedRunner()
    async with machine.scheduler(runner) as scheduler:
        running = await scheduler.submit(job("running", "s"))
        queued = await scheduler.submit(job("queued", "s"))
        await queued.cancel()
        (await runner.begun("running")).finish()
        await running.wait()
        machine.dies()
    assert await found(machine) == Recovery([], [], [])


async def test_a_submission_that_is_given_up_does_not_come_back(machine: Machine) -> None:
    runner = ScriptedRunner()
    async with machine.scheduler(runner) as scheduler:
        task = asyncio.ensure_future(scheduler.submit(job("x")))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        assert scheduler.jobs == []
    assert runner.order == []
    assert await found(machine) == Recovery([], [], [])


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    return lambda: monkeypatch.setattr(os, "write", full)


async def test_on_a_full_disk_no_job_is_taken_and_none_is_started(
    machine: Machine, full_disk: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = ScriptedRunner()
    async with machine.scheduler(runner) as scheduler:
        first = await scheduler.submit(job("first", "s"))
        second = await scheduler.submit(job("second", "s"))
        run = await runner.begun("first")
        full_disk()
        with pytest.raises(JournalError, match="make room"):
            await scheduler.submit(job("third"))
        assert names(scheduler.jobs) == ["first", "second"]
        run.finish()
        assert (await first.wait()).ok
        error = (await second.wait()).error
        assert error is not None
        assert error.startswith("not started: ")
        assert "make room" in error
        assert runner.order == ["first"]
        monkeypatch.undo()
        fourth = await scheduler.submit(job("fourth"))
        (await runner.begun("fourth")).finish()
        assert (await fourth.wait()).ok
    assert await found(machine) == Recovery([], [], [])


# --- an end in order ---


async def test_at_the_end_of_the_block_jobs_are_kept_for_the_next_one(machine: Machine) -> None:
    runner = ScriptedRunner(PoliteRun)
    async with machine.scheduler(runner) as scheduler:
        running = await scheduler.submit(job("running"))
        await started(running, await runner.begun("running"), "s")
        queued = await scheduler.submit(job("queued", "s"))
        unwanted = await scheduler.submit(job("unwanted", "t"))
        await runner.begun("unwanted")
        await unwanted.cancel()
    assert (await running.wait()).error == "stopped in order"
    assert (await queued.wait()).error == "the scheduler was stopped before it started; it is kept for the next start"
    recovery = await found(machine, "continue")
    assert names(recovery.queued) == ["running", "queued"]
    assert [found.session for found in recovery.interrupted] == [token("s")]


async def test_a_job_that_was_only_just_taken_at_the_end_is_queued_again(machine: Machine) -> None:
    runner = ScriptedRunner()
    async with machine.scheduler(runner) as scheduler:
        handle = await scheduler.submit(job("x"))
        assert handle.state == "running"
    assert runner.order == []
    recovery = await found(machine)
    assert (names(recovery.queued), recovery.interrupted) == (["x"], [])


async def test_at_the_end_of_the_block_jobs_can_be_forgotten(machine: Machine) -> None:
    runner = ScriptedRunner(PoliteRun)
    async with machine.scheduler(runner, at_exit="cancel") as scheduler:
        await scheduler.submit(job("running", "s"))
        await scheduler.submit(job("queued", "s"))
        await runner.begun("running")
    assert await found(machine) == Recovery([], [], [])


async def test_a_run_that_succeeds_while_it_is_stopped_is_done(machine: Machine) -> None:
    class Quick(ScriptedRun):
        def cancel(self) -> None:
            self.finish("just in time")

    runner = ScriptedRunner(Quick)
    async with machine.scheduler(runner) as scheduler:
        handle = await scheduler.submit(job("x", "s"))
        await runner.begun("x")
    assert (await handle.wait()).answer == "just in time"
    assert await found(machine) == Recovery([], [], [])


async def test_a_relative_directory_means_the_same_after_a_restart(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    async with machine.scheduler(ScriptedRunner()) as scheduler:
        await scheduler.submit(job("x", cwd="project"))
    (handle,) = (await found(machine)).queued
    assert handle.job.cwd == str(tmp_path / "project")
