"""Notifications of an app-server about a turn, as events of a runtime. Pure: one notification in, its events out.

Every notification shows that the turn is alive, so none is dropped: one without an event of its own is a `SignOfLife`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

from treadle.client.notification import Notification, UnknownNotification
from treadle.host.app_server.faults import NO_CONTEXT, FaultContext, turn_fault
from treadle.host.runtime import (
    Compacted,
    Delta,
    ItemCompleted,
    ItemStarted,
    Notice,
    RuntimeEvent,
    SignOfLife,
    TurnEnded,
    UsageReported,
)
from treadle.host.usage import Usage
from treadle.protocol.app.threads import ThreadTokenUsage

Events: TypeAlias = tuple[RuntimeEvent, ...]
Kind: TypeAlias = Literal["text", "reasoning", "output"]


def events_of(notification: Notification, context: FaultContext = NO_CONTEXT) -> Events:
    """The events of a notification about the turn: mostly one, never none."""
    payload: Any = notification.payload
    if isinstance(payload, UnknownNotification):
        return (_unknown_end(payload.params),) if notification.method == "turn/completed" else (SignOfLife(),)
    if notification.method in ("error", "turn/completed"):
        return _problem(payload, context) if notification.method == "error" else _ended(payload, context)
    read = _READERS.get(notification.method)
    return (SignOfLife(),) if read is None else read(payload)


def _started(payload: Any) -> Events:
    return (ItemStarted(payload.item),)


def _completed(payload: Any) -> Events:
    done = ItemCompleted(payload.item)
    return (done, Compacted()) if payload.item.type == "contextCompaction" else (done,)


def _delta(kind: Kind) -> Callable[[Any], Events]:
    return lambda payload: (Delta(payload.item_id, payload.delta, kind),)


def _progress(payload: Any) -> Events:
    return (Delta(payload.item_id, f"{payload.message}\n", "output"),)


def _usage(payload: Any) -> Events:
    return (UsageReported(usage_of(payload.token_usage)),)


def usage_of(told: ThreadTokenUsage) -> Usage:
    """The tokens of the whole thread."""
    total = told.total
    return Usage(
        input_tokens=total.input_tokens,
        cached_input_tokens=total.cached_input_tokens,
        cache_write_input_tokens=total.cache_write_input_tokens,
        output_tokens=total.output_tokens,
        reasoning_output_tokens=total.reasoning_output_tokens,
        total_tokens=total.total_tokens,
        cost_usd=told.thread_cost_usd,
        context_tokens=told.last.total_tokens,
        context_window=told.model_context_window,
    )


def _compacted(_: Any) -> Events:
    return (Compacted(),)


def _rerouted(payload: Any) -> Events:
    return (Notice(f"The provider answers with {payload.to_model} instead of {payload.from_model}.", keep=True),)


def _problem(payload: Any, context: FaultContext) -> Events:
    """One that ends the turn is told with its end."""
    if not payload.will_retry:
        return (SignOfLife(),)
    fault = turn_fault(payload.error, context)
    return (Notice(f"{fault.message} It is tried again.", fault),)


def _ended(payload: Any, context: FaultContext) -> Events:
    turn = payload.turn
    if turn.status in ("completed", "interrupted"):
        return (TurnEnded("completed" if turn.status == "completed" else "interrupted"),)
    return (TurnEnded("failed", turn_fault(turn.error, context)),)


def _unknown_end(params: Mapping[str, Any]) -> TurnEnded:
    """An end is an end, also when it cannot be read."""
    turn = params.get("turn")
    status = turn.get("status") if isinstance(turn, dict) else None
    if status == "completed" or status == "interrupted":
        return TurnEnded(status)
    return TurnEnded("failed", turn_fault(None))


_READERS: Final[Mapping[str, Callable[[Any], Events]]] = {
    "item/started": _started,
    "item/completed": _completed,
    "item/agentMessage/delta": _delta("text"),
    "item/plan/delta": _delta("reasoning"),
    "item/reasoning/textDelta": _delta("reasoning"),
    "item/reasoning/summaryTextDelta": _delta("reasoning"),
    "item/commandExecution/outputDelta": _delta("output"),
    "item/fileChange/outputDelta": _delta("output"),
    "item/mcpToolCall/progress": _progress,
    "thread/tokenUsage/updated": _usage,
    "thread/compacted": _compacted,
    "model/rerouted": _rerouted,
}
