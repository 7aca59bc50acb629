"""`ThreadTools`: the tools that Treadle offers as an MCP server: turns on threads, and threads to look at.

It owns the turns that MCP clients have started, and the questions of the app-server that wait for their answers.
`codex` and `codex-reply` are as codex's own `mcp-server` had them; the forms of its events and questions are in
`mcp_events`. Knows nothing of how messages travel: that is `treadle.mcp.mcp_serving`.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from treadle._version import __version__
from treadle.cli.mcp_events import (
    AgentQuestion,
    approval_elicitation,
    codex_events,
    decision_of,
    form_answers,
    form_elicitation,
    session_configured,
)
from treadle.client import AsyncAppServerClient, CodexConfig, CodexError, TurnFailed
from treadle.client.notification import Notification, UnknownNotification
from treadle.client.server_requests import ApprovalDecision, ApprovalRequest, UserInputRequest
from treadle.client.turn_values import Collector
from treadle.errors import RpcError
from treadle.mcp.mcp_messages import McpClientInfo
from treadle.mcp.mcp_serving import McpCall
from treadle.pages.view_blocks import (
    Block,
    ChangeBlock,
    CommandBlock,
    MessageBlock,
    PlanBlock,
    ThoughtBlock,
    ToolBlock,
    item_blocks,
)
from treadle.protocol.app.base import encode
from treadle.protocol.app.items import ThreadItem
from treadle.protocol.app.threads import ActiveThreadStatus, Thread
from treadle.protocol.app.turns import TurnStatus

Json = Mapping[str, Any]

MAX_TURNS: Final = 32
"""Turns that run at a time for MCP clients; more are refused."""
_MAX_EVENT: Final = 256 * 1024  # of the params of an event; what is larger can be read with `treadle_read`
_MAX_TEXT: Final = 10_000  # of an item that is read, and of a step of a turn
_INTERRUPT_S: Final = 30.0  # for a cancelled turn to end
_APPROVE_S: Final = 300.0  # for a model to answer by `treadle_approve`
_NO: Final = {"action": "decline"}


class ToolFailed(Exception):
    """A call that has failed, with the reason, for the model that made it."""


# --- arguments -------------------------------------------------------------------------------------------------------


_Limit = Annotated[int, Meta(ge=1, le=100)]
_ThreadId = Annotated[str, Meta(description="The id of the thread, from `threadId` of an earlier result.")]


class _Arguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """What is unknown is refused: a misspelled `sandbox` must not run without one. The docstring of a class is what a
    model is offered the tool."""


class _Codex(_Arguments, frozen=True, kw_only=True, rename="kebab"):
    """Run a turn of a coding agent on a new thread, and wait for its answer. `codex-reply` goes on with the thread."""

    prompt: Annotated[str, Meta(description="What the agent is to do.")]
    model: Annotated[str | None, Meta(description="The model, instead of the configured one.")] = None
    profile: Annotated[str | None, Meta(description="A profile of config.toml.")] = None
    cwd: Annotated[str | None, Meta(description="The working directory; a relative one is below the server's.")] = None
    approval_policy: Annotated[
        Literal["untrusted", "on-failure", "on-request", "never"] | None,
        Meta(description="When to ask before a command is run."),
    ] = None
    sandbox: Annotated[
        Literal["read-only", "workspace-write", "danger-full-access"] | None,
        Meta(description="What commands may do with files."),
    ] = None
    config: Annotated[dict[str, Any] | None, Meta(description="Settings for this thread, as in config.toml.")] = None
    base_instructions: Annotated[str | None, Meta(description="Instructions instead of the default ones.")] = None
    developer_instructions: Annotated[str | None, Meta(description="Instructions besides the default ones.")] = None
    compact_prompt: Annotated[str | None, Meta(description="What is asked to compact the conversation.")] = None
    include_plan_tool: Annotated[bool | None, Meta(description="Accepted: the tool is always there.")] = None


class _Reply(_Arguments, frozen=True, kw_only=True):
    """Run the next turn of a thread, and wait for its answer."""

    prompt: Annotated[str, Meta(description="What the agent is to do next.")]
    thread_id: _ThreadId | None = None
    conversation_id: Annotated[str | None, Meta(description="The same, under its old name.")] = None


class _Threads(_Arguments, frozen=True, kw_only=True):
    """List the stored threads, the newest first, with those of other programs, and what waits for approval."""

    cwd: Annotated[str | None, Meta(description="Only those with this working directory.")] = None
    search: Annotated[str | None, Meta(description="Only those with this in their name or first message.")] = None
    archived: Annotated[bool | None, Meta(description="The archived ones instead of the others.")] = None
    limit: _Limit = 20
    cursor: Annotated[str | None, Meta(description="`nextCursor` of the result before.")] = None


class _Read(_Arguments, frozen=True, kw_only=True):
    """Read what was said and done in the last turns of a thread, and what waits for approval."""

    thread_id: _ThreadId
    turns: _Limit = 10


class _Interrupt(_Arguments, frozen=True, kw_only=True):
    """End the running turn of a thread. The thread can go on with another turn."""

    thread_id: _ThreadId


class _Approve(_Arguments, frozen=True, kw_only=True):
    """Answer what a turn has asked for and waits for: `approvals` of `treadle_threads` and `treadle_read`. Ask the user
    before you accept."""

    approval_id: str
    decision: Annotated[
        Literal["accept", "acceptForSession", "decline", "cancel"], Meta(description="`cancel` also ends the turn.")
    ]
    content: Annotated[dict[str, Any] | None, Meta(description="The answers, where a form is to be filled in.")] = None


_TEXT: Final = {"type": "string"}
_TURN_RESULT: Final = {
    "outputSchema": {
        "type": "object",
        "properties": {"threadId": _TEXT, "content": _TEXT},
        "required": ["threadId", "content"],
    }
}
_LOOKS: Final = {"annotations": {"readOnlyHint": True}}
_TOOLS: Final[Mapping[str, tuple[type[_Arguments], Json]]] = {
    "codex": (_Codex, _TURN_RESULT),
    "codex-reply": (_Reply, _TURN_RESULT),
    "treadle_threads": (_Threads, _LOOKS),
    "treadle_read": (_Read, _LOOKS),
    "treadle_interrupt": (_Interrupt, {}),
    "treadle_approve": (_Approve, {}),
}


@cache
def _specs() -> Mapping[str, Json]:
    _, schemas = msgspec.json.schema_components([kind for kind, _ in _TOOLS.values()])
    specs = {}
    for name, (kind, more) in _TOOLS.items():
        schema = schemas[kind.__name__]
        del schema["title"], schema["description"]
        for member in schema["properties"].values():
            # A null is taken, but models need not know.
            member |= member.pop("anyOf", [{}])[0]
            if member.get("default", "") is None:
                del member["default"]
            if "enum" in member:
                member["type"] = "string"
        specs[name] = {"name": name, "description": kind.__doc__ or name, "inputSchema": schema, **more}
    return specs


# --- the tools -------------------------------------------------------------------------------------------------------


class _RunningTurn:
    def __init__(self, call: McpCall) -> None:
        self.call = call
        self.id = ""
        self.cancelled = False
        self.over = asyncio.Event()
        self.declined: list[str] = []


class _Approval(Struct):
    """A question that waits for `treadle_approve`."""

    thread_id: str
    subject: str
    answer: asyncio.Future[Json]


class ThreadTools:
    """The tools, on the threads of one app-server, whose client it is.

    Args:
        config: Which app-server.
        model_approves: Whether the user has allowed that the model of a client answers what that cannot ask its user.
    """

    info: McpClientInfo = McpClientInfo(name="treadle", title="Treadle", version=__version__)
    instructions: str = (
        "`codex` gives a coding agent a task and returns its answer; `codex-reply` goes on with its thread."
    )

    def __init__(self, config: CodexConfig, model_approves: Callable[[], bool]) -> None:
        self.client: AsyncAppServerClient = AsyncAppServerClient(config)
        self.client.handlers.approval = self._decide
        self.client.handlers.user_input = self._fill_in
        self._model_approves = model_approves
        self._connecting = asyncio.Lock()
        self._connected = False
        self._turns: dict[str, _RunningTurn] = {}  # by the id of their thread
        self._calls = 0  # that run a turn, or are about to
        self._approvals: dict[str, _Approval] = {}
        self._numbers = itertools.count(1)

    async def connect(self) -> None:
        """Connect to the app-server, with the first call at the latest. Raises `CodexError`."""
        async with self._connecting:
            if not self._connected:
                await self.client.start()
                await self.client.initialize()
                self._connected = True

    async def close(self) -> None:
        await self.client.close()

    def offered(self, *, can_ask: bool) -> Mapping[str, Json]:
        """The tools. One approves: it is there only where nobody can be asked, and the user allows it to the model."""
        if not can_ask and self._model_approves():
            return _specs()
        return {name: spec for name, spec in _specs().items() if name != "treadle_approve"}

    async def call(self, name: str, arguments: Raw, call: McpCall) -> Json:
        try:
            given = msgspec.json.decode(arguments, type=_TOOLS[name][0])
            await self.connect()
            match given:
                case _Codex() | _Reply():
                    if self._calls >= MAX_TURNS:
                        raise ToolFailed(f"{MAX_TURNS} turns are running: try again when one of them has ended")
                    self._calls += 1
                    try:
                        if isinstance(given, _Codex):
                            return await self._codex(given, call)
                        return await self._reply(given, call)
                    finally:
                        self._calls -= 1
                case _Threads():
                    return await self._threads(given)
                case _Read():
                    return await self._read(given)
                case _Interrupt():
                    return await self._interrupt(given)
                case _Approve():
                    return self._approve(given)
            raise AssertionError(name)
        except (msgspec.DecodeError, UnicodeError) as error:
            return failed(f"the arguments of {name} cannot be used: {error}")
        except (ToolFailed, CodexError, RpcError) as error:
            return failed(getattr(error, "message", None) or str(error))

    # --- turns ---

    async def _codex(self, given: _Codex, call: McpCall) -> Json:
        config = dict(given.config or {})
        config |= {} if given.profile is None else {"profile": given.profile}
        config |= {} if given.compact_prompt is None else {"compact_prompt": given.compact_prompt}
        cwd = None if given.cwd is None else os.path.join(os.getcwd(), given.cwd)
        if cwd is not None and not os.path.isdir(cwd):  # noqa: ASYNC240 - the server in this process does the same
            raise ToolFailed(f"the working directory {cwd} does not exist")
        policy = "on-request" if given.approval_policy == "on-failure" else given.approval_policy
        params = {
            "model": given.model,
            "cwd": cwd,
            "approvalPolicy": policy,
            "sandbox": given.sandbox,
            "config": config or None,
            "baseInstructions": given.base_instructions,
            "developerInstructions": given.developer_instructions,
        }
        started = await self.client.thread_start(params)
        thread_id = started.thread.id
        running = self._turns[thread_id] = _RunningTurn(call)
        try:
            _send_event(running, thread_id, session_configured(started))
            return await self._run(thread_id, running, given.prompt)
        finally:
            await self._release(thread_id, running)

    async def _reply(self, given: _Reply, call: McpCall) -> Json:
        thread_id = given.thread_id or given.conversation_id
        if not thread_id:
            raise ToolFailed("`threadId` is missing")
        before = self._turns.get(thread_id)
        if before is not None and before.cancelled:
            await before.over.wait()  # `_INTERRUPT_S` at most
        busy = f"thread {thread_id} has a turn that runs: wait for its end, or end it with treadle_interrupt"
        if thread_id in self._turns:
            raise ToolFailed(busy)
        running = self._turns[thread_id] = _RunningTurn(call)  # before anything is awaited: a second call is refused
        try:
            resumed = await self.client.thread_resume(thread_id, {"excludeTurns": True})
            if isinstance(resumed.thread.status, ActiveThreadStatus):
                raise ToolFailed(busy)
            return await self._run(thread_id, running, given.prompt)
        finally:
            await self._release(thread_id, running)

    async def _run(self, thread_id: str, running: _RunningTurn, prompt: str) -> Json:
        """Run a turn; a caller that is cancelled interrupts it."""
        client = self.client
        try:
            running.id = (await client.turn_start(thread_id, prompt)).turn.id
            collector, answer = Collector(running.id), None
            while True:
                event = await client.next_turn_notification(thread_id, running.id)
                collector.add(event)
                item = getattr(event.payload, "item", None)
                if event.method == "item/completed" and item is not None and item.type == "agentMessage":
                    answer = item.text
                for message in codex_events(event, answer):
                    _send_event(running, thread_id, message)
                _log(running, thread_id, event)
                if event.method == "turn/completed":
                    return _turn_result(thread_id, collector, running.declined)
        except asyncio.CancelledError:
            running.cancelled = True
            if running.id:
                await self._interrupted(thread_id, running.id)
            raise

    async def _interrupted(self, thread_id: str, turn_id: str) -> None:
        """Interrupt a turn, and wait for its end."""
        try:
            async with asyncio.timeout(_INTERRUPT_S):
                await self.client.turn_interrupt(thread_id, turn_id)
                while (await self.client.next_turn_notification(thread_id, turn_id)).method != "turn/completed":
                    pass
        except (TimeoutError, CodexError):
            self.client.abandon_turn(thread_id, turn_id)
        except asyncio.CancelledError:
            self.client.abandon_turn(thread_id, turn_id)
            raise

    async def _release(self, thread_id: str, running: _RunningTurn) -> None:
        """End a turn of ours. Nothing more is heard of its thread, which can be unloaded; `codex-reply` resumes it."""
        try:
            with suppress(CodexError):
                await self.client.thread_unsubscribe({"threadId": thread_id}, timeout=_INTERRUPT_S)
        finally:
            del self._turns[thread_id]
            running.over.set()

    async def _interrupt(self, given: _Interrupt) -> Json:
        running = self._turns.get(given.thread_id)
        turn_id = running.id if running is not None else ""
        if not turn_id:
            thread = (await self.client.thread_read(given.thread_id, include_turns=True)).thread
            turn_id = next((turn.id for turn in thread.turns[-1:] if turn.status == TurnStatus.in_progress), "")
        if not turn_id:
            raise ToolFailed(f"thread {given.thread_id} has no turn that runs")
        await self.client.turn_interrupt(given.thread_id, turn_id)
        return succeeded({"threadId": given.thread_id, "turnId": turn_id})

    # --- threads ---

    async def _threads(self, given: _Threads) -> Json:
        params = {
            "cwd": given.cwd,
            "searchTerm": given.search,
            "archived": given.archived,
            "limit": given.limit,
            "cursor": given.cursor,
        }
        listed = await self.client.thread_list(params)
        threads = [self._thread(thread) for thread in listed.data]
        return succeeded({"threads": threads, "nextCursor": listed.next_cursor})

    async def _read(self, given: _Read) -> Json:
        thread = (await self.client.thread_read(given.thread_id, include_turns=True)).thread
        turns = [
            {"turnId": turn.id, "status": turn.status, "items": [_shown(item) for item in turn.items]}
            for turn in thread.turns[-given.turns :]
        ]
        return succeeded({**self._thread(thread), "turns": turns})

    def _thread(self, thread: Thread) -> Json:
        approvals = [
            {"approvalId": number, "asksFor": approval.subject}
            for number, approval in self._approvals.items()
            if approval.thread_id == thread.id
        ]
        return {
            "threadId": thread.id,
            "name": thread.name,
            "preview": thread.preview[:_MAX_TEXT],
            "cwd": thread.cwd,
            "model": thread.model,
            "status": "running" if isinstance(thread.status, ActiveThreadStatus) else "idle",
            "createdAt": thread.created_at,
            "updatedAt": thread.updated_at,
            "approvals": approvals,
        }

    # --- questions of the app-server ---

    async def _decide(self, request: ApprovalRequest) -> ApprovalDecision:
        running = await self._turn_of(request.thread_id)
        question = approval_elicitation(request, running.call.id)
        return decision_of(await self._ask(request.thread_id, running, question))

    async def _fill_in(self, request: UserInputRequest) -> dict[str, Any] | None:
        running = await self._turn_of(request.thread_id)
        return form_answers(request, await self._ask(request.thread_id, running, form_elicitation(request)))

    async def _ask(self, thread_id: str, running: _RunningTurn, question: AgentQuestion) -> Json:
        """Ask the client whose turn it is. One that cannot be asked has declined, unless its model may answer."""
        if question.event is not None:
            _send_event(running, thread_id, question.event)
        try:
            if running.call.can_ask(question.params.get("mode", "form")):
                return await running.call.ask(question.params)
            if not running.call.can_ask() and self._model_approves():
                return await self._answered(thread_id, question.subject)
            why = "this MCP client cannot be asked (it has not declared the capability `elicitation`)"
        except RpcError as error:
            why = f"the MCP client did not answer ({error.message})"
        except TimeoutError:
            why = f"nobody answered by treadle_approve within {_APPROVE_S:g} s"
        running.declined.append(f"{question.subject}: {why}")
        return _NO

    async def _answered(self, thread_id: str, subject: str) -> Json:
        """Wait for `treadle_approve`. Raises `TimeoutError`."""
        number = f"approval-{next(self._numbers)}"
        approval = self._approvals[number] = _Approval(thread_id, subject, asyncio.get_running_loop().create_future())
        try:
            async with asyncio.timeout(_APPROVE_S):
                return await approval.answer
        finally:
            del self._approvals[number]

    def _approve(self, given: _Approve) -> Json:
        approval = self._approvals.get(given.approval_id)
        if approval is None or approval.answer.done():
            raise ToolFailed(f"no approval {given.approval_id!r} is open")
        action = given.decision if given.decision in ("decline", "cancel") else "accept"
        approval.answer.set_result({"action": action, "decision": given.decision, "content": given.content})
        return succeeded({"approvalId": given.approval_id, "decision": given.decision})

    async def _turn_of(self, thread_id: str) -> _RunningTurn:
        """The turn of a thread, or of the thread that it works for."""
        wanted: str | None = thread_id
        while wanted is not None:
            if wanted in self._turns:
                return self._turns[wanted]
            wanted = (await self.client.thread_read(wanted)).thread.parent_thread_id
        raise ToolFailed(f"no MCP client has a turn on thread {thread_id}")


# --- what the client is sent of a turn --------------------------------------------------------------------------------


def _send_event(running: _RunningTurn, thread_id: str, message: Json) -> None:
    meta = {"requestId": running.call.id, "threadId": thread_id}
    running.call.notify("codex/event", {"_meta": meta, "id": running.id, "msg": message})


def _log(running: _RunningTurn, thread_id: str, event: Notification) -> None:
    """Send an event as a log message, and the steps that a person should read of as progress, too."""
    payload = event.payload
    params: Any = Raw(encode(payload.params if isinstance(payload, UnknownNotification) else payload))
    if (size := len(bytes(params))) > _MAX_EVENT:
        params = {"tooLarge": size}
    data = {"threadId": thread_id, "turnId": running.id, "method": event.method, "params": params}
    item = getattr(payload, "item", None)
    step = {"turn/started": "started", "turn/completed": "ended"}.get(event.method)
    if item is not None and item.type != "userMessage":
        kinds = (CommandBlock, ToolBlock) if event.method == "item/started" else (MessageBlock, ChangeBlock)
        blocks = [block for block in item_blocks(item) if isinstance(block, kinds)]
        step = "\n".join(map(_text, blocks))[:_MAX_TEXT] if blocks else None
    running.call.report("debug" if event.method.lower().endswith("delta") else "info", data, step)


def _shown(item: ThreadItem) -> dict[str, str]:
    """An item as its type and what it says, cut where it is long."""
    text = "\n".join(map(_text, item_blocks(item)))
    if len(text) > _MAX_TEXT:
        text = f"{text[:_MAX_TEXT]}… ({len(text) - _MAX_TEXT} more characters)"
    return {"type": str(item.type), "text": text}


def _text(block: Block) -> str:
    match block:
        case MessageBlock() | ThoughtBlock() | PlanBlock():
            return block.text
        case CommandBlock():
            return f"$ {block.command}" + (f"\n{block.output}" if block.output else "")
        case ChangeBlock():
            return f"{block.verb} {block.path}"
        case _:
            return block.title


# --- results ---------------------------------------------------------------------------------------------------------


def succeeded(structured: Json) -> Json:
    return {"content": [_block(encode(structured).decode())], "structuredContent": structured}


def failed(reason: str) -> Json:
    return {"content": [_block(reason)], "isError": True}


def _block(text: str) -> Json:
    return {"type": "text", "text": text}


def _turn_result(thread_id: str, collector: Collector, declined: list[str]) -> Json:
    """The answer of the agent; or why there is none. What was declined because nobody could be asked is said beside."""
    is_error = True
    try:
        result = collector.result()
        is_error = result.status != TurnStatus.completed
        content = result.final_response or ("the turn was interrupted" if is_error else "")
    except TurnFailed as error:
        content = str(error)
    structured = {"threadId": thread_id, "content": content}
    return {
        "content": [_block(content), *(_block(f"Declined: {why}") for why in declined)],
        "structuredContent": {**structured, "declined": declined} if declined else structured,
        **({"isError": True} if is_error else {}),
    }
