"""The callbacks of an agent, wrapped for its session. None refers to the agent, so that it can be garbage-collected."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from treadle.client.own_thread import may_block
from treadle.host.agent_resources import AgentResources
from treadle.host.ask import Approvals, Ask, Choice
from treadle.host.runtime import Notice, RuntimeEvent
from treadle.host.transcript import Transcript
from treadle.host.watched_turn import Sink

logger: logging.Logger = logging.getLogger(__name__)


def guarded(callback: Callable[[RuntimeEvent], object]) -> Sink:
    """A callback whose exceptions are logged and go no further."""

    def told(event: RuntimeEvent) -> None:
        try:
            callback(event)
        except Exception as error:
            logger.warning("on_event failed", exc_info=error)

    return told


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
