"""`Turn`: one request and all that follows from it. It owns the task that does the work, and its end.

What the work is comes from outside: the loop of a regular turn, a compaction, a review, a command of the user. A turn
is active from the moment it is made until its end begins: it can be steered and interrupted from the first to the last.

    made ──start──▶ in progress ──────────────▶ completed
    (its record is      │  │  └─ interrupt ────▶ interrupted
     stored, nothing    │  └─── error ─────────▶ failed
     is published)      └────── store fails ───▶ published as failed; later readers find it interrupted

The order at the end has reasons. Side tasks end before anything is written, because they write too. Input that came too
late for the model is still taken: the user has said it. Whoever has interrupted the turn is answered before the end is
published, and the thread is idle in memory (`end_turn`) before `turn/completed`: a client that starts the next turn on
that event must find it so. The claim is released after everything was emitted and before it is committed: the journal
keeps the order, and the next turn need not wait. An interrupt before the first step does not cancel the task, which
would never run: the turn begins, does no work, and ends as interrupted.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType, structs

from treadle.agent.event import new_id, now_ms
from treadle.agent.model_failures import error_info, model_failure
from treadle.agent.thread.model_history import History, aborted_output
from treadle.agent.thread.thread import Thread
from treadle.agent.thread.thread_state import Settings, Usage
from treadle.agent.turn.pending_input import Input, PendingInput
from treadle.agent.turn.turn_items import TurnItems
from treadle.config import model_facts
from treadle.config.file_settings import Budget
from treadle.errors import TreadleError
from treadle.llm import ModelError
from treadle.logs.metrics import TURN_SECONDS, count_tokens
from treadle.logs.trace import IDS
from treadle.protocol.app.base import encode
from treadle.protocol.app.notifications import (
    ErrorNotification,
    ThreadStatusChangedNotification,
    ThreadTokenUsageUpdatedNotification,
    TurnCompletedNotification,
    TurnStartedNotification,
    WarningNotification,
)
from treadle.protocol.app.turns import Turn as WireTurn
from treadle.protocol.app.turns import TurnError, TurnLimit
from treadle.store.contract import StoreError, TurnRecord, Write

if TYPE_CHECKING:
    from treadle.agent.thread.file_undo import TurnFiles
    from treadle.agent.tools.patch_call import TurnDiff
    from treadle.agent.turn.turn_budget import Spent
    from treadle.config import ModelFacts
    from treadle.llm import TokenUsage
    from treadle.llm.catalogue import Price


logger: logging.Logger = logging.getLogger(__name__)
Work: TypeAlias = Callable[["Turn"], Awaitable[None]]
Kind: TypeAlias = Literal["regular", "compact", "shell", "review"]
Status: TypeAlias = Literal["inProgress", "completed", "interrupted", "failed"]
ABORTED_NOTE: Final = (
    "<turn_aborted>\nThe user interrupted the previous turn on purpose. Commands that were running then may have been "
    "ended half way; look at the state of things before you go on.\n</turn_aborted>"
)


NO_LIMITS: Final = Budget()


class LimitReached(TreadleError):
    """A turn may use no more."""

    def __init__(self, message: str, limit: TurnLimit) -> None:
        super().__init__(message)
        self.limit = limit


class SideConversation:
    """A private conversation with a model inside a turn, beside that of the thread: with a reviewer, say.

    Its model has a history, tools and settings of its own: `settings` derives them from those of the thread, which may
    change meanwhile. Nothing of it is stored: the work of the turn shows and stores what is to stay. What it costs
    counts for the thread.
    """

    def __init__(self, settings: Callable[[Thread], Settings], tools: frozenset[str]) -> None:
        self.settings = settings
        self._tools = tools
        self.history: History = History()

    def has(self, tool: str) -> bool:
        return tool in self._tools

    def model_facts(self, thread: Thread) -> ModelFacts:
        settings = self.settings(thread)
        return model_facts(settings.model, thread.services.config_for(settings))

    def add_history(self, items: Sequence[Any], turn: int, origin: str | None = None) -> list[Write]:
        """Add to the history, as a thread does; there is nothing to be stored."""
        for item in items:
            self.history.add(item if isinstance(item, Raw) else Raw(msgspec.json.encode(item)), origin)
        return []


class TurnState:
    """`begun` is whether the start of the turn was emitted; until then nobody but who asked for it knows it."""

    def __init__(self, number: int) -> None:
        self.id: str = new_id()
        self.root_id: str = self.id  # the turn of a thread further up that this one works for
        self.number: int = number
        self.status: Status = "inProgress"
        self.error: TurnError | None = None
        self.begun: bool = False
        self.duration_ms: int | None = None
        self._started_ms = 0
        self._completed_ms: int | None = None
        self._began = 0.0  # by the clock that nobody sets

    def begin(self) -> None:
        self._started_ms = now_ms()
        self._began = time.monotonic()
        self.begun = True

    def fail(self, error: TurnError) -> None:
        self.status = "failed"
        self.error = error

    def end(self) -> None:
        self._completed_ms = max(now_ms(), self._started_ms)  # the clock may have been set back meanwhile
        self.duration_ms = int((time.monotonic() - self._began) * 1000) if self.begun else 0

    def record(self, thread_id: str, usage: Usage) -> TurnRecord:
        """The turn as it is stored; `usage` is that of the thread, which counts when the turn is over."""
        return TurnRecord(
            thread_id=thread_id,
            number=self.number,
            id=self.id,
            status=self.status,
            started_at=self._started_ms // 1000 if self._started_ms else None,
            completed_at=None if self._completed_ms is None else self._completed_ms // 1000,
            duration_ms=self.duration_ms,
            error=None if self.error is None else encode(self.error),
            usage=None if self.status == "inProgress" else encode(usage),
        )

    def wire(self) -> WireTurn:
        return WireTurn(
            id=self.id,
            items=(),
            status=self.status,
            completed_at=None if self._completed_ms is None else self._completed_ms // 1000,
            duration_ms=self.duration_ms,
            error=self.error,
            items_view="notLoaded",
            root_turn_id=self.root_id,
            started_at=self._started_ms // 1000 if self._started_ms else None,
        )

    def fresh(self) -> WireTurn:
        """The turn as it is given to whoever asked for it."""
        return structs.replace(self.wire(), started_at=None)


class TurnReport:
    """`pending_usage` is that of a response whose calls still run; `tokens` are those of the turn so far."""

    def __init__(self, thread: Thread, turn_id: str, side: SideConversation | None = None) -> None:
        self._thread = thread
        self._turn_id = turn_id
        self._side = side
        self.pending_usage: TokenUsage | None = None
        self.tokens: int = 0

    def warning(self, message: str, limit: TurnLimit | UnsetType = UNSET) -> None:
        turn_id = UNSET if limit is UNSET else self._turn_id
        params = WarningNotification(message=message, thread_id=self._thread.id, limit=limit, turn_id=turn_id)
        self._thread.journal.emit("warning", params)

    def error(self, error: TurnError, *, will_retry: bool) -> None:
        self._thread.journal.emit("error", self.error_params(error, will_retry=will_retry))

    def error_params(self, error: TurnError, *, will_retry: bool) -> ErrorNotification:
        return ErrorNotification(thread_id=self._thread.id, turn_id=self._turn_id, error=error, will_retry=will_retry)

    def usage(self) -> None:
        """Count a response that is over with its calls, once."""
        usage, thread = self.pending_usage, self._thread
        if usage is None:
            return
        cost = self._cost_of(usage)
        self.tokens += usage.total_tokens
        self._count(thread.settings if self._side is None else self._side.settings(thread), usage, cost)
        thread.change_state(usage=self._added(usage, cost))
        self.pending_usage = None
        self._emit_usage()

    @property
    def usage_so_far(self) -> Usage:
        """That of the thread, with a response whose calls still run."""
        usage = self.pending_usage
        return self._thread.state.usage if usage is None else self._added(usage, self._cost_of(usage))

    def _added(self, usage: TokenUsage, cost: float | None) -> Usage:
        before = self._thread.state.usage
        added = before.add(usage, self._turn_id, cost)
        # A side conversation costs, and the context of the thread is what it was.
        return added if self._side is None else structs.replace(added, last=before.last)

    def _cost_of(self, usage: TokenUsage) -> float | None:
        thread = self._thread
        price = thread.model_facts.price if self._side is None else self._side.model_facts(thread).price
        return None if price is None else price.cost(usage)

    def engine_usage(self, usage: TokenUsage, cost: float | None) -> None:
        """Count the run of an engine, which knows itself what it has cost."""
        thread = self._thread
        self.tokens += usage.total_tokens
        self._count(thread.settings, usage, cost)
        thread.change_state(usage=thread.state.usage.add(usage, self._turn_id, cost))
        self._emit_usage()

    def review_cost(self, usage: TokenUsage | None, price: Price | None, model: str) -> None:
        """An automatic review costs something, but its tokens are not those of the conversation."""
        thread = self._thread
        cost = None if usage is None or price is None else price.cost(usage)
        if usage is not None:
            self._count(structs.replace(thread.settings, model=model), usage, cost)
        thread.change_state(usage=thread.state.usage.spend(self._turn_id, cost))

    def context_size(self, tokens: int) -> None:
        """After a compaction: nothing was used for it, but the context has another size, which is estimated."""
        thread = self._thread
        thread.change_state(usage=thread.state.usage.resized(tokens, self._turn_id))
        self._emit_usage()

    def _count(self, settings: Settings, usage: TokenUsage, cost: float | None) -> None:
        used = {"input": usage.input_tokens, "cached_input": usage.cached_input_tokens, "output": usage.output_tokens}
        count_tokens(settings.model_provider, settings.model, used, cost)

    def _emit_usage(self) -> None:
        params = usage_notification(self._thread, self._turn_id)
        self._thread.journal.emit("thread/tokenUsage/updated", params, self._thread.save())


def usage_notification(thread: Thread, turn_id: str) -> ThreadTokenUsageUpdatedNotification:
    window = thread.model_facts.usable_window if thread.settings.engine is None else None
    usage = thread.state.usage.on_wire(window)
    return ThreadTokenUsageUpdatedNotification(thread_id=thread.id, turn_id=turn_id, token_usage=usage)


class Turn:
    def __init__(
        self, thread: Thread, work: Work, *, kind: Kind = "regular", side: SideConversation | None = None
    ) -> None:
        self.thread = thread
        self.kind: Kind = kind
        self.side = side
        self._memory: Thread | SideConversation = thread if side is None else side
        self.state: TurnState = TurnState(thread.next_turn())
        self.id: str = self.state.id
        self.number: int = self.state.number
        self.items: TurnItems = TurnItems(thread, self.state.id, self.state.number)
        self.input: PendingInput = PendingInput(thread, self._memory, self.number, self.items)
        self.report: TurnReport = TurnReport(thread, self.id, side)
        self.output_schema: Any = None
        self.budget: Budget = NO_LIMITS  # what was asked for; from the beginning on with the thread's and the settings'
        self.spent_before: Spent | None = None  # what the thread and its sub-agents had used, if somebody wants to know
        self.is_counted: bool = True  # whether all responses so far have said what they used
        self.max_output_tokens: int | None = None  # of a response; None leaves it to the model
        self.calls: dict[str, str] = {}  # call ids without an output yet, with the type of the call
        self.called = False  # whether the model has used a tool
        self.answered = False  # whether the model has said anything
        self.reviews: list[str] = []  # what the automatic reviewer has decided last, `approved` or `denied`
        self.not_before: float = 0.0  # loop time before which the turn does not end: a workaround for a client
        self.on_end: Callable[[Turn], None] = lambda turn: None  # called when something may follow from the end
        self.files: TurnFiles | None = None  # what they were before it changed some
        self.diff: TurnDiff | None = None  # what patches have changed, when there was one
        self.notified: tuple[str, ...] = ()  # the program that is run at the end, as `notify` had it at the beginning
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._side_tasks: set[asyncio.Task[None]] = set()
        self._interrupts: list[asyncio.Future[None]] = []  # whoever waits for the work to stop
        self._ending = False
        self._aborting = False
        self._unstored = False  # cancelled because the journal has failed
        self._released = False
        self._ended = asyncio.Event()

    # --- from outside ---

    def start(self) -> None:
        """Under `thread.acquire`, which the end of the turn releases."""
        self.thread.journal.write(self._record())
        self.thread.start_turn(self)
        self._task = self.thread.services.spawn(self._run(), f"turn {self.id}")

    @property
    def active(self) -> bool:
        """Whether the turn can still be steered and interrupted."""
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

    def stop_unstored(self) -> None:
        """End it at once, because the journal has failed. A turn that has not begun sees that when it begins."""
        if self._task is not None and self.state.begun and not (self._aborting or self._ending):
            self._unstored = True
            self._task.cancel()

    async def abort(self) -> None:
        self.interrupt()
        await self._ended.wait()

    async def wait(self) -> None:
        """Wait until the end of the turn is stored and published."""
        await self._ended.wait()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """A side task: it runs beside the work, and the turn waits for it."""
        task = self.thread.services.spawn(work, f"side task of turn {self.id}")
        self._side_tasks.add(task)
        task.add_done_callback(self._side_tasks.discard)

    def snapshot(self) -> WireTurn:
        """The turn with everything that has happened in it so far."""
        return structs.replace(self.state.wire(), items=self.items.all(), items_view="full")

    # --- for the work ---

    @property
    def settings(self) -> Settings:
        """The settings that the model works with."""
        return self.thread.settings if self.side is None else self.side.settings(self.thread)

    @property
    def history(self) -> History:
        """What the model has seen."""
        history = self._memory.history
        assert history is not None
        return history

    def add_history(self, items: Sequence[Any], origin: str | None = None) -> list[Write]:
        """Add to what the model has seen; the writes are for the journal. `origin` is that of thoughts."""
        return self._memory.add_history(items, self.number, origin)

    def check_budget(self) -> None:
        """Before a model is asked: raise `LimitReached` when nothing more may be used."""
        if self.budget != NO_LIMITS or self.thread.state.agent is not None:
            from treadle.agent.turn.turn_budget import check_turn  # few turns have limits

            check_turn(self)

    async def before_write(self) -> None:
        """Before something that may change files: note what they are, once, so that they can be put back."""
        thread = self.thread
        if self.kind != "regular" or thread.ephemeral or thread.settings.environment is None:
            return
        if self.files is None:
            if not thread.services.config_for(thread.settings).features.undo:
                return
            from treadle.agent.thread.file_undo import TurnFiles  # many turns change nothing

            self.files = TurnFiles(thread, self.id)
        await self.files.begin()

    def try_finish(self) -> bool:
        """Take no more input, unless some came in meanwhile: then the work goes on."""
        if self.input:
            return False
        self._ending = True
        return True

    async def wait_side_tasks(self) -> None:
        """Wait until the turn may end; it can still be steered and interrupted meanwhile."""
        delay = self.not_before - asyncio.get_running_loop().time()
        if delay > 0:
            await asyncio.sleep(delay)
        await self._join_side_tasks()

    # --- the task ---

    async def _run(self) -> None:
        IDS.set({**IDS.get(), "thread": self.thread.id, "turn": self.id})  # for this task and those that it starts
        try:
            failure = await self._do_work()
            self._ending = True
            for task in self._side_tasks:
                task.cancel()
            await self._join_side_tasks()
            if self.files is not None:  # before the end is published: whoever waits for it may change some
                await self.files.end()
            try:
                if failure is None:
                    await self._end()
            except StoreError as error:
                failure = error
            if failure is not None:
                self._end_unstored(failure)
        finally:
            self._ended.set()
        state = self.thread.state
        if state.goal is not None or self.thread.queued or state.agent is not None or state.children:
            self.on_end(self)

    async def _do_work(self) -> StoreError | None:
        """Until it is done or fails; the failure of a store that cannot store how it ended."""
        try:
            self._begin()
            if not self._aborting:
                if self.kind != "shell":
                    settings = self.thread.settings
                    config = self.thread.services.config_for(settings)
                    self.notified = config.notify
                    for more in (settings.budget, config.budget):
                        if more != NO_LIMITS:
                            self.budget = self.budget.over(more)
                    await self.thread.look_for_hooks(self, config)
                    if settings.engine is not None:
                        await self.before_write()
                try:
                    await self._work(self)
                except ModelError:
                    # A command of the user goes on when the model fails, and belongs to the turn as long as it does.
                    await self._join_side_tasks()
                    raise
            self.state.status = "interrupted" if self._aborting else "completed"
        except BaseException as error:
            try:
                return self._stopped(error)
            finally:
                # The frames that an error went through hold the request, with the whole history, and the error itself:
                # a cycle that would wait for the garbage collector, which counts objects and not bytes.
                before: BaseException | None = error
                while before is not None:
                    before.__traceback__ = None
                    before.__context__, before = None, before.__context__
        return None

    def _stopped(self, error: BaseException) -> StoreError | None:
        match error:
            case asyncio.CancelledError() if self._aborting or self._unstored:
                task = asyncio.current_task()
                assert task is not None
                task.uncancel()
                self.state.status = "interrupted"
                return self.thread.journal.failure
            case StoreError() if self.thread.journal.failure is not None:
                return error
            case StoreError():  # something could not be read; that it failed can be stored
                self._fail(f"the thread cannot be read: {error.message}")
                self.input.clear()
            case ModelError():
                provider = self.thread.services.config_for(self.settings).providers.get(self.settings.model_provider)
                failure = model_failure(error, provider)
                info = error_info(error)
                self.state.fail(TurnError(message=error.message, codex_error_info=info, failure=failure))
            case LimitReached():
                self.state.fail(
                    TurnError(message=str(error), codex_error_info="sessionBudgetExceeded", limit=error.limit)
                )
                if self.thread.state.children:  # who would go on using what there is no more of
                    self.thread.children.interrupt()
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

    async def _join_side_tasks(self) -> None:
        while self._side_tasks:
            await asyncio.wait(self._side_tasks)

    # --- beginning and end ---

    def _begin(self) -> None:
        thread = self.thread
        self.state.begin()
        thread.turn_begun()
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
        if state.status == "interrupted" and not thread.closing and (hooks := thread.hooks) is not None:
            await hooks.interrupted(self)
        if self.input or state.status != "failed":  # it may have failed because the history cannot be read
            await self.input.take(brief=True)
        self.report.usage()
        # After an early end: open items are closed, calls get an output, and the model a note that says why.
        left = self.items.end_open(early=state.status != "completed")
        if thread.history is not None and self.side is None:
            for call_id, kind in self.calls.items():
                left += thread.add_history([aborted_output(kind, call_id)], self.number, thread.origin_of(kind))
            self.calls.clear()
            if state.status == "interrupted" and self.kind == "regular":
                left += thread.add_history([developer_message(ABORTED_NOTE)], self.number)
        thread.journal.write(*left)
        self._resolve_interrupts()
        state.end()
        self._log_end()
        if thread.state.goal is not None:
            thread.goal.account(self.id, self.report.tokens, (state.duration_ms or 0) // 1000)
        thread.hold_queue(state.status == "interrupted")
        thread.end_turn(self, failed=state.status == "failed")
        thread.publish_status()
        if state.error is not None:
            self.report.error(state.error, will_retry=False)
        # A completed turn repeats the last message of the agent: clients make titles and previews of it.
        ended = state.wire()
        if state.status == "completed" and self.items.last_message is not None:
            ended = structs.replace(ended, items=(self.items.last_message,), items_view="summary")
        params = TurnCompletedNotification(thread_id=thread.id, turn=ended)
        saved = thread.save(recency_at=now_ms())
        thread.journal.emit("turn/completed", params, self._record(), saved, *thread.prune_events())
        self._release()
        if self.notified and self.kind == "regular" and state.status == "completed":
            from treadle.agent.thread.thread_hooks import notify_of  # few have one

            notify_of(self, self.notified)
        await thread.journal.flush()

    def _end_unstored(self, failure: StoreError) -> None:
        """The store cannot store the end of the turn: it is published, and later readers find it interrupted."""
        thread, state = self.thread, self.state
        error = TurnError(message=f"the thread cannot be saved: {failure.message}", codex_error_info="other")
        state.fail(error)
        state.end()
        self._log_end()
        thread.end_turn(self, failed=True)
        thread.drop_history()
        self._resolve_interrupts()
        publish = thread.journal.publish_unnumbered
        publish("thread/status/changed", ThreadStatusChangedNotification(thread_id=thread.id, status=thread.status))
        publish("error", self.report.error_params(error, will_retry=False))
        publish("turn/completed", TurnCompletedNotification(thread_id=thread.id, turn=state.wire()))
        self._release()

    def _resolve_interrupts(self) -> None:
        for stopped in self._interrupts:
            self.thread.journal.resolve_in_order(stopped)

    def _release(self) -> None:
        if not self._released:
            self._released = True
            self.thread.release()

    def _log_end(self) -> None:
        state = self.state
        TURN_SECONDS.add((state.duration_ms or 0) / 1000, state.status)
        if logger.isEnabledFor(logging.INFO):
            numbers = {"duration_ms": state.duration_ms, "tokens": self.report.tokens}
            logger.info("turn ended", {"status": state.status, **numbers})

    def _record(self) -> TurnRecord:
        return self.state.record(self.thread.id, self.thread.state.usage)


def developer_message(text: str) -> Raw:
    content = [{"type": "input_text", "text": text}]
    return Raw(msgspec.json.encode({"type": "message", "role": "developer", "content": content}))
