"""What the tests of sessions share: a session on a scripted runtime, with a clock turned by hand."""

from __future__ import annotations

import asyncio
from typing import Any

from treadle.host import Fault, Notice, Opening, RuntimeEvent, RuntimeFault, Session, Timeouts, TurnEnded, TurnResult
from treadle.testing import ManualClock, ScriptedRuntime

BUSY = Fault(kind="overloaded", message="Too much to do.", retryable=True)
DEAD = Fault(kind="dead", message="It has ended.", retire=True, exit_code=9)
FULL = Fault(kind="context_window", message="It does not fit.")


def failed(fault: Fault) -> TurnEnded:
    return TurnEnded("failed", fault)


class Bench:
    """A session, its runtime and its clock; `events` is what the sink was told."""

    def __init__(
        self,
        turns: Any = (),
        *,
        approvals: Any = None,
        timeouts: Timeouts | None = None,
        opening: Opening | None = None,
        **script: Any,
    ) -> None:
        self.others = asyncio.all_tasks()
        self.clock = ManualClock()
        self.runtime = ScriptedRuntime(turns, **script)
        self.events: list[RuntimeEvent] = []
        self.session = Session(
            self.runtime,
            opening=opening,
            timeouts=timeouts,
            clock=self.clock,
            approvals=approvals,
            sink=self.events.append,
        )

    @property
    def told(self) -> list[str]:
        return [event.message for event in self.events if isinstance(event, Notice)]

    def start(self, text: str = "hello", **options: Any) -> asyncio.Task[TurnResult]:
        return asyncio.create_task(self.session.run_turn(text, **options))

    async def begun(self, text: str = "hello") -> asyncio.Task[TurnResult]:
        """A turn that has gone as far as it goes without time."""
        turn = self.start(text)
        await self.clock.settle()
        return turn

    async def close(self) -> None:
        """Close it, and see that nothing is left."""
        closing = asyncio.create_task(self.session.close())
        await self.clock.advance(20.0)
        await closing
        assert asyncio.all_tasks() - self.others == set()
        assert self.clock.due == []


def fault(kind: Any, **members: Any) -> RuntimeFault:
    return RuntimeFault(Fault(kind=kind, message=f"It is {kind}.", **members))
