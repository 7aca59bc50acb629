"""Requests of the server: what it may ask of the program that drives it, as public types, which handler is called with
what, and how its return value is sent.

An `approval_handler` gets an `ApprovalRequest` and returns True, False or an `ApprovalDecision`; a `user_input_handler`
gets a `UserInputRequest` and returns the answers, or None. The clients only run the `HandlerCall`, on a thread of its
own or as a task. Everything fails closed: no handler, an unknown request, a handler that raises or returns nonsense,
all mean no.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct

from treadle.client.own_thread import may_block
from treadle.client.requests import Handlers
from treadle.client.router import ServerRequest
from treadle.errors import INTERNAL_ERROR, METHOD_NOT_FOUND, OVERLOADED
from treadle.protocol.app.approvals import (
    CommandExecutionRequestApprovalParams,
    CommandExecutionRequestApprovalResponse,
    FileChangeRequestApprovalParams,
    FileChangeRequestApprovalResponse,
    McpServerElicitationRequestParams,
    McpServerElicitationRequestResponse,
    PermissionsRequestApprovalParams,
    PermissionsRequestApprovalResponse,
    RequestPermissionProfile,
    ToolRequestUserInputAnswer,
    ToolRequestUserInputParams,
    ToolRequestUserInputQuestion,
    ToolRequestUserInputResponse,
)
from treadle.protocol.app.base import decode, encode
from treadle.protocol.app.item_parts import (
    DynamicToolCallParams,
    DynamicToolCallResponse,
    FileUpdateChange,
    InputTextDynamicToolCallOutputContentItem,
)
from treadle.tools.command.command_shell import asked

logger: logging.Logger = logging.getLogger(__name__)

Changes: TypeAlias = "Callable[[str], tuple[FileUpdateChange, ...]]"
"""Finds the file changes of a patch by the id of its item."""

_NOTHING_GRANTED: Final = PermissionsRequestApprovalResponse(permissions=RequestPermissionProfile())


class ApprovalDecision(StrEnum):
    """`accept_for_session` also covers the same thing later on; `cancel` declines and ends the turn."""

    accept = "accept"
    accept_for_session = "acceptForSession"
    decline = "decline"
    cancel = "cancel"


class ApprovalRequest(Struct, frozen=True, kw_only=True):
    """Something that is not done without a yes.

    `kind` says what: a `command` (with `command`, as the model asked for it, and `cwd`), a `patch` (with `changes`),
    `permissions` for the rest of the turn (with `permissions`), a `tool` of an MCP server (with `server`, `tool` and
    `arguments`), or `sampling`: an MCP server wants to ask the model (with `server`; `reason` has what). The last two
    have no `item_id`: it is empty. `params` is the request as it came.
    """

    kind: Literal["command", "patch", "permissions", "tool", "sampling"]
    thread_id: str
    turn_id: str
    item_id: str
    reason: str | None = None
    command: str | None = None
    cwd: str | None = None
    changes: tuple[FileUpdateChange, ...] = ()
    permissions: RequestPermissionProfile | None = None
    server: str | None = None
    tool: str | None = None
    arguments: Any = None
    params: Any = None


class UserInputRequest(Struct, frozen=True, kw_only=True):
    """Something that the agent, or a tool server, wants to know.

    `questions` are to be answered by their `id`, each with a text or a list of texts. With the kind `elicitation` a
    tool server asks, by its name `server`: `message` says what for, `schema` what the answer looks like, or `url` where
    it is given; then an empty dict says that the page was opened.
    """

    kind: Literal["questions", "elicitation"]
    thread_id: str
    turn_id: str | None
    questions: tuple[ToolRequestUserInputQuestion, ...] = ()
    message: str = ""
    schema: Any = None
    url: str | None = None
    server: str | None = None
    params: Any = None


Verdict: TypeAlias = bool | ApprovalDecision | str | None
ApprovalHandler: TypeAlias = Callable[[ApprovalRequest], Verdict | Awaitable[Verdict]]
Answers: TypeAlias = Mapping[str, str | Sequence[str] | float] | None
UserInputHandler: TypeAlias = Callable[[UserInputRequest], Answers | Awaitable[Answers]]


# --- running a handler ---


class HandlerCall(Struct, frozen=True):
    """`answer(call())` is the result to send; if that raises, `refuse(error)` is."""

    call: Callable[[], Any]
    answer: Callable[[Any], Any]
    refuse: Callable[[Exception], Any]
    blocking: bool = True
    """Whether `call` may take its time. It may give something to await instead."""


class ErrorAnswer(Struct, frozen=True):
    """The answer is a JSON-RPC error."""

    code: int
    message: str


def busy(limit: int) -> ErrorAnswer:
    return ErrorAnswer(OVERLOADED, f"{limit} requests are being answered already")


def answer_frame(server_request: ServerRequest, result: Any) -> bytes:
    """The answer as a frame; one that cannot be encoded becomes an error."""
    if not isinstance(result, ErrorAnswer):
        try:
            return encode({"id": server_request.id, "result": result})
        except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
            logger.warning("the answer to %s cannot be sent: %s", server_request.method, error)
            result = ErrorAnswer(INTERNAL_ERROR, f"this client has no answer that can be sent: {error}")
    return encode({"id": server_request.id, "error": result})


def handler_call_for(server_request: ServerRequest, handlers: Handlers, changes: Changes) -> HandlerCall:
    """What to do about a request of the server."""
    method, raw = server_request.method, handlers.raw
    if raw is not None:

        def call() -> Any:
            params = decode(server_request.params, Any) if bytes(server_request.params) else None
            return raw(method, params if isinstance(params, dict) else None)

        def failed(error: Exception) -> ErrorAnswer:
            return ErrorAnswer(INTERNAL_ERROR, f"the handler failed: {error}")

        return HandlerCall(call, lambda value: value, failed, blocking=may_block(raw))
    prepare = _PREPARE.get(method)
    if prepare is None:
        return _fixed_answer(ErrorAnswer(METHOD_NOT_FOUND, f"this client does not answer {method}"))
    try:
        work = prepare(server_request, handlers, changes)
    except msgspec.DecodeError as error:
        logger.warning("%s cannot be read: %s", method, error)
        return _fixed_answer(ErrorAnswer(INTERNAL_ERROR, f"this client cannot read the request: {error}"))

    def refuse(error: Exception) -> Any:
        # The model is told of a tool that raises, so that is routine; any other failing handler is a bug to be noticed.
        level = logging.DEBUG if method == "item/tool/call" else logging.WARNING
        logger.log(level, "the handler of %s failed", method, exc_info=error)
        return work.refuse(error)

    return HandlerCall(work.call, work.answer, refuse, work.blocking)


def _fixed_answer(result: Any) -> HandlerCall:
    return HandlerCall(lambda: None, lambda _: result, lambda _: result, blocking=False)


# --- approvals ---


def command_request(params: CommandExecutionRequestApprovalParams) -> ApprovalRequest:
    return ApprovalRequest(
        kind="command",
        thread_id=params.thread_id,
        turn_id=params.turn_id,
        item_id=params.item_id,
        reason=None if params.reason is UNSET else params.reason,
        command=None if params.command is None else asked(params.command),
        cwd=params.cwd,
        params=params,
    )


def _approve_command(server_request: ServerRequest, handlers: Handlers, _: Changes) -> HandlerCall:
    request = command_request(decode(server_request.params, CommandExecutionRequestApprovalParams))
    return _decision(handlers, request, lambda it: CommandExecutionRequestApprovalResponse(decision=it.value))


def patch_request(params: FileChangeRequestApprovalParams, changes: tuple[FileUpdateChange, ...]) -> ApprovalRequest:
    return ApprovalRequest(
        kind="patch",
        thread_id=params.thread_id,
        turn_id=params.turn_id,
        item_id=params.item_id,
        reason=params.reason,
        changes=changes,
        params=params,
    )


def _approve_patch(server_request: ServerRequest, handlers: Handlers, changes: Changes) -> HandlerCall:
    params = decode(server_request.params, FileChangeRequestApprovalParams)
    request = patch_request(params, changes(params.item_id))
    return _decision(handlers, request, lambda it: FileChangeRequestApprovalResponse(decision=it.value))


def permissions_request(params: PermissionsRequestApprovalParams) -> ApprovalRequest:
    return ApprovalRequest(
        kind="permissions",
        thread_id=params.thread_id,
        turn_id=params.turn_id,
        item_id=params.item_id,
        reason=params.reason,
        cwd=params.cwd,
        permissions=params.permissions,
        params=params,
    )


def _grant_permissions(server_request: ServerRequest, handlers: Handlers, _: Changes) -> HandlerCall:
    params = decode(server_request.params, PermissionsRequestApprovalParams)

    def answer(decision: ApprovalDecision) -> PermissionsRequestApprovalResponse:
        if decision is ApprovalDecision.accept:
            return PermissionsRequestApprovalResponse(permissions=params.permissions)
        if decision is ApprovalDecision.accept_for_session:
            return PermissionsRequestApprovalResponse(permissions=params.permissions, scope="session")
        return _NOTHING_GRANTED

    return _decision(handlers, permissions_request(params), answer)


def elicitation_request(params: McpServerElicitationRequestParams) -> ApprovalRequest | None:
    """The approval that an elicitation is really about; None when a server asks something."""
    meta = params.meta if isinstance(params.meta, dict) else {}
    kind = meta.get("codex_approval_kind")
    if kind is None:
        return None
    return ApprovalRequest(
        kind="sampling" if kind == "mcp_sampling" else "tool",
        thread_id=params.thread_id,
        turn_id=params.turn_id or "",
        item_id="",
        reason=params.message,
        server=params.server_name,
        tool=_tool_of(params),
        arguments=meta.get("tool_params"),
        params=params,
    )


def _tool_of(params: McpServerElicitationRequestParams) -> str | None:
    """The tool's own name: the protocol has it in the message alone, which is the app-server's and not the tool's."""
    before, after = f'Allow the {params.server_name} MCP server to run tool "', '"?'
    if params.message.startswith(before) and params.message.endswith(after):
        return params.message[len(before) : -len(after)]
    return None


