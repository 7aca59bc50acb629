"""Jobs that are repeated, and the rate of a person: by a clock of the test's own, and over restarts."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from treadle.errors import ArgumentValueError, TreadleError
from treadle.runners import Event, Job, JobHandle, JobQueued, JournalLine, Limits, QueueFull, Rate, Repeat, Scheduler
from unit.runners.scripted_runner import ENGINE, ScriptedRunner

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]
NINE = datetime(2026, 11, 20, 9, 0, tzinfo=UTC).timestamp()
DAY = 86_400.0


def job(prompt: str, id: str | None = None, **more: Any) -> Job:
    return Job(engine=ENGINE, prompt=prompt, id=id or prompt, **more)


class Clocked(Scheduler):
    """A scheduler whose clock the test sets."""

    def __init__(self, runner: ScriptedRunner, home: Path, now: float, **more: Any) -> None:
        super().__init__(runner, home=home, **more)
        self.now = now
        self._clock = lambda: self.now

    def at(self, now: float) -> None:
        self.now = now
        self._changed.set()

    async def running(self) -> JobHandle:
        """The only job, when it runs."""
        while [handle.state for handle in self.jobs] != ["running"]:
            await asyncio.sleep(0)
        return self.jobs[0]


async def test_a_job_is_run_whenever_its_time_comes(tmp_path: Path) -> None:
    runner, told = ScriptedRunner(), list[tuple[str, str]]()

    def listen(job: Job, event: Event) -> None:
        told.append((job.id, event.type))

    async with Clocked(runner, tmp_path, NINE - 100) as scheduler:
        repeat = await scheduler.repeat(job("report"), "0 9 * * *", on_event=listen)
        assert repeat.next_at == NINE
        for days in range(2):
            scheduler.at(NINE + days * DAY)
            handle = await scheduler.running()
            while (run := runner.runs.pop("report", None)) is None:
                await asyncio.sleep(0)
            run.finish()
            await handle.wait()
        assert told == [("report@2026-11-20T09:00Z", "completed"), ("report@2026-11-21T09:00Z", "completed")]
        assert [repeat.id for repeat in scheduler.repeats] == ["report"]
        assert await scheduler.stop_repeating("report")
        assert not await scheduler.stop_repeating("report")
        assert scheduler.repeats == []
    assert (tmp_path / "runs/journal").read_bytes() == b""


async def test_what_is_repeated_goes_on_after_a_restart_and_a_missed_time_is_made_up_for_once(tmp_path: Path) -> None:
    async with Clocked(ScriptedRunner(), tmp_path, NINE - 100) as scheduler:
        await scheduler.repeat(job("report"), "0 10 * * *", zone="Europe/Berlin")
    runner = ScriptedRunner()
    async with Clocked(runner, tmp_path, NINE + 3 * DAY + 60) as scheduler:  # three times have passed
        with pytest.raises(TreadleError, match="earlier scheduler"):
            await scheduler.submit(job("another"))
        recovery = await scheduler.recover("drop")
        assert [(repeat.id, repeat.zone) for repeat in recovery.repeats] == [("report", "Europe/Berlin")]
        handle = await scheduler.running()
        (await runner.begun("report")).finish()
        assert handle.id == "report@2026-11-20T09:00Z"
        await handle.wait()
        [repeat] = scheduler.repeats
        assert repeat.next_at == NINE + 4 * DAY
    async with Clocked(ScriptedRunner(), tmp_path, NINE + 3 * DAY + 120) as scheduler:
        [repeat] = (await scheduler.recover("drop")).repeats
        assert repeat.next_at == NINE + 4 * DAY  # that it was made up for is known


async def test_a_time_at_which_the_job_before_still_runs_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runner = ScriptedRunner()
    async with Clocked(runner, tmp_path, NINE - 100) as scheduler:
        await scheduler.repeat(job("long"), "* * * * *")
        scheduler.at(NINE)
        handle = await scheduler.running()
        with caplog.at_level(logging.WARNING):
            scheduler.at(NINE + 60)
            while "the one before is not done" not in caplog.text:
                await asyncio.sleep(0)
        assert scheduler.jobs == [handle]
        (await runner.begun("long")).finish()
        await handle.wait()
        scheduler.at(NINE + 120)
        assert (await scheduler.running()).id == "long@2026-11-20T09:02Z"


async def test_a_repetition_of_the_same_id_is_replaced_and_their_number_is_limited(tmp_path: Path) -> None:
    async with Clocked(ScriptedRunner(), tmp_path, NINE, limits=Limits(repeats=1)) as scheduler:
        await scheduler.repeat(job("report"), "0 9 * * *")
        changed = await scheduler.repeat(job("shorter report", "report"), "0 12 * * *")
        assert scheduler.repeats == [changed]
        with pytest.raises(QueueFull) as caught:
            await scheduler.repeat(job("other"), "@daily")
        assert (caught.value.limit, caught.value.size) == ("repeats", 1)


async def test_what_is_stopped_while_its_time_comes_stays_stopped(tmp_path: Path) -> None:
    gate, runner = asyncio.Event(), ScriptedRunner()
    async with Clocked(runner, tmp_path, NINE - 100, at_exit="cancel") as scheduler:
        for id in ("a", "b"):
            await scheduler.repeat(job(id), "0 9 * * *")
        write = scheduler._journal.write

        async def slow(*lines: JournalLine) -> None:
            if isinstance(lines[0], JobQueued):
                await gate.wait()
            await write(*lines)

        scheduler._journal.write = slow  # type: ignore[method-assign]
        scheduler.at(NINE)
        while not scheduler.jobs:
            await asyncio.sleep(0)
        stopping = asyncio.ensure_future(scheduler.stop_repeating("b"))
        for _ in range(10):
            await asyncio.sleep(0)
        gate.set()
        assert await stopping
        await runner.begun("a")
        assert [repeat.id for repeat in scheduler.repeats] == ["a"]
    async with Clocked(ScriptedRunner(), tmp_path, NINE) as scheduler:
        assert [repeat.id for repeat in (await scheduler.recover("drop")).repeats] == ["a"]


@pytest.mark.parametrize(("cron", "zone"), [("0 25 * * *", "UTC"), ("@daily", "Mars/Base")])
async def test_a_wrong_expression_changes_nothing(cron: str, zone: str, tmp_path: Path) -> None:
    async with Clocked(ScriptedRunner(), tmp_path, NINE) as scheduler:
        with pytest.raises(ArgumentValueError):
            await scheduler.repeat(job("report"), cron, zone=zone)
        assert scheduler.repeats == []
    assert (tmp_path / "runs/journal").read_bytes() == b""


async def test_a_person_may_submit_so_many_jobs_in_some_time_also_after_a_restart(tmp_path: Path) -> None:
    limits = Limits(rate=Rate(jobs=2, per_s=60))
    runner = ScriptedRunner()
    async with Clocked(runner, tmp_path, NINE, limits=limits, at_exit="cancel") as scheduler:
        for number in range(2):
            scheduler.at(NINE + number)
            await scheduler.submit(job(f"of ada {number}", person="ada"))
        with pytest.raises(QueueFull, match=r"ada has submitted 2 jobs in 60 s.*next one in 59 s") as caught:
            await scheduler.submit(job("one more", person="ada"))
        assert (caught.value.limit, caught.value.size, caught.value.retry_at) == ("rate", 2, NINE + 60)
        await scheduler.submit(job("of bob", person="bob"))
        await scheduler.submit(job("of nobody"))
    async with Clocked(ScriptedRunner(), tmp_path, NINE + 30, limits=limits, at_exit="cancel") as scheduler:
        with pytest.raises(QueueFull):
            await scheduler.submit(job("again", person="ada"))
        scheduler.at(NINE + 60.5)
        await scheduler.submit(job("again", person="ada"))
        with pytest.raises(QueueFull):
            await scheduler.submit(job("and again", person="ada"))


@pytest.mark.parametrize(("jobs", "per_s"), [(0, 60), (True, 60), (1.5, 60), (1, 0), (1, "soon")])
def test_a_rate_is_two_numbers(jobs: Any, per_s: Any) -> None:
    with pytest.raises((ArgumentValueError, TypeError)):
        Rate(jobs=jobs, per_s=per_s)


def test_a_repetition_is_plain_data() -> None:
    assert Repeat(job=job("x"), cron="@daily", last=NINE).next_at == NINE + 15 * 3600
