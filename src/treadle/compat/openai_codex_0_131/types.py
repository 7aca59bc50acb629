"""The values of the protocol that `openai_codex_0_131` gave public names."""

from treadle.types import *  # noqa: F403

_NAMES = (
    "ApprovalsReviewer AskForApproval InitializeResponse JsonObject ModelListResponse Notification Personality "
    "PlanType ReasoningEffort ReasoningSummary SandboxMode SandboxPolicy SortDirection ThreadArchiveResponse "
    "ThreadCompactStartResponse ThreadItem ThreadListCwdFilter ThreadListResponse ThreadReadResponse "
    "ThreadSetNameResponse ThreadSortKey ThreadSource ThreadSourceKind ThreadStartSource ThreadTokenUsage "
    "ThreadTokenUsageUpdatedNotification Turn TurnCompletedNotification TurnInterruptResponse TurnStatus "
    "TurnSteerResponse"
)
__all__ = _NAMES.split()
