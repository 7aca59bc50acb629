"""`Session`: one thread on one runtime, turn after turn, until the runtime must be replaced.

    new ─── ensure_started ───▶ idle ◀──────────────── result ◀──────────────────┐
     │          │                │                                               │
     │          │ fault          └─ run_turn ─▶ start_turn ─▶ follow ─┬─ done ───┤
     │          ▼                                ▲   overloaded, or   ├─ fault ──┤─▶ unusable, if the fault says
     │     raised; unusable,                     └── nothing done yet ┘          │   `replace_runtime`
     │     if the fault says so                      context window full: ──▶ compact
     └──────────── close, at any time: the turn is stopped, then the runtime is closed ──▶ closed

It owns the turns, the questions to people, and the decision to replace a runtime. What its turns mean for the
conversation is up to `HostAgent`. Reasons for this order:

- A start belongs to the session, not to who asked for it: it goes on when the caller is cancelled, and the next caller
  waits for the same one. Two would start two runtimes.
- A turn is a task of its own. When its caller is cancelled, the turn is still ended in order; when the caller is
  cancelled again, the turn is cut off, and then nobody knows what the runtime does: it is unusable.
- A turn is tried again only if nothing was said or done in it (`began_work`), because nothing may happen twice. A
  runtime that refuses a turn has not taken the input, so that is tried again as well.
- When the context is full, the thread is compacted, and the message is not sent again: the user decides.
- An unusable runtime stays so. Who goes on makes a new session, with the conversation so far as its history.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from msgspec.structs import replace

from treadle.client.turn_values import final_response
from treadle.host.approver import Approvals, Ask, Choice, PersonApprover
from treadle.host.faults import (
    Fault,
    ResumeFailed,
    RuntimeFault,
    SessionBusy,
    SessionClosed,
    aborted_fault,
    duration,
    refused_fault,
    startup_fault,
)
from treadle.host.projection import project
from treadle.host.runtime import Notice, Opened, Opening, Runtime, Usage, UserInput
from treadle.host.timeouts import Clock, DeadlineExceeded, SystemClock, Timeouts, end_tasks, within
from treadle.host.turn_progress import TurnResult, UsageMeter
from treadle.host.watched_turn import Sink, Stopped, WatchedTurn
from treadle.llm.failure import pause

logger: logging.Logger = logging.getLogger(__name__)

START_TRIES: Final = 4
"""How often a turn is started that the runtime does not take because it has too much to do."""
TURN_TRIES: Final = 3
"""How often a turn is run that failed before anything was said or done in it."""
LONGEST_PAUSE_S: Final = 60.0
"""A provider that wants a longer pause is left alone: a person decides."""
_MAYBE_DONE: Final = "Some work may have been done already: look before you send it again."


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
        self._approver = PersonApprover(
            approvals,
            limit_s=self.timeouts.approval,
            clock=self.clock,
            asked=self._person_asked,
        )
        self._meter = UsageMeter()
        self._turns = 0
        self._turn: WatchedTurn | None = None
        self._running: asyncio.Task[TurnResult] | None = None
        self._starting: asyncio.Task[Opened] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._unusable: Fault | None = None  # why the runtime must be replaced

    @property
    def thread_id(self) -> str | None:
        """The runtime's id of the thread; None before it is open and has one."""
        return None if self.opened is None or self.opened.provisional else self.opened.thread_id

    @property
    def is_over(self) -> bool:
        """Whether the runtime has ended by itself since the last turn, and says so: not all can."""
        return self._turn is None and bool(getattr(self.runtime, "is_over", False))

    # --- starting ---

    async def ensure_started(self) -> str:
        """Open the thread, unless it is, and give its id. Raises `RuntimeFault`.

        Whoever comes meanwhile waits for the same start. It goes on when those who wait for it are cancelled.
        """
        self._check_open()
        if self._unusable is not None:
            raise RuntimeFault(self._unusable)
        if self.opened is None:
            if self._starting is None or self._starting.done():
                self._starting = asyncio.create_task(self._start(), name="treadle session start")
            starting = self._starting
            await asyncio.wait({starting})
            self._check_open()
            self.opened = starting.result()
        return self.opened.thread_id

    async def _start(self) -> Opened:
        opening, retried, limit_s = self.opening, False, self.timeouts.startup
        while True:
            try:
                opened = await within(self.clock, limit_s, self.runtime.open(opening, self._ask))
                break
            except DeadlineExceeded:
                reason = f"it was not ready within {duration(limit_s or 0.0)}."
                raise self._start_failed(startup_fault(self.runtime.name, reason)) from None
            except ResumeFailed as error:
                if opening.resume is None:
                    raise self._start_failed(error.fault) from None
                self.notices.append(f"The thread could not be resumed; a new one is started. ({error.fault.message})")
                opening = replace(opening, resume=None)
            except RuntimeFault as error:
                wait = _pause(error.fault, 0)
                if retried or wait is None:
                    raise self._start_failed(error.fault) from None
                retried = True
                await self.clock.sleep(wait)
        # Nobody knows what a thread of earlier has used unless the runtime does; a new one has used nothing.
        self._meter.open(opened.usage or (None if opening.resume is not None else Usage()))
        return opened

    def _start_failed(self, fault: Fault) -> RuntimeFault:
        """The error of a start that failed for good."""
        if fault.replace_runtime:
            self._unusable = fault
        return RuntimeFault(fault)

    # --- turns ---

    async def run_turn(self, user_input: UserInput, **options: Any) -> TurnResult:
        """Run a turn to its end. What goes wrong with the runtime is in the result; it is not raised.

        Args:
            user_input: What the user says.
            options: For the runtime, for this turn.

        Raises:
            SessionClosed: `close` was called before.
            SessionBusy: Another turn runs.
        """
        return await self._run(self._converse(user_input, options), user_input)

    async def compact(self) -> TurnResult:
        """Have the thread summed up, as a turn of its own. Raises what `run_turn` does."""
        return await self._run(self._sum_up(), "")

    async def _run(self, work: Coroutine[Any, Any, None], user_input: UserInput) -> TurnResult:
        try:
            self._check_open()
            if self._turn is not None:
                raise SessionBusy("A turn of this session runs already: wait for its result, steer it or interrupt it.")
        except Exception:
            work.close()
            raise
        self._turn = self._new_turn()
        self._turns += 1
        self._meter.begin()
        # A task of its own: when the caller is cancelled, the turn is ended in order all the same.
        self._running = running = asyncio.create_task(self._carry_out(work, user_input), name="treadle turn")
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError:
            self._turn.request_stop("interrupt")
            try:
                await asyncio.wait({running})
            except asyncio.CancelledError:
                self._unusable = aborted_fault("The turn was cut off before the runtime had ended it.")
                await end_tasks({running})
                raise
            if not running.cancelled():
                running.exception()
            raise
        return running.result()

    async def _carry_out(self, work: Coroutine[Any, Any, None], user_input: UserInput) -> TurnResult:
        turn = self._turn
        assert turn is not None
        try:
            await work
        except RuntimeFault as error:
            turn.fail(error.fault)
        except Stopped:
            turn.interrupted = True
            if turn.stop == "closed":
                turn.fail(aborted_fault("The session was closed while the turn was in flight."))
        except BaseException:
            # Where this leaves the runtime, nobody knows.
            self._unusable = aborted_fault("A turn ended with an error of the program.")
            raise
        finally:
            self._approver.withdraw()
            turn.started.set()
            self._turn = None
        projection = project([*turn.items, *turn.begun()], submitted=user_input)
        fault = turn.fault
        if fault is not None and turn.used_tools:
            fault = replace(fault, advice=f"{fault.advice} {_MAYBE_DONE}".strip())
        if turn.replace_runtime:
            self._unusable = fault or aborted_fault("The runtime has not ended its last turn.")
        if self.opened is not None and turn.thread_id is not None:
            self.opened = replace(self.opened, thread_id=turn.thread_id, provisional=False)
        notices, self.notices = self.notices + turn.notices, []
        return TurnResult(
            final_text=final_response(turn.items) or "",
            projected_messages=projection.messages,
            tool_iterations=projection.tool_iterations,
            interrupted=turn.interrupted,
            error=None if fault is None else str(fault),
            turn_id=turn.turn_id,
            thread_id=self.thread_id,
            usage=self._meter.spent(),
            should_retire=turn.replace_runtime,
            fault=fault,
            notices=notices,
            compacted=turn.compacted,
        )

    async def _converse(self, user_input: UserInput, options: Mapping[str, Any]) -> None:
        turn = self._current()
        await turn.unless_stopped(self.ensure_started())
        self._meter.begin()
        for tried in itertools.count(1):
            await self._start_turn(turn, user_input, options)
            await turn.follow()
            fault = turn.fault
            wait = None if fault is None or turn.began_work or turn.stop else _pause(fault, tried - 1)
            if fault is None or wait is None or tried == TURN_TRIES:
                break
            turn.fault, turn.items, turn.unfinished = None, [], {}
            await self._pause(turn, wait, fault)
        full = turn.fault
        if full is None or full.kind != "context_window" or turn.stop:
            return
        # The thread is full: have it summed up. The message is not sent again: that is for the user to decide.
        summary = self._turn = self._new_turn()
        summary.started.set()
        try:
            if await summary.begin(self.runtime.compact(), "sum up the thread"):
                await summary.follow()
        except RuntimeFault as error:
            summary.fail(error.fault)
        finally:
            self._turn, turn.stop = turn, summary.stop
        turn.interrupted = summary.interrupted
        turn.compacted = summary.ended is not None and summary.ended.status == "completed"
        advice = "It has been summed up: send the message again." if turn.compacted else "Start a new conversation."
        turn.fault = replace(full, advice=advice, replace_runtime=full.replace_runtime or summary.replace_runtime)

    async def _start_turn(self, turn: WatchedTurn, user_input: UserInput, options: Mapping[str, Any]) -> None:
        for tried in itertools.count(1):
            try:
                turn.turn_id = await turn.begin(self.runtime.start_turn(user_input, options), "start the turn")
                turn.started.set()
                return
            except RuntimeFault as error:
                wait = _pause(error.fault, tried - 1)
                if wait is None or tried == START_TRIES or turn.stop:
                    raise
                await self._pause(turn, wait, error.fault)

    async def _pause(self, turn: WatchedTurn, wait: float, fault: Fault) -> None:
        turn.publish(Notice(f"{fault.message} It is tried again in {duration(wait)}.", fault))
        await turn.unless_stopped(self.clock.sleep(wait))

    async def _sum_up(self) -> None:
        turn = self._current()
        await turn.unless_stopped(self.ensure_started())
        self._meter.begin()
        turn.started.set()
        if not await turn.begin(self.runtime.compact(), "sum up the thread"):
            raise RuntimeFault(refused_fault(self.runtime.name, "sum up threads"))
        await turn.follow()

    def _new_turn(self) -> WatchedTurn:
        return WatchedTurn(
            self.runtime,
            timeouts=self.timeouts,
            clock=self.clock,
            sink=self.sink,
            withdraw=self._approver.withdraw,
            meter=self._meter,
        )

    def _current(self) -> WatchedTurn:
        assert self._turn is not None
        return self._turn

    # --- what others do to a turn ---

    async def _ask(self, ask: Ask) -> Choice:
        turn = self._turn
        return "deny" if turn is None or turn.stop is not None else await self._approver.ask(ask)

    def _person_asked(self) -> Callable[[], None]:
        turn = self._current()
        turn.person_asked()
        return turn.person_answered

    def request_interrupt(self) -> None:
        """End the turn that runs, or that is being started. From any thread; when there is none, nothing happens."""
        turn, number = self._turn, self._turns
        if turn is not None:
            try:
                turn.loop.call_soon_threadsafe(self._interrupt, number)
            except RuntimeError:
                logger.debug("the event loop of the session has ended")

    def _interrupt(self, number: int) -> None:
        # It may come when the turn is over and the next one runs.
        if self._turn is not None and self._turns == number:
            self._turn.request_stop("interrupt")

    async def steer(self, text: str) -> bool:
        """Say something in the middle of the turn; False when there is none, or the runtime cannot.

        Args:
            text: What to say.
        """
        turn = self._turn
        if turn is None:
            return False

        async def steer() -> bool:
            await turn.started.wait()
            if turn.turn_id is None or turn.ended is not None or turn.stop is not None:
                return False
            turn.began_work = True
            return await self.runtime.steer(text)

        try:
            return await within(self.clock, self.timeouts.request, steer())
        except (RuntimeFault, DeadlineExceeded) as error:
            logger.warning("the turn could not be steered: %s", error)
            return False

    # --- the end ---

    async def close(self) -> None:
        """End the session with its runtime, in the middle of a turn too. It may be called at any time, and again."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="treadle session close")
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._turn is not None:
            self._turn.request_stop("closed")
        self._approver.withdraw()
        if self._running is not None and not self._running.done():
            await asyncio.wait({self._running}, timeout=self.timeouts.close)
        if self._starting is not None:
            await end_tasks({self._starting})
        try:
            await within(self.clock, self.timeouts.close, self.runtime.close())
        except DeadlineExceeded:
            logger.error("%s did not end within %s s", self.runtime.name, self.timeouts.close)

    def _check_open(self) -> None:
        if self._closing is not None:
            raise SessionClosed("This session is closed: make a new one.")


def _pause(fault: Fault, tried: int) -> float | None:
    """How long to wait before it is tried again; None when it is not."""
    if fault.replace_runtime or not fault.retryable:
        return None
    return pause(tried, fault.retry_after_s, LONGEST_PAUSE_S)
