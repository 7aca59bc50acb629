"""`Attempt`: one run of a job, from the runner's first event to the `CompletedEvent`, which always comes.

It owns how a run is read and how it is stopped. It knows nothing of queues and journals.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from treadle.errors import TreadleError
from treadle.runners.run_events import CompletedEvent, ResumeToken, StartedEvent
from treadle.runners.scheduling.jobs import Job, JobHandle, RunLike, RunnerLike

logger: logging.Logger = logging.getLogger(__name__)


def failed(handle: JobHandle, why: str) -> CompletedEvent:
    return CompletedEvent(handle.job.engine, ok=False, answer="", resume=handle.session, error=why)


class Attempt:
    """A run of `handle`'s job.

    Args:
        handle: Gets the events, all but the last: its owner has things to do before that is told.
        on_session: Awaited when the session is known, before the event that says it is passed on.
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
        """Have it stopped. The first reason is the one that counts."""
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
        logger.error("job %s was told to stop, and its runner does not end", job.id)
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
                    self._handle.tell(event)
        except asyncio.CancelledError:
            return completed or failed(self._handle, self.why_stopped or "cancelled")
        except Exception as error:
            return self._broken(error, completed)
        if completed is None:
            logger.error("the runner of job %s ended without a completed event", self._handle.id)
            return failed(self._handle, f"the runner of {self._handle.job.engine} ended without saying how it went")
        return completed

    async def _halt(self, run: RunLike, reading: asyncio.Future[CompletedEvent]) -> None:
        """In order, if the run knows how; else, or if that takes too long, by cancelling who reads it."""
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
        """A runner raised, which runners don't. Its words are for the log: nobody knows what is in them."""
        logger.error("the runner of job %s failed", self._handle.id, exc_info=error)
        why = f"the runner of {self._handle.job.engine} failed ({type(error).__name__}); the log has the details"
        return completed or failed(self._handle, why)