def elicitation_answer(
    params: McpServerElicitationRequestParams, decision: ApprovalDecision
) -> McpServerElicitationRequestResponse:
    match decision:
        case ApprovalDecision.accept | ApprovalDecision.accept_for_session:
            offered = params.meta.get("persist") or ()
            lasts = decision is ApprovalDecision.accept_for_session and "session" in offered
            return McpServerElicitationRequestResponse(
                action="accept", content={}, meta={"persist": "session"} if lasts else None
            )
        case ApprovalDecision.decline:
            return McpServerElicitationRequestResponse(action="decline")
        case ApprovalDecision.cancel:
            return McpServerElicitationRequestResponse(action="cancel")


def _decision(handlers: Handlers, request: ApprovalRequest, answer: Callable[[ApprovalDecision], Any]) -> HandlerCall:
    handler = handlers.approval
    declined = answer(ApprovalDecision.decline)
    if handler is None:
        return _fixed_answer(declined)
    return HandlerCall(
        lambda: handler(request),
        lambda verdict: answer(decision_of(verdict)),
        lambda _: declined,
        blocking=may_block(handler),
    )


def decision_of(verdict: Verdict) -> ApprovalDecision:
    """The decision that a handler returned. What is not understood is an error, and so a no."""
    if verdict is True:
        return ApprovalDecision.accept
    if verdict is False or verdict is None:
        return ApprovalDecision.decline
    if verdict in ApprovalDecision.__members__:
        return ApprovalDecision[verdict]
    return ApprovalDecision(verdict)


