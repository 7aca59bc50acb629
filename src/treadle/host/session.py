"""`Session`: one thread on one runtime, turn after turn, until the runtime is of no use any more.

It owns the turn loop, the timers, the questions to people, and the verdict that a runtime is to be retired. What its
turns mean to the conversation is `HostAgent`'s matter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec.structs import replace

from treadle.host.asking import Approvals, Ask, Choice
from treadle.host.clock import Clock, SystemClock
from treadle.host.faults import Fault, ResumeFailed, RuntimeFault
from treadle.host.projection import project
from treadle.host.runtime import (
    Compacted,
    ItemCompleted,
    Opened,
    Opening,
    Runtime,
    RuntimeEvent,
    TurnEnded,
    UsageTold,
    UserInput,
)
from treadle.host.timeouts import Timeouts
from treadle.host.turn_result import TurnResult
from treadle.host.usage import Usage

Sink: TypeAlias = Callable[[RuntimeEvent], None]


class Session:
    """One thread on one runtime. All methods but `request_interrupt` are for the event loop that it was started on.

    Args:
        runtime: What runs the turns; the session closes it.
        opening: How the thread begins.
        timeouts: How long to wait for what.
        clock: Where to look for the time.
        approvals: Asked before something is done that needs a yes; without it the answer is no.
        sink: Called with every event of a turn, for display.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        opening: Opening | None = None,
        timeouts: Timeouts | None = None,
        clock: Clock | None = None,
        approvals: Approvals | None = None,
        sink: Sink | None = None,
    ) -> None:
        self.runtime: Runtime = runtime
        self.opening: Opening = opening or Opening()
        self.timeouts: Timeouts = timeouts or Timeouts()
        self.clock: Clock = clock or SystemClock()
        self.approvals: Approvals | None = approvals
        self.sink: Sink | None = sink
        self.opened: Opened | None = None
        self.notices: list[str] = []
        self._total: Usage | None = None
        self._closed = False

    @property
    def thread_id(self) -> str | None:
        """The runtime's id of the thread; None before it is open."""
        return None if self.opened is None else self.opened.thread_id

    async def ensure_started(self) -> str:
        """Open the thread, unless it is, and give its id. Raises `RuntimeFault`."""
        if self.opened is None:
            try:
                self.opened = await self.runtime.open(self.opening, self._ask)
            except ResumeFailed as error:
                self.notices.append(f"The thread could not be resumed; a new one is started. ({error.fault.message})")
                self.opened = await self.runtime.open(replace(self.opening, resume=None), self._ask)
            self._total = self.opened.usage
        return self.opened.thread_id

    async def run_turn(self, user_input: UserInput, **options: Any) -> TurnResult:
        """Run a turn to its end. What goes wrong with the runtime is in the result; it is not raised."""
        items: list[Any] = []
        result = TurnResult()
        before = self._total
        try:
            result.thread_id = await self.ensure_started()
            result.turn_id = await self.runtime.start_turn(user_input, options)
            while True:
                event = await self.runtime.next_event()
                if self.sink is not None:
                    self.sink(event)
                match event:
                    case ItemCompleted():
                        items.append(event.item)
                    case UsageTold():
                        self._total = event.total
                    case Compacted():
                        result.compacted = True
                    case TurnEnded():
                        result.interrupted = event.status == "interrupted"
                        self._fail(result, event.fault)
                        break
        except RuntimeFault as error:
            self._fail(result, error.fault)
        projection = project(items, submitted=user_input if isinstance(user_input, str) else None)
        result.projected_messages = projection.messages
        result.final_text = projection.final_text
        result.tool_iterations = projection.tool_iterations
        if self._total is not None and self._total is not before:
            result.usage = self._total.since(before)
        result.notices, self.notices = self.notices, []
        return result

    def _fail(self, result: TurnResult, fault: Fault | None) -> None:
        if fault is not None:
            result.fault, result.error, result.should_retire = fault, str(fault), fault.retire

    async def _ask(self, ask: Ask) -> Choice:
        return "deny"

    def request_interrupt(self) -> None:
        """End the turn that runs, or the start of it. From any thread."""
        raise NotImplementedError

    async def steer(self, text: str) -> bool:
        """Say something in the middle of the turn; False when there is none, or the runtime cannot."""
        return await self.runtime.steer(text)

    async def compact(self) -> TurnResult:
        """Have the thread summed up."""
        raise NotImplementedError

    async def close(self) -> None:
        """End the session with its runtime. It may be called at any time, and again."""
        if not self._closed:
            self._closed = True
            await self.runtime.close()
