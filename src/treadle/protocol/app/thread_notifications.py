"""Notifications of thread/* and turn/*."""

from __future__ import annotations

from treadle.protocol.app.base import Open, OrUnknown, Wire, Word
from treadle.protocol.app.settings import ThreadSettings
from treadle.protocol.app.threads import Thread, ThreadGoal, ThreadReadState, ThreadStatus, ThreadTokenUsage
from treadle.protocol.app.turns import Turn


class TurnPlanStepStatus(Word):
    pending = "pending"
    in_progress = "inProgress"
    completed = "completed"


class TurnPlanStep(Wire, frozen=True, kw_only=True):
    status: Open[TurnPlanStepStatus]
    step: str


class ThreadStartedNotification(Wire, frozen=True, kw_only=True):
    thread: Thread


class ThreadStatusChangedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    status: OrUnknown[ThreadStatus]


class ThreadReadStateChangedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    read_state: ThreadReadState


class ThreadArchivedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str


class ThreadDeletedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str


class ThreadUnarchivedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str


class ThreadClosedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str


class ThreadRevertedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str


class ThreadNameUpdatedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    thread_name: str | None = None


class ThreadGoalUpdatedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    goal: ThreadGoal
    turn_id: str | None = None


class ThreadGoalClearedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str


class ThreadSettingsUpdatedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    thread_settings: ThreadSettings


class ThreadTokenUsageUpdatedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    token_usage: ThreadTokenUsage


class TurnStartedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn: Turn


class TurnCompletedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn: Turn


class TurnDiffUpdatedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    diff: str


class TurnPlanUpdatedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    plan: tuple[TurnPlanStep, ...]
    explanation: str | None = None


class ContextCompactedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
