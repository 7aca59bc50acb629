"""`AgentResources`: what must be shut down when an agent is closed or garbage-collected, or when the program ends.

It does not refer to the agent itself, so that an agent nobody uses can be collected, and what it started ends with it.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from treadle.host.agent_turn import GRACE_S, AgentTurn
from treadle.host.background_review import BackgroundReview
from treadle.host.loop_thread import LoopThread
from treadle.host.timeouts import Timeouts
from treadle.host.transcript import Transcript

if TYPE_CHECKING:
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
        """There is something now that must not outlive the program."""
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

    def abandon(self) -> None:
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
