"""`WatchedTurn`: one turn on a runtime, from start to end, with a limit on every wait.

    begin ──▶ follow: step, step, … ──────────────── TurnEnded ──▶ ended
      │         │        │                                           ▲
      │         │        ├─ `turn` or `idle` is over ─┬─ the answer is there: wait `SETTLE_S` for the end
      │         │        │                            └─ else: interrupt, fault `deadline`
      │         │        ├─ `quiet` is over ─── probe ─┬─ an answer, also a refusal: a notice, and on
      │         │        │                             └─ none in time: interrupt, fault `stuck`
      │         │        └─ request_stop("interrupt") ─── interrupt ─── events until TurnEnded, or fault `stuck`
      │         └─ the events fail: fault, and the runtime is replaced
      └─ request_stop("closed"), here or later: `Stopped`; nobody waits for the runtime any more

Reasons for this order:

- Only the runtime says that a turn has ended. To end one early, interrupt it and take its events until it has: what it
  still says belongs to the turn, and a runtime that was left in the middle of one is of no use for the next.
- An interrupt reaches the runtime before open questions are withdrawn. With a no alone, the model would go on.
- A turn that completes while it is being interrupted is complete: the limit was late, not the turn.
- An event that comes while a probe runs is a better answer than the one that was asked for.
- That the session is closed weighs more than an interrupt, so a wait for an interrupted turn ends with it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine
from typing import Any, Final, Literal, TypeAlias, TypeVar, assert_never

from msgspec.structs import replace

from treadle.host.faults import Fault, RuntimeFault, deadline_fault, duration, quiet_fault, stuck_fault
from treadle.host.runtime import Notice, Runtime, RuntimeEvent, TurnEnded
from treadle.host.timeouts import Clock, DeadlineExceeded, Timeouts, end_tasks, within
from treadle.host.turn_progress import TurnProgress, TurnWatch, UsageMeter

T = TypeVar("T")
Sink: TypeAlias = Callable[[RuntimeEvent], None]
Stop: TypeAlias = Literal["interrupt", "closed"]

logger: logging.Logger = logging.getLogger(__name__)

SETTLE_S: Final = 2.0
"""For the end of a turn whose answer is there when its time is up."""


class Stopped(Exception):
    """The turn was to end before there was anything to interrupt."""


class WatchedTurn(TurnProgress):
    """One turn.

    Args:
        runtime: What runs it.
        timeouts: How long to wait for what.
        clock: Where to look for the time.
        sink: Called with every event.
        withdraw: Takes back what people are being asked.
        meter: Counts the tokens that the runtime reports.
    """

    interrupted: bool
    ended: TurnEnded | None
    fault: Fault | None

    def __init__(
        self,
        runtime: Runtime,
        *,
        timeouts: Timeouts,
        clock: Clock,
        sink: Sink | None,
        withdraw: Callable[[], None],
        meter: UsageMeter,
    ) -> None:
        super().__init__(TurnWatch(timeouts, clock.monotonic()), meter)
        self._runtime = runtime
        self._timeouts = timeouts
        self._clock = clock
        self._sink = sink
        self._withdraw = withdraw
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.stop: Stop | None = None
        self.turn_id: str | None = None
        self.started: asyncio.Event = asyncio.Event()
        """Set when the runtime has taken it, and in any case when it is over."""
        self._woken: asyncio.Future[None] = self.loop.create_future()
        self._event: asyncio.Task[RuntimeEvent] | None = None
        self._probe: asyncio.Task[None] | None = None
        self._alarm: asyncio.Task[None] | None = None
        self._alarm_at = math.inf
        self._noticed_quiet = False
        self._unended = False

    @property
    def replace_runtime(self) -> bool:
        """Whether the runtime is of no use any more."""
        return self._unended or (self.fault is not None and self.fault.replace_runtime)

    # --- what others do to it ---

    def request_stop(self, why: Stop) -> None:
        """End it soon. That the session is closed weighs more than an interrupt."""
        if self.stop != "closed":
            self.stop = why
        self._wake()

    def person_asked(self) -> None:
        self.began_work = True
        self._watch.person_asked(self._clock.monotonic())
        self._wake()

    def person_answered(self) -> None:
        self._watch.person_answered(self._clock.monotonic())
        self._wake()

    def publish(self, event: RuntimeEvent) -> None:
        """Give an event to the sink. A display that fails is no reason to end a turn."""
        if self._sink is not None:
            try:
                self._sink(event)
            except Exception:
                logger.exception("the sink of a session failed at %s", type(event).__name__)

    def notice(self, text: str) -> None:
        """Publish a notice for people, now and in the result."""
        self.notices.append(text)
        self.publish(Notice(text))

    # --- before it runs ---

    async def unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """What the work gives; `Stopped` as soon as the turn is to end, and the work is cancelled."""
        doing = self.loop.create_task(work)
        try:
            while self.stop is None and not doing.done():
                await self._wait(math.inf, {doing})
            if self.stop is not None:
                raise Stopped
            return doing.result()
        finally:
            await end_tasks({doing})

    async def begin(self, starting: Coroutine[Any, Any, T], doing: str) -> T:
        """What the runtime gives when it has started something. When the turn is to end meanwhile, it has a moment left
        to say so: what it has started is to be interrupted.

        Args:
            starting: The call.
            doing: What it is, in words: `start the turn`.
        """
        limit_s = self._timeouts.request
        start = self.loop.create_task(within(self._clock, limit_s, starting))
        try:
            while self.stop is None and not start.done():
                await self._wait(math.inf, {start})
            if not start.done() and self.stop == "interrupt":
                limit_s = self._timeouts.interrupt
                until = math.inf if limit_s is None else self._clock.monotonic() + limit_s
                while not start.done() and self.stop == "interrupt" and self._clock.monotonic() < until:
                    await self._wait(until, {start})
            if self.stop == "closed":
                raise Stopped
            if not start.done():
                raise DeadlineExceeded
            return start.result()
        except DeadlineExceeded:
            self.interrupted = self.stop is not None
            raise RuntimeFault(stuck_fault(self._runtime.name, limit_s or 0.0, doing)) from None
        finally:
            await end_tasks({start})

    # --- while it runs ---

    async def follow(self) -> None:
        """Take its events until it has ended, or nobody waits for it any more."""
        self.ended = None
        self._watch.begin(self._clock.monotonic())
        try:
            while self.ended is None and self.stop != "closed":
                if not await self._step():
                    break
        except RuntimeFault as error:
            # What a turn does whose events have failed, nobody knows.
            self.fail(replace(error.fault, replace_runtime=True))
        finally:
            tasks = {task for task in (self._event, self._probe, self._alarm) if task is not None}
            self._event = self._probe = self._alarm = None
            await end_tasks(tasks)
        if self.stop == "closed" and self.ended is None:
            raise Stopped

    async def _step(self) -> bool:
        """Wait for something and deal with it; False when the turn is over for us."""
        if self.stop is not None:
            return await self._end_early(None)
        timeouts = self._timeouts
        check = self._watch.next_check()
        waits: set[asyncio.Future[Any]] = {self._next_event()}
        if self._probe is not None:
            waits.add(self._probe)
        await self._wait(math.inf if check is None else check.at, waits)
        if self._take_event() and self._probe is not None:
            # That something came is a better answer than the one that was asked for.
            probe, self._probe = self._probe, None
            await end_tasks({probe})
        if self.ended is not None or self.stop is not None:
            return True
        if self._probe is not None and self._probe.done():
            probe, self._probe = self._probe, None
            self._watch.quiet_handled(self._clock.monotonic())
            try:
                probe.result()
            except DeadlineExceeded:
                silence = (timeouts.quiet or 0.0) + (timeouts.probe or 0.0)
                return await self._end_early(stuck_fault(self._runtime.name, silence))
            except RuntimeFault as error:
                if error.fault.replace_runtime or error.fault.kind in ("dead", "stuck"):
                    return await self._end_early(replace(error.fault, replace_runtime=True))
                # A no is a sign of life as well.
            self._notice_quiet("it is alive")
            return True
        limit = self._watch.due(self._clock.monotonic())
        match limit:
            case None:
                return True
            case "turn" | "idle":
                if self.answered and not self._watch.working:
                    return await self._accept_answer()
                span = timeouts.turn if limit == "turn" else timeouts.idle
                return await self._end_early(deadline_fault(span or 0.0, limit))
            case "quiet":
                self._watch.quiet_handled(self._clock.monotonic())
                if timeouts.quiet_action == "retire":
                    return await self._end_early(quiet_fault(self._runtime.name, timeouts.quiet or 0.0))
                if timeouts.quiet_action == "warn":
                    self._notice_quiet("nothing is known of it")
                elif self._probe is None:
                    probing = within(self._clock, timeouts.probe, self._runtime.probe())
                    self._probe = self.loop.create_task(probing, name="treadle probe")
                return True
            case _:
                assert_never(limit)

    def _notice_quiet(self, known: str) -> None:
        if not self._noticed_quiet:
            self._noticed_quiet = True
            quiet = duration(self._timeouts.quiet or 0.0)
            self.notice(f"{self._runtime.name} has been quiet for {quiet} since a tool ended; {known}, and waited for.")

    async def _accept_answer(self) -> bool:
        """The time is up, and the answer is there: what is missing is only the word that it was the last."""
        if not await self._drain(SETTLE_S):
            ended = await self._interrupt()
            if self.stop == "closed":
                return False
            self.notice("The runtime did not say that the turn was over; its answer was taken as it stood.")
            self.interrupted, self._unended = False, not ended
        return False

    async def _end_early(self, fault: Fault | None) -> bool:
        """End the turn on the runtime. It may be faster, and complete it: then nothing went wrong."""
        ended = await self._interrupt()
        if self.stop == "closed" or (self.ended is not None and self.ended.status == "completed"):
            return False
        self.interrupted = True
        if fault is not None:
            self.blame(fault)
        elif not ended:
            self.fail(stuck_fault(self._runtime.name, self._timeouts.interrupt or 0.0, "end the turn"))
        return False

    async def _interrupt(self) -> bool:
        """Interrupt the runtime, and take its events until the turn has ended; whether it has, in time."""
        began = self._clock.monotonic()
        interrupting = self.loop.create_task(within(self._clock, self._timeouts.interrupt, self._runtime.interrupt()))
        # First the runtime: with a no alone, the model would go on.
        await asyncio.sleep(0)
        self._withdraw()
        try:
            while not interrupting.done() and self.stop != "closed" and self.ended is None:
                await self._wait(math.inf, {interrupting, self._next_event()})
                self._take_event()
            if interrupting.done():
                interrupting.result()
            limit_s = self._timeouts.interrupt
            return await self._drain(None if limit_s is None else limit_s - (self._clock.monotonic() - began))
        except (DeadlineExceeded, RuntimeFault) as error:
            if isinstance(error, RuntimeFault):
                self.fail(replace(error.fault, replace_runtime=True))
            return self.ended is not None
        finally:
            await end_tasks({interrupting})

    async def _drain(self, limit_s: float | None) -> bool:
        """Take events until the turn has ended; whether it has, in time."""
        until = math.inf if limit_s is None else self._clock.monotonic() + limit_s
        while self.ended is None and self.stop != "closed" and self._clock.monotonic() < until:
            await self._wait(until, {self._next_event()})
            self._take_event()
        return self.ended is not None

    # --- events ---

    def _take_event(self) -> bool:
        """Take the event that has come, if one has."""
        if self._event is None or not self._event.done():
            return False
        task, self._event = self._event, None
        event = task.result()
        self.publish(event)
        self.take(event, self._clock.monotonic())
        return True

    # --- waiting ---

    def _next_event(self) -> asyncio.Task[RuntimeEvent]:
        if self._event is None:
            self._event = self.loop.create_task(self._runtime.next_event(), name="treadle next event")
        return self._event

    async def _wait(self, until: float, waits: set[Any]) -> None:
        """Come back when one of these is done, somebody woke it, or the time has come."""
        if until < math.inf:
            # An alarm that rings too early is cheaper than one for each event.
            if self._alarm is None or self._alarm.done() or self._alarm_at > until:
                if self._alarm is not None:
                    await end_tasks({self._alarm})
                self._alarm_at = until
                self._alarm = self.loop.create_task(self._clock.sleep(max(0.0, until - self._clock.monotonic())))
            waits = waits | {self._alarm}
        await asyncio.wait({*waits, self._woken}, return_when=asyncio.FIRST_COMPLETED)
        if self._woken.done():
            self._woken = self.loop.create_future()

    def _wake(self) -> None:
        if not self._woken.done():
            self._woken.set_result(None)
