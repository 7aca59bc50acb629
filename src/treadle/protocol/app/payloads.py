"""`NotificationPayload`: what the notifications of a server carry, as one union.

Made by scripts/make_types.py.
"""

# fmt: off
# isort: off
from __future__ import annotations

from treadle.protocol.app.accounts import AccountLoginCompletedNotification, AccountRateLimitsUpdatedNotification
from treadle.protocol.app.accounts import AccountUpdatedNotification
from treadle.protocol.app.approvals import GuardianWarningNotification, ItemGuardianApprovalReviewCompletedNotification
from treadle.protocol.app.approvals import ItemGuardianApprovalReviewStartedNotification
from treadle.protocol.app.extensions import HookCompletedNotification, HookStartedNotification
from treadle.protocol.app.extensions import McpServerOauthLoginCompletedNotification, McpServerStatusUpdatedNotification
from treadle.protocol.app.extensions import SkillsChangedNotification
from treadle.protocol.app.machine_methods import CommandExecOutputDeltaNotification, FsChangedNotification
from treadle.protocol.app.machine_methods import FuzzyFileSearchSessionCompletedNotification
from treadle.protocol.app.machine_methods import FuzzyFileSearchSessionUpdatedNotification, ProcessExitedNotification
from treadle.protocol.app.machine_methods import ProcessOutputDeltaNotification
from treadle.protocol.app.notifications import AgentMessageDeltaNotification, CommandExecutionOutputDeltaNotification
from treadle.protocol.app.notifications import ConfigWarningNotification, ContextCompactedNotification
from treadle.protocol.app.notifications import DeprecationNoticeNotification, EnvironmentConnectionNotification
from treadle.protocol.app.notifications import ErrorNotification, FileChangeOutputDeltaNotification
from treadle.protocol.app.notifications import FileChangePatchUpdatedNotification, ItemCompletedNotification
from treadle.protocol.app.notifications import ItemStartedNotification, McpToolCallProgressNotification
from treadle.protocol.app.notifications import ModelReroutedNotification, PlanDeltaNotification
from treadle.protocol.app.notifications import ReasoningSummaryPartAddedNotification
from treadle.protocol.app.notifications import ReasoningSummaryTextDeltaNotification, ReasoningTextDeltaNotification
from treadle.protocol.app.notifications import ServerRequestResolvedNotification, TerminalInteractionNotification
from treadle.protocol.app.notifications import ThreadArchivedNotification, ThreadClosedNotification
from treadle.protocol.app.notifications import ThreadDeletedNotification, ThreadGoalClearedNotification
from treadle.protocol.app.notifications import ThreadGoalUpdatedNotification, ThreadNameUpdatedNotification
from treadle.protocol.app.notifications import ThreadReadStateChangedNotification, ThreadRevertedNotification
from treadle.protocol.app.notifications import ThreadSettingsUpdatedNotification, ThreadStartedNotification
from treadle.protocol.app.notifications import ThreadStatusChangedNotification, ThreadTokenUsageUpdatedNotification
from treadle.protocol.app.notifications import ThreadUnarchivedNotification, TurnCompletedNotification
from treadle.protocol.app.notifications import TurnDiffUpdatedNotification, TurnPlanUpdatedNotification
from treadle.protocol.app.notifications import TurnStartedNotification, WarningNotification
from treadle.protocol.app.thread_methods import ThreadQueueChangedNotification

NotificationPayload = (
    AccountLoginCompletedNotification | AccountRateLimitsUpdatedNotification | AccountUpdatedNotification
    | AgentMessageDeltaNotification | CommandExecOutputDeltaNotification | CommandExecutionOutputDeltaNotification
    | ConfigWarningNotification | ContextCompactedNotification | DeprecationNoticeNotification
    | EnvironmentConnectionNotification | ErrorNotification | FileChangeOutputDeltaNotification
    | FileChangePatchUpdatedNotification | FsChangedNotification | FuzzyFileSearchSessionCompletedNotification
    | FuzzyFileSearchSessionUpdatedNotification | GuardianWarningNotification | HookCompletedNotification
    | HookStartedNotification | ItemCompletedNotification | ItemGuardianApprovalReviewCompletedNotification
    | ItemGuardianApprovalReviewStartedNotification | ItemStartedNotification | McpServerOauthLoginCompletedNotification
    | McpServerStatusUpdatedNotification | McpToolCallProgressNotification | ModelReroutedNotification
    | PlanDeltaNotification | ProcessExitedNotification | ProcessOutputDeltaNotification
    | ReasoningSummaryPartAddedNotification | ReasoningSummaryTextDeltaNotification | ReasoningTextDeltaNotification
    | ServerRequestResolvedNotification | SkillsChangedNotification | TerminalInteractionNotification
    | ThreadArchivedNotification | ThreadClosedNotification | ThreadDeletedNotification | ThreadGoalClearedNotification
    | ThreadGoalUpdatedNotification | ThreadNameUpdatedNotification | ThreadQueueChangedNotification
    | ThreadReadStateChangedNotification | ThreadRevertedNotification | ThreadSettingsUpdatedNotification
    | ThreadStartedNotification | ThreadStatusChangedNotification | ThreadTokenUsageUpdatedNotification
    | ThreadUnarchivedNotification | TurnCompletedNotification | TurnDiffUpdatedNotification
    | TurnPlanUpdatedNotification | TurnStartedNotification | WarningNotification
)
