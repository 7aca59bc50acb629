"""`Scheduler`: runs jobs, one at a time per session, and stores them over a restart.

    submit ─▶ queued ─▶ running ─▶ done          each with its line in the journal, written first
                │          │         ▲
                └─ cancel ─┴─ cancel ┘           a job that never ran ends at once, a running one when its run has

The scheduler owns the order of these steps: which caller is notified of what and when, and that the journal has it
first. `SessionQueues` decides which job is next, `Attempt` reads and stops a run, `JobJournal` stores. A session is
free for its next job only when the journal knows that the one before is done: else a restart would run both. It
belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias

import msgspec

from treadle.arguments import seconds, text
from treadle.errors import ArgumentValueError, TreadleError
from treadle.runners.run_events import CompletedEvent, Event, ResumeToken
from treadle.runners.scheduling.cron import Cron
from treadle.runners.scheduling.job_journal import (
    CLOSE_S,
    JobCounted,
    JobDone,
    JobJournal,
    JobQueued,
    JobRunning,
    JobSession,
    JournalError,
    JournalLine,
    NoJournal,
    RepeatRemoved,
    RepeatStored,
    UnfinishedJob,
    encode,
    journal_path,
)
from treadle.runners.scheduling.jobs import Attempt, Job, JobHandle, OnEvent, RunnerLike, failed
from treadle.runners.scheduling.queues import Limits, QueueFull, SessionQueues
from treadle.runners.scheduling.repeats import PersonRates, Repeat, Repeats

logger: logging.Logger = logging.getLogger(__name__)

AtExit: TypeAlias = Literal["keep", "cancel"]

CANCELLED: Final = "cancelled"
CANCELLED_EARLY: Final = "cancelled before it started"
STOPPED: Final = "interrupted: the scheduler was stopped"
STOPPED_EARLY: Final = "the scheduler was stopped before it started"
KEPT: Final = f"{STOPPED_EARLY}; it is kept for the next start"
_LOOK_S: Final = 60.0
ORPHANED: Final = "not started: the job that it follows ended before its session was known"


# --- recovery: what to do with the jobs of an earlier scheduler ------------------------------------------------------

CONTINUE: Final = "continue"


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A job that was running when its scheduler ended.

    Args:
        job: The job, as it was submitted.
        session: The session of its run, if that had become known.
        starts: How often it has been started. One that ends its scheduler every time is worth a look.
        continued: Whether it goes on. Without a session it cannot; it can be submitted again, if that does no harm.
    """

    job: Job
    session: ResumeToken | None
    starts: int
    continued: bool = False


