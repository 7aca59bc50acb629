"""`Job`: what a scheduler is asked to run, as plain data. `JobHandle`: its state, its events, and how it ended.
`Attempt`: one run of a job, from the runner's first event to the `CompletedEvent`, which always comes.

An attempt owns how a run is read and how it is stopped. Nothing here knows of queues and journals.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec

from treadle.errors import TreadleError
from treadle.events import EventLog, Gap, Subscription
from treadle.runners.engine import RunOptions, Timeouts
from treadle.runners.run_events import Action, ActionEvent, CompletedEvent, Event, ResumeToken, StartedEvent

logger: logging.Logger = logging.getLogger(__name__)

State: TypeAlias = Literal["queued", "running", "done"]


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something to run. It is plain data, because it outlives the process that made it.

    What cannot be written down (a callback for approvals) or should not (keys in environment variables) is the
    runner's: the function that makes runners gets the job, also after a restart.

    Args:
        engine: The engine that runs it, such as `codex`.
        prompt: What is asked.
        resume: The session that it continues; None begins a new one.
        model: The engine's name for the model.
        effort: How hard it thinks, in the engine's own words.
        cwd: Where it works.
        timeouts: How long it may take.
        meta: What the caller wants back with it: JSON values, such as the chat that asked.
        person: Who asked for it, where `Limits(rate=…)` counts.
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
    person: str | None = None
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
        on_event: Called with every event.
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
        """The id of the job."""
        return self._job.id

    @property
    def job(self) -> Job:
        """What is to be done."""
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
        """All events of the job, past and future, until its end. Ask as often and as late as you like.

        A reader that is more than a mebibyte of events behind finds a warning in place of those that it missed; the
        first and the last event are never among them.
        """
        subscription = Subscription(self._log)
        try:
            async for item in subscription:
                if isinstance(item, Gap):
                    title = f"{item.last - item.first + 1} earlier events are no longer kept"
                    action = Action(f"treadle.missed.{item.first}", "warning", title)
                    yield ActionEvent(self._job.engine, action, "completed", ok=False, level="warning")
                else:
                    yield item.event
        finally:
            subscription.close()

    async def wait(self) -> CompletedEvent:
        """How it ended, when it has. Nothing happens to the job when this is cancelled."""
        await self._ended.wait()
        assert self._completed is not None
        return self._completed

    async def cancel(self) -> bool:
        """Take it out of the queue, or ask its run to stop; `wait()` returns when it has. False if it had ended before.

        One that had not started never will. Nothing happens to any other job.
        """
        return await self._cancel(self)

    # For the owner of the handle alone.

    def begin(self) -> None:
        self._state = "running"

    def belong(self, session: ResumeToken) -> None:
        self._session = session

    def publish(self, event: Event) -> None:
        """Publish an event to the readers of the job. A second `StartedEvent` is not one."""
        if isinstance(event, StartedEvent):
            if self._started:
                return
            self._started = True
        keep = isinstance(event, StartedEvent | CompletedEvent)
        self._log.append(event, len(_encoder.encode(event)), keep=keep)
        self._on_event(event)

    tell = publish  # the name that it had first; the class is public

    def complete(self, completed: CompletedEvent) -> None:
        self._state = "done"
        self._completed = completed
        self.publish(completed)
        self._log.close()
        self._ended.set()


def failed(handle: JobHandle, why: str) -> CompletedEvent:
    return CompletedEvent(handle.job.engine, ok=False, answer="", resume=handle.session, error=why)


class Attempt:
    """A run of `handle`'s job.

    Args:
        handle: Gets the events, all but the last: its owner has things to do before that one is published.
        on_session: Awaited when the session is known, before the event that has it is published.
        stop_s: How long it may take to stop when it is asked to, and once more when it is made to.
    """

    def __init__(
        self, handle: JobHandle, on_session: Callable[[JobHandle, ResumeToken], Awaitable[None]], stop_s: float
    ) -> None:
        self._handle = handle
        self._on_session = on_session
        self._stop_s = stop_s
        self._stop = asyncio.Event()
        self.why_stopped: str | None = None

    def stop(self, why: str) -> None:
        """Stop the run. The first reason is the one that counts."""
        if self.why_stopped is None:
            self.why_stopped = why
            self._stop.set()

    async def run(self, runner_for: Callable[[Job], RunnerLike]) -> CompletedEvent:
        """Returns how it ended; never raises, whatever the runner does."""
        job = self._handle.job
        try:
            run = runner_for(job).run(job.prompt, self._handle.session, options=job.options)
        except TreadleError as error:  # made for people: there is no such engine, for example
            return failed(self._handle, str(error))
        except Exception as error:
            return self._broken(error)
        reading = asyncio.ensure_future(self._read(run))
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({reading, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                await self._halt(run, reading)
        finally:
            stopping.cancel()
            reading.cancel()
        if reading.done():
            return reading.result()
        logger.error("job %s was stopped, and its runner does not end", job.id)
        return failed(self._handle, f"{self.why_stopped}, but its runner has not ended after {2 * self._stop_s:g} s")

    async def _read(self, run: RunLike) -> CompletedEvent:
        completed: CompletedEvent | None = None
        try:
            async with aclosing(run) as events:
                async for event in events:
                    if isinstance(event, CompletedEvent):
                        completed = event
                        break
                    if isinstance(event, StartedEvent):
                        await self._on_session(self._handle, event.resume)
                    self._handle.publish(event)
        except asyncio.CancelledError:
            return completed or failed(self._handle, self.why_stopped or "cancelled")
        except Exception as error:
            return self._broken(error, completed)
        if completed is None:
            logger.error("the runner of job %s ended without a completed event", self._handle.id)
            return failed(self._handle, f"the runner of {self._handle.job.engine} ended without saying how it went")
        return completed

    async def _halt(self, run: RunLike, reading: asyncio.Future[CompletedEvent]) -> None:
        """Stop the run in order, if it knows how; else, or if that takes too long, by cancelling its reader."""
        ask = getattr(run, "cancel", None)
        if ask is not None:
            try:
                async with asyncio.timeout(self._stop_s):
                    if inspect.isawaitable(asked := ask()):
                        await asked
                    await asyncio.wait({reading})
            except TimeoutError:
                logger.warning("job %s was asked to stop and has not after %g s", self._handle.id, self._stop_s)
            except Exception:
                logger.exception("job %s could not be asked to stop", self._handle.id)
        if not reading.done():
            reading.cancel()
            await asyncio.wait({reading}, timeout=self._stop_s)

    def _broken(self, error: Exception, completed: CompletedEvent | None = None) -> CompletedEvent:
        """The end of a run whose runner raised, which runners don't. The error's text is for the log alone: it may have
        secrets in it."""
        logger.error("the runner of job %s failed", self._handle.id, exc_info=error)
        why = f"the runner of {self._handle.job.engine} failed ({type(error).__name__}); the log has the details"
        return completed or failed(self._handle, why)
