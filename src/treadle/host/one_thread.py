"""`OneThread`: what runtimes have in common that keep one thread, and run its turns in this process, one at a time."""

from __future__ import annotations

import asyncio
from typing import Any, Generic, Protocol, TypeVar

from treadle.host.fault_text import BUSY, CLOSED, NOT_OPEN
from treadle.host.faults import RuntimeFault
from treadle.host.runtime import RuntimeEvent
from treadle.host.turn_events import TurnEvents


class Turn(Protocol):
    """One that runs as a task."""

    @property
    def task(self) -> asyncio.Task[Any]: ...

    def interrupt(self) -> None: ...


ThreadT = TypeVar("ThreadT")
TurnT = TypeVar("TurnT", bound=Turn)


class OneThread(Generic[ThreadT, TurnT]):
    """Its thread, the turn that ran last, and the events of that turn."""

    def __init__(self) -> None:
        self._events: TurnEvents = TurnEvents()
        self._thread: ThreadT | None = None
        self._turn: TurnT | None = None
        self._closed: bool = False

    async def next_event(self) -> RuntimeEvent:
        """The next event of the turn. Cancelling the wait loses nothing."""
        return await self._events.next()

    async def interrupt(self) -> None:
        """Have the turn that runs stop in its own way; its end is an event."""
        if (turn := self._running()) is not None:
            turn.interrupt()

    def _running(self) -> TurnT | None:
        return None if self._turn is None or self._turn.task.done() else self._turn

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeFault(CLOSED)

    def _check_idle(self) -> None:
        if self._running() is not None:
            raise RuntimeFault(BUSY)

    def _ready(self) -> ThreadT:
        """The thread, for a turn that is to begin."""
        self._check_open()
        if self._thread is None:
            raise RuntimeFault(NOT_OPEN)
        self._check_idle()
        return self._thread
