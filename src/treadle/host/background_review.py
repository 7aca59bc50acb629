"""`BackgroundReview`: a review that runs alongside the turns of an agent, one at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from typing import TYPE_CHECKING, Any

from treadle.host.loop_thread import LoopThread
from treadle.host.runtime import Message

if TYPE_CHECKING:
    from treadle.host.reviewer import Reviewer

logger: logging.Logger = logging.getLogger(__name__)


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
        told: Callable[[str], None],
        *,
        review_memory: bool,
        review_skills: bool,
    ) -> bool:
        """Begin one; False when one runs already. `told` gets a line about what was learned, if anything was."""
        if self.running:
            return False

        def review() -> Coroutine[Any, Any, None]:
            return self._review(make, messages, told, review_memory, review_skills)

        self._running = self._loop.submit(review)
        return True

    async def _review(
        self,
        make: Callable[[], Reviewer],
        messages: Sequence[Message],
        told: Callable[[str], None],
        review_memory: bool,
        review_skills: bool,
    ) -> None:
        try:
            async with asyncio.timeout(self._limit):
                summary = await make().run(messages, review_memory=review_memory, review_skills=review_skills)
        except Exception as error:
            logger.warning("a review of the conversation failed: %s", error or type(error).__name__)
            return
        if summary:
            told(summary)

    def wait(self, timeout: float | None) -> bool:
        """Wait for the one that runs; False when it still does."""
        return self._running is None or not wait_for([self._running], timeout).not_done

    def cancel(self) -> None:
        if self._running is not None:
            self._running.cancel()
