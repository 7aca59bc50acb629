"""`ThreadHandle`: all that can be done to a thread that is in memory, as commands with typed params and results.

Servers know this and nothing of a thread's insides. What it takes and gives are structs of the protocol, so a thread
could as well be in another process. Commands are carried out one after the other; a result is returned at its place
among the thread's events (see `Journal.place`): whoever passes it on without waiting again keeps that order.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from treadle.agent import starting, thread_goal, thread_refusals
from treadle.agent.client_requests import Answer
from treadle.agent.event import Event
from treadle.agent.pending_input import Input, check_input
from treadle.agent.state import Settings
from treadle.agent.stored_thread import with_git_info
from treadle.agent.thread import Thread
from treadle.agent.thread_editing import check_injected, cut_turns, inject, publish_reverted
from treadle.agent.thread_pages import turns_with_items
from treadle.agent.thread_settings import setting_changes
from treadle.agent.thread_view import ThreadView, cursors_of, recent_turns, usage_news, view_of, warning_news
from treadle.agent.turn import Turn, developer_message
from treadle.agent.turn_items import OpenItems
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.background_terminals import (
    ThreadBackgroundTerminalsListParams,
    ThreadBackgroundTerminalsListResponse,
    ThreadBackgroundTerminalsTerminateParams,
    ThreadBackgroundTerminalsTerminateResponse,
)
from treadle.protocol.app.goals import ThreadGoalClearResponse, ThreadGoalSetParams, ThreadGoalSetResponse
from treadle.protocol.app.items import KnownItem
from treadle.protocol.app.settings import ThreadSettingsUpdateParams
from treadle.protocol.app.thread_history import (
    ThreadInjectItemsParams,
    ThreadRevertParams,
    ThreadRevertResponse,
    ThreadRollbackParams,
    ThreadRollbackResponse,
)
from treadle.protocol.app.thread_methods import ThreadMetadataGitInfoUpdateParams, ThreadShellCommandParams
from treadle.protocol.app.thread_notifications import (
    ThreadClosedNotification,
    ThreadNameUpdatedNotification,
    ThreadStartedNotification,
    ThreadStatusChangedNotification,
)
from treadle.protocol.app.threads import NotLoadedThreadStatus, ThreadGoal, ThreadStatus
from treadle.protocol.app.threads import Thread as WireThread
from treadle.protocol.app.turns import (
    ReviewStartParams,
    ReviewStartResponse,
    TurnInterruptParams,
    TurnStartParams,
    TurnStartResponse,
    TurnSteerParams,
    TurnSteerResponse,
)
from treadle.protocol.app.turns import Turn as WireTurn
from treadle.store.contract import DeleteThread, QueuedRecord, Store, ThreadRecord

if TYPE_CHECKING:
    from treadle.agent.terminals import Terminal
    from treadle.agent.thread_queue import QueueChange

T = TypeVar("T")

OVERRULED: Final = (
    "The user has allowed the action of the call `{item_id}`, which the automatic reviewer had denied. You may make "
    "exactly that call once more, and nothing else that was denied."
)


class ThreadHandle:
    __slots__ = ("_thread", "ephemeral", "id")  # there may be thousands of them

    def __init__(self, thread: Thread) -> None:
        self._thread = thread
        self.id: str = thread.id
        self.ephemeral: bool = thread.ephemeral

    @asynccontextmanager
    async def _exclusively(self) -> AsyncIterator[Thread]:
        """One command at a time; the thread may have been unloaded while this one waited."""
        async with self._thread.lock:
            if self._thread.closing:
                raise thread_refusals.thread_not_found(self.id)
            yield self._thread

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[Thread]:
        """The same, with the right to write."""
        async with self._exclusively() as thread:
            await thread.acquire()
            try:
                yield thread
            finally:
                thread.release()

    async def _answer_first(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        """Carry `work` out after this command was answered, and before the next."""
        lock = self._thread.lock
        await lock.acquire()
        if self._thread.closing:
            lock.release()
            raise thread_refusals.thread_not_found(self.id)

        async def carry_out() -> None:
            try:
                await work()
            finally:
                lock.release()

        self._thread.services.spawn(carry_out(), name)

    # --- turns ---

    async def start_turn(self, params: TurnStartParams, *, least_s: float = 0.0) -> TurnStartResponse:
        """`least_s` is the least time that the turn takes: a workaround for a client."""
        check_input(params.input)
        if params.tool_output is not None and params.input:
            raise RpcError(INVALID_REQUEST, "`toolOutput` cannot be combined with nonempty `input`")
        not_before = asyncio.get_running_loop().time() + least_s if least_s else 0.0
        async with self._exclusively() as thread:
            turn = await starting.start_turn(
                thread,
                Input(params.input, params.client_user_message_id, params.tool_output),
                setting_changes(params, thread.settings, thread.config),
                output_schema=params.output_schema,
                not_before=not_before,
            )
            result = TurnStartResponse(turn=turn.state.fresh())
            place = thread.journal.place()
        await thread.journal.reach(place)
        return result

    async def steer(self, params: TurnSteerParams) -> TurnSteerResponse:
        async with self._exclusively():
            if not params.input:
                raise RpcError(INVALID_REQUEST, "input must not be empty")
            check_input(params.input)
            turn = self._active_turn("steer")
            if turn.id != params.expected_turn_id:
                text = f"expected active turn id `{params.expected_turn_id}` but found `{turn.id}`"
                raise RpcError(INVALID_REQUEST, text)
            if turn.kind != "regular":
                raise thread_refusals.not_steerable(turn.kind, f"steer a {turn.kind} turn")
            turn.steer(Input(params.input, params.client_user_message_id))
            return TurnSteerResponse(turn_id=turn.id)

    async def interrupt(self, params: TurnInterruptParams) -> None:
        """Not one after the other: what is under way may be waiting for the very turn that is to end.

        Without an id it is about whatever turn there is, and there may be none.
        """
        if not params.turn_id and (self._thread.turn is None or not self._thread.turn.active):
            return
        turn = self._active_turn("interrupt")
        if params.turn_id and turn.id != params.turn_id:
            raise RpcError(INVALID_REQUEST, f"expected active turn id {params.turn_id} but found {turn.id}")
        await turn.interrupt()

    async def compact(self) -> None:
        await self._answer_first(partial(starting.start_compaction, self._thread), f"compaction of {self.id}")

    async def start_review(self, params: ReviewStartParams) -> ReviewStartResponse:
        from treadle.agent.review import review_of, shown_turn  # loaded with the first of them

        review = review_of(params.target)
        async with self._exclusively() as thread:
            turn = await starting.start_review(thread, review)
            result = ReviewStartResponse(review_thread_id=self.id, turn=shown_turn(turn, review))
            place = thread.journal.place()
        await thread.journal.reach(place)
        return result

    async def run_shell_command(self, params: ThreadShellCommandParams) -> None:
        if not params.command.strip():
            raise RpcError(INVALID_REQUEST, "command must not be empty")
        if not self._thread.settings.has_environment:
            raise thread_refusals.no_environment(self.id)
        work = partial(starting.start_shell_command, self._thread, params.command, params.timeout_ms)
        await self._answer_first(work, f"shell command of {self.id}")

    async def approve_denied_action(self, event: Any) -> None:
        """The user allows what the automatic reviewer denied, once; the model is told so. `event` names the review."""
        review_id = event.get("id") if isinstance(event, dict) else None
        if not isinstance(review_id, str):
            raise RpcError(INVALID_REQUEST, "event must be an object with the `id` of a review")
        async with self._writing() as thread:
            item_id = thread.authority.overrule(review_id)
            if item_id is None:
                raise thread_refusals.not_denied(review_id)
            await inject(thread, [developer_message(OVERRULED.format(item_id=item_id))])

    # --- commands that run: not one after the other, as `interrupt` ---

    def list_terminals(self, params: ThreadBackgroundTerminalsListParams) -> ThreadBackgroundTerminalsListResponse:
        return self._thread.terminals.page(params)

    def clean_terminals(self) -> None:
        """End all of them, which is told after the answer, as below."""
        for terminal in self._thread.terminals.take_all():
            self._end_terminal(terminal)

    def terminate_terminal(
        self, params: ThreadBackgroundTerminalsTerminateParams
    ) -> ThreadBackgroundTerminalsTerminateResponse:
        """Its end is told after the answer: clients take one that comes first for an end of its own."""
        taken = self._thread.terminals.take(params.process_id)
        if taken is not None:
            self._end_terminal(taken)
        return ThreadBackgroundTerminalsTerminateResponse(terminated=taken is not None)

    def _end_terminal(self, terminal: Terminal) -> None:
        session = terminal.session
        self._thread.services.spawn(session.terminate(), f"end of terminal {session.process_id} of {self.id}")

    def _active_turn(self, what: str) -> Turn:
        turn = self._thread.turn
        if turn is None or not turn.active:
            raise RpcError(INVALID_REQUEST, f"no active turn to {what}")
        return turn

    # --- goal ---

    @property
    def goal(self) -> ThreadGoal | None:
        return self._thread.state.goal

    async def set_goal(self, params: ThreadGoalSetParams, *, may_start: bool) -> ThreadGoalSetResponse:
        """An active goal on an idle thread begins a turn by itself, if it may."""
        async with self._writing() as thread:
            goal = thread_goal.set_goal(
                thread, objective=params.objective, status=params.status, token_budget=params.token_budget
            )
            thread.journal.write(thread.save())
            place = thread.journal.place()
            thread_goal.publish_goal(thread)
        await thread.journal.reach(place)
        if thread_goal.wants_turn(thread) and may_start:
            thread.services.spawn(self._start_goal(), f"goal of {self.id}")
        return ThreadGoalSetResponse(goal=goal)

    async def _start_goal(self) -> None:
        async with self._thread.lock:
            if thread_goal.wants_turn(self._thread) and not self._thread.closing:
                self._thread.idle_goal_turns = 0
                await starting.start_goal_turn(self._thread)

    async def clear_goal(self) -> ThreadGoalClearResponse:
        async with self._writing() as thread:
            cleared = thread_goal.clear_goal(thread)
            thread.journal.write(thread.save())
            place = thread.journal.place()
            if cleared:
                thread_goal.publish_cleared(thread)
        await thread.journal.reach(place)
        return ThreadGoalClearResponse(cleared=cleared)

    # --- queue ---

    async def queued(self) -> list[QueuedRecord]:
        """The messages that wait, the next one first."""
        from treadle.agent.thread_queue import refuse_ephemeral, waiting_in  # loaded with the first queue

        if self.ephemeral:
            raise refuse_ephemeral(self.id)
        async with self._exclusively() as thread:
            return await waiting_in(thread)

    async def change_queue(self, change: QueueChange[T]) -> T:
        """What `change` makes of the messages that wait is kept; the next of them is sent if nothing runs."""
        from treadle.agent.thread_queue import publish_changed, refuse_ephemeral, waiting_in

        if self.ephemeral:
            raise refuse_ephemeral(self.id)
        async with self._writing() as thread:
            result, writes = change(await waiting_in(thread))
            thread.journal.write(*writes)
            place = thread.journal.place()
            if writes:
                thread.queued = True
                publish_changed(thread)
        await thread.journal.reach(place)
        self.send_queued()
        return result

    def send_queued(self) -> None:
        """Soon: the next message that waits, if nothing runs and nobody has made the queue wait."""
        starting.send_queued_soon(self._thread)

    async def start_queued(self, queued_id: str | None) -> WireTurn:
        """One message, or the next, also when the queue was made to wait."""
        from treadle.agent.thread_queue import find, publish_changed, refuse_ephemeral, waiting_in

        if self.ephemeral:
            raise refuse_ephemeral(self.id)
        async with self._writing() as thread:
            record = find(await waiting_in(thread), queued_id)
            if thread.turn is not None:
                raise RpcError(INVALID_REQUEST, "thread already has an active or pending turn")
            turn = await starting.start_queued(thread, record)
            result = turn.state.fresh()
            place = thread.journal.place()
            publish_changed(thread)
        await thread.journal.reach(place)
        return result

    # --- settings and metadata ---

    async def change_settings(self, params: ThreadSettingsUpdateParams) -> None:
        async with self._writing() as thread:
            changes = setting_changes(params, thread.settings, thread.config)
            pins = await thread.look_at_roots(changes)
            thread.journal.write(thread.save())
            place = thread.journal.place()
            thread.change_settings(changes, pins)
        await thread.journal.reach(place)

    async def set_name(self, name: str) -> None:
        self._check_metadata()
        async with self._writing() as thread:
            thread.journal.write(thread.save(name=name, listed=True))
            place = thread.journal.place()
            params = ThreadNameUpdatedNotification(thread_id=self.id, thread_name=name)
            thread.journal.emit("thread/name/updated", params)
        await thread.journal.reach(place)

    async def update_metadata(self, git_info: ThreadMetadataGitInfoUpdateParams | None) -> WireThread:
        self._check_metadata()
        async with self._writing() as thread:
            thread.state = with_git_info(thread.state, git_info)
            thread.journal.write(thread.save())
            await thread.journal.flush()
        return thread.wire()

    def _check_metadata(self) -> None:
        if self.ephemeral:
            raise thread_refusals.no_metadata(self.id)

    # --- contents ---

    async def revert(self, params: ThreadRevertParams) -> ThreadRevertResponse:
        """The thread is again as it was before a turn."""
        async with self._exclusively() as thread:
            turn = await thread.store.turn(self.id, params.before_turn_id)
            if turn is None:
                raise thread_refusals.turn_not_found(params.before_turn_id)
            await cut_turns(thread, turn.number, "Cannot revert while a turn is in progress.")
            turns_cursor, items_cursor = cursors_of(thread)
            result = ThreadRevertResponse(
                thread=thread.wire(), turns_backwards_cursor=turns_cursor, items_backwards_cursor=items_cursor
            )
            place = await publish_reverted(thread)
        await thread.journal.reach(place)
        return result

    async def rollback(self, params: ThreadRollbackParams) -> ThreadRollbackResponse:
        """The last turns are dropped."""
        if params.num_turns < 1:
            raise RpcError(INVALID_REQUEST, "numTurns must be >= 1")
        async with self._exclusively() as thread:
            first = max(1, thread.counters.turn - params.num_turns + 1)
            await cut_turns(thread, first, "Cannot rollback while a turn is in progress.")
            records = await thread.store.turns(self.id)
            turns = await turns_with_items(thread.store, self.id, records, running=thread.running_items)
            result = ThreadRollbackResponse(thread=thread.wire(turns))
            place = await publish_reverted(thread)
        await thread.journal.reach(place)
        return result

    async def inject_items(self, params: ThreadInjectItemsParams) -> None:
        check_injected(params.items)
        async with self._writing() as thread:
            await inject(thread, params.items)

    # --- reading ---

    @property
    def status(self) -> ThreadStatus:
        return self._thread.status

    @property
    def settings(self) -> Settings:
        return self._thread.settings

    @property
    def last_seq(self) -> int:
        """The number of the last event, which may still be on its way into the store."""
        return self._thread.journal.seq

    @property
    def is_broken(self) -> bool:
        """Whether its events cannot be kept at present, so that nothing more is published."""
        return self._thread.journal.failure is not None

    def wire(self, turns: tuple[WireTurn, ...] = ()) -> WireThread:
        return self._thread.wire(turns)

    def running_turn(self) -> WireTurn | None:
        """With everything that has happened in it so far."""
        return None if self._thread.turn is None else self._thread.turn.snapshot()

    @property
    def running_items(self) -> OpenItems:
        """Those of commands that run now, also of turns that are over."""
        return self._thread.running_items

    def open_items(self) -> tuple[KnownItem, ...]:
        return self._thread.open_items()

    async def published(self) -> None:
        """Until everything so far is kept and published. Raises `StoreError`."""
        await self._thread.journal.flush()

    async def reading_store(self) -> Store:
        """Where the thread is kept. What was announced of it is there."""
        if self._thread.journal.busy:
            await self._thread.journal.flush()
        return self._thread.store

    async def source_of_fork(self) -> tuple[ThreadRecord, Store]:
        """Its record and its store, with what it has announced."""
        thread = self._thread
        if thread.journal.is_stale:
            async with thread.lock:
                await thread.catch_up()
        await thread.journal.flush()
        return thread.save(), thread.store

    async def view(self, *, with_turns: bool, is_fresh: bool = False) -> ThreadView:
        """For a client that joins; one that is `is_fresh` in memory is announced to the others.

        Nothing is awaited between what it shows and its place, so a client that follows the thread from there on
        misses no event and is told none twice.
        """
        return await view_of(self._thread, with_turns=with_turns, is_fresh=is_fresh)

    async def recent_turns(self) -> tuple[WireTurn, ...]:
        """The newest turns, oldest first, without the running one."""
        return await recent_turns(self._thread)

    def news(self) -> tuple[Event, ...]:
        """What a client that joins should know. For it alone, so these events have no number of their own."""
        return (*usage_news(self._thread), *warning_news(self._thread))

    # --- requests to clients ---

    @property
    def waits_for_answer(self) -> bool:
        return len(self._thread.requests) > 0

    def has_asked(self, request_id: int) -> bool:
        return request_id in self._thread.requests

    def answer(self, request_id: int, answer: Answer) -> None:
        """A client has answered."""
        self._thread.requests.answer(request_id, answer)

    # --- coming and going ---

    async def announce(self) -> None:
        """A new thread becomes known to clients, once its record is kept. Raises `StoreError`: then it is none.

        Nobody else knows the thread yet, so it need not be claimed.
        """
        journal = self._thread.journal
        place = journal.place()
        journal.emit("thread/started", ThreadStartedNotification(thread=self._thread.wire()))
        try:
            await journal.reach(place)
        except BaseException:
            self._thread.closing = True
            raise

    @property
    def turn_id(self) -> str | None:
        """That of the turn that runs now."""
        return None if self._thread.turn is None else self._thread.turn.id

    @property
    def is_closed(self) -> bool:
        """Whether it has left memory, or is about to."""
        return self._thread.closing

    async def wait_turn(self) -> None:
        """Until the turn that runs now, if any, has ended."""
        if self._thread.turn is not None:
            await self._thread.turn.wait()

    @property
    def used_at(self) -> float:
        return self._thread.used_at

    def touch(self) -> None:
        """It was used just now."""
        self._thread.used_at = time.monotonic()

    async def close(self) -> None:
        """End what runs in it; what was announced is kept."""
        await self._thread.close()

    @asynccontextmanager
    async def idle_since(self, before: float) -> AsyncIterator[bool]:
        """Whether it has been idle since `before`; meanwhile nothing is done to it."""
        async with self._thread.lock:
            yield self.turn_id is None and self.used_at <= before

    async def close_idle(self, *, for_good: bool = True) -> None:
        """Under `idle_since`: leave memory, and tell who listens to all threads. Not `for_good` when it is loaded again
        at once."""
        thread = self._thread
        await thread.close()
        if self.ephemeral:  # it is not found again, so nobody would ever remove it
            await thread.store.commit(self.id, thread.journal.fence, [DeleteThread(self.id)])
        if for_good:
            thread.journal.announce("thread/closed", ThreadClosedNotification(thread_id=self.id))
        status = ThreadStatusChangedNotification(thread_id=self.id, status=NotLoadedThreadStatus())
        thread.journal.announce("thread/status/changed", status)

    async def put_away(self) -> Store:
        """Leave memory for good, to be archived or deleted; where it is kept. Raises `StoreError` and stays as it is
        when another server works on it."""
        thread = self._thread
        async with thread.lock:
            if thread.turn is None:
                await thread.acquire()
                thread.release()
            await thread.close()
            if thread.journal.busy:
                await thread.journal.flush()
            return thread.store

    # --- memory ---

    def on_rest(self, action: Callable[[ThreadHandle], None]) -> None:
        """`action` is called whenever nothing writes the thread any more."""
        self._thread.on_rest = lambda: action(self)

    @property
    def history_weight(self) -> int | None:
        """Bytes that the model's history takes in memory; None when it is not there."""
        return None if self._thread.history is None else self._thread.history.weight

    def drop_history(self) -> None:
        """It is read again when it is wanted. Kept while something writes the thread."""
        if self._thread.at_rest:
            self._thread.history = None
