"""One call of a tool of an MCP server: its item, whether it may run, its progress, and what the model gets of it. The
calls of the three functions for resources are here too.

A tool is asked about by what its server says of it (`needs_approval`), which nobody has checked, and by the settings.
The question is an elicitation, as clients know it, and an automatic reviewer answers it where there is one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import Raw, structs

from treadle.agent.event import DeltaStream
from treadle.agent.thread.authority import CHANGED
from treadle.agent.thread.thread_mcp import ELICITATION, may_elicit
from treadle.agent.tools.approval import (
    Approval,
    ApprovalQuestion,
    ReviewedAction,
    UserDecision,
    is_yes,
    mcp_use,
    policy_name,
)
from treadle.agent.tools.mcp_tools import ListArguments, ReadArguments
from treadle.agent.tools.tool import Output, ToolCall
from treadle.errors import RpcError
from treadle.execution.sandbox.sandbox_modes import is_unconfined
from treadle.mcp.mcp_messages import ListKind, McpError, McpProgress, ToolAnnotations, ToolInfo
from treadle.mcp.results import MAX_TOKENS, item_result, model_output
from treadle.mcp.tool_specs import real_arguments
from treadle.protocol.app.approvals import (
    McpServerElicitationRequestParams,
    McpServerElicitationRequestResponse,
    McpToolCallGuardianApprovalReviewAction,
)
from treadle.protocol.app.base import decode
from treadle.protocol.app.items import McpToolCallError, McpToolCallResult, McpToolCallThreadItem
from treadle.protocol.app.notifications import McpToolCallProgressNotification
from treadle.tools.specs import ToolInputError, parse_arguments

if TYPE_CHECKING:
    from treadle.agent.thread.thread_mcp import ThreadServer
    from treadle.agent.turn.turn import Turn
    from treadle.config.mcp_settings import ApprovalMode

OUR_NAME: Final = "codex"  # what clients call the server of calls that name none
SMALL: Final = 16_384  # characters
MAX_SHOWN: Final = 20  # parameters that a question lists by name
MAX_PROGRESS: Final = 2_000  # characters of a step
NOT_ALLOWED_BY_USER: Final = "user rejected MCP tool call"
CANCELLED: Final = "user cancelled MCP tool call"
INTERRUPTED: Final = "interrupted by the user"
REFUSED: Final = "MCP tool call requires approval, but approval policy is {policy}"
ONLY_PLANS: Final = "not run: it may change something, and in plan mode nothing is changed. Put it into the plan."
_NO_HINTS: Final = ToolAnnotations()


# --- may it run? ------------------------------------------------------------------------------------------------------


def needs_approval(mode: ApprovalMode, hints: ToolAnnotations | None) -> bool:
    """Whether somebody has to agree, by the mode that the settings give a tool and what its server says of it. What it
    does not say counts as the worst."""
    hints = hints or _NO_HINTS
    match mode:
        case "approve":
            return False
        case "prompt":
            return True
        case "writes":
            return hints.read_only_hint is not True
        case "auto":
            if hints.destructive_hint is True:
                return True
            harmless = hints.destructive_hint is False and hints.open_world_hint is False
            return not (hints.read_only_hint is True or harmless)


def read_answer(
    answer: Raw | RpcError, wanted: type[McpServerElicitationRequestResponse]
) -> UserDecision | Literal["failed"]:
    if isinstance(answer, RpcError):
        return "failed"
    try:
        read = decode(answer, wanted)
    except msgspec.DecodeError:
        return "failed"
    if read.action != "accept":
        return read.action
    match read.meta.get("persist") if isinstance(read.meta, Mapping) else None:
        case "session":
            return "acceptForSession"
        case "always":
            return "acceptAlways"
    return "accept"


def question_meta(arguments: Mapping[str, Any], persist: Sequence[str]) -> dict[str, Any]:
    """What clients know the question about a tool by, and show of it; `persist` is how long a yes may count."""
    shown = list(arguments.items())[:MAX_SHOWN]
    return {
        "codex_approval_kind": "mcp_tool_call",
        **({"persist": list(persist)} if persist else {}),
        "tool_params": dict(arguments),
        "tool_params_display": [{"name": name, "value": value, "display_name": name} for name, value in shown],
    }


# --- a call -----------------------------------------------------------------------------------------------------------


class _CallItem:
    """The item of a call, from its start to its one end."""

    def __init__(self, turn: Turn, call_id: str, server: str, tool: str, arguments: Any, **more: Any) -> None:
        self._turn = turn
        self._began = time.monotonic()
        self.item = McpToolCallThreadItem(
            id=call_id, server=server, tool=tool, arguments=arguments, status="inProgress", **more
        )
        turn.items.start(self.item)

    def running(self) -> None:
        """What it took before was the wait for an answer, and not the call."""
        self._began = time.monotonic()

    def succeed(self, result: McpToolCallResult) -> None:
        self._end("completed", result=result)

    def fail(self, error: str | None, result: McpToolCallResult | None = None) -> None:
        self._end("failed", error=None if error is None else McpToolCallError(message=error), result=result)

    def _end(self, status: str, **more: Any) -> None:
        took = int((time.monotonic() - self._began) * 1000)
        if self._turn.thread.journal.failure is None:  # else the turn has ended without it
            self._turn.items.complete(structs.replace(self.item, status=status, duration_ms=took, **more))


class McpToolCall:
    def __init__(self, call: ToolCall, server: ThreadServer, tool: ToolInfo) -> None:
        self._call = call
        self._turn = call.turn
        self._thread = call.turn.thread
        self._server = server
        self._name = server.config.name
        self._tool = tool
        self._hints = tool.annotations or _NO_HINTS
        self._approval = Approval(call.turn, f"`{self._name}/{tool.name}`")
        self._arguments: dict[str, Any] = {}

    async def run(self) -> Output:
        began = time.monotonic()
        try:
            self._arguments = real_arguments(self._tool.input_schema, parse_arguments(self._call.text, dict[str, Any]))
        except ToolInputError as error:
            return _told(error.message, began)
        item = _CallItem(
            self._turn,
            self._call.id,
            self._name,
            self._tool.name,
            self._arguments,
            read_only_hint=self._hints.read_only_hint,
        )
        try:
            refusal = await self._permission()
            item.running()
            if refusal is not None:
                item.fail(refusal)
                # An automatic reviewer has more to say to the model, and counts, when the item has ended.
                reviewed = refusal == NOT_ALLOWED_BY_USER and self._approval.was_reviewed
                return _told(self._approval.denied("decline") if reviewed else refusal, began)
            async with self._server.calling(self._turn) as connection:
                result = await connection.call_tool(
                    self._tool.name, self._arguments, meta=self._meta(), on_progress=self._publish_progress
                )
        except McpError as error:
            item.fail(error.message)
            return _told(error.message, began)
        except asyncio.CancelledError:
            item.fail(INTERRUPTED)
            raise
        content, structured, meta = item_result(result.content, result.structured_content, result.meta)
        shown = McpToolCallResult(content=tuple(content), structured_content=structured, meta=meta)
        if result.is_error:
            item.fail(None, shown)
        else:
            item.succeed(shown)
        return await _output(self._call, result.content, result.structured_content, time.monotonic() - began)

    def _meta(self) -> dict[str, Any]:
        """What the server is told of the call, under the names that servers know."""
        thread, turn = self._thread, self._turn
        ids = {"session_id": thread.id, "thread_id": thread.id, "turn_id": turn.id, "model": turn.settings.model}
        return {
            "callId": self._call.id,
            "itemId": self._call.id,
            "threadId": thread.id,
            "sessionId": thread.id,
            "x-codex-turn-metadata": ids,
        }

    def _publish_progress(self, progress: McpProgress) -> None:
        """For whoever looks now: it is not stored, and the session sees to it that there is not too much of it."""
        total = "" if progress.total is None else f"/{progress.total:g}"
        params = McpToolCallProgressNotification(
            thread_id=self._thread.id,
            turn_id=self._turn.id,
            item_id=self._call.id,
            message=(progress.message or f"{progress.progress:g}{total}")[:MAX_PROGRESS],
        )
        self._thread.journal.append(DeltaStream("item/mcpToolCall/progress", lambda *, delta: params), "")

    # --- asking ---

    async def _permission(self) -> str | None:
        """None when it may run, else why it may not."""
        settings, authority = self._approval.settings, self._thread.authority
        mode = self._server.config.approval_of(self._tool.name)
        key = self._name, self._tool.name
        if settings.mode == "plan" and self._hints.read_only_hint is not True:
            if self._hints.read_only_hint is False or self._hints.destructive_hint is True:
                return ONLY_PLANS
            mode = "prompt"  # nobody knows what it does: only the user can say
        elif (
            not needs_approval(mode, self._hints)
            or (mode == "auto" and key in authority.mcp_tools)
            or (settings.approval_policy == "never" and is_unconfined(settings.in_force))
        ):
            return None
        if not may_elicit(settings):
            return REFUSED.format(policy=policy_name(settings))
        question = ApprovalQuestion(
            ELICITATION,
            partial(self._question, may_persist=mode == "auto"),
            McpServerElicitationRequestResponse,
            mcp_use(self._call.id, self._name, self._tool.name, self._arguments),
            self._action,
            read_answer,
        )
        outcome = await self._approval.ask(question)
        if not is_yes(outcome):
            return CANCELLED if outcome == "cancel" else CHANGED if outcome == "withdrawn" else NOT_ALLOWED_BY_USER
        if self._approval.outdated:
            return CHANGED
        if mode == "auto" and outcome in ("acceptForSession", "acceptAlways"):
            authority.mcp_tools.add(key)
        if mode == "auto" and outcome == "acceptAlways":
            problem = await self._thread.services.mcp.approve_always(self._name, self._tool.name)
            if problem is not None:
                self._turn.report.warning(
                    f"`{self._name}/{self._tool.name}` is allowed for this session only: the approval was not stored, "
                    f"because {problem}."
                )
        return None

    def _question(self, *, may_persist: bool) -> McpServerElicitationRequestParams:
        meta = question_meta(self._arguments, ("session", "always") if may_persist else ())
        if self._tool.title is not None:
            meta["tool_title"] = self._tool.title
        meta["tool_description"] = self._tool.description
        return McpServerElicitationRequestParams(
            thread_id=self._thread.id,
            turn_id=self._turn.id,
            server_name=self._name,
            mode="form",
            meta=meta,
            message=f'Allow the {self._name} MCP server to run tool "{self._tool.name}"?',
            requested_schema={"type": "object", "properties": {}},
        )

    def _action(self) -> ReviewedAction:
        shown = McpToolCallGuardianApprovalReviewAction(
            server=self._name, tool_name=self._tool.name, tool_title=self._tool.title
        )
        exact = {
            "tool": "a tool of an MCP server",
            "server": self._name,
            "name": self._tool.name,
            "arguments": self._arguments,
            "what the server says of it": self._tool.description,
        }
        return ReviewedAction(item_id=self._call.id, shown=shown, exact=exact)


def _told(text: str, began: float) -> Output:
    """What the model gets when there is no result, in the same form."""
    header = f"Wall time: {time.monotonic() - began:.4f} seconds\nOutput:"
    return [{"type": "input_text", "text": header}, {"type": "input_text", "text": text}]


async def _output(call: ToolCall, content: Sequence[Any], structured: object, seconds: float) -> Output:
    """What the model gets of a result; of a large one the whole goes into a file."""
    thread = call.turn.thread
    config, mcp = thread.services.config_for(call.turn.settings), thread.mcp
    assert mcp is not None
    work = partial(
        model_output,
        content,
        structured,
        seconds=seconds,
        keep=mcp.files.keep,
        max_tokens=config.tool_output_token_limit or MAX_TOKENS,
        sees_images=thread.model_facts.supports_images,
    )
    return work() if _is_small(content, structured) else await asyncio.to_thread(work)


def _is_small(content: Sequence[Any], structured: object) -> bool:
    """Whether it is not worth a change to another thread. What is not plain text counts as large."""
    if structured is not None:
        return False
    texts = [block.get("text") if isinstance(block, Mapping) else None for block in content]
    return len(texts) < SMALL and sum(len(text) if isinstance(text, str) else SMALL for text in texts) < SMALL


# --- resources --------------------------------------------------------------------------------------------------------


async def list_resources(call: ToolCall, given: ListArguments, kind: ListKind) -> Output:
    member = "resources" if kind == "resources" else "resourceTemplates"

    async def work() -> dict[str, Any]:
        if given.server is None:
            if given.cursor is not None:
                raise ToolInputError("cursor can only be used when a server is specified")
            # Nothing of a server that cannot say, because the others can.
            usable = [server.connection for server in _servers(call).values() if server.state == "connected"]
            found = await asyncio.gather(*(server.list_all(kind) for server in usable))
            named = [_entries(server.name, raws) for server, raws in zip(usable, found, strict=True)]
            return {member: [entry for entries in named for entry in entries]}
        server = _server(call, given.server)
        try:
            page = await server.connection.list_page(kind, given.cursor)
        except McpError as error:
            raise McpError(error.kind, f"{kind}/list failed for `{given.server}`: {_reason(error)}") from None
        following = {} if page.next_cursor is None else {"nextCursor": page.next_cursor}
        return {"server": given.server, member: _entries(given.server, page.entries), **following}

    return await _resource_call(call, given.server, work)


def _entries(server: str, raws: Sequence[Raw]) -> list[Any]:
    """What is listed, with the server in front, whatever it calls itself. What is no object is left out."""
    entries = (msgspec.json.decode(raw) for raw in raws)
    return [{"server": server} | entry | {"server": server} for entry in entries if isinstance(entry, dict)]


async def read_resource(call: ToolCall, given: ReadArguments) -> Output:
    async def work() -> dict[str, Any]:
        server = _server(call, given.server)
        async with server.calling(call.turn) as connection:
            try:
                read = await connection.read_resource(given.uri)
            except McpError as error:
                failed = f"resources/read failed for `{given.server}` ({given.uri})"
                raise McpError(error.kind, f"resources/read failed: {failed}: {_reason(error)}") from None
        return {"server": given.server, "uri": given.uri, "contents": read.contents}

    return await _resource_call(call, given.server, work)


async def _resource_call(call: ToolCall, server: str | None, work: Callable[[], Awaitable[dict[str, Any]]]) -> Output:
    began = time.monotonic()
    arguments: Any = parse_arguments(call.text, Any)
    item = _CallItem(call.turn, call.id, server or OUR_NAME, call.name, arguments)
    try:
        answer = msgspec.json.encode(await work()).decode()
    except (McpError, ToolInputError) as error:
        item.fail(error.message)
        return error.message
    except asyncio.CancelledError:
        item.fail(INTERRUPTED)
        raise
    block = {"type": "text", "text": answer}
    item.succeed(McpToolCallResult(content=tuple(item_result([block], None, None)[0])))
    return answer if len(answer) <= SMALL else await _output(call, [block], None, time.monotonic() - began)


def _servers(call: ToolCall) -> Mapping[str, ThreadServer]:
    mcp = call.turn.thread.mcp
    return {} if mcp is None else mcp.servers


def _server(call: ToolCall, name: str) -> ThreadServer:
    server = _servers(call).get(name)
    if server is None or server.state == "disabled":
        raise ToolInputError(f"unknown MCP server '{name}'")
    return server


def _reason(error: McpError) -> str:
    return f"Mcp error: {error.code}: {error.message}" if error.kind == "rpc" else error.message