Choice: TypeAlias = Literal["drop", "continue"]
Policy: TypeAlias = Choice | Callable[[Interrupted], Choice]


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was found in the journal.

    Args:
        queued: The jobs that wait or run again, those that go on among them, in their old order.
        interrupted: The jobs that were running.
        orphaned: Follow-ups of an interrupted job whose session is unknown; they were dropped.
        repeats: What is repeated. Of a time that passed meanwhile there is one job, at once.
    """

    queued: list[JobHandle]
    interrupted: list[Interrupted]
    orphaned: list[Job]
    repeats: list[Repeat] = field(default_factory=list)


@dataclass(slots=True)
class RecoveryPlan:
    """What to queue (a job, and the id of the one that it follows), what to report, what to write down before."""

    jobs: list[tuple[Job, str | None]] = field(default_factory=list)
    interrupted: list[Interrupted] = field(default_factory=list)
    orphaned: list[Job] = field(default_factory=list)
    lines: list[JournalLine] = field(default_factory=list)


def plan_recovery(entries: Sequence[UnfinishedJob], policy: Policy) -> RecoveryPlan:
    """Raises `ArgumentValueError` for a choice that there is not."""
    plan = RecoveryPlan()
    planned: set[str] = set()
    for entry in entries:
        job: Job | None = entry.job
        if entry.running:
            found = Interrupted(entry.job, entry.session, entry.starts)
            choice = policy(found) if callable(policy) else policy
            if choice not in ("drop", "continue"):
                raise ArgumentValueError("interrupted", f'an interrupted job can "drop" or "continue", not {choice!r}')
            if choice == "drop" or entry.session is None:
                job = None
            else:
                found = replace(found, continued=True)
                job = msgspec.structs.replace(entry.job, prompt=CONTINUE, resume=entry.session)
                plan.lines.append(JobQueued(job, starts=entry.starts))
            plan.interrupted.append(found)
        elif entry.after is not None and entry.after not in planned:
            plan.orphaned.append(entry.job)
            job = None
        if job is None:
            plan.lines.append(JobDone(entry.job.id))
        else:
            plan.jobs.append((job, entry.after))
            planned.add(job.id)
    return plan


# --- the scheduler ----------------------------------------------------------------------------------------------------


class SchedulerStats(NamedTuple):
    """What there is to do (`running`, `queued`, for how many `sessions`), and what was done since the beginning."""

    running: int
    queued: int
    sessions: int
    completed: int
    refused: int


class Scheduler:
    """Runs jobs; to be used as `async with Scheduler(…) as scheduler`.

    Args:
        runner_for: Gives the runner for a job, whenever one is about to run; else the job's engine is run as it is.
        home: Where the journal is (`runs/journal`). Without it: `$TREADLE_HOME`, `$CODEX_HOME` or `~/.treadle`.
        durable: Whether there is a journal. Without one, nothing is left of the jobs at the end.
        limits: How many jobs may run and wait.
        at_exit: What becomes of jobs that are not done at the end of the block. Those that run are stopped in any case.
            `keep`: the journal has them all for the next start; `cancel`: it drops them.
        stop_s: How long a run that was asked to stop may take to do so, before it is made to; and then once more.
    """

    def __init__(
        self,
        runner_for: Callable[[Job], RunnerLike] | None = None,
        *,
        home: str | os.PathLike[str] | None = None,
        durable: bool = True,
        limits: Limits | None = None,
        at_exit: AtExit = "keep",
        stop_s: float = 10.0,
    ) -> None:
        self._runner_for = runner_for
        self._journal = JobJournal(journal_path(home)) if durable else NoJournal()
        self._keeps_jobs = durable and at_exit == "keep"
        self._stop_s = seconds("stop_s", stop_s)
        self._queues: SessionQueues[JobHandle] = SessionQueues(limits or Limits())
        self._jobs: dict[str, JobHandle] = {}
        self._attempts: dict[JobHandle, Attempt] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._found: list[UnfinishedJob] = []
        self._recovering = asyncio.Lock()
        self._open = False
        self._completed = self._refused = 0
        self._clock = time.time
        self._limits = limits or Limits()
        self._rates = PersonRates(self._limits.rate)
        self._repeats = Repeats()
        self._kept_repeats: list[Repeat] = []
        self._on_repeat: dict[str, OnEvent | None] = {}
        self._repeating = asyncio.Lock()  # what is repeated is changed by one at a time, in memory and in the journal
        self._changed = asyncio.Event()  # there is another first time
        self._ticker: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._found = await self._journal.open()
        self._kept_repeats, counted = self._journal.kept()
        self._rates = PersonRates(self._limits.rate, counted)
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open = False
        # Also when the caller is cancelled: nothing else would end the runs.
        await asyncio.shield(asyncio.ensure_future(self._close()))

    def stats(self) -> SchedulerStats:
        """How many jobs run and wait, and how many have ended or were refused."""
        return SchedulerStats(*self._queues.stats(), completed=self._completed, refused=self._refused)

    @property
    def jobs(self) -> list[JobHandle]:
        """The jobs that wait or run, in the order in which they came."""
        return list(self._jobs.values())

    def find(self, id: str) -> JobHandle | None:
        """The job with this id, unless it has ended."""
        return self._jobs.get(id)

    async def submit(self, job: Job, on_event: OnEvent | None = None, *, after: JobHandle | None = None) -> JobHandle:
        """Add a job. It runs at once, or when it is its turn. When this returns, it is safe from a restart.

        Args:
            job: What to run.
            on_event: Called with the job and each of its events. It must not block.
            after: A job of this scheduler, in whose session this one is to run, as soon as that is known.

        Raises `QueueFull`, `JournalError` and `ArgumentValueError`; then nothing was added.
        """
        job = self._checked(job, after)
        handle = JobHandle(job, self._cancel, _listener(job, on_event))
        if after is not None and after.session is None and after not in self._queues:
            self._complete(handle, failed(handle, ORPHANED))
            return handle
        now, counted = self._clock(), None
        if job.person is not None and (retry_at := self._rates.full_until(job.person, now)) is not None:
            self._refused += 1
            assert self._limits.rate is not None
            most, wait = self._limits.rate.jobs, retry_at - now
            what = f"{job.person} has submitted {most} jobs in {self._limits.rate.per_s:g} s, and the limit is {most}"
            raise QueueFull("rate", most, f"{what}: the next one in {wait:.0f} s", retry_at)
        behind = self._enqueue(handle, after)
        if job.person is not None:
            counted = self._rates.count(job.person, now)
        await self._store(handle, behind, *([JobCounted(job.person or "", counted)] if counted is not None else []))
        return handle

    async def _store(self, handle: JobHandle, behind: JobHandle | None, *more: JournalLine) -> None:
        """Store a job that has its place in the queue, and let it run; one that cannot be stored is taken out."""
        try:
            await self._journal.write(JobQueued(handle.job, None if behind is None else behind.id), *more)
        except BaseException as error:
            if self._queues.drop(handle) is not None:
                del self._jobs[handle.id]
                if not isinstance(error, JournalError):  # the caller was cancelled: the line may have been written
                    self._spawn(self._journal.note(JobDone(handle.id)))
                self._start_next()
            raise
        self._queues.confirm(handle)
        self._start_next()

    # --- jobs that are repeated ---

    @property
    def repeats(self) -> list[Repeat]:
        """What is repeated."""
        return self._repeats.all()

    async def repeat(self, job: Job, cron: str, *, zone: str = "UTC", on_event: OnEvent | None = None) -> Repeat:
        """Run a job whenever its time comes, also after a restart and a `recover`. One that is repeated under this id
        already is replaced; times that were missed meanwhile still count.

        A time at which the job before is not done yet is left out, and so is one for which there is no place.

        Args:
            job: What to run. Give it an id of your own: it is what the repetition is called.
            cron: When: five fields, such as `30 9 * * mon-fri`; see `Cron`.
            zone: In the time of which zone.
            on_event: Called with each of its jobs and their events. It must not block.

        Raises `QueueFull`, `JournalError` and `ArgumentValueError`; then nothing was changed.
        """
        job = self._checked(job, None)
        Cron(text("cron", cron), text("zone", zone))  # a wrong expression is refused before anything is written
        async with self._repeating:
            before = self._repeats.find(job.id)
            if before is None and len(self._repeats) >= self._limits.repeats:
                most = self._limits.repeats
                what = f"{most} jobs are repeated, and that is the limit: stop one, or raise Limits(repeats=…)"
                raise QueueFull("repeats", most, what)
            same = before is not None and (before.cron, before.zone) == (cron, zone)
            last = before.last if before is not None and same else self._clock()
            repeat = Repeat(job=job, cron=cron, zone=zone, last=last)
            await self._journal.write(RepeatStored(repeat))
            self._take_up([repeat], on_event)
        return repeat

    async def stop_repeating(self, id: str) -> bool:
        """Repeat a job no more; what runs goes on. False when it is not repeated. Raises `JournalError`.

        Args:
            id: The id of the job that was given to `repeat`.
        """
        self._check_open()
        async with self._repeating:
            if self._repeats.find(id) is None:
                return False
            await self._journal.write(RepeatRemoved(id))
            self._repeats.remove(id)
            return True

    def _take_up(self, repeats: Sequence[Repeat], on_event: OnEvent | None) -> None:
        for repeat in repeats:
            try:
                self._repeats.put(repeat)
            except ArgumentValueError as error:  # of another machine, which knew its time zone
                logger.error("job %s is not repeated: %s", repeat.id, error)
            self._on_repeat[repeat.id] = on_event
        if repeats and self._ticker is None:
            self._ticker = asyncio.get_running_loop().create_task(self._tick())
        self._changed.set()

    async def _tick(self) -> None:
        """Submit what is repeated when its time comes, until the end of the scheduler."""
        while True:
            self._changed.clear()
            async with self._repeating:
                for repeat, job in self._repeats.due(self._clock()):
                    self._repeats.put(repeat)
                    await self._run_again(repeat, job)
            next_at = self._repeats.next_at()
            # Not longer at a time: the clock of the machine may be set, or may have stood still with it.
            wait = _LOOK_S if next_at is None else min(max(next_at - self._clock(), 0.0), _LOOK_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()

    async def _run_again(self, repeat: Repeat, job: Job) -> None:
        if any(id.startswith(f"{repeat.id}@") for id in self._jobs):
            logger.warning("job %s is not run now: the one before is not done", job.id)
            await self._journal.note(RepeatStored(repeat))
            return
        handle = JobHandle(job, self._cancel, _listener(job, self._on_repeat.get(repeat.id)))
        try:
            await self._store(handle, self._enqueue(handle, None), RepeatStored(repeat))
        except (QueueFull, JournalError) as error:
            logger.warning("job %s is not run now: %s", job.id, error)

    def _checked(self, job: Job, after: JobHandle | None) -> Job:
        """The job as it is stored: with the session of the one before, and with an absolute directory, because whoever
        runs it after a restart may be somewhere else. Raises when it cannot be added."""
        self._check_open()
        if count := len(self._found) + len(self._kept_repeats):
            raise TreadleError(
                f"in the journal are jobs of an earlier scheduler ({count}): "
                'first call `await scheduler.recover("continue")` or `recover("drop")`'
            )
        if job.id in self._jobs:
            raise ArgumentValueError("job", f"there is a job {job.id!r} already: give this one another id, or none")
        if after is not None and job.resume is not None:
            raise ArgumentValueError("after", "a job with `resume` has a session already: leave out one of the two")
        if after is not None and after.state != "done" and self.find(after.id) is not after:
            raise ArgumentValueError("after", "that job is not one of this scheduler: submit both to the same one")
        engine = after.job.engine if after is not None else job.resume.engine if job.resume else job.engine
        if engine != job.engine:
            raise ArgumentValueError("job", f"a session of {engine} cannot be continued by {job.engine}")
        try:
            encode(JobQueued(job))
        except (TypeError, ValueError) as error:
            raise ArgumentValueError("job", f"the job cannot be written down as JSON: {error}") from None
        job = job if after is None else _within(job, after.session)
        cwd = None if job.cwd is None else os.path.abspath(os.path.expanduser(job.cwd))
        return msgspec.structs.replace(job, cwd=cwd)

    def _check_open(self) -> None:
        if not self._open:
            raise TreadleError("the scheduler is not running: use it inside `async with Scheduler(…) as scheduler`")

    def _enqueue(self, handle: JobHandle, after: JobHandle | None, *, force: bool = False) -> JobHandle | None:
        try:
            if after is None or handle.session is not None:
                behind = self._queues.add(handle, session=handle.session, force=force)
            else:
                behind = self._queues.add(handle, after=after, force=force)
        except QueueFull:
            self._refused += 1
            raise
        self._jobs[handle.id] = handle
        return behind

    async def recover(self, interrupted: Policy, on_event: OnEvent | None = None) -> Recovery:
        """Take up the jobs that an earlier scheduler left behind; to be called before the first `submit`.

        Those that waited wait again, in their order. Those that ran were cut off; whether they go on is for the policy.

        Args:
            interrupted: `drop`, or `continue`: go on in the session, if it is known, with the prompt `continue`. Or a
                function that decides for each.
            on_event: As for `submit`.

        Raises `JournalError`; then they are still there.
        """
        async with self._recovering:
            self._check_open()
            plan = plan_recovery(self._found, interrupted)
            if plan.lines:
                await self._journal.write(*plan.lines)
                self._check_open()
            self._found = []
            repeats, self._kept_repeats = self._kept_repeats, []
        handles: list[JobHandle] = []
        for job, after in plan.jobs:
            handle = JobHandle(job, self._cancel, _listener(job, on_event))
            self._enqueue(handle, self._jobs.get(after or ""), force=True)
            self._queues.confirm(handle)
            handles.append(handle)
        self._start_next()
        self._take_up(repeats, on_event)
        return Recovery(handles, plan.interrupted, plan.orphaned, self.repeats)

    def _start_next(self) -> None:
        while self._open and (handle := self._queues.take()) is not None:
            handle.begin()
            self._attempts[handle] = Attempt(handle, self._learn, self._stop_s)
            self._spawn(self._run(handle))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task that the end of the scheduler waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _run(self, handle: JobHandle) -> None:
        attempt = self._attempts[handle]
        try:
            # Before it runs: a job that may have done something is never simply run again.
            await self._journal.write(JobRunning(handle.id))
        except JournalError as error:
            await self._finish(handle, failed(handle, f"not started: {error}"))
            return
        if attempt.why_stopped is None:
            completed = await attempt.run(self._runner_for or _built_in_runner)
            stays = self._keeps_jobs and attempt.why_stopped == STOPPED and not completed.ok
            await self._finish(handle, completed, stays=stays)
        elif attempt.why_stopped == STOPPED and self._keeps_jobs:
            await self._journal.note(JobQueued(_within(handle.job, handle.session)))
            await self._finish(handle, failed(handle, KEPT), stays=True)
        else:
            why = STOPPED_EARLY if attempt.why_stopped == STOPPED else CANCELLED_EARLY
            await self._finish(handle, failed(handle, why))

    async def _learn(self, handle: JobHandle, session: ResumeToken) -> None:
        for job in (handle, *self._queues.learn(handle, session)):
            job.belong(session)
        if session != handle.job.resume:
            await self._journal.note(JobSession(handle.id, session))

    async def _finish(self, handle: JobHandle, completed: CompletedEvent, *, stays: bool = False) -> None:
        # From here on it is too late to cancel it; its session is free when the journal knows that it is done.
        del self._attempts[handle]
        if not stays:
            await self._journal.note(JobDone(handle.id))
        orphans = self._queues.finish(handle)
        self._complete(handle, completed)
        self._start_next()
        await self._take_out(orphans, ORPHANED)

    async def _cancel(self, handle: JobHandle) -> bool:
        orphans = self._queues.drop(handle)
        if orphans is not None:
            # It is in no queue any more: whatever happens while that is written down, it will not run.
            await asyncio.shield(self._spawn(self._take_out([handle], CANCELLED_EARLY, orphans)))
            return True
        attempt = self._attempts.get(handle)
        if attempt is not None:
            attempt.stop(CANCELLED)
        return attempt is not None

    async def _take_out(self, handles: Sequence[JobHandle], why: str, orphans: Sequence[JobHandle] = ()) -> None:
        """End jobs that are in no queue any more and never ran."""
        if handles or orphans:
            await self._journal.note(*(JobDone(handle.id) for handle in (*handles, *orphans)))
        for handle in handles:
            self._complete(handle, failed(handle, why))
        for orphan in orphans:
            self._complete(orphan, failed(orphan, ORPHANED))

    def _complete(self, handle: JobHandle, completed: CompletedEvent) -> None:
        if self._jobs.get(handle.id) is handle:
            del self._jobs[handle.id]
        self._completed += 1
        handle.complete(completed)

    async def _close(self) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.wait({self._ticker})
        waiting: list[JobHandle] = []
        for handle in self._jobs.values():
            if (orphans := self._queues.drop(handle)) is not None:
                waiting += [handle, *orphans]
        for attempt in self._attempts.values():
            attempt.stop(STOPPED)
        if self._keeps_jobs:
            for handle in waiting:
                self._complete(handle, failed(handle, KEPT))
        else:
            await self._take_out(waiting, STOPPED_EARLY)
        try:
            async with asyncio.timeout(2 * self._stop_s + CLOSE_S):
                while self._tasks:
                    await asyncio.wait(self._tasks)
        except TimeoutError:
            logger.error("%d jobs have not ended; the journal may not be writable", len(self._tasks))
        await self._journal.close()


def _built_in_runner(job: Job) -> RunnerLike:
    # Looking for engines of other packages costs time that a caller with runners of their own need not spend.
    from treadle.runners.engine_registry import make_runner

    return make_runner(job.engine)


def _within(job: Job, session: ResumeToken | None) -> Job:
    return job if session is None else msgspec.structs.replace(job, resume=session)


def _listener(job: Job, on_event: OnEvent | None) -> Callable[[Event], None]:
    def listen(event: Event) -> None:
        if on_event is None:
            return
        try:
            on_event(job, event)
        except Exception:
            logger.exception("on_event of job %s failed; the job goes on", job.id)

    return listen