# --- questions ---


def _ask_questions(server_request: ServerRequest, handlers: Handlers, _: Changes) -> HandlerCall:
    params = decode(server_request.params, ToolRequestUserInputParams)
    nothing = ToolRequestUserInputResponse(answers={})
    handler = handlers.user_input
    if handler is None:
        return _fixed_answer(nothing)
    request = UserInputRequest(
        kind="questions",
        thread_id=params.thread_id,
        turn_id=params.turn_id,
        questions=params.questions,
        params=params,
    )

    def answer(given: Answers) -> ToolRequestUserInputResponse:
        answers = {
            name: ToolRequestUserInputAnswer(answers=tuple(text) if isinstance(text, list | tuple) else (str(text),))
            for name, text in (given or {}).items()
        }
        return ToolRequestUserInputResponse(answers=answers)

    return HandlerCall(lambda: handler(request), answer, lambda _: nothing, blocking=may_block(handler))


def _elicit(server_request: ServerRequest, handlers: Handlers, _: Changes) -> HandlerCall:
    params = decode(server_request.params, McpServerElicitationRequestParams)
    approval = elicitation_request(params)
    if approval is not None:
        return _decision(handlers, approval, partial(elicitation_answer, params))
    declined = McpServerElicitationRequestResponse(action="decline")
    handler = handlers.user_input
    if handler is None:
        return _fixed_answer(declined)
    request = UserInputRequest(
        kind="elicitation",
        thread_id=params.thread_id,
        turn_id=params.turn_id,
        message=params.message,
        schema=None if params.requested_schema is UNSET else params.requested_schema,
        url=None if params.url is UNSET else params.url,
        server=params.server_name,
        params=params,
    )

    def answer(given: Answers) -> McpServerElicitationRequestResponse:
        if given is None:
            return declined
        return McpServerElicitationRequestResponse(action="accept", content=dict(given))

    return HandlerCall(lambda: handler(request), answer, lambda _: declined, blocking=may_block(handler))


# --- tools ---


def _call_tool(server_request: ServerRequest, handlers: Handlers, _: Changes) -> HandlerCall:
    params = decode(server_request.params, DynamicToolCallParams)
    tool = handlers.tools.get(params.thread_id, {}).get(params.tool) if params.namespace is None else None
    if tool is None:
        text = f"there is no tool {params.tool!r} here"
        content = (InputTextDynamicToolCallOutputContentItem(text=text),)
        return _fixed_answer(DynamicToolCallResponse(content_items=content, success=False))
    found = tool
    return HandlerCall(
        lambda: found.call(params.arguments),
        lambda value: DynamicToolCallResponse(content_items=found.content(value), success=True),
        lambda error: DynamicToolCallResponse(content_items=found.failure(error), success=False),
        blocking=may_block(found.function),
    )


_PREPARE: Final[Mapping[str, Callable[[ServerRequest, Handlers, Changes], HandlerCall]]] = {
    "item/commandExecution/requestApproval": _approve_command,
    "item/fileChange/requestApproval": _approve_patch,
    "item/permissions/requestApproval": _grant_permissions,
    "item/tool/requestUserInput": _ask_questions,
    "mcpServer/elicitation/request": _elicit,
    "item/tool/call": _call_tool,
}
