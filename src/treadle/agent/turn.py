"""`Turn`: one request and all that follows from it. It owns the task that does the work, and its end.

What the work is comes from outside: a `Runtime`, or `compaction` and `shell_command`. Its items, its pending input, its
state and what it reports are nouns of their own.

A turn is active from the moment it is made until its end begins: steering and interrupting work from the first to the
last.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw, structs

from treadle.agent import thread_goal
from treadle.agent.aside import Aside
from treadle.agent.error_info import error_info
from treadle.agent.ids import now_ms
from treadle.agent.model_history import History, aborted_output
from treadle.agent.pending_input import Input, PendingInput
from treadle.agent.state import Settings
from treadle.agent.thread import Thread
from treadle.agent.turn_diff import TurnDiff
from treadle.agent.turn_items import TurnItems
from treadle.agent.turn_state import Kind, TurnReport, TurnState
from treadle.errors import TreadleError
from treadle.llm import ModelError
from treadle.logs.trace import IDS
from treadle.protocol.app.thread_notifications import (
    ThreadStatusChangedNotification,
    TurnCompletedNotification,
    TurnStartedNotification,
)
from treadle.protocol.app.turn_errors import TurnError
from treadle.protocol.app.turns import Turn as WireTurn
from treadle.store.contract import PruneEvents, StoreError, TurnRecord, Write

logger: logging.Logger = logging.getLogger(__name__)

Work: TypeAlias = Callable[["Turn"], Awaitable[None]]

# Events that clients can ask for again; older ones are in the items. Pruned in steps, so that it is rare.
KEPT_EVENTS: Final = 20_000
PRUNE_EVERY: Final = 1_000

ABORTED_NOTE: Final = (
    "<turn_aborted>\nThe user interrupted the previous turn on purpose. Commands that were running then may have been "
    "ended half way; look at the state of things before you go on.\n</turn_aborted>"
)


class Turn:
    def __init__(self, thread: Thread, work: Work, *, kind: Kind = "regular", aside: Aside | None = None) -> None:
        self.thread = thread
        self.kind: Kind = kind
        self.aside = aside
        self._memory: Thread | Aside = thread if aside is None else aside
        self.state: TurnState = TurnState(thread.next_turn())
        self.id: str = self.state.id
        self.number: int = self.state.number
        self.items: TurnItems = TurnItems(thread, self.state)
        self.input: PendingInput = PendingInput(thread, self._memory, self.number, self.items)
        self.report: TurnReport = TurnReport(thread, self.id, aside)
        self.output_schema: Any = None
        self.calls: dict[str, str] = {}  # call ids without an output yet, with the type of the call
        self.called = False  # whether the model has used a tool
        self.answered = False  # whether the model has said anything
        self.reviews: list[str] = []  # what the automatic reviewer has decided last, `approved` or `denied`
        self.not_before: float = 0.0  # loop time before which the turn does not end: a workaround for a client
        self.on_end: Callable[[Turn], None] = lambda turn: None  # called when the thread has a goal or a queue
        self._diff: TurnDiff | None = None
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._side_tasks: set[asyncio.Task[None]] = set()
        self._interrupts: list[asyncio.Future[None]] = []  # whoever waits for the work to stop
        self._ending = False
        self._aborting = False
        self._released = False
        self._ended = asyncio.Event()

    # --- from outside ---

    def start(self) -> None:
        """Under `thread.acquire`, which the end of the turn releases."""
        self.thread.journal.write(self._record())
        self.thread.turn = self
        self._task = self.thread.services.spawn(self._run(), f"turn {self.id}")

    @property
    def active(self) -> bool:
        """Whether it can still be steered and interrupted."""
        return not self._ending

    def steer(self, given: Input) -> None:
        """Raises `RpcError` when too much waits for the model already."""
        self.input.add(given)

    def interrupt(self) -> asyncio.Future[None]:
        """End it as interrupted. The future is done when the work has stopped, before the end is published."""
        stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._interrupts.append(stopped)
        if not self._aborting and not self._ending:
            self._aborting = True
            if self._task is not None and self.state.begun:
                self._task.cancel()
        return stopped

    async def abort(self) -> None:
        self.interrupt()
        await self._ended.wait()

    async def wait(self) -> None:
        """Until its end is kept and published."""
        await self._ended.wait()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """A side task: it runs beside the work, and the turn waits for it."""
        task = self.thread.services.spawn(work, f"side task of turn {self.id}")
        self._side_tasks.add(task)
        task.add_done_callback(self._side_tasks.discard)

    def snapshot(self) -> WireTurn:
        """With everything that has happened in it so far."""
        return structs.replace(self.state.wire(), items=self.items.all(), items_view="full")

    # --- for the work ---

    @property
    def settings(self) -> Settings:
        """Those that the model works with."""
        return self.thread.settings if self.aside is None else self.aside.settings(self.thread)

    @property
    def history(self) -> History:
        """What the model has seen."""
        history = self._memory.history
        assert history is not None
        return history

    def remember(self, items: Sequence[Any], origin: str | None = None) -> list[Write]:
        """Add to what the model has seen; the writes are for the journal. `origin` is that of thoughts."""
        return self._memory.remember(items, self.number, origin)

    @property
    def diff(self) -> TurnDiff:
        """What patches have changed in this turn."""
        if self._diff is None:
            self._diff = TurnDiff()
        return self._diff

    def try_finish(self) -> bool:
        """Take no more input, unless some came in meanwhile: then the work goes on."""
        if self.input:
            return False
        self._ending = True
        return True

    async def wait_side_tasks(self) -> None:
        """Until the turn may end; it can still be steered and interrupted meanwhile."""
        delay = self.not_before - asyncio.get_running_loop().time()
        if delay > 0:
            await asyncio.sleep(delay)
        await self._join_side_tasks()

    # --- the task ---

    async def _run(self) -> None:
        IDS.set({**IDS.get(), "thread": self.thread.id, "turn": self.id})  # for this task and those that it starts
        try:
            await self._do_work()
        finally:
            self._ended.set()
        if self.thread.state.goal is not None or self.thread.queued:
            self.on_end(self)

    async def _do_work(self) -> None:
        failure = await self._try_work()
        self._ending = True
        for task in self._side_tasks:
            task.cancel()
        await self._join_side_tasks()
        try:
            if failure is None:
                await self._end()
        except StoreError as error:
            failure = error
        if failure is not None:
            self._end_unkept(failure)

    async def _try_work(self) -> StoreError | None:
        """Until it is done or fails; the failure of a store that cannot keep how it ended."""
        try:
            self._begin()
            if not self._aborting:
                await self._work_through()
            self.state.status = "interrupted" if self._aborting else "completed"
        except BaseException as error:
            try:
                return self._stopped(error)
            finally:
                _drop_frames(error)
        return None

    def _stopped(self, error: BaseException) -> StoreError | None:
        match error:
            case asyncio.CancelledError() if self._aborting:
                task = asyncio.current_task()
                assert task is not None
                task.uncancel()
                self.state.status = "interrupted"
            case StoreError() if self.thread.journal.failure is not None:
                return error
            case StoreError():  # something could not be read; that it failed can be kept
                self._fail(f"the thread cannot be read: {error.message}")
                self.input.clear()
            case ModelError():
                self.state.fail(TurnError(message=error.message, codex_error_info=error_info(error)))
            case TreadleError():
                self._fail(str(error))
            case Exception():
                logger.exception("turn %s failed", self.id)
                self._fail(f"internal error: {type(error).__name__}: {error}")
            case _:
                raise error
        return None

    def _fail(self, message: str) -> None:
        self.state.fail(TurnError(message=message, codex_error_info="other"))

    async def _work_through(self) -> None:
        """A command of the user goes on when the model fails, and belongs to the turn as long as it does."""
        try:
            await self._work(self)
        except ModelError:
            await self._join_side_tasks()
            raise

    async def _join_side_tasks(self) -> None:
        while self._side_tasks:
            await asyncio.wait(self._side_tasks)

    # --- beginning and end ---

    def _begin(self) -> None:
        thread = self.thread
        self.state.begin()
        thread.set_failed(False)
        thread.publish_status()
        if logger.isEnabledFor(logging.INFO):
            model = {"model": self.settings.model, "provider": self.settings.model_provider}
            logger.info("turn started", {"kind": self.kind, **model})
        params = TurnStartedNotification(thread_id=thread.id, turn=self.state.wire())
        thread.journal.emit("turn/started", params, self._record())
        if thread.state.queue_held:
            thread.hold_queue(False)
            thread.journal.write(thread.save())

    async def _end(self) -> None:
        thread, state = self.thread, self.state
        if self.input or state.status != "failed":  # it may have failed because the history cannot be read
            await self.input.take()  # what was said too late for the model is not lost
        self.report.usage()
        left = self.items.end_open(early=state.status != "completed")
        thread.journal.write(*left, *self._history_leftovers())
        for stopped in self._interrupts:
            thread.journal.resolve_in_order(stopped)
        state.end()
        self._log_end()
        if thread.state.goal is not None:
            thread_goal.account(thread, self.id, self.report.tokens, (state.duration_ms or 0) // 1000)
        thread.set_failed(state.status == "failed")
        thread.hold_queue(state.status == "interrupted")
        thread.turn = None
        thread.publish_status()
        if state.error is not None:
            self.report.error(state.error, will_retry=False)
        params = TurnCompletedNotification(thread_id=thread.id, turn=self._ended_turn())
        saved = thread.save(recency_at=now_ms())
        thread.journal.emit("turn/completed", params, self._record(), saved, *self._prune())
        self._release()
        await thread.journal.flush()

    def _ended_turn(self) -> WireTurn:
        """A turn that was completed says once more what the agent said last: clients make titles and previews of it."""
        ended = self.state.wire()
        said = self.items.last_message if self.state.status == "completed" else None
        return ended if said is None else structs.replace(ended, items=(said,), items_view="summary")

    def _release(self) -> None:
        if not self._released:
            self._released = True
            self.thread.release()

    def _end_unkept(self, failure: StoreError) -> None:
        """The store cannot keep the end of the turn: clients hear of it, and later readers find it interrupted."""
        thread, state = self.thread, self.state
        error = TurnError(message=f"the thread cannot be saved: {failure.message}", codex_error_info="other")
        state.fail(error)
        state.end()
        self._log_end()
        thread.set_failed(True)
        if thread.turn is self:
            thread.turn = None
        thread.history = None
        for stopped in self._interrupts:
            thread.journal.resolve_in_order(stopped)
        announce = thread.journal.announce
        announce("thread/status/changed", ThreadStatusChangedNotification(thread_id=thread.id, status=thread.status))
        announce("error", self.report.error_params(error, will_retry=False))
        announce("turn/completed", TurnCompletedNotification(thread_id=thread.id, turn=state.wire()))
        self._release()

    def _log_end(self) -> None:
        state = self.state
        if logger.isEnabledFor(logging.INFO):
            numbers = {"duration_ms": state.duration_ms, "tokens": self.report.tokens}
            logger.info("turn ended", {"status": state.status, **numbers})

    def _history_leftovers(self) -> list[Write]:
        """After an early end: calls get an output, and the model is told why."""
        if self.thread.history is None or self.aside is not None:
            return []
        outputs = [aborted_output(kind, call_id) for call_id, kind in self.calls.items()]
        self.calls.clear()
        if self.state.status == "interrupted" and self.kind == "regular":
            outputs.append(developer_message(ABORTED_NOTE))
        return self.thread.remember(outputs, self.number)

    def _prune(self) -> list[Write]:
        oldest = self.thread.journal.seq - KEPT_EVENTS
        if oldest < self.thread.pruned + PRUNE_EVERY:
            return []
        self.thread.pruned = oldest
        return [PruneEvents(self.thread.id, oldest)]

    def _record(self) -> TurnRecord:
        return self.state.record(self.thread.id, self.thread.state.usage)


def _drop_frames(error: BaseException) -> None:
    """The frames that an error went through hold the request, with the whole history, and the error itself: a circle
    that would wait for the garbage collector, which counts objects and not bytes."""
    before: BaseException | None = error
    while before is not None:
        before.__traceback__ = None
        before.__context__, before = None, before.__context__


def developer_message(text: str) -> Raw:
    content = [{"type": "input_text", "text": text}]
    return Raw(msgspec.json.encode({"type": "message", "role": "developer", "content": content}))
