"""`Job`: what a scheduler is asked to run, as plain data. `JobHandle`: its state, its events, and how it ended."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec

from treadle.events import EventLog, Gap, Subscription
from treadle.runners.engine import RunOptions, Timeouts
from treadle.runners.run_events import Action, ActionEvent, CompletedEvent, Event, ResumeToken, StartedEvent

State: TypeAlias = Literal["queued", "running", "done"]


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something to run. It is plain data, because it outlives the process that made it.

    What cannot be written down (a callback for approvals) or should not (keys in environment variables) is the
    runner's: whoever makes runners gets the job, also after a restart.

    Args:
        engine: The engine that runs it, such as `codex`.
        prompt: What is asked.
        resume: The session that it continues; None begins a new one.
        model: The engine's name for the model.
        effort: How hard it thinks, in the engine's own words.
        cwd: Where it works.
        timeouts: How long it may take.
        meta: What the caller wants back with it: JSON values, such as the chat that asked.
        id: Its name; no other job that waits or runs has it.
    """

    engine: str
    prompt: str
    resume: ResumeToken | None = None
    model: str | None = None
    effort: str | None = None
    cwd: str | None = None
    timeouts: Timeouts | None = None
    meta: dict[str, Any] = {}
    # Has no default as far as `omit_defaults` goes: the name is always written down.
    id: str = msgspec.field(default_factory=lambda: uuid.uuid4().hex)

    def __repr__(self) -> str:
        # Prompts are private, and this ends up in logs.
        return f"Job(id={self.id!r}, engine={self.engine!r}, resume={self.resume!r})"

    @property
    def options(self) -> RunOptions | None:
        """What is different in its run, if anything."""
        options = RunOptions(model=self.model, effort=self.effort, cwd=self.cwd, timeouts=self.timeouts)
        return None if options == RunOptions() else options


OnEvent: TypeAlias = Callable[[Job, Event], None]


class RunLike(Protocol):
    """Events of one run, to be closed. It may also have a method `cancel()`, which asks the engine to stop in order:
    the events then still end with a `CompletedEvent`."""

    def __aiter__(self) -> AsyncIterator[Event]: ...

    def aclose(self) -> Awaitable[object]: ...


class RunnerLike(Protocol):
    """What a scheduler needs of a runner."""

    def run(self, prompt: str, resume: ResumeToken | None = None, *, options: RunOptions | None = None) -> RunLike: ...


# The log of a job forgets its oldest events beyond this: a chatty run of hours must not fill the memory.
LOG_BYTES: Final = 1 << 20
_encoder: Final = msgspec.json.Encoder(enc_hook=repr)


class JobHandle:
    """A job that was submitted.

    Args:
        job: What was submitted.
        cancel: How the owner cancels it.
        on_event: Told about every event.
    """

    def __init__(
        self, job: Job, cancel: Callable[[JobHandle], Awaitable[bool]], on_event: Callable[[Event], None]
    ) -> None:
        self._job = job
        self._cancel = cancel
        self._on_event = on_event
        self._state: State = "queued"
        self._session = job.resume
        self._started = False
        self._completed: CompletedEvent | None = None
        self._log: EventLog[Event] = EventLog(max_bytes=LOG_BYTES)
        self._ended = asyncio.Event()

    def __repr__(self) -> str:
        return f"<JobHandle {self.id} of {self._job.engine}: {self._state}>"

    @property
    def id(self) -> str:
        return self._job.id

    @property
    def job(self) -> Job:
        return self._job

    @property
    def state(self) -> State:
        """`queued`, `running` or `done`."""
        return self._state

    @property
    def session(self) -> ResumeToken | None:
        """The session that it belongs to, once that is known."""
        return self._session

    @property
    def completed(self) -> CompletedEvent | None:
        """How it ended, if it has."""
        return self._completed

    async def events(self) -> AsyncIterator[Event]:
        """Everything that it said and will say, until its end. Ask as often and as late as you like.

        A reader that is more than a mebibyte of events behind finds a warning in place of those that it missed; the
        first and the last event are never among them.
        """
        subscription = Subscription(self._log)
        try:
            async for item in subscription:
                yield self._missed(item) if isinstance(item, Gap) else item.event
        finally:
            subscription.close()

    def _missed(self, gap: Gap) -> Event:
        count = gap.last - gap.first + 1
        action = Action(f"treadle.missed.{gap.first}", "warning", f"{count} earlier events are no longer kept")
        return ActionEvent(self._job.engine, action, "completed", ok=False, level="warning")

    async def wait(self) -> CompletedEvent:
        """How it ended, when it has. Nothing happens to the job when this is cancelled."""
        await self._ended.wait()
        assert self._completed is not None
        return self._completed

    async def cancel(self) -> bool:
        """Take it out of the queue, or ask its run to stop; `wait()` tells when it has. False if it had ended before.

        One that had not started never will. Nothing happens to any other job.
        """
        return await self._cancel(self)

    # For the owner of the handle alone.

    def begin(self) -> None:
        self._state = "running"

    def belong(self, session: ResumeToken) -> None:
        self._session = session

    def tell(self, event: Event) -> None:
        """Pass an event on. A second `StartedEvent` is not one."""
        if isinstance(event, StartedEvent):
            if self._started:
                return
            self._started = True
        keep = isinstance(event, StartedEvent | CompletedEvent)
        self._log.append(event, len(_encoder.encode(event)), keep=keep)
        self._on_event(event)

    def complete(self, completed: CompletedEvent) -> None:
        self._state = "done"
        self._completed = completed
        self.tell(completed)
        self._log.close()
        self._ended.set()
