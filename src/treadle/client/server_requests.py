"""Answers requests of the server: which handler is called with what, and how its return value is sent.

The clients only run the `HandlerCall`, on a thread of its own or as a task. Everything fails closed: no handler, an
unknown request, a handler that raises or returns nonsense, all mean no.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from treadle.client import approval_requests
from treadle.client.approval_requests import ApprovalDecision
from treadle.client.handlers import Handlers, RawHandler
from treadle.client.own_thread import may_block
from treadle.client.router import ServerRequest
from treadle.errors import INTERNAL_ERROR, METHOD_NOT_FOUND, OVERLOADED
from treadle.protocol.app.approvals import (
    CommandExecutionRequestApprovalParams,
    CommandExecutionRequestApprovalResponse,
    FileChangeRequestApprovalParams,
    FileChangeRequestApprovalResponse,
    PermissionsRequestApprovalParams,
    PermissionsRequestApprovalResponse,
)
from treadle.protocol.app.base import decode, encode
from treadle.protocol.app.dynamic_tools import (
    DynamicToolCallParams,
    DynamicToolCallResponse,
    InputTextDynamicToolCallOutputContentItem,
)
from treadle.protocol.app.permissions import RequestPermissionProfile
from treadle.protocol.app.questions import (
    McpServerElicitationRequestParams,
    McpServerElicitationRequestResponse,
    ToolRequestUserInputAnswer,
    ToolRequestUserInputParams,
    ToolRequestUserInputResponse,
)

if TYPE_CHECKING:
    from treadle.protocol.app.actions import FileUpdateChange

logger: logging.Logger = logging.getLogger(__name__)

_NOTHING_GRANTED: Final = PermissionsRequestApprovalResponse(permissions=RequestPermissionProfile())


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


def handler_call_for(
    server_request: ServerRequest, handlers: Handlers, changes: Callable[[str], tuple[FileUpdateChange, ...]]
) -> HandlerCall:
    """What to do about a request of the server. `changes` finds the file changes of a patch by its item id."""
    if handlers.raw is not None:
        return _raw_call(handlers.raw, server_request)
    prepare = _PREPARE.get(server_request.method)
    if prepare is None:
        return _fixed_answer(ErrorAnswer(METHOD_NOT_FOUND, f"this client does not answer {server_request.method}"))
    try:
        work = prepare(server_request, handlers, changes)
        return HandlerCall(work.call, work.answer, lambda error: _refused(server_request, work, error), work.blocking)
    except msgspec.DecodeError as error:
        logger.warning("%s cannot be read: %s", server_request.method, error)
        return _fixed_answer(ErrorAnswer(INTERNAL_ERROR, f"this client cannot read the request: {error}"))


def _refused(server_request: ServerRequest, work: HandlerCall, error: Exception) -> Any:
    # The model hears of a tool that raises, so that is routine; any other failing handler is a bug to be noticed.
    level = logging.DEBUG if server_request.method == "item/tool/call" else logging.WARNING
    logger.log(level, "the handler of %s failed", server_request.method, exc_info=error)
    return work.refuse(error)


def _fixed_answer(result: Any) -> HandlerCall:
    return HandlerCall(lambda: None, lambda _: result, lambda _: result, blocking=False)


def _raw_call(handler: RawHandler, server_request: ServerRequest) -> HandlerCall:
    def call() -> Any:
        params = decode(server_request.params, Any) if bytes(server_request.params) else None
        return handler(server_request.method, params if isinstance(params, dict) else None)

    def refuse(error: Exception) -> ErrorAnswer:
        return ErrorAnswer(INTERNAL_ERROR, f"the handler failed: {error}")

    return HandlerCall(call, lambda value: value, refuse, blocking=may_block(handler))


def _command(server_request: ServerRequest, handlers: Handlers, _: Any) -> HandlerCall:
    request = approval_requests.command_request(decode(server_request.params, CommandExecutionRequestApprovalParams))
    return _decision(handlers, request, lambda it: CommandExecutionRequestApprovalResponse(decision=it.value))


def _patch(
    server_request: ServerRequest, handlers: Handlers, changes: Callable[[str], tuple[FileUpdateChange, ...]]
) -> HandlerCall:
    params = decode(server_request.params, FileChangeRequestApprovalParams)
    request = approval_requests.patch_request(params, changes(params.item_id))
    return _decision(handlers, request, lambda it: FileChangeRequestApprovalResponse(decision=it.value))


def _permissions(server_request: ServerRequest, handlers: Handlers, _: Any) -> HandlerCall:
    params = decode(server_request.params, PermissionsRequestApprovalParams)

    def answer(decision: ApprovalDecision) -> PermissionsRequestApprovalResponse:
        if decision is ApprovalDecision.accept:
            return PermissionsRequestApprovalResponse(permissions=params.permissions)
        if decision is ApprovalDecision.accept_for_session:
            return PermissionsRequestApprovalResponse(permissions=params.permissions, scope="session")
        return _NOTHING_GRANTED

    return _decision(handlers, approval_requests.permissions_request(params), answer)


def _decision(
    handlers: Handlers, request: approval_requests.ApprovalRequest, answer: Callable[[ApprovalDecision], Any]
) -> HandlerCall:
    handler = handlers.approval
    declined = answer(ApprovalDecision.decline)
    if handler is None:
        return _fixed_answer(declined)
    return HandlerCall(
        lambda: handler(request),
        lambda it: answer(approval_requests.decision_of(it)),
        lambda _: declined,
        blocking=may_block(handler),
    )


def _questions(server_request: ServerRequest, handlers: Handlers, _: Any) -> HandlerCall:
    request = approval_requests.questions_request(decode(server_request.params, ToolRequestUserInputParams))
    nothing = ToolRequestUserInputResponse(answers={})
    handler = handlers.user_input
    if handler is None:
        return _fixed_answer(nothing)

    def answer(given: approval_requests.Answers) -> ToolRequestUserInputResponse:
        answers = {
            name: ToolRequestUserInputAnswer(answers=(text,) if isinstance(text, str) else tuple(text))
            for name, text in (given or {}).items()
        }
        return ToolRequestUserInputResponse(answers=answers)

    return HandlerCall(lambda: handler(request), answer, lambda _: nothing, blocking=may_block(handler))


def _elicitation(server_request: ServerRequest, handlers: Handlers, _: Any) -> HandlerCall:
    request = approval_requests.elicitation_request(decode(server_request.params, McpServerElicitationRequestParams))
    declined = McpServerElicitationRequestResponse(action="decline")
    handler = handlers.user_input
    if handler is None:
        return _fixed_answer(declined)

    def answer(given: approval_requests.Answers) -> McpServerElicitationRequestResponse:
        if given is None:
            return declined
        return McpServerElicitationRequestResponse(action="accept", content=dict(given))

    return HandlerCall(lambda: handler(request), answer, lambda _: declined, blocking=may_block(handler))


def _tool(server_request: ServerRequest, handlers: Handlers, _: Any) -> HandlerCall:
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


_PREPARE: Final[Mapping[str, Callable[[ServerRequest, Handlers, Any], HandlerCall]]] = {
    "item/commandExecution/requestApproval": _command,
    "item/fileChange/requestApproval": _patch,
    "item/permissions/requestApproval": _permissions,
    "item/tool/requestUserInput": _questions,
    "mcpServer/elicitation/request": _elicitation,
    "item/tool/call": _tool,
}
