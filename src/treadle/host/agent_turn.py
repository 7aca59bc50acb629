"""`AgentTurn`: one turn of an agent, from the call to its end, and how it is stopped. On the agent's loop alone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from treadle.host.runtime import UserInput
from treadle.host.turn_result import TurnResult

if TYPE_CHECKING:
    from treadle.host.session import Session

logger: logging.Logger = logging.getLogger(__name__)
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
        """End it. What there is of it is kept."""
        if self._begun:
            self._stopped.set()
        elif self.task is not None:
            self.task.cancel()

    async def run(self, session: Session, user_input: UserInput, patience: float | None) -> TurnResult:
        """Run it on a session. Raises what the session raises."""
        if self.stopped:
            return _ended("Interrupted before the turn had started.")
        work = asyncio.create_task(self._on_session(session, user_input), name="turn")
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
            return _ended("The turn did not end after it was interrupted; its session is given up.")
        return _ended("Interrupted while the runtime was starting.")

    async def _on_session(self, session: Session, user_input: UserInput) -> TurnResult:
        await session.ensure_started()
        self.opened = True
        return await session.run_turn(user_input, **self.options)


def _ended(error: str) -> TurnResult:
    return TurnResult(interrupted=True, error=error, should_retire=True)
