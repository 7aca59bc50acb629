"""What an app-server sends about a turn, as events of a runtime, and what it asks of a person, as an `Ask`. Pure.

One notification in, its events out. Every notification shows that the turn is alive, so none is dropped: one without an
event of its own is a `SignOfLife`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec import UNSET

from treadle.client.notification import Notification, UnknownNotification
from treadle.client.server_requests import ApprovalDecision, ApprovalRequest
from treadle.host.app_server.faults import NO_CONTEXT, FaultContext, turn_fault
from treadle.host.approver import Ask, Choice
from treadle.host.chat_messages import patch_summary
from treadle.host.runtime import (
    Compacted,
    Delta,
    ItemCompleted,
    ItemStarted,
    Notice,
    RuntimeEvent,
    SignOfLife,
    TurnEnded,
    Usage,
    UsageReported,
)
from treadle.protocol.app.base import encode
from treadle.protocol.app.threads import ThreadTokenUsage
from treadle.protocol.app.turns import TurnError

NEED_CONTEXT: Final = frozenset({"error", "turn/completed"})
"""Notifications whose events depend on the context of faults."""
_DELTAS: Final[Mapping[str, Literal["text", "reasoning", "output"]]] = {
    "item/agentMessage/delta": "text",
    "item/plan/delta": "reasoning",
    "item/reasoning/textDelta": "reasoning",
    "item/reasoning/summaryTextDelta": "reasoning",
    "item/commandExecution/outputDelta": "output",
    "item/fileChange/outputDelta": "output",
}


def events_of(notification: Notification, context: FaultContext = NO_CONTEXT) -> tuple[RuntimeEvent, ...]:
    """The events of a notification about the turn: mostly one, never none."""
    payload: Any = notification.payload
    if isinstance(payload, UnknownNotification):
        if notification.method != "turn/completed":
            return (SignOfLife(),)
        # An end is an end, also when it cannot be read.
        turn = payload.params.get("turn")
        status = turn.get("status") if isinstance(turn, dict) else None
        return (_turn_ended(status, None, context),)
    if (kind := _DELTAS.get(notification.method)) is not None:
        return (Delta(payload.item_id, payload.delta, kind),)
    match notification.method:
        case "item/started":
            return (ItemStarted(payload.item),)
        case "item/completed":
            done = ItemCompleted(payload.item)
            return (done, Compacted()) if payload.item.type == "contextCompaction" else (done,)
        case "item/mcpToolCall/progress":
            return (Delta(payload.item_id, f"{payload.message}\n", "output"),)
        case "thread/tokenUsage/updated":
            return (UsageReported(usage_of(payload.token_usage)),)
        case "thread/compacted":
            return (Compacted(),)
        case "model/rerouted":
            message = f"The provider answers with {payload.to_model} instead of {payload.from_model}."
            return (Notice(message, keep=True),)
        case "error" if payload.will_retry:  # one that ends the turn comes with its end
            fault = turn_fault(payload.error, context)
            return (Notice(f"{fault.message} It is tried again.", fault),)
        case "turn/completed":
            return (_turn_ended(payload.turn.status, payload.turn.error, context),)
    return (SignOfLife(),)


def _turn_ended(status: object, error: TurnError | None, context: FaultContext) -> TurnEnded:
    if status == "completed" or status == "interrupted":
        return TurnEnded("completed" if status == "completed" else "interrupted")
    return TurnEnded("failed", turn_fault(error, context))


def usage_of(reported: ThreadTokenUsage) -> Usage:
    """The tokens of the whole thread."""
    total = reported.total
    return Usage(
        input_tokens=total.input_tokens,
        cached_input_tokens=total.cached_input_tokens,
        cache_write_input_tokens=total.cache_write_input_tokens,
        output_tokens=total.output_tokens,
        reasoning_output_tokens=total.reasoning_output_tokens,
        total_tokens=total.total_tokens,
        cost_usd=reported.thread_cost_usd,
        context_tokens=reported.last.total_tokens,
        context_window=reported.model_context_window,
    )


# --- questions -------------------------------------------------------------------------------------------------------

_DECISIONS: Final[dict[Choice, ApprovalDecision]] = {
    "once": ApprovalDecision.accept,
    "session": ApprovalDecision.accept_for_session,
}


def decision_of(choice: Choice) -> ApprovalDecision:
    """The decision for a choice. A no does not end the turn: the model finds another way."""
    return _DECISIONS.get(choice, ApprovalDecision.decline)


def ask_of(request: ApprovalRequest) -> Ask:
    """The question for a person."""
    ids: dict[str, Any] = {"thread_id": request.thread_id, "turn_id": request.turn_id, "detail": request.params}
    if request.kind == "patch":
        root = getattr(request.params, "grant_root", None)
        grants = f"this also allows writing anywhere in {root}" if root else ""
        return Ask(
            kind="patch",
            title=f"apply_patch: {patch_summary(request.changes)}",
            description=_joined(grants, request.reason),
            paths=tuple(change.path for change in request.changes),
            **ids,
        )
    if request.kind == "permissions":
        where = f"in {request.cwd}" if request.cwd else ""
        given = {} if request.permissions is None else request.permissions.model_dump(exclude_none=True)
        wanted = ", ".join(f"{name} {value}" for name, value in given.items() if value) or "none are named"
        title = f"more permissions for the rest of the turn: {wanted}"
        return Ask(kind="permissions", title=title, description=_joined(where, request.reason), cwd=request.cwd, **ids)
    if request.server is not None:
        if request.tool is None:
            return Ask(kind="tool", title=request.reason or f"something for {request.server}", **ids)
        arguments = encode(request.arguments).decode()
        description = f"the MCP server {request.server} is called with {arguments}"
        tool = f"{request.server}/{request.tool}"
        return Ask(kind="tool", title=f"the tool {tool}", description=description, tool=tool, **ids)
    network = getattr(request.params, "network_approval_context", None)
    where = f"in {request.cwd}" if request.cwd else ""
    if network is not None and network is not UNSET:
        title = f"network access to {network.host} ({network.protocol})"
        description = _joined(f"by the command {request.command}" if request.command else "", where, request.reason)
        return Ask(
            kind="network", title=title, description=description, command=request.command, cwd=request.cwd, **ids
        )
    title = request.command or "a command that the server does not show"
    description = _joined(where, request.reason)
    return Ask(kind="command", title=title, description=description, command=request.command, cwd=request.cwd, **ids)


def _joined(*parts: str | None) -> str:
    return "; ".join(part for part in parts if part)
