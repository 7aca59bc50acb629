"""`ThreadHandle`: all that can be done to a thread that is in memory, as commands with typed params and results.

Servers know this and nothing of a thread's insides. What it takes and gives are structs of the protocol, so a thread
could as well be in another process. Commands are carried out one after the other; a result is returned at its place
among the thread's events (see `Journal.barrier`): whoever passes it on without waiting again keeps that order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import UNSET, UnsetType, structs

from treadle.agent.event import Event
from treadle.agent.thread import thread_refusals
from treadle.agent.thread.authority import limits_of_parent
from treadle.agent.thread.client_requests import Answer, ClientRequest
from treadle.agent.thread.stored_thread import changed_git_info
from treadle.agent.thread.thread import Thread, with_directories
from treadle.agent.thread.thread_reading import (
    ThreadView,
    cursors_of,
    recent_turns,
    turns_with_items,
    usage_news,
    view_of,
    warning_news,
)
from treadle.agent.thread.thread_state import FIXED_IN_TURN, Settings, override_changes, setting_changes
from treadle.agent.turn import turn_start
from treadle.agent.turn.pending_input import Input, check_input
from treadle.agent.turn.turn import Turn, developer_message
from treadle.agent.turn.turn_items import OpenItems
from treadle.config.file_settings import Budget
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.items import KnownItem
from treadle.protocol.app.notifications import (
    EnvironmentConnectionNotification,
    ThreadClosedNotification,
    ThreadNameUpdatedNotification,
    ThreadRevertedNotification,
    ThreadStatusChangedNotification,
)
from treadle.protocol.app.settings import ThreadSettingsUpdateParams
from treadle.protocol.app.thread_history import (
    RevertedFiles,
    ThreadInjectItemsParams,
    ThreadRevertParams,
    ThreadRevertResponse,
    ThreadRollbackParams,
    ThreadRollbackResponse,
)
from treadle.protocol.app.thread_methods import (
    ThreadBackgroundTerminalsListParams,
    ThreadBackgroundTerminalsListResponse,
    ThreadBackgroundTerminalsTerminateParams,
    ThreadBackgroundTerminalsTerminateResponse,
    ThreadGoalClearResponse,
    ThreadGoalSetParams,
    ThreadGoalSetResponse,
    ThreadMetadataGitInfoUpdateParams,
    ThreadResumeParams,
    ThreadShellCommandParams,
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
from treadle.store.contract import DeleteThread, QueuedRecord, Store, StoreError, ThreadRecord

if TYPE_CHECKING:
    from treadle.agent.thread.terminals import Terminal
    from treadle.agent.thread.thread_queue import QueueChange
    from treadle.agent.turn.turn_budget import Spent
    from treadle.config.mcp_settings import McpServerConfig
    from treadle.protocol.app.extensions import (
        ListMcpServerStatusParams,
        McpResourceReadParams,
        McpResourceReadResponse,
        McpServerStatus,
        McpServerToolCallParams,
        McpServerToolCallResponse,
    )
    from treadle.protocol.app.ours import McpPrompt, McpServerPromptGetParams, McpServerPromptGetResponse
    from treadle.skills.skill_files import SkillSet

T = TypeVar("T")

BUSY: Final = "Cannot revert while a turn is in progress."
OVERRULED: Final = (
    "The user has allowed the action of the call `{item_id}`, which the automatic reviewer had denied. You may make "
    "exactly that call once more, and nothing else that was denied."
)


class _Command:
    """A command under way. `barrier` is the place of its answer among the events of the thread."""

    __slots__ = ("barrier", "thread")

    def __init__(self, thread: Thread) -> None:
        self.thread = thread
        self.barrier: asyncio.Future[None] | None = None

    def answer_here(self) -> None:
        """What was emitted so far is published before the answer, what is emitted from here on after it."""
        self.barrier = self.thread.journal.barrier()


class ThreadHandle:
    __slots__ = ("_thread", "ephemeral", "id")  # there may be thousands of them

    def __init__(self, thread: Thread) -> None:
        self._thread = thread
        self.id: str = thread.id
        self.ephemeral: bool = thread.ephemeral

    @asynccontextmanager
    async def _command(self, *, writes: bool = False) -> AsyncIterator[_Command]:
        """One command at a time, with the right to write if it `writes`; its result waits for the command's barrier.

        The thread may have been unloaded while the command waited for those before it.
        """
        thread = self._thread
        command = _Command(thread)
        async with thread.lock:
            if thread.closing:
                raise thread_refusals.thread_not_found(self.id)
            if writes:
                async with thread.writing():
                    yield command
            else:
                yield command
        if command.barrier is not None:
            try:
                await thread.journal.wait_for(command.barrier)
            except StoreError:
                if thread.turn is not None:  # stopped by the same failure: nobody shall see it run after the refusal
                    await thread.turn.wait()
                raise

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

    async def start_turn(
        self, params: TurnStartParams, *, least_s: float = 0.0, root_turn_id: str | None = None
    ) -> TurnStartResponse:
        """`least_s` is the least time that the turn takes: a workaround for a client. `root_turn_id` is the turn of
        another thread that the turn works for."""
        check_input(params.input)
        if params.tool_output is not None and params.input:
            raise RpcError(INVALID_REQUEST, "`toolOutput` cannot be combined with nonempty `input`")
        not_before = asyncio.get_running_loop().time() + least_s if least_s else 0.0
        async with self._command() as command:
            thread = command.thread
            environments = await with_directories(thread.services, params.environments)
            params = structs.replace(params, environments=environments)
            turn = await turn_start.start_turn(
                thread,
                Input(params.input, params.client_user_message_id, params.tool_output),
                setting_changes(params, thread.settings, thread.config),
                output_schema=params.output_schema,
                budget=Budget(
                    turn_iterations=params.max_iterations,
                    turn_tokens=params.max_turn_tokens,
                    turn_cost_usd=params.max_turn_cost_usd,
                ),
                max_output_tokens=params.max_output_tokens,
                not_before=not_before,
                root_turn_id=root_turn_id,
            )
            command.answer_here()
            return TurnStartResponse(turn=turn.state.fresh())

    async def steer(self, params: TurnSteerParams) -> TurnSteerResponse:
        async with self._command():
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
        """Interrupt the turn, without the lock: who holds it may be waiting for that very turn.

        Without an id it is about whatever turn there is, and there may be none. Sub-agents stop too, if the settings
        say so.
        """
        thread = self._thread
        turn = None
        if params.turn_id or (thread.turn is not None and thread.turn.active):
            turn = self._active_turn("interrupt")
            if params.turn_id and turn.id != params.turn_id:
                raise RpcError(INVALID_REQUEST, f"expected active turn id {params.turn_id} but found {turn.id}")
        stopped = None if turn is None else turn.interrupt()
        if thread.state.children and thread.services.config_for(thread.settings).agents.interrupt_children:
            thread.children.interrupt()
        if stopped is not None:
            await stopped

    # --- sub-agents ---

    @property
    def parent_id(self) -> str | None:
        """The thread that this one works for."""
        return self._thread.record.parent_thread_id

    @property
    def session_id(self) -> str:
        return self._thread.session_id

    def child_ended(self, child_id: str, turn_id: str, *, wakes: bool) -> None:
        """A turn of a sub-agent has ended; an idle thread goes on if it wanted that."""
        self._thread.children.note_end(child_id, turn_id, wakes=wakes)
        turn_start.wake_soon(self._thread)

    async def limit(self, parent: Settings) -> None:
        """Take from the thread what its parent, whose settings these are, may not do any more."""
        thread = self._thread
        async with self._command():
            changes = await asyncio.to_thread(limits_of_parent, thread.settings, parent)
            if changes:
                pins = await thread.look_at_roots(changes)
                async with thread.writing():
                    thread.change_settings(changes, pins)

    def spent(self) -> Spent:
        """What the thread and its sub-agents have used."""
        from treadle.agent.turn.turn_budget import spent_by  # likewise

        return spent_by(self._thread)

    def check_budget(self) -> None:
        """Raise `LimitReached` when the thread may use no more, and neither may those who work for it."""
        from treadle.agent.turn.turn_budget import check_thread  # few threads have limits

        check_thread(self._thread)

    def wake(self) -> None:
        """Go on for what sub-agents have done while the thread was not in memory, if it wanted that."""
        turn_start.wake_soon(self._thread)

    def _needs_model(self, what: str) -> None:
        """Refuse in a thread of an engine what only a model can do."""
        if (engine := self._thread.settings.engine) is not None:
            raise thread_refusals.engine_cannot(engine, what)

    async def compact(self) -> None:
        self._needs_model("be told to compact; it does that by itself")
        await self._answer_first(partial(turn_start.start_compaction, self._thread), f"compaction of {self.id}")

    async def start_review(self, params: ReviewStartParams) -> ReviewStartResponse:
        from treadle.agent.turn.code_review import review_of, shown_turn  # loaded with the first review

        self._needs_model("be asked for a review; start a turn that says what to review")
        review = review_of(params.target)
        async with self._command() as command:
            turn = await turn_start.start_review(command.thread, review)
            command.answer_here()
            return ReviewStartResponse(review_thread_id=self.id, turn=shown_turn(turn, review))

    async def run_shell_command(self, params: ThreadShellCommandParams) -> None:
        if not params.command.strip():
            raise RpcError(INVALID_REQUEST, "command must not be empty")
        if self._thread.settings.environment is None:
            raise thread_refusals.no_environment(self.id)
        work = partial(turn_start.start_shell_command, self._thread, params.command, params.timeout_ms)
        await self._answer_first(work, f"shell command of {self.id}")

    async def approve_denied_action(self, event: Any) -> None:
        """The user allows what the automatic reviewer denied, once, and the model gets a message about it. `event`
        names the review."""
        review_id = event.get("id") if isinstance(event, dict) else None
        if not isinstance(review_id, str):
            raise RpcError(INVALID_REQUEST, "event must be an object with the `id` of a review")
        async with self._command(writes=True):
            item_id = self._thread.authority.overrule(review_id)
            if item_id is None:
                raise thread_refusals.not_denied(review_id)
            await self._thread.inject([developer_message(OVERRULED.format(item_id=item_id))])

    # --- MCP servers: not one after the other, because a server may take its time ---

    async def start_required_mcp(self) -> None:
        """Start the MCP servers without which the thread is none. Raises `RpcError` when one cannot be had."""
        if (mcp := self._thread.mcp) is not None:
            await mcp.start_required()

    def publish_mcp(self) -> None:
        """Publish how the MCP servers are that were started before anybody could hear of it."""
        if (mcp := self._thread.mcp) is not None:
            mcp.publish_states()

    async def skills(self) -> tuple[str, SkillSet]:
        """The skills that count where the thread works, and where that is. Raises `TimeoutError`."""
        from treadle.agent.turn.turn_skills import skills_of  # its turns use it

        return self._thread.settings.cwd, await skills_of(self._thread)

    async def mcp_statuses(self, params: ListMcpServerStatusParams) -> list[McpServerStatus]:
        if (mcp := self._thread.mcp) is None:
            return []
        from treadle.agent.thread.mcp_requests import thread_statuses  # loaded with the first thread that has servers

        return await thread_statuses(mcp, params)

    async def call_mcp_tool(self, params: McpServerToolCallParams) -> McpServerToolCallResponse:
        from treadle.agent.thread.mcp_requests import call_tool  # likewise

        return await call_tool(self._thread.mcp, params)

    async def read_mcp_resource(self, params: McpResourceReadParams) -> McpResourceReadResponse:
        from treadle.agent.thread.mcp_requests import read_resource  # likewise

        return await read_resource(self._thread.mcp, params)

    async def mcp_prompts(self) -> list[McpPrompt]:
        if (mcp := self._thread.mcp) is None:
            return []
        from treadle.agent.thread.mcp_requests import list_prompts  # likewise

        return await list_prompts(mcp)

    async def get_mcp_prompt(self, params: McpServerPromptGetParams) -> McpServerPromptGetResponse:
        from treadle.agent.thread.mcp_requests import get_prompt  # likewise

        return await get_prompt(self._thread.mcp, params)

    def mcp_config(self, name: str) -> McpServerConfig | None:
        """The settings of an MCP server, as the thread has it."""
        mcp = self._thread.mcp
        server = None if mcp is None else mcp.servers.get(name)
        return None if server is None else server.config

    async def mcp_logged_in(self, name: str, url: str | None, *, asked: bool) -> None:
        """Somebody has logged in to an MCP server, `asked` by a client of this thread."""
        if (mcp := self._thread.mcp) is not None:
            await mcp.logged_in(name, url, asked=asked)

    async def reload_mcp(self) -> None:
        """Bring the MCP servers that are used to the settings as they are now."""
        if (mcp := self._thread.mcp) is not None:
            await mcp.reload()

    # --- commands that run: not one after the other, as `interrupt` ---

    def list_terminals(self, params: ThreadBackgroundTerminalsListParams) -> ThreadBackgroundTerminalsListResponse:
        return self._thread.terminals.page(params)

    def clean_terminals(self) -> None:
        """End all commands; their ends are published after the answer, as below."""
        for terminal in self._thread.terminals.take_all():
            self._end_terminal(terminal)

    def terminate_terminal(
        self, params: ThreadBackgroundTerminalsTerminateParams
    ) -> ThreadBackgroundTerminalsTerminateResponse:
        """The end is published after the answer: clients take one that comes first for an end by itself."""
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

    # --- other machines ---

    def works_in(self, environment_id: str) -> bool:
        return any(place.environment == environment_id for place in self._thread.settings.workplaces)

    def environment_changed(self, environment_id: str, *, connected: bool) -> None:
        """The connection to a machine was lost, or is there again. Not of the thread itself, so only a turn that runs
        gives it a number."""
        thread = self._thread
        name = f"thread/environment/{'connected' if connected else 'disconnected'}"
        said = EnvironmentConnectionNotification(thread_id=self.id, environment_id=environment_id)
        if thread.turn is not None:
            thread.journal.emit(name, said)
        else:
            thread.journal.publish_unnumbered(name, said)

    # --- goal ---

    @property
    def goal(self) -> ThreadGoal | None:
        return self._thread.state.goal

    async def set_goal(self, params: ThreadGoalSetParams, *, may_start: bool) -> ThreadGoalSetResponse:
        """An active goal on an idle thread begins a turn by itself, if it may."""
        thread = self._thread
        self._needs_model("pursue a goal by itself")
        async with self._command(writes=True) as command:
            goal = thread.goal.set(objective=params.objective, status=params.status, token_budget=params.token_budget)
            thread.journal.write(thread.save())
            command.answer_here()
            thread.goal.publish()
        if thread.goal.wants_turn and may_start:
            thread.services.spawn(turn_start.start_goal(thread), f"goal of {self.id}")
        return ThreadGoalSetResponse(goal=goal)

    async def clear_goal(self) -> ThreadGoalClearResponse:
        thread = self._thread
        async with self._command(writes=True) as command:
            cleared = thread.goal.clear()
            thread.journal.write(thread.save())
            command.answer_here()
            if cleared:
                thread.goal.publish()
        return ThreadGoalClearResponse(cleared=cleared)

    # --- queue ---

    @property
    def has_queue(self) -> bool:
        """Whether messages may be waiting."""
        return self._thread.queued

    async def queued(self) -> list[QueuedRecord]:
        """The messages that wait, the next one first."""
        self._check_queue()
        async with self._command():
            return await self._thread.queue.waiting()

    async def change_queue(self, change: QueueChange[T]) -> T:
        """What `change` makes of the messages that wait is stored; the next of them is sent if nothing runs."""
        self._check_queue()
        thread = self._thread
        async with self._command(writes=True) as command:
            result, writes = change(await thread.queue.waiting())
            thread.journal.write(*writes)
            command.answer_here()
            if writes:
                thread.note_queue(True)
                thread.queue.publish_changed()
        self.send_queued()
        return result

    def send_queued(self) -> None:
        """Send the next message that waits, soon, if nothing runs and nobody has made the queue wait."""
        turn_start.send_queued_soon(self._thread)

    async def start_queued(self, queued_id: str | None) -> WireTurn:
        """Send one message, or the next, also when the queue was made to wait."""
        self._check_queue()
        from treadle.agent.thread.thread_queue import find  # loaded with the first queue

        thread = self._thread
        async with self._command(writes=True) as command:
            record = find(await thread.queue.waiting(), queued_id)
            if thread.turn is not None:
                raise RpcError(INVALID_REQUEST, "thread already has an active or pending turn")
            turn = await turn_start.start_queued(thread, record)
            command.answer_here()
            thread.queue.publish_changed()
            return turn.state.fresh()

    def _check_queue(self) -> None:
        if self.ephemeral:
            raise thread_refusals.no_queue(self.id)

    # --- settings and metadata ---

    async def change_settings(self, params: ThreadSettingsUpdateParams) -> None:
        thread = self._thread
        async with self._command(writes=True) as command:
            environments = await with_directories(thread.services, params.environments)
            params = structs.replace(params, environments=environments)
            changes = setting_changes(params, thread.settings, thread.config)
            pins = await thread.look_at_roots(changes)
            thread.journal.write(thread.save())
            command.answer_here()
            thread.change_settings(changes, pins)

    async def override_settings(self, params: ThreadResumeParams) -> None:
        """Change what a client that joins wants different. Raises `RpcError` for what has to wait for a turn's end."""
        thread, services = self._thread, self._thread.services
        async with self._command():
            changes = override_changes(thread.settings, params, services.config, services.cwd)
            fixed = [name for name in FIXED_IN_TURN if FIXED_IN_TURN[name] in changes]
            if fixed and thread.turn is not None:
                raise thread_refusals.fixed_in_turn(self.id, fixed)
            if changes:
                pins = await thread.look_at_roots(changes)
                async with thread.writing():
                    thread.change_settings(changes, pins)

    async def set_name(self, name: str) -> None:
        self._check_metadata()
        journal = self._thread.journal
        async with self._command(writes=True) as command:
            journal.write(self._thread.save(name=name, listed=True))
            command.answer_here()
            journal.emit("thread/name/updated", ThreadNameUpdatedNotification(thread_id=self.id, thread_name=name))

    async def update_metadata(self, git_info: ThreadMetadataGitInfoUpdateParams | None) -> WireThread:
        self._check_metadata()
        thread = self._thread
        async with self._command(writes=True):
            thread.change_state(git_info=changed_git_info(thread.state, git_info))
            thread.journal.write(thread.save())
            await thread.journal.flush()
        return thread.wire()

    def _check_metadata(self) -> None:
        if self.ephemeral:
            raise thread_refusals.no_metadata(self.id)

    # --- contents ---

    async def revert(self, params: ThreadRevertParams) -> ThreadRevertResponse:
        """The thread is again as it was before a turn."""
        thread = self._thread
        async with self._command() as command:
            turn = await thread.store.turn(self.id, params.before_turn_id)
            if turn is None:
                raise thread_refusals.turn_not_found(params.before_turn_id)
            if thread.turn is not None:
                raise RpcError(INVALID_REQUEST, BUSY)
            files: RevertedFiles | UnsetType = UNSET
            if params.files:
                files = await self._revert_files(turn.number, preview=params.preview)
            elif not params.preview:
                await thread.cut_turns(turn.number, BUSY)
            turns_cursor, items_cursor = cursors_of(thread)
            result = ThreadRevertResponse(
                thread=thread.wire(),
                files=files,
                turns_backwards_cursor=turns_cursor,
                items_backwards_cursor=items_cursor,
            )
            if not params.preview:
                await self._publish_reverted(command)
            return result

    async def _revert_files(self, first: int, *, preview: bool) -> RevertedFiles:
        """Put back what the turns from `first` on have changed, and remove them; a preview only says what would be."""
        from treadle.agent.thread.file_undo import forget, plan_undo  # loaded with the first of them

        thread = self._thread
        if preview:
            return (await plan_undo(thread, first)).shown
        async with thread.writing():
            undo = await plan_undo(thread, first)
            files = await undo.carry_out()
            await thread.cut_turns(first, BUSY)
        await forget(thread, undo.turns)
        return files

    async def rollback(self, params: ThreadRollbackParams) -> ThreadRollbackResponse:
        """The last turns are removed."""
        if params.num_turns < 1:
            raise RpcError(INVALID_REQUEST, "numTurns must be >= 1")
        thread = self._thread
        async with self._command() as command:
            first = max(1, thread.counters.turn - params.num_turns + 1)
            await thread.cut_turns(first, "Cannot rollback while a turn is in progress.")
            records = await thread.store.turns(self.id)
            turns = await turns_with_items(thread.store, self.id, records, running=thread.running_items)
            result = ThreadRollbackResponse(thread=thread.wire(turns))
            await self._publish_reverted(command)
            return result

    async def _publish_reverted(self, command: _Command) -> None:
        async with self._thread.writing():
            command.answer_here()
            self._thread.journal.emit("thread/reverted", ThreadRevertedNotification(thread_id=self.id))

    async def inject_items(self, params: ThreadInjectItemsParams) -> None:
        for item in params.items:
            if not isinstance(item, dict) or not isinstance(item.get("type"), str):
                raise RpcError(INVALID_REQUEST, "items must be objects of the Responses API, each with a `type`")
        async with self._command(writes=True):
            await self._thread.inject(params.items)

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
        """Whether events of the thread cannot be stored at present, so that nothing more is published."""
        return self._thread.journal.failure is not None

    def wire(self, turns: tuple[WireTurn, ...] = ()) -> WireThread:
        return self._thread.wire(turns)

    def running_turn(self) -> WireTurn | None:
        """The turn that runs, with everything that has happened in it so far."""
        return None if self._thread.turn is None else self._thread.turn.snapshot()

    @property
    def running_items(self) -> OpenItems:
        """Items of commands that run now, also of turns that are over."""
        return self._thread.running_items

    def open_items(self) -> tuple[KnownItem, ...]:
        return self._thread.open_items()

    async def published(self) -> None:
        """Wait until everything so far is committed and published. Raises `StoreError`."""
        await self._thread.journal.flush()

    async def reading_store(self) -> Store:
        """The store of the thread, with everything that was emitted so far."""
        if self._thread.journal.busy:
            await self._thread.journal.flush()
        return self._thread.store

    async def source_of_fork(self) -> tuple[ThreadRecord, Store]:
        """The record of the thread and its store, with everything that was emitted so far."""
        thread = self._thread
        if thread.journal.is_stale:
            async with thread.lock:
                await thread.catch_up()
        await thread.journal.flush()
        return thread.save(), thread.store

    async def view(self, *, with_turns: bool, is_fresh: bool = False) -> ThreadView:
        """The thread for a client that joins; one that `is_fresh` in memory becomes known to the others.

        Nothing is awaited between what it shows and its place, so a client that follows the thread from there on
        misses no event and gets none twice.
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

    def open_requests(self) -> tuple[ClientRequest, ...]:
        return tuple(self._thread.requests.sent())

    # --- coming and going ---

    async def publish_started(self) -> None:
        """A new thread becomes known to clients, once its record is stored. Raises `StoreError`: then it is none."""
        await self._thread.publish_started()

    @property
    def turn_id(self) -> str | None:
        """The id of the turn that runs now."""
        return None if self._thread.turn is None else self._thread.turn.id

    @property
    def is_closed(self) -> bool:
        """Whether the thread has left memory, or is about to."""
        return self._thread.closing

    async def wait_turn(self) -> None:
        """Wait until the turn that runs now, if any, has ended."""
        if self._thread.turn is not None:
            await self._thread.turn.wait()

    @property
    def used_at(self) -> float:
        return self._thread.used_at

    def touch(self) -> None:
        """Note that the thread was used just now."""
        self._thread.touch()

    def mark_loaded(self, loaded: bool) -> None:
        """For all servers of the store: the thread is in memory here, or is no longer."""
        self._thread.store.mark_loaded(self.id, loaded)

    async def close(self) -> None:
        """End what runs in the thread; what was published is stored."""
        await self._thread.close()

    @asynccontextmanager
    async def idle_since(self, before: float) -> AsyncIterator[bool]:
        """Whether the thread has been idle since `before`; inside of the block nothing is done to it."""
        async with self._thread.lock:
            yield self.turn_id is None and self.used_at <= before

    async def close_idle(self) -> None:
        """Under `idle_since`: leave memory, and notify whoever listens to all threads."""
        thread = self._thread
        await thread.close()
        if self.ephemeral:  # it is not found again, so nobody would ever remove it
            await thread.store.commit(self.id, thread.journal.fence, [DeleteThread(self.id)])
        thread.journal.publish_unnumbered("thread/closed", ThreadClosedNotification(thread_id=self.id))
        status = ThreadStatusChangedNotification(thread_id=self.id, status=NotLoadedThreadStatus())
        thread.journal.publish_unnumbered("thread/status/changed", status)

    async def unload(self) -> Store:
        """Leave memory for good, to be archived or deleted; returns its store. Raises `StoreError` and stays as it is
        when another server works on it."""
        thread = self._thread
        async with thread.lock:
            if thread.turn is None:
                async with thread.writing():
                    pass  # which fails when another server has it
            await thread.close()
            if thread.journal.busy:
                await thread.journal.flush()
            return thread.store

    # --- memory ---

    def on_idle(self, action: Callable[[], None]) -> None:
        """`action` is called whenever nothing writes the thread any more."""
        self._thread.on_idle(action)

    @property
    def history_weight(self) -> int | None:
        """Bytes that the model's history takes in memory; None when it is not there."""
        return None if self._thread.history is None else self._thread.history.weight

    def drop_history(self) -> None:
        """Take the history out of memory, unless something writes the thread."""
        if self._thread.is_idle:
            self._thread.drop_history()
