"""`Timeouts`: every wait of a session, in seconds, in one place; `Clock`: where a session gets the time (tests
substitute one that they control), and waits with a limit on it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Coroutine
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar, get_args

from treadle.arguments import seconds, wait_of
from treadle.errors import ArgumentValueError

TOOL_S: Final = 90.0

QuietAction: TypeAlias = Literal["probe", "warn", "retire"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long a session waits for what. None has no limit, nor has `math.inf`, which becomes None.

    Args:
        startup: For a runtime to be there, with its thread opened.
        request: For the answer to any other request.
        interrupt: For a turn to end after it was interrupted.
        idle: For any sign of life of a turn. Every event of the runtime renews it; while a person is asked
            something, it stands still.
        turn: For a whole turn, however lively it is. It stands still while a person is asked.
        quiet: For the next sign of life after a tool has ended; then `quiet_action` is done.
        quiet_action: `probe` asks the runtime something cheap and goes on waiting if it answers; `warn` only says so;
            `retire` ends the turn and the runtime.
        probe: For the answer to that.
        approval: For a person to decide; then the answer is no.
        tool: For one of the host's own tools.
        close: For a runtime to end in order.
        review: For a review in the background.
    """

    startup: float | None = 60.0
    request: float | None = 30.0
    interrupt: float | None = 5.0
    idle: float | None = 600.0
    turn: float | None = None
    quiet: float | None = 90.0
    quiet_action: QuietAction = "probe"
    probe: float | None = 5.0
    approval: float | None = 300.0
    tool: float | None = TOOL_S
    close: float | None = 10.0
    review: float | None = 600.0

    def __post_init__(self) -> None:
        if self.quiet_action not in get_args(QuietAction):
            allowed = ", ".join(get_args(QuietAction))
            raise ArgumentValueError("quiet_action", f"{self.quiet_action!r} is none of {allowed}")
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "quiet_action" and value is not None:
                object.__setattr__(self, field.name, wait_of(seconds(field.name, value)))


T = TypeVar("T")
logger: logging.Logger = logging.getLogger(__name__)

_CANCEL_S: Final = 5.0
"""For what was cancelled to end. Real seconds, whatever the clock: a task that does not end is a bug."""


class Clock(Protocol):
    """Where a session gets the time."""

    def monotonic(self) -> float:
        """Seconds that never go back, for measuring."""

    def time(self) -> float:
        """Seconds since 1970, for people and for the store."""

    async def sleep(self, seconds: float) -> None:
        """Come back after that long."""


class SystemClock:
    """The clock of this machine."""

    def monotonic(self) -> float:
        return time.monotonic()

    def time(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class DeadlineExceeded(Exception):
    """The limit of a wait has passed."""


async def within(clock: Clock, limit_s: float | None, work: Coroutine[Any, Any, T]) -> T:
    """What the work gives. After `limit_s` it is cancelled, and `DeadlineExceeded` raised.

    Args:
        clock: Whose seconds they are.
        limit_s: None has no limit.
        work: What is to be done.
    """
    doing = asyncio.create_task(work)
    tasks: set[asyncio.Task[Any]] = {doing}
    if limit_s is not None and math.isfinite(limit_s):
        tasks.add(asyncio.create_task(clock.sleep(limit_s)))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
        raise DeadlineExceeded
    finally:
        await end_tasks(tasks)


async def end_tasks(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel what runs, and come back when it has ended."""
    running = {task for task in tasks if not task.done()}
    for task in running:
        task.cancel()
    if running:
        _, running = await asyncio.wait(running, timeout=_CANCEL_S)
    for task in running:
        logger.error("%s does not end when it is cancelled", task.get_name())
    for task in tasks - running:
        if not task.cancelled():
            # Nobody asks any more: what it raised is not worth a warning.
            task.exception()
