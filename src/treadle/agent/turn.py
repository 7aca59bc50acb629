"""`Turn`: one request and all that follows from it. It owns the task that does the work, the items of the turn and its
end; what the work is comes from outside (`conversation`, `compaction`, `shell_command`).

It is active from the moment it is made until its end begins: steering and interrupting work from the first to the last.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct, structs

from treadle.agent.error_info import error_info
from treadle.agent.ids import new_id, now_ms
from treadle.agent.model_history import aborted_output
from treadle.agent.open_items import OpenItem, search_text
from treadle.agent.thread import Thread
from treadle.agent.user_input import model_items, text_of
from treadle.errors import OVERLOAD_DATA, OVERLOADED, RpcError, TreadleError
from treadle.llm import ModelError, TokenUsage
from treadle.protocol.app.base import encode
from treadle.protocol.app.inputs import UserInput
from treadle.protocol.app.item_notifications import ItemCompletedNotification, ItemStartedNotification
from treadle.protocol.app.items import FunctionCallOutputThreadItem, KnownItem, UserMessageThreadItem
from treadle.protocol.app.notifications import ErrorNotification, WarningNotification
from treadle.protocol.app.thread_notifications import (
    ThreadStatusChangedNotification,
    ThreadTokenUsageUpdatedNotification,
    TurnCompletedNotification,
    TurnStartedNotification,
)
from treadle.protocol.app.turn_errors import TurnError
from treadle.protocol.app.turns import Turn as WireTurn
from treadle.protocol.app.turns import TurnToolOutput
from treadle.store.contract import DropItem, ItemRecord, PruneEvents, StoreError, TurnRecord, Write

if TYPE_CHECKING:
    from treadle.agent.turn_diff import TurnDiff
    from treadle.config import ModelFacts

logger: logging.Logger = logging.getLogger(__name__)

Kind: TypeAlias = Literal["regular", "compact", "shell"]
Status: TypeAlias = Literal["inProgress", "completed", "interrupted", "failed"]
Work: TypeAlias = Callable[["Turn"], Awaitable[None]]

# Events that clients can ask for again; older ones are in the items. Pruned in steps, so that it is rare.
KEPT_EVENTS: Final = 20_000
PRUNE_EVERY: Final = 1_000
MAX_PREVIEW: Final = 2_000
# Messages that may wait for the running response; each may be a mebibyte.
MAX_PENDING: Final = 64

ABORTED_NOTE: Final = (
    "<turn_aborted>\nThe user interrupted the previous turn on purpose. Commands that were running then may have been "
    "ended half way; look at the state of things before you go on.\n</turn_aborted>"
)


class Said(Struct, frozen=True):
    """Input that waits to be handed to the model: what the user said, or what a program has to tell."""

    inputs: tuple[UserInput, ...]
    client_id: str | None = None
    tool_output: TurnToolOutput | None = None

    @property
    def is_empty(self) -> bool:
        return not self.inputs and self.tool_output is None


class Turn:
    def __init__(self, thread: Thread, work: Work, *, kind: Kind = "regular") -> None:
        self.thread = thread
        self.id: str = new_id()
        self.number: int = thread.next_turn()
        self.kind: Kind = kind
        self.output_schema: Any = None
        self.pending: deque[Said] = deque()
        self.calls: dict[str, str] = {}  # call ids without an output yet, with the type of the call
        self.error: TurnError | None = None
        self.status: Status = "inProgress"
        self.begun: bool = False
        self.not_before: float = 0.0  # loop time before which the turn does not end: a quirk of a client
        self.unsaid_usage: TokenUsage | None = None  # of a response whose calls still run
        self.tokens: int = 0
        self.called = False  # whether the model has used a tool
        self.answered = False  # whether the model has said anything
        self._beside: set[asyncio.Task[None]] = set()
        self._diff: TurnDiff | None = None
        self._work = work
        self._open: dict[str, OpenItem] = {}
        self._done: list[KnownItem] = []
        self._task: asyncio.Task[None] | None = None
        self._ending = False
        self._aborting = False
        self._released = False
        self._replies: list[Callable[[], None]] = []
        self._ended = asyncio.Event()
        self._started_ms = 0
        self._began = 0.0  # by the clock that nobody sets
        self._completed_ms: int | None = None
        self._duration_ms: int | None = None

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

    def steer(self, said: Said) -> None:
        """Raises `RpcError` when too much waits to be heard already."""
        if len(self.pending) >= MAX_PENDING:
            raise RpcError(
                OVERLOADED, f"{MAX_PENDING} messages wait for the model already; retry later.", OVERLOAD_DATA
            )
        self.pending.append(said)

    def interrupt(self, reply: Callable[[], None] | None = None) -> None:
        """End it as interrupted; `reply` is called when the work has stopped, before the end is told."""
        if reply is not None:
            self._replies.append(reply)
        if not self._aborting and not self._ending:
            self._aborting = True
            if self._task is not None and self.begun:
                self._task.cancel()

    async def abort(self) -> None:
        self.interrupt()
        await self._ended.wait()

    async def wait(self) -> None:
        """Until its end is kept and told."""
        await self._ended.wait()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Something that happens beside the work, and that the turn waits for."""
        task = self.thread.services.spawn(work, f"beside turn {self.id}")
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    @property
    def diff(self) -> TurnDiff:
        """What patches have changed in this turn."""
        if self._diff is None:
            from treadle.agent.turn_diff import TurnDiff

            self._diff = TurnDiff()
        return self._diff

    # --- items ---

    def start_item(self, item: KnownItem) -> OpenItem:
        now = now_ms()
        item = structs.replace(item, started_at_ms=now)
        opened = self._open[item.id] = OpenItem(self.thread.next_item(), item)
        params = ItemStartedNotification(thread_id=self.thread.id, turn_id=self.id, item=item, started_at_ms=now)
        self.thread.journal.emit("item/started", params, self._item_record(opened.number, item, is_open=True))
        return opened

    def complete_item(self, item: KnownItem, *writes: Write) -> None:
        """An item that was started; `item` is how it ended."""
        opened = self._close_item(item.id)
        started = opened.item.started_at_ms
        now = max(now_ms(), started or 0)  # the clock may have been set back meanwhile
        item = structs.replace(item, started_at_ms=started, completed_at_ms=now)
        self._complete(opened.number, item, now, writes)

    def show_item(self, item: KnownItem, *writes: Write) -> None:
        """An item that is over as soon as it begins."""
        now = now_ms()
        item = structs.replace(item, started_at_ms=now)
        params = ItemStartedNotification(thread_id=self.thread.id, turn_id=self.id, item=item, started_at_ms=now)
        self.thread.journal.emit("item/started", params)
        self._complete(self.thread.next_item(), structs.replace(item, completed_at_ms=now), now, writes)

    def _complete(self, number: int, item: KnownItem, now: int, writes: Iterable[Write]) -> None:
        params = ItemCompletedNotification(thread_id=self.thread.id, turn_id=self.id, item=item, completed_at_ms=now)
        self._done.append(item)
        self.thread.journal.emit("item/completed", params, self._item_record(number, item, is_open=False), *writes)

    def drop_item(self, item_id: str) -> None:
        """The model began it and will never end it."""
        if item_id in self._open:
            self.thread.journal.write(DropItem(self.thread.id, self._close_item(item_id).number))

    def _close_item(self, item_id: str) -> OpenItem:
        opened = self._open.pop(item_id)
        opened.close()
        return opened

    def open_item(self, item_id: str) -> OpenItem | None:
        return self._open.get(item_id)

    def open_items(self) -> list[KnownItem]:
        """What is under way, as far as it has come."""
        return [opened.so_far() for opened in self._open.values()]

    def _item_record(self, number: int, item: KnownItem, *, is_open: bool) -> ItemRecord:
        return ItemRecord(
            thread_id=self.thread.id,
            number=number,
            turn=self.number,
            id=item.id,
            type=item.type,
            data=encode(item),
            text=None if is_open else search_text(item),
            open=is_open,
            started_at_ms=item.started_at_ms,
            completed_at_ms=item.completed_at_ms,
        )

    def update_item(self, number: int, item: KnownItem) -> None:
        """How an item that was left running has ended, for whoever reads the thread later; nobody is told."""
        self.thread.journal.write(self._item_record(number, item, is_open=False))

    # --- telling ---

    def warn(self, message: str) -> None:
        self.thread.journal.emit("warning", WarningNotification(message=message, thread_id=self.thread.id))

    def tell_error(self, error: TurnError, *, will_retry: bool) -> None:
        params = ErrorNotification(thread_id=self.thread.id, turn_id=self.id, error=error, will_retry=will_retry)
        self.thread.journal.emit("error", params)

    def tell_usage(self) -> None:
        """Count a response that is over with its calls, once."""
        usage, self.unsaid_usage = self.unsaid_usage, None
        if usage is None:
            return
        thread = self.thread
        self.tokens += usage.total_tokens
        price = facts_of(thread).price
        cost = None if price is None else price.cost(usage)
        thread.state = structs.replace(thread.state, usage=thread.state.usage.add(usage, self.id, cost))
        thread.journal.emit("thread/tokenUsage/updated", usage_notification(thread, self.id), thread.save())

    def tell_context_size(self, tokens: int) -> None:
        """After a compaction: nothing was used for it, but the context has another size, which is estimated."""
        thread = self.thread
        usage = thread.state.usage.resized(tokens, self.id)
        thread.state = structs.replace(thread.state, usage=usage)
        thread.journal.emit("thread/tokenUsage/updated", usage_notification(thread, self.id), thread.save())

    async def take_said(self) -> None:
        """Hand what the user said to the model, and show it."""
        thread = self.thread
        await thread.load_history()
        while self.pending:
            said = self.pending[0]  # until it was read: an interrupt meanwhile must not lose it
            if said.tool_output is not None:
                self._take_tool_output(said.tool_output)
                self.pending.popleft()
                continue
            items = await model_items(said.inputs, thread.settings.cwd)
            self.pending.popleft()
            writes = thread.remember(items, self.number)
            if not thread.record.listed:
                preview = thread.record.preview or text_of(said.inputs)[:MAX_PREVIEW]
                writes.append(thread.save(preview=preview, listed=True))
            item = UserMessageThreadItem(id=new_id(), content=said.inputs, client_id=said.client_id)
            self.show_item(item, *writes)

    def _take_tool_output(self, told: TurnToolOutput) -> None:
        item = FunctionCallOutputThreadItem(
            id=f"fco_{new_id()}", name=told.name, output=told.output, namespace=told.namespace
        )
        output = {"type": "function_call_output", "name": told.name, "output": told.output}
        if told.namespace is not None:
            output["namespace"] = told.namespace
        self.show_item(item, *self.thread.remember([output], self.number))

    def close_ears(self) -> bool:
        """Whether something was said meanwhile; if not, nothing can be said any more."""
        if self.pending:
            return True
        self._ending = True
        return False

    async def settle(self) -> None:
        """Wait until the turn may end; it can still be steered and interrupted meanwhile."""
        delay = self.not_before - asyncio.get_running_loop().time()
        if delay > 0:
            await asyncio.sleep(delay)
        await self._wait_beside()

    # --- the task ---

    async def _run(self) -> None:
        try:
            await self._do_work()
        finally:
            self._ended.set()
        if self.thread.state.goal is not None:
            from treadle.agent.starting import after_turn

            after_turn(self)

    async def _do_work(self) -> None:
        failure = await self._try_work()
        self._ending = True
        for beside in self._beside:
            beside.cancel()
        await self._wait_beside()
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
            self.status = "interrupted" if self._aborting else "completed"
        except BaseException as error:
            try:
                return self._stopped(error)
            finally:
                _let_go(error)
        return None

    def _stopped(self, error: BaseException) -> StoreError | None:
        match error:
            case asyncio.CancelledError() if self._aborting:
                task = asyncio.current_task()
                assert task is not None
                task.uncancel()
                self.status = "interrupted"
            case StoreError() if self.thread.journal.failure is not None:
                return error
            case StoreError():  # something could not be read; that it failed can be kept
                self._fail(TurnError(message=f"the thread cannot be read: {error.message}", codex_error_info="other"))
                self.pending.clear()
            case ModelError():
                self._fail(TurnError(message=error.message, codex_error_info=error_info(error)))
            case TreadleError():
                self._fail(TurnError(message=str(error), codex_error_info="other"))
            case Exception():
                logger.exception("turn %s failed", self.id)
                message = f"internal error: {type(error).__name__}: {error}"
                self._fail(TurnError(message=message, codex_error_info="other"))
            case _:
                raise error
        return None

    async def _work_through(self) -> None:
        """A command of the user goes on when the model fails, and belongs to the turn as long as it does."""
        try:
            await self._work(self)
        except ModelError:
            await self._wait_beside()
            raise

    async def _wait_beside(self) -> None:
        while self._beside:
            await asyncio.wait(self._beside)

    def _fail(self, error: TurnError) -> None:
        self.status = "failed"
        self.error = error

    def _begin(self) -> None:
        thread = self.thread
        self._started_ms = now_ms()
        self._began = time.monotonic()
        self.begun = True
        thread.set_failed(False)
        thread.tell_status()
        params = TurnStartedNotification(thread_id=thread.id, turn=self.wire())
        thread.journal.emit("turn/started", params, self._record())

    async def _end(self) -> None:
        thread = self.thread
        if self.pending or self.status != "failed":  # it may have failed because the history cannot be read
            await self.take_said()  # what was said too late for the model is not lost
        self.tell_usage()
        if self.status == "completed":
            for opened in tuple(self._open.values()):  # commands that go on in the background
                self.complete_item(opened.so_far())
        thread.journal.write(*self._leftovers())
        for item_id in tuple(self._open):  # a command that goes on is nobody's news any more
            self._close_item(item_id)
        for reply in self._replies:
            thread.journal.after(reply)
        self._stop_clock()
        self._account_goal()
        thread.set_failed(self.status == "failed")
        thread.turn = None
        thread.tell_status()
        if self.error is not None:
            self.tell_error(self.error, will_retry=False)
        params = TurnCompletedNotification(thread_id=thread.id, turn=self.wire())
        saved = thread.save(recency_at=now_ms())
        thread.journal.emit("turn/completed", params, self._record(), saved, *self._prune())
        self._release()
        await thread.journal.flush()

    def _release(self) -> None:
        if not self._released:
            self._released = True
            self.thread.release()

    def _end_unkept(self, failure: StoreError) -> None:
        """The store cannot keep the end of the turn: clients hear of it, and later readers find it interrupted."""
        thread = self.thread
        self._fail(TurnError(message=f"the thread cannot be saved: {failure.message}", codex_error_info="other"))
        self._stop_clock()
        thread.set_failed(True)
        if thread.turn is self:
            thread.turn = None
        thread.history = None
        for reply in self._replies:
            reply()
        thread.journal.announce(
            "thread/status/changed", ThreadStatusChangedNotification(thread_id=thread.id, status=thread.status)
        )
        assert self.error is not None
        thread.journal.announce(
            "error", ErrorNotification(thread_id=thread.id, turn_id=self.id, error=self.error, will_retry=False)
        )
        thread.journal.announce("turn/completed", TurnCompletedNotification(thread_id=thread.id, turn=self.wire()))
        self._release()

    def _stop_clock(self) -> None:
        self._completed_ms = max(now_ms(), self._started_ms)  # the clock may have been set back meanwhile
        self._duration_ms = int((time.monotonic() - self._began) * 1000) if self.begun else 0

    def _account_goal(self) -> None:
        if self.thread.state.goal is not None:
            from treadle.agent.thread_goal import account

            account(self.thread, self.id, self.tokens, (self._duration_ms or 0) // 1000)

    def _leftovers(self) -> list[Write]:
        """What an early end leaves open: items keep what they have, calls get an output, the model is told why."""
        writes: list[Write] = [
            self._item_record(opened.number, opened.so_far(), is_open=True) for opened in self._open.values()
        ]
        if self.thread.history is None:
            return writes
        outputs = [aborted_output(kind, call_id) for call_id, kind in self.calls.items()]
        self.calls.clear()
        writes += self.thread.remember(outputs, self.number)
        if self.status == "interrupted" and self.kind == "regular":
            writes += self.thread.remember([developer_message(ABORTED_NOTE)], self.number)
        return writes

    def _prune(self) -> list[Write]:
        oldest = self.thread.journal.seq - KEPT_EVENTS
        if oldest < self.thread.pruned + PRUNE_EVERY:
            return []
        self.thread.pruned = oldest
        return [PruneEvents(self.thread.id, oldest)]

    # --- as a record and on the wire ---

    def _record(self) -> TurnRecord:
        wire = self.wire()
        return TurnRecord(
            thread_id=self.thread.id,
            number=self.number,
            id=self.id,
            status=self.status,
            started_at=wire.started_at,
            completed_at=wire.completed_at,
            duration_ms=wire.duration_ms,
            error=None if self.error is None else encode(self.error),
            usage=None if self.status == "inProgress" else encode(self.thread.state.usage),
        )

    def wire(self) -> WireTurn:
        return WireTurn(
            id=self.id,
            items=(),
            status=self.status,
            completed_at=None if self._completed_ms is None else self._completed_ms // 1000,
            duration_ms=self._duration_ms,
            error=self.error,
            items_view="notLoaded",
            root_turn_id=self.id,
            started_at=self._started_ms // 1000 if self._started_ms else None,
        )

    def fresh(self) -> WireTurn:
        """As it is announced to whoever asked for it."""
        return structs.replace(self.wire(), started_at=None)

    def snapshot(self) -> WireTurn:
        """With everything that has happened in it so far."""
        return structs.replace(self.wire(), items=(*self._done, *self.open_items()), items_view="full")


def _let_go(error: BaseException) -> None:
    """Of the frames that it went through. They hold the request, with the whole history, and the error itself: a circle
    that would wait for the garbage collector, which counts objects and not bytes."""
    before: BaseException | None = error
    while before is not None:
        before.__traceback__ = None
        before.__context__, before = None, before.__context__


def facts_of(thread: Thread) -> ModelFacts:
    """What is known of the model that a thread asks."""
    from treadle.config import model_facts

    return model_facts(thread.settings.model, thread.services.config_for(thread.settings))


def usage_notification(thread: Thread, turn_id: str) -> ThreadTokenUsageUpdatedNotification:
    usage = thread.state.usage.on_wire(facts_of(thread).usable_window)
    return ThreadTokenUsageUpdatedNotification(thread_id=thread.id, turn_id=turn_id, token_usage=usage)


def developer_message(text: str) -> Raw:
    content = [{"type": "input_text", "text": text}]
    return Raw(msgspec.json.encode({"type": "message", "role": "developer", "content": content}))
