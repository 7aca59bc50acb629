"""`ThreadHooks`: the hooks of a thread. It calls those of an event at the same time, publishes each run, and makes one
`Decision` of what they say; what that means for a turn, a message or a permission is said here too. What it means for
a call of the model is `hooked_calls`.

    a step of a turn ─▶ its input ─▶ matching hooks, side by side ─▶ Decision ─▶ go on, change, refuse, tell the model

Any refusal wins, whatever other hooks allow. A hook that fails says nothing, unless it is to refuse then: its outcome
is a refusal by the time it gets here. The thread looks before each turn which hooks there are; one without any has no
`ThreadHooks`. Running a hook is `treadle.hooks.hook_runner`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Struct, structs

from treadle.agent.event import new_id, now_ms
from treadle.agent.turn.pending_input import text_of
from treadle.agent.turn.turn import Turn, developer_message
from treadle.hooks import hook_events as events
from treadle.hooks.hook_outputs import HookOutcome, failed, read_output
from treadle.hooks.hook_runner import MAX_NOTIFIED, notify, run_hook
from treadle.hooks.hook_settings import LONGEST_S, MAX_BRIEF_S, Hook, trust_warnings
from treadle.mcp.results import ResultFiles
from treadle.protocol.app.extensions import (
    HookCompletedNotification,
    HookOutputEntry,
    HookRunSummary,
    HookStartedNotification,
)
from treadle.protocol.app.items import HookPromptFragment, HookPromptThreadItem, UserMessageThreadItem
from treadle.tools.command.command_output import cut_to, tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from treadle.agent.thread.thread import Thread
    from treadle.agent.tools.approval import ToolUse
    from treadle.hooks.hook_files import HookSet
    from treadle.llm.model import TokenUsage

logger: logging.Logger = logging.getLogger(__name__)
CONTEXT_TOKENS: Final = 2_500  # of what one hook gives the model, where its settings say nothing else
MAX_ASYNC: Final = 8  # hooks that nobody waits for, of one thread at a time
_SCOPE_OF_THREAD: Final = frozenset({"SessionStart", "SessionEnd", "SubagentStart"})
_PLACEHOLDER: Final = re.compile(r"\$\{([A-Za-z0-9_.]+)\}")


class Refusal(NamedTuple):
    """Why a hook refuses, and in which run."""

    reason: str
    run_id: str


class Decision(Struct):
    """What all hooks of an event say together. `stop` is the reason of one that ends more than this step."""

    refusals: list[Refusal] = []
    contexts: list[str] = []
    allowed: bool = False
    updated_input: Mapping[str, Any] | None = None
    stop: str | None = None

    @property
    def refusal(self) -> str | None:
        """The reason that counts: that of the first hook in their order."""
        return self.refusals[0].reason if self.refusals else None


class ThreadHooks:
    """In the thread of a sub-agent, events are those of the session that it works for."""

    def __init__(self, thread: Thread) -> None:
        self._thread = thread
        self._hooks: tuple[Hook, ...] = ()
        self._events: frozenset[str] = frozenset()
        self._turn_id: str | None = None  # of the last turn
        self._source: events.SessionSource | None = None
        self._began = False  # a session that has an end
        self._continued = 0  # times that this turn was to go on
        self._files = ResultFiles()
        self._async: set[asyncio.Task[None]] = set()

    def adopt(self, turn: Turn, found: HookSet, source: events.SessionSource | None) -> None:
        """Use these hooks from this turn on; `source` is how a session began of which it is the first turn."""
        self._turn_id, self._continued, self._source = turn.id, 0, source
        self._hooks = tuple(hook for hook in found.hooks if hook.runs)
        self._events = frozenset(hook.event for hook in self._hooks)
        for warning in (*found.warnings, *trust_warnings(found.hooks, self._thread.settings.cwd)):
            self._thread.warn_once(turn, warning)

    def has(self, event: str) -> bool:
        """Whether a hook is called for the event, if it matches."""
        return event in self._events

    @property
    def guards_calls(self) -> bool:
        """Whether a hook is there to refuse calls of the model."""
        return any(hook.refuses_on_error and hook.event in ("PreToolUse", "PermissionRequest") for hook in self._hooks)

    # --- the session and its turns ---

    async def start_session(self, turn: Turn) -> bool:
        """Call the hooks of a session that begins, or goes on after a compaction; whether the turn goes on."""
        source, self._began = self._source, self._thread.state.agent is None
        event = "SessionStart" if self._began else "SubagentStart"
        if source is None or not self.has(event):
            return True
        session = {"permission_mode": self._permission_mode(turn)}
        given = (
            events.SessionStart(**self._ids(), **session, model=turn.settings.model, source=source)
            if self._began
            else events.SubagentStart(**self._turn_ids(turn), **session)
        )
        decision = await self.call(given, turn)
        self.add_contexts(turn, decision)
        if decision.stop is not None:
            turn.report.warning(f"The turn was ended by a {event} hook: {decision.stop}")
        return decision.stop is None

    async def submit_prompt(self, turn: Turn, prompt: str, *, brief: bool) -> Decision:
        """Call the hooks of a message for the model. `brief`: the turn is over, and somebody waits."""
        if not self.has("UserPromptSubmit"):
            return Decision()
        given = events.UserPromptSubmit(
            **self._turn_ids(turn), permission_mode=self._permission_mode(turn), prompt=prompt
        )
        decision = await self.call(given, turn, limit=MAX_BRIEF_S if brief else None)
        if (reason := decision.stop or decision.refusal) is not None:
            turn.report.warning(f"A UserPromptSubmit hook refused the message, and the model does not get it: {reason}")
        return decision

    async def stop(self, turn: Turn, said: str) -> bool:
        """Call the hooks of a turn that is about to end; whether one has it go on."""
        event = "Stop" if self._thread.state.agent is None else "SubagentStop"
        if not self.has(event):
            return False
        kind = events.Stop if self._thread.state.agent is None else events.SubagentStop
        given = kind(
            **self._turn_ids(turn),
            permission_mode=self._permission_mode(turn),
            stop_hook_active=self._continued > 0,
            last_assistant_message=said or None,
        )
        decision = await self.call(given, turn)
        if decision.stop is not None or not decision.refusals:
            return False
        limit = self._thread.services.config_for(self._thread.settings).hooks.max_continuations
        if self._continued >= limit:
            turn.report.warning(
                f"The turn ended although a {event} hook wants it to go on: it did so {limit} times "
                f"(hooks.max_continuations). The hook says: {decision.refusal}"
            )
            return False
        self._continued += 1
        fragments = tuple(HookPromptFragment(text=text, hook_run_id=run_id) for text, run_id in decision.refusals)
        content = [
            {"type": "input_text", "text": f'<hook_prompt hook_run_id="{run_id}">{text}</hook_prompt>'}
            for text, run_id in decision.refusals
        ]
        writes = turn.add_history([{"type": "message", "role": "user", "content": content}])
        turn.items.show(HookPromptThreadItem(id=f"msg_{new_id()}", fragments=fragments), *writes)
        return True

    async def interrupted(self, turn: Turn) -> None:
        if self.has("Interrupt"):
            given = events.Interrupt(**self._turn_ids(turn), permission_mode=self._permission_mode(turn))
            await self.call(given, turn)

    async def before_request(self, turn: Turn) -> None:
        if self.has("PreModelRequest"):
            await self.call(events.PreModelRequest(**self._turn_ids(turn)), turn)

    async def after_request(
        self,
        turn: Turn,
        status: Literal["completed", "failed", "cancelled"],
        error: str | None = None,
        usage: TokenUsage | None = None,
    ) -> None:
        if self.has("PostModelRequest"):
            given = events.PostModelRequest(**self._turn_ids(turn), status=status, error=error, token_usage=usage)
            await self.call(given, turn, limit=MAX_BRIEF_S if status == "cancelled" else None)

    async def before_compaction(self, turn: Turn) -> bool:
        """Call the hooks of a compaction that is about to begin; whether it may."""
        if not self.has("PreCompact"):
            return True
        decision = await self.call(events.PreCompact(**self._turn_ids(turn), trigger=_trigger(turn)), turn)
        if decision.stop is not None:
            turn.report.warning(f"A PreCompact hook stopped the compaction: {decision.stop}")
        return decision.stop is None

    async def after_compaction(self, turn: Turn) -> None:
        if self.has("PostCompact"):
            await self.call(events.PostCompact(**self._turn_ids(turn), trigger=_trigger(turn)), turn)

    async def permission(self, turn: Turn, asked: ToolUse) -> Decision:
        """Call the hooks of an approval that is about to be asked for."""
        if not self.has("PermissionRequest"):
            return Decision()
        return await self.call(events.PermissionRequest(**self._call_ids(turn, asked)), turn, asked.call_id)

    async def before_call(self, turn: Turn, use: ToolUse) -> Decision:
        given = events.PreToolUse(**self._call_ids(turn, use), tool_use_id=use.call_id)
        return await self.call(given, turn, use.call_id)

    async def after_call(self, turn: Turn, use: ToolUse, response: Any) -> Decision:
        given = events.PostToolUse(**self._call_ids(turn, use), tool_use_id=use.call_id, tool_response=response)
        return await self.call(given, turn, use.call_id)

    async def close(self) -> None:
        """Call the last hooks of a thread that leaves memory, and cancel those that nobody waits for."""
        began, self._began = self._began, False
        if began and self.has("SessionEnd"):
            try:
                await self.call(events.SessionEnd(**self._ids()), None)
            except Exception:
                logger.exception("the SessionEnd hooks of %s failed", self._thread.id)
        for task in self._async:
            task.cancel()
        if self._async:
            await asyncio.wait(self._async, timeout=MAX_BRIEF_S)
        await asyncio.to_thread(self._files.close)

    def add_contexts(self, turn: Turn, decision: Decision) -> None:
        """Add the contexts of a decision to the history."""
        if decision.contexts:
            messages = [developer_message(text) for text in decision.contexts]
            self._thread.journal.write(*turn.add_history(messages))

    # --- the input of hooks ---

    def _ids(self) -> dict[str, Any]:
        thread, agent = self._thread, self._thread.state.agent
        ids = {"session_id": thread.session_id, "cwd": thread.settings.cwd}
        return ids if agent is None else {**ids, "agent_id": thread.id, "agent_type": agent.role}

    def _turn_ids(self, turn: Turn) -> dict[str, Any]:
        return {**self._ids(), "turn_id": turn.id, "model": turn.settings.model}

    def _call_ids(self, turn: Turn, use: ToolUse) -> dict[str, Any]:
        call = {"tool_name": use.name, "tool_input": use.input}
        return {**self._turn_ids(turn), "permission_mode": self._permission_mode(turn), **call}

    def _permission_mode(self, turn: Turn) -> events.PermissionMode:
        if turn.settings.mode == "plan":
            return "plan"
        return "bypassPermissions" if turn.settings.approval_policy == "never" else "default"

    # --- calling them ---

    async def call(
        self, given: events.HookInput, turn: Turn | None, call_id: str | None = None, *, limit: float | None = None
    ) -> Decision:
        """Call all hooks that match, and wait for them; `limit` is the most that one of them may take."""
        matching = [hook for hook in self._hooks if hook.suits(given)]
        waited = []
        for hook in matching:
            if limit is not None:
                hook = structs.replace(hook, timeout_s=min(hook.timeout_s, limit))
            if hook.runs_async:
                self._start_async(hook, given, turn)
            else:
                waited.append(hook)
        if not waited:
            return Decision()
        runs = [_Run(self._thread, hook, turn.id if turn is not None else self._turn_id, call_id) for hook in waited]
        for run in runs:
            run.publish_started()
        if len(runs) == 1:  # a task for it would cost more than many a function
            outcomes = [await self._finish(runs[0], given, turn)]
        else:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._finish(run, given, turn)) for run in runs]
            outcomes = [task.result() for task in tasks]
        return await self._decide(runs, outcomes)

    async def _finish(self, run: _Run, given: events.HookInput, turn: Turn | None) -> HookOutcome:
        try:
            outcome = await self._run(run.hook, given, turn)
        except asyncio.CancelledError:
            run.publish_completed(failed("the turn was interrupted"))
            raise
        run.publish_completed(outcome)
        return outcome

    async def _run(self, hook: Hook, given: events.HookInput, turn: Turn | None) -> HookOutcome:
        return await run_hook(hook, given, self._thread.services.environment, partial(self._call_tool, turn=turn))

    async def _call_tool(self, hook: Hook, given: events.HookInput, turn: Turn | None) -> HookOutcome:
        """Call the tool of an MCP server; its text counts as what a command prints."""
        from treadle.mcp.mcp_messages import McpError

        mcp = self._thread.mcp
        server = None if mcp is None else mcp.servers.get(hook.server)
        if server is None:
            return failed(f"unknown MCP server '{hook.server}'")
        try:
            arguments = _filled_in(hook.arguments, msgspec.to_builtins(given))
            async with asyncio.timeout(min(hook.timeout_s, LONGEST_S)), server.calling(turn) as connection:
                result = await connection.call_tool(hook.tool, arguments)
        except TimeoutError:
            return failed(f"hook timed out after {hook.timeout_s:g}s")
        except (McpError, KeyError) as error:
            return failed(str(error))
        text = "".join(part.get("text", "") for part in result.content if isinstance(part, dict))
        return failed(text or "the tool failed") if result.is_error else read_output(given.event, 0, text.encode(), b"")

    def _start_async(self, hook: Hook, given: events.HookInput, turn: Turn | None) -> None:
        if len(self._async) >= MAX_ASYNC:
            logger.warning("an async hook was not run: %d of the thread run already", MAX_ASYNC)
            return

        async def work() -> None:
            outcome = await self._run(hook, given, turn)
            if outcome.error is not None:
                logger.warning("the async hook %s failed: %s", hook.key, outcome.error)

        task = self._thread.services.spawn(work(), f"async hook {hook.key}")
        self._async.add(task)
        task.add_done_callback(self._async.discard)

    async def _decide(self, runs: Iterable[_Run], outcomes: Iterable[HookOutcome]) -> Decision:
        decision = Decision()
        for run, outcome in zip(runs, outcomes, strict=True):
            result = outcome.result
            limit = run.hook.context_limit or CONTEXT_TOKENS
            if result.stop is not None and decision.stop is None:
                decision.stop = result.stop
            if result.block is not None:
                decision.refusals.append(Refusal(await self._shortened(result.block, limit), run.id))
            if result.context is not None:
                decision.contexts.append(await self._shortened(result.context, limit))
            if result.updated_input is not None:
                decision.updated_input = result.updated_input
            decision.allowed = decision.allowed or result.allow
        return decision

    async def _shortened(self, text: str, limit: int) -> str:
        """A text as the model gets it; of a long one the whole goes into a file."""
        if tokens(len(text.encode("utf-8", "replace"))) <= limit:
            return text
        path = await asyncio.to_thread(self._files.keep, text)
        return cut_to(text, limit) + ("" if path is None else f"\n\nFull hook output saved to: {path}")


class _Run:
    """One run of a hook, as clients see it."""

    def __init__(self, thread: Thread, hook: Hook, turn_id: str | None, call_id: str | None) -> None:
        self._thread = thread
        self._turn_id = turn_id
        self._began = time.monotonic()
        self.hook = hook
        self.id: str = f"{events.kebab_case(hook.event)}:{hook.order}:{hook.path}" + (
            "" if call_id is None else f":{call_id}"
        )
        self._summary = HookRunSummary(
            id=self.id,
            display_order=hook.order,
            entries=(),
            event_name=events.camel_case(hook.event),
            execution_mode="sync",
            handler_type="mcpTool" if hook.server else "command",
            scope="thread" if hook.event in _SCOPE_OF_THREAD else "turn",
            source_path=hook.path,
            started_at=now_ms() // 1000,
            status="running",
            source=hook.source,
            status_message=hook.status_message,
        )

    def publish_started(self) -> None:
        params = HookStartedNotification(thread_id=self._thread.id, run=self._summary, turn_id=self._turn_id)
        self._publish("hook/started", params)

    def publish_completed(self, outcome: HookOutcome) -> None:
        run = structs.replace(
            self._summary,
            status=outcome.status,
            entries=tuple(HookOutputEntry(kind=entry.kind, text=entry.text) for entry in outcome.entries),
            completed_at=now_ms() // 1000,
            duration_ms=int((time.monotonic() - self._began) * 1000),
        )
        params = HookCompletedNotification(thread_id=self._thread.id, run=run, turn_id=self._turn_id)
        self._publish("hook/completed", params)

    def _publish(self, method: str, params: Struct) -> None:
        if self._thread.is_idle:  # nothing can be stored: the thread is about to leave memory
            self._thread.journal.publish_unnumbered(method, params)
        elif self._thread.journal.failure is None:
            self._thread.journal.emit(method, params)


def _trigger(turn: Turn) -> Literal["manual", "auto"]:
    return "manual" if turn.kind == "compact" else "auto"


def _filled_in(value: Any, given: Mapping[str, Any]) -> Any:
    """The arguments of a tool with what the event has in place of `${a.b}`. Raises `KeyError` for what it has not."""

    def found(path: str) -> Any:
        inner: Any = given
        for name in path.split("."):
            if not isinstance(inner, dict) or name not in inner:
                raise KeyError(f"the event has no ${{{path}}}")
            inner = inner[name]
        return inner

    def as_text(path: str) -> str:
        inner = found(path)
        return inner if isinstance(inner, str) else msgspec.json.encode(inner).decode()

    if isinstance(value, str):
        whole = _PLACEHOLDER.fullmatch(value)
        return found(whole[1]) if whole else _PLACEHOLDER.sub(lambda match: as_text(match[1]), value)
    if isinstance(value, dict):
        return {key: _filled_in(member, given) for key, member in value.items()}
    return [_filled_in(member, given) for member in value] if isinstance(value, list) else value


# --- notify -----------------------------------------------------------------------------------------------------------


def notify_of(turn: Turn, argv: tuple[str, ...]) -> None:
    """Run the program of `notify` for a turn that has ended."""
    thread = turn.thread
    typed = [item for item in turn.items.all() if isinstance(item, UserMessageThreadItem)]
    last = turn.items.last_message
    told = {
        "type": "agent-turn-complete",
        "thread-id": thread.id,
        "turn-id": turn.id,
        "cwd": thread.settings.cwd,
        "client": thread.record.originator,
        "input-messages": [text_of(item.content)[:MAX_NOTIFIED] for item in typed],
        "last-assistant-message": None if last is None else last.text,
    }

    async def work() -> None:
        said = msgspec.json.encode(told).decode()
        if len(said.encode()) > MAX_NOTIFIED:
            said = msgspec.json.encode({**told, "input-messages": [], "last-assistant-message": None}).decode()
        problem = await notify(thread.services.environment, (*argv, said), thread.settings.cwd)
        if problem is not None:
            logger.warning("notify: %s failed: %s", argv[0], problem)

    thread.services.spawn(work(), f"notify of turn {turn.id}")
