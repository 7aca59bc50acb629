"""What a server may ask of the program that drives it: approvals and questions, as public types.

An `approval_handler` gets an `ApprovalRequest` and returns True, False or an `ApprovalDecision`; a `user_input_handler`
gets a `UserInputRequest` and returns the answers, or None. Without a handler, or if one fails, the answer is no.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Struct

from treadle.protocol.app.actions import FileUpdateChange
from treadle.protocol.app.approvals import (
    CommandExecutionRequestApprovalParams,
    FileChangeRequestApprovalParams,
    PermissionsRequestApprovalParams,
)
from treadle.protocol.app.permissions import RequestPermissionProfile
from treadle.protocol.app.questions import (
    McpServerElicitationRequestParams,
    ToolRequestUserInputParams,
    ToolRequestUserInputQuestion,
)
from treadle.tools.command.command_shell import asked


class ApprovalDecision(StrEnum):
    """`accept_for_session` also covers the same thing later on; `cancel` declines and ends the turn."""

    accept = "accept"
    accept_for_session = "acceptForSession"
    decline = "decline"
    cancel = "cancel"


class ApprovalRequest(Struct, frozen=True, kw_only=True):
    """Something that is not done without a yes.

    `kind` says what: a `command` (with `command`, as the model asked for it, and `cwd`), a `patch` (with `changes`), or
    `permissions` for the rest of the turn (with `permissions`). `params` is the request as it came.
    """

    kind: Literal["command", "patch", "permissions"]
    thread_id: str
    turn_id: str
    item_id: str
    reason: str | None = None
    command: str | None = None
    cwd: str | None = None
    changes: tuple[FileUpdateChange, ...] = ()
    permissions: RequestPermissionProfile | None = None
    params: Any = None


class UserInputRequest(Struct, frozen=True, kw_only=True):
    """Something that the agent, or a tool server, wants to know.

    `questions` are to be answered by their `id`, each with a text or a list of texts. With the kind `elicitation` a
    tool server asks: `message` says what for, `schema` what the answer looks like, or `url` where it is given.
    """

    kind: Literal["questions", "elicitation"]
    thread_id: str
    turn_id: str | None
    questions: tuple[ToolRequestUserInputQuestion, ...] = ()
    message: str = ""
    schema: Any = None
    url: str | None = None
    params: Any = None


Verdict: TypeAlias = bool | ApprovalDecision | str | None
ApprovalHandler: TypeAlias = Callable[[ApprovalRequest], Verdict | Awaitable[Verdict]]
Answers: TypeAlias = Mapping[str, str | Sequence[str]] | None
UserInputHandler: TypeAlias = Callable[[UserInputRequest], Answers | Awaitable[Answers]]


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


def questions_request(params: ToolRequestUserInputParams) -> UserInputRequest:
    return UserInputRequest(
        kind="questions",
        thread_id=params.thread_id,
        turn_id=params.turn_id,
        questions=params.questions,
        params=params,
    )


def elicitation_request(params: McpServerElicitationRequestParams) -> UserInputRequest:
    return UserInputRequest(
        kind="elicitation",
        thread_id=params.thread_id,
        turn_id=params.turn_id,
        message=params.message,
        schema=None if params.requested_schema is UNSET else params.requested_schema,
        url=None if params.url is UNSET else params.url,
        params=params,
    )


def decision_of(verdict: Verdict) -> ApprovalDecision:
    """What a handler said. What is not understood is an error, and so a no."""
    if verdict is True:
        return ApprovalDecision.accept
    if verdict is False or verdict is None:
        return ApprovalDecision.decline
    if verdict in ApprovalDecision.__members__:
        return ApprovalDecision[verdict]
    return ApprovalDecision(verdict)
