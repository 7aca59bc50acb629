"""Notifications of item/*: an item starts, grows by deltas, and is completed."""

from __future__ import annotations

from treadle.protocol.app.actions import FileUpdateChange
from treadle.protocol.app.base import Wire
from treadle.protocol.app.items import ThreadItem


class ItemStartedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    item: ThreadItem
    started_at_ms: int = 0


class ItemCompletedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    completed_at_ms: int = 0
    item: ThreadItem


class AgentMessageDeltaNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    item_id: str
    delta: str


class PlanDeltaNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    item_id: str
    delta: str


class CommandExecutionOutputDeltaNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    item_id: str
    delta: str


class TerminalInteractionNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    item_id: str
    process_id: str
    stdin: str


class FileChangeOutputDeltaNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    item_id: str
    delta: str


class FileChangePatchUpdatedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    item_id: str
    changes: tuple[FileUpdateChange, ...]


class McpToolCallProgressNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    item_id: str
    message: str


class ReasoningSummaryTextDeltaNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    item_id: str
    delta: str
    summary_index: int


class ReasoningSummaryPartAddedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    item_id: str
    summary_index: int


class ReasoningTextDeltaNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    item_id: str
    content_index: int
    delta: str
