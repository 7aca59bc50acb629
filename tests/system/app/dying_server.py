"""A server that kills itself at a chosen point while it sends a message of a queue. Run by `test_app_queue_kill`.

dying_server.py <point> <arguments of treadle>
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from treadle.agent import PendingInput, Turn
from treadle.agent.turn import turn_start
from treadle.cli import main


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def after(original: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> None:
        original(*arguments, **named)
        die()

    return call


async def die_at_once(*_: Any, **__: Any) -> None:
    die()


async def die_when_all_is_kept(pending: PendingInput) -> None:
    await pending._thread.journal.flush()
    die()


_take = PendingInput.take


async def take_and_die(pending: PendingInput) -> None:
    await _take(pending)
    die()


# Each with what is replaced, and by what.
POINTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "before its turn": (turn_start, "start_queued", die_at_once),
    "turn made": (Turn, "start", after(Turn.start)),
    "turn begun": (Turn, "_begin", after(Turn._begin)),
    "turn kept": (PendingInput, "take", die_when_all_is_kept),
    "message shown": (PendingInput, "_take_message", after(PendingInput._take_message)),
    "message kept": (PendingInput, "take", take_and_die),
}

if __name__ == "__main__":
    _, point, *arguments = sys.argv
    owner, name, replacement = POINTS[point]
    setattr(owner, name, replacement)
    sys.argv = ["treadle", *arguments]
    raise SystemExit(main())
