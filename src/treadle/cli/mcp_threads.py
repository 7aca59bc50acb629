"""`ThreadTools`: the tools that Treadle offers as an MCP server: turns on threads, and threads to look at.

It owns the turns that MCP clients have started, and the questions of the app-server that wait for their answers.
`codex` and `codex-reply` are as codex's own `mcp-server` had them. Knows nothing of how messages travel: that is
`treadle.mcp.mcp_serving`.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from treadle._version import __version__
from treadle.client import AsyncAppServerClient, CodexError
from treadle.client.notification import Notification, UnknownNotification
from treadle.errors import RpcError
from treadle.mcp.mcp_messages import McpClientInfo
from treadle.mcp.mcp_serving import McpCall
from treadle.protocol.app.base import encode
from treadle.protocol.app.items import (
    AgentMessageThreadItem,
    CommandExecutionThreadItem,
    FileChangeThreadItem,
    McpToolCallThreadItem,
    ThreadItem,
    UnknownItem,
    UserMessageThreadItem,
)
from treadle.protocol.app.threads import ActiveThreadStatus, Thread
from treadle.protocol.app.turns import Turn, TurnStatus

Json = Mapping[str, Any]

MAX_TURNS: Final = 32
"""Turns that run at a time for MCP clients; more are refused."""
_MAX_EVENT: Final = 256 * 1024  # of the params of an event; what is larger can be read with `treadle_read`
_MAX_TEXT: Final = 10_000  # of an item that is read, and of a step of a turn
_NOBODY: Final = "this MCP client cannot be asked (it has not declared the capability `elicitation`)"


class ToolFailed(Exception):
    """A call that has failed, with the reason, for the model that made it."""


# --- arguments -------------------------------------------------------------------------------------------------------


_Limit = Annotated[int, Meta(ge=1, le=100)]
_ThreadId = Annotated[str, Meta(description="The id of the thread, from `threadId` of an earlier result.")]


class _Arguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """What is unknown is refused: a misspelled `sandbox` must not run without one. The docstring of a class is what a
    model is told of the tool."""


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
    """Answer what a turn has asked for and waits for: `approvals` of `treadle_threads` and `treadle_read`."""

    approval_id: str
    decision: Annotated[
        Literal["accept", "acceptForSession", "decline", "cancel"], Meta(description="`cancel` also ends the turn.")
    ]
    content: Annotated[dict[str, Any] | None, Meta(description="The answers, where a form is to be filled in.")] = None


_KINDS: Final[Mapping[str, type[_Arguments]]] = {
    "codex": _Codex,
    "codex-reply": _Reply,
    "treadle_threads": _Threads,
    "treadle_read": _Read,
    "treadle_interrupt": _Interrupt,
    "treadle_approve": _Approve,
}
_TEXT: Final = {"type": "string"}
_TURN_RESULT: Final = {
    "type": "object",
    "properties": {"threadId": _TEXT, "content": _TEXT},
    "required": ["threadId", "content"],
}
_LOOKS: Final = {"readOnlyHint": True}
_MORE: Final[Mapping[str, Json]] = {
    "codex": {"outputSchema": _TURN_RESULT},
    "codex-reply": {"outputSchema": _TURN_RESULT},
    "treadle_threads": {"annotations": _LOOKS},
    "treadle_read": {"annotations": _LOOKS},
}


# --- questions of the app-server -------------------------------------------------------------------------------------

_NO: Final = {"action": "decline"}
_DECISIONS: Final = {
    "accept": "accept",
    "acceptForSession": "acceptForSession",
    "approved": "accept",
    "approved_for_session": "acceptForSession",
    "abort": "cancel",
    "cancel": "cancel",
}


class AgentQuestion(Struct, frozen=True):
    """What is asked, as params of an elicitation, and how its answer is read."""

    subject: str
    params: Json
    answer: Callable[[Json], Any]


def decision_of(answer: Json) -> str:
    """The decision in an answer: of MCP (`action`), or of codex (`decision`). What is not understood is a no."""
    action = answer.get("action")
    if action in ("decline", "cancel") or "decision" not in answer:
        return action if action in ("accept", "cancel") else "decline"
    decision = answer["decision"]
    return _DECISIONS.get(decision, "decline") if isinstance(decision, str) else "decline"


def question_of(method: str, params: Json, call_id: int | str, files: tuple[str, ...]) -> AgentQuestion:
    """Raises `ToolFailed` for what an MCP client cannot be asked."""

    def approval(kind: str, subject: str, message: str, answer: Callable[[Json], Any], **more: Any) -> AgentQuestion:
        reason = params.get("reason")
        asked = {
            "message": f"{reason}\n{message}" if reason else message,
            "requestedSchema": {"type": "object", "properties": {}},
            "threadId": params["threadId"],
            "codex_elicitation": kind,
            "codex_mcp_tool_call_id": call_id,
            "codex_event_id": params["turnId"],
            "codex_call_id": params["itemId"],
            **more,
        }
        return AgentQuestion(subject, asked, answer)

    match method:
        case "item/commandExecution/requestApproval":
            command, cwd = params.get("command") or "a command", params.get("cwd") or ""
            return approval(
                "exec-approval",
                command,
                f"Allow the agent to run `{command}` in `{cwd}`?",
                lambda given: {"decision": decision_of(given)},
                codex_command=_words(command),
                codex_cwd=cwd,
            )
        case "item/fileChange/requestApproval":
            what = f"changes of {', '.join(files)}" if files else "changes of files"
            return approval(
                "patch-approval",
                what,
                f"Allow the agent to apply {what}?",
                lambda given: {"decision": decision_of(given)},
                codex_grant_root=params.get("grantRoot"),
            )
        case "item/permissions/requestApproval":
            wanted = params["permissions"]

            def granted(given: Json) -> Json:
                decision = decision_of(given)
                scope = "session" if decision == "acceptForSession" else "turn"
                return {"permissions": wanted if decision.startswith("accept") else {}, "scope": scope}

            what = f"the permissions {encode(wanted).decode()}"
            return approval("permissions-approval", what, f"Give the agent {what}?", granted)
        case "item/tool/requestUserInput":
            return _form(params["questions"])
        case "mcpServer/elicitation/request":
            names = ("mode", "message", "requestedSchema", "url", "elicitationId", "_meta")
            asked = {name: params[name] for name in names if params.get(name) is not None}
            if asked.get("mode") != "url":
                asked["mode"] = "form"
            # Whoever is asked must see which server wants it, and with what its tool would be called.
            told = (asked.get("_meta") or {}).get("tool_params")
            shown = "" if told is None else f"\n{encode(told).decode()[:_MAX_TEXT]}"
            asked["message"] = f"MCP server {params['serverName']}: {params['message']}{shown}"
            return AgentQuestion(params["message"], asked, _elicited)
    raise ToolFailed(f"an MCP client cannot be asked {method}")


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return [command]


def _elicited(given: Json) -> Json:
    decision = decision_of(given)
    meta = {"persist": "session"} if decision == "acceptForSession" else given.get("_meta")
    action = "accept" if decision.startswith("accept") else decision
    return {"action": action, "content": given.get("content"), "_meta": meta}


def _form(questions: list[Any]) -> AgentQuestion:
    properties: dict[str, Any] = {}
    for asked in questions:
        words = [option["label"] for option in asked.get("options") or ()]
        closed = words if words and not asked.get("isOther") else []
        named = {"type": "string", "title": asked["header"], "description": asked["question"]}
        properties[asked["id"]] = {**named, "enum": closed} if closed else named

    def answers(given: Json) -> Json:
        content = given.get("content")
        if not decision_of(given).startswith("accept") or not isinstance(content, Mapping):
            return {"answers": {}}
        return {"answers": {name: {"answers": [str(content[name])]} for name in properties if name in content}}

    message = "\n".join(asked["question"] for asked in questions)
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    return AgentQuestion(message, {"message": message, "requestedSchema": schema}, answers)


class _Approval:
    """A question that waits for its answer."""

    def __init__(self, thread_id: str, subject: str, asking: asyncio.Future[Json]) -> None:
        self.thread_id = thread_id
        self.subject = subject
        self.asking = asking
        self.answer: Json | None = None  # of somebody else than the one who was asked


class _RunningTurn:
    def __init__(self, call: McpCall) -> None:
        self.call = call
        self.id = ""
        self.files: dict[str, tuple[str, ...]] = {}  # that a patch changes, by the id of its item
        self.declined: list[str] = []


# --- the tools -------------------------------------------------------------------------------------------------------


class ThreadTools:
    """The tools, on the threads of one app-server. `client` is set once it is connected."""

    client: AsyncAppServerClient
    info: McpClientInfo = McpClientInfo(name="treadle", title="Treadle", version=__version__)
    instructions: str = (
        "`codex` gives a coding agent a task and returns its answer; `codex-reply` goes on with its thread."
    )
    names: Collection[str] = tuple(_KINDS)

    def __init__(self) -> None:
        self._turns: dict[str, _RunningTurn] = {}  # by the id of their thread
        self._starting = 0
        self._interrupted: set[str] = set()  # threads whose last turn of ours was cancelled, and may not have ended
        self._approvals: dict[str, _Approval] = {}
        self._numbers = itertools.count(1)

    def specs(self) -> Sequence[Json]:
        _, schemas = msgspec.json.schema_components(_KINDS.values())
        found = []
        for name, kind in _KINDS.items():
            schema = schemas[kind.__name__]
            del schema["title"], schema["description"]
            for member in schema["properties"].values():
                # A null is taken, but models need not know.
                member |= member.pop("anyOf", [{}])[0]
                if member.get("default", "") is None:
                    del member["default"]
                if "enum" in member:
                    member["type"] = "string"
            found.append(
                {"name": name, "description": kind.__doc__ or name, "inputSchema": schema, **_MORE.get(name, {})}
            )
        return found

    async def call(self, name: str, arguments: Raw, call: McpCall) -> Json:
        """Call a tool; gives its result. Raises `KeyError` for a name that is none."""
        try:
            match msgspec.json.decode(arguments, type=_KINDS[name]):
                case _Codex() as given:
                    return await self._codex(given, call)
                case _Reply() as given:
                    return await self._reply(given, call)
                case _Threads() as given:
                    return await self._threads(given)
                case _Read() as given:
                    return await self._read(given)
                case _Interrupt() as given:
                    return await self._interrupt(given)
                case _Approve() as given:
                    return self._approve(given)
            raise AssertionError(name)
        except (msgspec.DecodeError, UnicodeError) as error:
            return failed(f"the arguments of {name} cannot be used: {error}")
        except (ToolFailed, CodexError, RpcError) as error:
            return failed(getattr(error, "message", None) or str(error))

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
        self._check_room()
        self._starting += 1
        try:
            thread_id = (await self.client.thread_start(params)).thread.id
        finally:
            self._starting -= 1
        return await self._run(thread_id, given.prompt, call)

    async def _reply(self, given: _Reply, call: McpCall) -> Json:
        thread_id = given.thread_id or given.conversation_id
        if not thread_id:
            raise ToolFailed("`threadId` is missing")
        busy = f"thread {thread_id} has a turn that runs: wait for its end, or end it with treadle_interrupt"
        self._check_room()
        if thread_id in self._turns:
            raise ToolFailed(busy)
        self._turns[thread_id] = _RunningTurn(call)  # before anything is awaited: a second call is refused
        try:
            resumed = await self.client.thread_resume(thread_id, {"excludeTurns": True})
            # The end of a cancelled turn is waited for; a turn of somebody else is not.
            if isinstance(resumed.thread.status, ActiveThreadStatus) and thread_id not in self._interrupted:
                raise ToolFailed(busy)
            return await self._run(thread_id, given.prompt, call)
        finally:
            self._turns.pop(thread_id, None)

    def _check_room(self) -> None:
        if len(self._turns) + self._starting >= MAX_TURNS:
            raise ToolFailed(f"{MAX_TURNS} turns are running: try again when one of them has ended")

    async def _run(self, thread_id: str, prompt: str, call: McpCall) -> Json:
        """Run a turn; a caller that is cancelled interrupts it."""
        client, text = self.client, ""
        running = self._turns[thread_id] = _RunningTurn(call)
        try:
            running.id = (await client.turn_start(thread_id, prompt)).turn.id
            self._interrupted.discard(thread_id)
            while True:
                event = await client.next_turn_notification(thread_id, running.id)
                payload: Any = event.payload
                item = getattr(payload, "item", None)
                if isinstance(item, FileChangeThreadItem):
                    running.files[item.id] = tuple(change.path for change in item.changes)
                if isinstance(item, AgentMessageThreadItem) and event.method == "item/completed":
                    text = item.text
                params = _params_of(event)
                shown = params if len(bytes(params)) <= _MAX_EVENT else {"tooLarge": len(bytes(params))}
                data = {"threadId": thread_id, "turnId": running.id, "method": event.method, "params": shown}
                call.report("debug" if event.method.lower().endswith("delta") else "info", data, _step(event))
                if event.method == "turn/completed":
                    return _turn_result(thread_id, payload.turn, text, running.declined)
        except asyncio.CancelledError:
            self._interrupted.add(thread_id)
            if running.id:
                client.abandon_turn(thread_id, running.id)
            raise
        finally:
            del self._turns[thread_id]

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

    def _approve(self, given: _Approve) -> Json:
        approval = self._approvals.get(given.approval_id)
        if approval is None or approval.asking.done() or approval.answer is not None:
            raise ToolFailed(f"no approval {given.approval_id!r} is open")
        action = given.decision if given.decision in ("decline", "cancel") else "accept"
        approval.answer = {"action": action, "decision": given.decision, "content": given.content}
        approval.asking.cancel()  # whoever was asked need not answer any more
        return succeeded({"approvalId": given.approval_id, "decision": given.decision})

    # --- questions of the app-server ---

    async def answer(self, method: str, params: dict[str, Any] | None) -> Any:
        """Answer a request of the app-server: ask the client whose turn it is."""
        params = params or {}
        running = await self._turn_of(params.get("threadId", ""))
        question = question_of(method, params, running.call.id, running.files.get(params.get("itemId", ""), ()))
        if not running.call.can_ask(question.params.get("mode", "form")):
            running.declined.append(f"{question.subject}: {_NOBODY}")
            return question.answer(_NO)
        number = f"approval-{next(self._numbers)}"
        asked = {**question.params, "_meta": {**(question.params.get("_meta") or {}), "treadle/approvalId": number}}
        approval = _Approval(params["threadId"], question.subject, asyncio.ensure_future(running.call.ask(asked)))
        self._approvals[number] = approval
        try:
            return question.answer(await approval.asking)
        except asyncio.CancelledError:
            if approval.answer is None:
                raise
            return question.answer(approval.answer)
        except RpcError as error:
            running.declined.append(f"{question.subject}: the MCP client did not answer ({error.message})")
            return question.answer(_NO)
        finally:
            del self._approvals[number]

    async def _turn_of(self, thread_id: str) -> _RunningTurn:
        """The turn of a thread, or of the thread that it works for."""
        wanted: str | None = thread_id
        while wanted is not None:
            if wanted in self._turns:
                return self._turns[wanted]
            wanted = (await self.client.thread_read(wanted)).thread.parent_thread_id
        raise ToolFailed(f"no MCP client has a turn on thread {thread_id}")


# --- results ---------------------------------------------------------------------------------------------------------


def succeeded(structured: Json) -> Json:
    return {"content": [_block(encode(structured).decode())], "structuredContent": structured}


def failed(reason: str) -> Json:
    return {"content": [_block(reason)], "isError": True}


def _block(text: str) -> Json:
    return {"type": "text", "text": text}


def _turn_result(thread_id: str, turn: Turn, text: str, declined: list[str]) -> Json:
    """The answer of the agent; or why there is none. What was declined because nobody could be asked is said beside."""
    content = text
    is_error = turn.status != TurnStatus.completed
    if turn.status == TurnStatus.interrupted:
        content = text or "the turn was interrupted"
    elif is_error:
        content = turn.error.message if turn.error is not None else f"the turn has ended as {turn.status}"
    notes = [_block(f"Declined: {why}") for why in declined]
    structured = {"threadId": thread_id, "content": content}
    return {
        "content": [_block(content), *notes],
        "structuredContent": {**structured, "declined": declined} if declined else structured,
        **({"isError": True} if is_error else {}),
    }


def _params_of(event: Notification) -> Raw:
    payload = event.payload
    return Raw(encode(payload.params if isinstance(payload, UnknownNotification) else payload))


def _step(event: Notification) -> str | None:
    """What a person is told of an event."""
    payload: Any = event.payload
    item = getattr(payload, "item", None)
    if event.method == "item/started" and isinstance(item, CommandExecutionThreadItem | McpToolCallThreadItem):
        return _shown(item)["text"]
    if event.method == "item/completed" and isinstance(item, AgentMessageThreadItem | FileChangeThreadItem):
        return _shown(item)["text"]
    return {"turn/started": "started", "turn/completed": "ended"}.get(event.method)


def _shown(item: ThreadItem) -> dict[str, str]:
    """An item as its type and what it says, cut where it is long."""
    match item:
        case UserMessageThreadItem():
            text = "\n".join(part for given in item.content if (part := getattr(given, "text", "")))
        case CommandExecutionThreadItem():
            text = f"$ {item.command}" + (f"\n{item.aggregated_output}" if item.aggregated_output else "")
        case FileChangeThreadItem():
            text = "\n".join(change.path for change in item.changes)
        case McpToolCallThreadItem():
            text = f"{item.server}.{item.tool}"
        case _:
            text = str(getattr(item, "text", ""))
    if len(text) > _MAX_TEXT:
        text = f"{text[:_MAX_TEXT]}… ({len(text) - _MAX_TEXT} more characters)"
    return {"type": "unknown" if isinstance(item, UnknownItem) else str(item.__struct_config__.tag), "text": text}
