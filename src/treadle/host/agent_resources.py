"""What an agent has on its event loop: `AgentResources`, the turn that runs (`AgentTurn`), the review
(`BackgroundReview`), and the callbacks of its user.

None of it refers to the agent itself, so that an agent nobody uses can be collected, and what it started ends with it.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from treadle.client.own_thread import may_block
from treadle.host.approver import Approvals, Ask, Choice
from treadle.host.loop_thread import LoopThread
from treadle.host.runtime import Message, Notice, RuntimeEvent, UserInput
from treadle.host.timeouts import Timeouts
from treadle.host.transcript import Transcript
from treadle.host.turn_progress import TurnResult
from treadle.host.watched_turn import Sink

if TYPE_CHECKING:
    from treadle.host.reviewer import Reviewer
    from treadle.host.session import Session

logger: logging.Logger = logging.getLogger(__name__)
_NO_LIMIT_S: Final = 3600.0


class AgentResources:
    """The loop of an agent, and what is alive on it."""

    def __init__(self, loop: LoopThread, transcript: Transcript, timeouts: Timeouts) -> None:
        self.loop = loop
        self.transcript = transcript
        self.timeouts = timeouts
        self.review: BackgroundReview = BackgroundReview(loop, timeouts.review)
        self.session: Session | None = None
        self.turn: AgentTurn | None = None
        self.closed: bool = False

    def guard(self) -> None:
        """Close this agent at the end of the program: there is something now that must not outlive it."""
        atexit.register(self.close)

    def patience(self) -> float:
        """How long an interrupted turn, or the end of everything, may take in the worst case."""
        limits = (self.timeouts.interrupt, self.timeouts.close)
        return sum(_NO_LIMIT_S if limit is None else limit for limit in limits) + 3 * GRACE_S

    def interrupt(self) -> None:
        """Stop the turn that runs. On the loop."""
        if self.turn is not None:
            self.turn.stop()

    async def drop_session(self, close: Callable[[], Awaitable[None]] | None = None) -> None:
        """End the session that is live, if one is; it is never used again."""
        session, self.session = self.session, None
        if session is None:
            return
        limit = self.timeouts.close
        try:
            async with asyncio.timeout(None if limit is None else limit + GRACE_S):
                await (close or session.close)()
        except Exception as error:
            logger.warning("a session could not be closed in order: %s", error or type(error).__name__)

    def close(self) -> None:
        """End everything, and wait for that. It may be called again."""
        self._close(wait=True)

    def close_soon(self) -> None:
        """The same without waiting: nobody does."""
        self._close(wait=False)

    def _close(self, *, wait: bool) -> None:
        if self.closed:
            return
        self.closed = True
        atexit.unregister(self.close)
        if self.loop.elsewhere:
            return  # nothing of it is this process's to end
        if not self.loop.started:
            self.transcript.close()
            return
        # Looked up now, by who is done with the agent: in a moment a test that has replaced it may be over.
        close = None if self.session is None else self.session.close
        ending = self.loop.submit(lambda: self._end(close))
        if not wait or self.loop.inside():
            ending.add_done_callback(lambda _: self._close_rest())
            return
        try:
            ending.result(self.patience())
        except Exception as error:
            logger.warning("an agent could not be closed in order: %s", error or type(error).__name__)
        self._close_rest()

    def _close_rest(self) -> None:
        self.loop.end(GRACE_S)
        self.transcript.close()

    async def _end(self, close: Callable[[], Awaitable[None]] | None) -> None:
        self.review.cancel()
        turn = self.turn
        if turn is not None and turn.task is not None and turn.task is not asyncio.current_task():
            turn.stop()
            await asyncio.wait({turn.task}, timeout=self.patience())
        await self.drop_session(close)


# --- a turn, from the call to its end --------------------------------------------------------------------------------

# A session ends an interrupted turn in the time that `Timeouts.interrupt` gives it. This is for one that does not.
GRACE_S: Final = 10.0


class AgentTurn:
    """A turn that was asked for.

    Args:
        user_input: What the user says.
        options: For the runtime.
        caller: The event loop of who asked, if there is one.
    """

    def __init__(
        self, user_input: UserInput, options: Mapping[str, Any], caller: asyncio.AbstractEventLoop | None
    ) -> None:
        self.user_input = user_input
        self.options = options
        self.caller = caller
        self.task: asyncio.Task[Any] | None = None
        self._begun = False
        self.opened: bool = False
        """Whether its session had a thread."""
        self._stopped = asyncio.Event()

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def begin(self) -> None:
        """From here on it is stopped in order; before, it is as if it had never been asked for."""
        self._begun = True

    def stop(self) -> None:
        """End the turn. What has happened in it is stored."""
        self._stopped.set()  # also for a task that has not taken its first step
        if not self._begun and self.task is not None:
            self.task.cancel()

    async def run(self, session: Session, user_input: UserInput, patience: float | None) -> TurnResult:
        """Run it on a session. Raises what the session raises."""
        if self.stopped:
            return _ended("Interrupted before the turn had started.")

        async def on_session() -> TurnResult:
            await session.ensure_started()
            self.opened = True
            return await session.run_turn(user_input, **self.options)

        work = asyncio.create_task(on_session(), name="turn")
        stopped = asyncio.create_task(self._stopped.wait(), name="stop")
        try:
            await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and self.opened:
                session.request_interrupt()
                await asyncio.wait({work}, timeout=None if patience is None else patience + GRACE_S)
        finally:
            stopped.cancel()
            if not work.done():
                work.cancel()
                await asyncio.wait({work}, timeout=GRACE_S)
        if work.done() and not work.cancelled():
            return work.result()
        if self.opened:
            return _ended("The turn did not end after it was interrupted; its session is replaced.")
        return _ended("Interrupted while the runtime was starting.")


def _ended(error: str) -> TurnResult:
    return TurnResult(interrupted=True, error=error, should_retire=True)


# --- a review beside the turns ---------------------------------------------------------------------------------------


class BackgroundReview:
    """One review at a time. Its failures are logged, and affect nothing else.

    Args:
        loop: Where it runs.
        limit: How long it may take, in seconds.
    """

    def __init__(self, loop: LoopThread, limit: float | None) -> None:
        self._loop = loop
        self._limit = limit
        self._running: Future[None] | None = None

    @property
    def running(self) -> bool:
        return self._running is not None and not self._running.done()

    def start(
        self,
        make: Callable[[], Reviewer],
        messages: Sequence[Message],
        publish: Callable[[str], None],
        *,
        review_memory: bool,
        review_skills: bool,
    ) -> bool:
        """Begin a review; False when one runs already. `publish` gets a line about what was learned, if any."""
        if self.running:
            return False

        async def review() -> None:
            try:
                async with asyncio.timeout(self._limit):
                    summary = await make().run(messages, review_memory=review_memory, review_skills=review_skills)
            except Exception as error:
                logger.warning("a review of the conversation failed: %s", error or type(error).__name__)
                return
            if summary:
                publish(summary)

        self._running = self._loop.submit(review)
        return True

    def wait(self, timeout: float | None) -> bool:
        """Wait for the one that runs; False when it still does."""
        return self._running is None or not wait_for([self._running], timeout).not_done

    def cancel(self) -> None:
        if self._running is not None:
            self._running.cancel()


# --- callbacks of the user -------------------------------------------------------------------------------------------

MAX_BEHIND: Final = 10_000
CATCH_UP_S: Final = 1.0
"""How long the end of a turn waits for the last events to be shown."""


class EventDisplay:
    """Calls `on_event` with every event, in order, on a thread of its own: if it hangs or raises, the turn goes on. The
    thread ends when there is nothing more to show. A callback that is `MAX_BEHIND` events behind misses the next ones.
    """

    def __init__(self, callback: Callable[[RuntimeEvent], object], loop: LoopThread) -> None:
        self._callback = callback
        self._loop = loop
        self._lock = threading.Lock()
        self._calls: deque[Callable[[], object]] = deque()
        self._missed = 0

    def __call__(self, event: RuntimeEvent) -> None:
        self.call(partial(self._callback, event))

    def call(self, function: Callable[[], object]) -> None:
        """Call something when all events so far were shown."""
        with self._lock:
            if len(self._calls) >= MAX_BEHIND:
                if self._missed == 0:
                    logger.warning("on_event does not return: it misses what comes after %d events", MAX_BEHIND)
                self._missed += 1
                return
            self._missed = 0
            self._calls.append(function)
            if self._loop.callback is None:
                self._loop.callback = threading.Thread(target=self._run, name="treadle on_event", daemon=True)
                self._loop.callback.start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._calls:
                    self._loop.callback = None
                    return
                function = self._calls.popleft()
            try:
                function()
            except BaseException as error:
                logger.warning("on_event failed", exc_info=error)

    async def caught_up(self) -> None:
        """Wait until all events were shown, but not for a callback that hangs."""
        loop = asyncio.get_running_loop()
        done = asyncio.Event()
        self.call(lambda: loop.call_soon_threadsafe(done.set))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_S):
                await done.wait()


def publish_summary(transcript: Transcript, sink: Sink | None) -> Callable[[str], None]:
    """A callback for the summary of a review: it goes into the next result, and to the display."""

    def learned(summary: str) -> None:
        transcript.notices.append(summary)
        if sink is not None:
            sink(Notice(summary))

    return learned


def approvals_of(callback: Approvals | None, own: AgentResources) -> Approvals | None:
    """The callback; a coroutine function is run on the caller's loop."""
    if callback is None or may_block(callback):
        return callback

    async def elsewhere(ask: Ask) -> Choice | bool | None:
        loop = None if own.turn is None else own.turn.caller
        asked: Any = callback(ask)
        answer: Choice | bool | None
        if loop is None:
            answer = await asked
        else:
            answer = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asked, loop))
        return answer

    return elsewhere
