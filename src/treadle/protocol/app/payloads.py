"""`NotificationPayload`: what the notifications of a server carry, as one union.

Made by scripts/make_types.py.
"""

from __future__ import annotations

from treadle.protocol.app.accounts import (
    AccountLoginCompletedNotification,
    AccountRateLimitsUpdatedNotification,
    AccountUpdatedNotification,
)
from treadle.protocol.app.commands import (
    CommandExecOutputDeltaNotification,
    ProcessExitedNotification,
    ProcessOutputDeltaNotification,
)
from treadle.protocol.app.files import FsChangedNotification
from treadle.protocol.app.hooks import HookCompletedNotification, HookStartedNotification
from treadle.protocol.app.item_notifications import (
    AgentMessageDeltaNotification,
    CommandExecutionOutputDeltaNotification,
    FileChangeOutputDeltaNotification,
    FileChangePatchUpdatedNotification,
    ItemCompletedNotification,
    ItemStartedNotification,
    McpToolCallProgressNotification,
    PlanDeltaNotification,
    ReasoningSummaryPartAddedNotification,
    ReasoningSummaryTextDeltaNotification,
    ReasoningTextDeltaNotification,
    TerminalInteractionNotification,
)
from treadle.protocol.app.mcp import McpServerOauthLoginCompletedNotification, McpServerStatusUpdatedNotification
from treadle.protocol.app.notifications import (
    ConfigWarningNotification,
    DeprecationNoticeNotification,
    ErrorNotification,
    ModelReroutedNotification,
    ServerRequestResolvedNotification,
    WarningNotification,
)
from treadle.protocol.app.queue import ThreadQueueChangedNotification
from treadle.protocol.app.reviews import (
    GuardianWarningNotification,
    ItemGuardianApprovalReviewCompletedNotification,
    ItemGuardianApprovalReviewStartedNotification,
)
from treadle.protocol.app.search import (
    FuzzyFileSearchSessionCompletedNotification,
    FuzzyFileSearchSessionUpdatedNotification,
)
from treadle.protocol.app.skills import SkillsChangedNotification
from treadle.protocol.app.thread_notifications import (
    ContextCompactedNotification,
    ThreadArchivedNotification,
    ThreadClosedNotification,
    ThreadDeletedNotification,
    ThreadGoalClearedNotification,
    ThreadGoalUpdatedNotification,
    ThreadNameUpdatedNotification,
    ThreadReadStateChangedNotification,
    ThreadRevertedNotification,
    ThreadSettingsUpdatedNotification,
    ThreadStartedNotification,
    ThreadStatusChangedNotification,
    ThreadTokenUsageUpdatedNotification,
    ThreadUnarchivedNotification,
    TurnCompletedNotification,
    TurnDiffUpdatedNotification,
    TurnPlanUpdatedNotification,
    TurnStartedNotification,
)

NotificationPayload = (
    AccountLoginCompletedNotification
    | AccountRateLimitsUpdatedNotification
    | AccountUpdatedNotification
    | AgentMessageDeltaNotification
    | CommandExecOutputDeltaNotification
    | CommandExecutionOutputDeltaNotification
    | ConfigWarningNotification
    | ContextCompactedNotification
    | DeprecationNoticeNotification
    | ErrorNotification
    | FileChangeOutputDeltaNotification
    | FileChangePatchUpdatedNotification
    | FsChangedNotification
    | FuzzyFileSearchSessionCompletedNotification
    | FuzzyFileSearchSessionUpdatedNotification
    | GuardianWarningNotification
    | HookCompletedNotification
    | HookStartedNotification
    | ItemCompletedNotification
    | ItemGuardianApprovalReviewCompletedNotification
    | ItemGuardianApprovalReviewStartedNotification
    | ItemStartedNotification
    | McpServerOauthLoginCompletedNotification
    | McpServerStatusUpdatedNotification
    | McpToolCallProgressNotification
    | ModelReroutedNotification
    | PlanDeltaNotification
    | ProcessExitedNotification
    | ProcessOutputDeltaNotification
    | ReasoningSummaryPartAddedNotification
    | ReasoningSummaryTextDeltaNotification
    | ReasoningTextDeltaNotification
    | ServerRequestResolvedNotification
    | SkillsChangedNotification
    | TerminalInteractionNotification
    | ThreadArchivedNotification
    | ThreadClosedNotification
    | ThreadDeletedNotification
    | ThreadGoalClearedNotification
    | ThreadGoalUpdatedNotification
    | ThreadNameUpdatedNotification
    | ThreadQueueChangedNotification
    | ThreadReadStateChangedNotification
    | ThreadRevertedNotification
    | ThreadSettingsUpdatedNotification
    | ThreadStartedNotification
    | ThreadStatusChangedNotification
    | ThreadTokenUsageUpdatedNotification
    | ThreadUnarchivedNotification
    | TurnCompletedNotification
    | TurnDiffUpdatedNotification
    | TurnPlanUpdatedNotification
    | TurnStartedNotification
    | WarningNotification
)
