"""Answering what a server asks: which handler is called with what, and what its value is on the wire.

The shells only run the `Work`: on a thread of its own, or as a task. Everything fails closed: no handler, an unknown
request, a handler that raises or returns nonsense, all mean no.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from treadle.client import approval_requests
from treadle.client.apart import blocks
from treadle.client.approval_requests import ApprovalDecision
from treadle.client.handlers import Handlers, RawHandler
from treadle.client.router import Asked
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


class Work(Struct, frozen=True):
    """`answer(call())` is the result to send, `refuse(error)` the one when that raises."""

    call: Callable[[], Any]
    answer: Callable[[Any], Any]
    refuse: Callable[[Exception], Any]
    blocking: bool = True
    """Whether `call` may take its time. It may give something to await instead."""


class Refusal(Struct, frozen=True):
    """The answer is an error."""

    code: int
    message: str


def busy(limit: int) -> Refusal:
    return Refusal(OVERLOADED, f"{limit} requests are being answered already")


def frame_of(asked: Asked, result: Any) -> bytes:
    """The answer as it is sent; one that cannot be sent is a refusal."""
    if not isinstance(result, Refusal):
        try:
            return encode({"id": asked.id, "result": result})
        except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
            logger.warning("the answer to %s cannot be sent: %s", asked.method, error)
            result = Refusal(INTERNAL_ERROR, f"this client has no answer that can be sent: {error}")
    return encode({"id": asked.id, "error": result})


def work_for(asked: Asked, handlers: Handlers, changes: Callable[[str], tuple[FileUpdateChange, ...]]) -> Work:
    """What is to be done about a request of the server; `changes` finds those of a patch by its item."""
    if handlers.raw is not None:
        return _raw_work(handlers.raw, asked)
    prepare = _PREPARE.get(asked.method)
    if prepare is None:
        return _settled(Refusal(METHOD_NOT_FOUND, f"this client does not answer {asked.method}"))
    try:
        work = prepare(asked, handlers, changes)
        return Work(work.call, work.answer, lambda error: _refused(asked, work, error), work.blocking)
    except msgspec.DecodeError as error:
        logger.warning("%s cannot be read: %s", asked.method, error)
        return _settled(Refusal(INTERNAL_ERROR, f"this client cannot read the request: {error}"))


def _refused(asked: Asked, work: Work, error: Exception) -> Any:
    # What a tool raises is told to the model. Another handler that fails is a mistake that somebody should see.
    level = logging.DEBUG if asked.method == "item/tool/call" else logging.WARNING
    logger.log(level, "the handler of %s failed", asked.method, exc_info=error)
    return work.refuse(error)


def _settled(result: Any) -> Work:
    return Work(lambda: None, lambda _: result, lambda _: result, blocking=False)


def _raw_work(handler: RawHandler, asked: Asked) -> Work:
    def call() -> Any:
        params = decode(asked.params, Any) if bytes(asked.params) else None
        return handler(asked.method, params if isinstance(params, dict) else None)

    def refuse(error: Exception) -> Refusal:
        return Refusal(INTERNAL_ERROR, f"the handler failed: {error}")

    return Work(call, lambda value: value, refuse, blocking=blocks(handler))


def _command(asked: Asked, handlers: Handlers, _: Any) -> Work:
    request = approval_requests.command_request(decode(asked.params, CommandExecutionRequestApprovalParams))
    return _decision(handlers, request, lambda it: CommandExecutionRequestApprovalResponse(decision=it.value))


def _patch(asked: Asked, handlers: Handlers, changes: Callable[[str], tuple[FileUpdateChange, ...]]) -> Work:
    params = decode(asked.params, FileChangeRequestApprovalParams)
    request = approval_requests.patch_request(params, changes(params.item_id))
    return _decision(handlers, request, lambda it: FileChangeRequestApprovalResponse(decision=it.value))


def _permissions(asked: Asked, handlers: Handlers, _: Any) -> Work:
    params = decode(asked.params, PermissionsRequestApprovalParams)

    def answer(decision: ApprovalDecision) -> PermissionsRequestApprovalResponse:
        if decision is ApprovalDecision.accept:
            return PermissionsRequestApprovalResponse(permissions=params.permissions)
        if decision is ApprovalDecision.accept_for_session:
            return PermissionsRequestApprovalResponse(permissions=params.permissions, scope="session")
        return _NOTHING_GRANTED

    return _decision(handlers, approval_requests.permissions_request(params), answer)


def _decision(
    handlers: Handlers, request: approval_requests.ApprovalRequest, answer: Callable[[ApprovalDecision], Any]
) -> Work:
    handler = handlers.approval
    declined = answer(ApprovalDecision.decline)
    if handler is None:
        return _settled(declined)
    return Work(
        lambda: handler(request),
        lambda it: answer(approval_requests.decision_of(it)),
        lambda _: declined,
        blocking=blocks(handler),
    )


def _questions(asked: Asked, handlers: Handlers, _: Any) -> Work:
    request = approval_requests.questions_request(decode(asked.params, ToolRequestUserInputParams))
    nothing = ToolRequestUserInputResponse(answers={})
    handler = handlers.user_input
    if handler is None:
        return _settled(nothing)

    def answer(given: approval_requests.Answers) -> ToolRequestUserInputResponse:
        answers = {
            name: ToolRequestUserInputAnswer(answers=(text,) if isinstance(text, str) else tuple(text))
            for name, text in (given or {}).items()
        }
        return ToolRequestUserInputResponse(answers=answers)

    return Work(lambda: handler(request), answer, lambda _: nothing, blocking=blocks(handler))


def _elicitation(asked: Asked, handlers: Handlers, _: Any) -> Work:
    request = approval_requests.elicitation_request(decode(asked.params, McpServerElicitationRequestParams))
    declined = McpServerElicitationRequestResponse(action="decline")
    handler = handlers.user_input
    if handler is None:
        return _settled(declined)

    def answer(given: approval_requests.Answers) -> McpServerElicitationRequestResponse:
        if given is None:
            return declined
        return McpServerElicitationRequestResponse(action="accept", content=dict(given))

    return Work(lambda: handler(request), answer, lambda _: declined, blocking=blocks(handler))


def _tool(asked: Asked, handlers: Handlers, _: Any) -> Work:
    params = decode(asked.params, DynamicToolCallParams)
    tool = handlers.tools.get(params.thread_id, {}).get(params.tool) if params.namespace is None else None
    if tool is None:
        text = f"there is no tool {params.tool!r} here"
        content = (InputTextDynamicToolCallOutputContentItem(text=text),)
        return _settled(DynamicToolCallResponse(content_items=content, success=False))
    found = tool
    return Work(
        lambda: found.call(params.arguments),
        lambda value: DynamicToolCallResponse(content_items=found.content(value), success=True),
        lambda error: DynamicToolCallResponse(content_items=found.failure(error), success=False),
        blocking=blocks(found.function),
    )


_PREPARE: Final[Mapping[str, Callable[[Asked, Handlers, Any], Work]]] = {
    "item/commandExecution/requestApproval": _command,
    "item/fileChange/requestApproval": _patch,
    "item/permissions/requestApproval": _permissions,
    "item/tool/requestUserInput": _questions,
    "mcpServer/elicitation/request": _elicitation,
    "item/tool/call": _tool,
}
