"""Submissions, cancellations, starts, ends and slow writes in any order, and at every moment a look at the journal as a
`kill -9` would leave it: never two of a session at once, order kept, one end each, cancelled in time never runs."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import cast

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from treadle.runners import (
    CompletedEvent,
    Event,
    Job,
    JobHandle,
    JobJournal,
    JournalLine,
    Ledger,
    Limits,
    QueueFull,
    Repeat,
    ResumeToken,
    RunOptions,
    Scheduler,
    StartedEvent,
    UnfinishedJob,
    decode,
    encode,
)
from unit.runners.scripted_runner import ENGINE, ScriptedRun, ScriptedRunner, done, token

SESSIONS = st.sampled_from(["a", "b", "c"])
LIMITS = Limits(running=3, queued=8, depth=4)


class SlowJournal:
    """A journal whose lines are safe when the test says so, in their order."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.pending: deque[tuple[tuple[JournalLine, ...], asyncio.Future[None]]] = deque()

    async def open(self) -> list[UnfinishedJob]:
        return []

    def kept(self) -> tuple[list[Repeat], dict[str, list[float]]]:
        return [], {}

    async def write(self, *lines: JournalLine) -> None:
        safe = asyncio.get_running_loop().create_future()
        self.pending.append((lines, safe))
        await asyncio.shield(safe)

    note = write

    def sync(self) -> None:
        lines, safe = self.pending.popleft()
        self.lines += map(encode, lines)
        safe.set_result(None)

    async def close(self) -> None:
        pass

    def ledger(self) -> dict[str, UnfinishedJob]:
        ledger = Ledger()
        for line in self.lines:
            ledger.apply(decode(line))
        again = Ledger()
        for compact in ledger.lines():
            again.apply(decode(encode(compact)))
        assert again.entries() == ledger.entries()
        return {entry.job.id: entry for entry in ledger.entries()}


class Watched(ScriptedRunner):
    """Tells the machine when a run begins."""

    machine: SchedulerMachine

    def run(self, prompt: str, resume: ResumeToken | None = None, *, options: RunOptions | None = None) -> ScriptedRun:
        self.machine.begins(prompt, resume)
        return super().run(prompt, resume, options=options)


class SchedulerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.runner = Watched()
        self.runner.machine = self
        self.journal = SlowJournal()
        self.scheduler = Scheduler(self.runner, durable=False, limits=LIMITS)
        self.scheduler._journal = cast(JobJournal, self.journal)
        self.loop.run_until_complete(self.scheduler.__aenter__())
        self.submissions: dict[str, asyncio.Task[JobHandle]] = {}
        self.handles: dict[str, JobHandle] = {}  # in the order of submission
        self.ends: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.begun: dict[str, ResumeToken | None] = {}
        self.told: dict[str, ResumeToken] = {}
        self.cancelled_early: set[str] = set()

    def settle(self) -> None:
        async def turns() -> None:
            for _ in range(15):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turns())

    # --- what can be seen ---

    def begins(self, prompt: str, resume: ResumeToken | None) -> None:
        # The scheduler would take an exception here for one of the runner's.
        handle = self.scheduler.find(prompt)
        ids = list(self.handles)
        before = ids[: ids.index(prompt)] if prompt in ids else []
        earlier = [self.handles[name] for name in before if name not in self.cancelled_early]
        problems = {
            "run twice": prompt in self.begun,
            "run after it was cancelled": prompt in self.cancelled_early,
            "the journal does not know that it runs": not self.journal.ledger()[prompt].running,
            "another session than its handle's": handle is None or handle.session != resume,
            "two of a session at once": resume in self.held(),
            "has overtaken another": resume is not None
            and any(other.state == "queued" and other.session == resume for other in earlier),
        }
        self.wrong += [f"{prompt}: {problem}" for problem, there in problems.items() if there]
        self.begun[prompt] = resume

    def live(self) -> list[str]:
        return [name for name in self.begun if not self.ends[name]]

    def held(self) -> set[ResumeToken]:
        both = ({self.begun[name], self.told.get(name)} for name in self.live())
        return {session for pair in both for session in pair if session is not None}

    def on_event(self, job: Job, event: Event) -> None:
        # A listener that raises is only logged: what is wrong is kept for the invariant.
        ledger = self.journal.ledger()
        if self.ends[job.id]:
            self.wrong.append(f"{job.id}: {event.type} after the end")
        if isinstance(event, StartedEvent) and ledger[job.id].session != event.resume:
            self.wrong.append(f"{job.id}: the journal does not know its session")
        if isinstance(event, CompletedEvent):
            self.ends[job.id] += 1
            if job.id in ledger:
                self.wrong.append(f"{job.id}: the journal does not know that it has ended")

    # --- what can happen ---

    def submit(self, session: ResumeToken | None, after: JobHandle | None) -> None:
        name = f"job {len(self.submissions)}"
        job = Job(engine=ENGINE, prompt=name, resume=session, id=name)
        task = self.loop.create_task(self.scheduler.submit(job, self.on_event, after=after))
        self.submissions[name] = task
        self.settle()
        if task.done() and isinstance(task.exception(), QueueFull):
            stats = self.scheduler.stats()
            assert stats.queued >= LIMITS.depth
            return
        handle = self.scheduler.find(name)
        self.handles[name] = handle if handle is not None else task.result()

    @rule()
    def submit_new(self) -> None:
        self.submit(None, None)

    @rule(session=SESSIONS)
    def submit_to(self, session: str) -> None:
        self.submit(token(session), None)

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def follow(self, data: st.DataObject) -> None:
        self.submit(None, data.draw(st.sampled_from(list(self.handles.values()))))

    @rule(count=st.integers(1, 4))
    def sync(self, count: int) -> None:
        for _ in range(min(count, len(self.journal.pending))):
            self.journal.sync()
            self.settle()

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        handle = data.draw(st.sampled_from(list(self.handles.values())))
        others = {name: other.state for name, other in self.handles.items() if other is not handle}
        if handle.state != "done" and handle.id not in self.begun:
            self.cancelled_early.add(handle.id)
        self.loop.create_task(handle.cancel())
        self.settle()
        hit = [name for name, state in others.items() if state == "running" and self.handles[name].state != state]
        assert not hit, "another one was hit"

    @precondition(lambda self: any(name not in self.told for name in self.live()))
    @rule(data=st.data(), session=SESSIONS)
    def start(self, data: st.DataObject, session: str) -> None:
        name = data.draw(st.sampled_from([name for name in self.live() if name not in self.told]))
        # A session that another job has is not told as a new one: that is for the engines and the runners' lock.
        taken = {other.session for other in self.handles.values() if other.state == "running" and other.id != name}
        free = token(session) not in self.held() | taken or self.begun[name] == token(session)
        told = token(session) if free else token(f"session of {name}")
        self.told[name] = told
        self.runner.runs[name].say(StartedEvent(ENGINE, told))
        self.settle()

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        self.runner.runs[data.draw(st.sampled_from(self.live()))].say(done())
        self.settle()

    # --- what must hold ---

    @invariant()
    def what_was_announced_is_safe(self) -> None:
        assert not self.wrong
        ledger = self.journal.ledger()
        for name, handle in self.handles.items():
            submission = self.submissions[name]
            if submission.done() and handle.state != "done" and not self._leaving(name):
                assert name in ledger
            assert self.ends[name] == (handle.state == "done")
        assert self.scheduler.stats().running <= LIMITS.running

    def _leaving(self, name: str) -> bool:
        """Its last line is safe, and the one that tells it has not had its turn, or is being written."""
        return any(f'"{name}"' in line.decode() for line in self.journal.lines if line.startswith(b'{"type":"done"'))

    def teardown(self) -> None:
        try:
            self.all_comes_to_an_end()
        finally:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.settle()
            self.loop.close()

    def all_comes_to_an_end(self) -> None:
        while len(self.ends) < len(self.handles) or self.journal.pending:
            before = (len(self.journal.lines), sum(self.ends.values()), len(self.begun))
            while self.journal.pending:
                self.sync(4)
            for name in self.live():
                self.runner.runs[name].say(done())
            self.settle()
            after = (len(self.journal.lines), sum(self.ends.values()), len(self.begun))
            assert after != before or self.journal.pending, "stuck"
        assert not self.wrong
        assert set(self.ends.values()) <= {1}
        assert not self.journal.ledger()
        assert self.scheduler.stats()[:3] == (0, 0, 0)
        for name, handle in self.handles.items():
            assert handle.completed is not None
            assert name in self.begun or not handle.completed.ok
        assert not self.cancelled_early & set(self.begun)
        self.loop.run_until_complete(self.scheduler.__aexit__(None, None, None))


TestSchedulerMachine = SchedulerMachine.TestCase
# Without shrinking: that takes longer than a test may, and the failing case is kept for the next time.
PHASES = [Phase.reuse, Phase.generate]
TestSchedulerMachine.settings = settings(max_examples=40, stateful_step_count=40, phases=PHASES)
