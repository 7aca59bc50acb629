"""The vocabulary of the app-server: params, results, notifications and requests of both sides, without behaviour.

The structs are in modules by area (`threads`, `turns`, `items`, …), which are loaded when they are needed; this package
itself has the tables of methods, and what reads and writes the structs. Names are those of the Codex protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.internal_names import internal_name
from treadle.protocol.app.base import Unknown, Wire, convert, decode, encode
from treadle.protocol.app.methods import (
    CLIENT_NOTIFICATIONS,
    METHODS,
    NOTIFICATIONS,
    SERVER_REQUESTS,
    Method,
)

__all__ = [
    "CLIENT_NOTIFICATIONS",
    "METHODS",
    "NOTIFICATIONS",
    "SERVER_REQUESTS",
    "Method",
    "Unknown",
    "Wire",
    "convert",
    "decode",
    "encode",
]


def __getattr__(name: str) -> object:
    return internal_name(__name__, name)


# fmt: off
# isort: off
if TYPE_CHECKING:  # for tests: see treadle.internal_names
    from treadle.protocol.app.accounts import AccountLoginCompletedNotification, ApiKeyAccount
    from treadle.protocol.app.accounts import ApiKeyLoginAccountParams, ChatgptAccount
    from treadle.protocol.app.accounts import ChatgptAuthTokensLoginAccountParams, GetAccountRateLimitsResponse
    from treadle.protocol.app.accounts import PlanType, RateLimitSnapshot
    from treadle.protocol.app.approvals import AcceptWithExecpolicyAmendmentDecision, AdditionalFileSystemPermissions
    from treadle.protocol.app.approvals import ApplyPatchGuardianApprovalReviewAction
    from treadle.protocol.app.approvals import CommandExecutionRequestApprovalParams
    from treadle.protocol.app.approvals import CommandExecutionRequestApprovalResponse
    from treadle.protocol.app.approvals import CommandGuardianApprovalReviewAction, ExecpolicyAmendment
    from treadle.protocol.app.approvals import FileChangeRequestApprovalParams, FileChangeRequestApprovalResponse
    from treadle.protocol.app.approvals import FileSystemSpecialPath, GuardianApprovalReview
    from treadle.protocol.app.approvals import ItemGuardianApprovalReviewCompletedNotification
    from treadle.protocol.app.approvals import McpServerElicitationRequestParams, McpServerElicitationRequestResponse
    from treadle.protocol.app.approvals import PermissionsRequestApprovalParams, RequestPermissionProfile
    from treadle.protocol.app.approvals import ToolRequestUserInputAnswer, ToolRequestUserInputOption
    from treadle.protocol.app.approvals import ToolRequestUserInputQuestion
    from treadle.protocol.app.base import Variant, Word, convert_strictly
    from treadle.protocol.app.config import ConfigEdit, ConfigValueWriteParams, FeedbackSaveParams, MergeStrategy
    from treadle.protocol.app.config import SessionFlagsConfigLayerSource, UserConfigLayerSource
    from treadle.protocol.app.extensions import ExternalAgentConfigDetectResponse, HookCompletedNotification
    from treadle.protocol.app.extensions import HookMetadata, HookOutputEntry, HookRunSummary
    from treadle.protocol.app.extensions import McpServerStatusUpdatedNotification, PluginInstalledResponse
    from treadle.protocol.app.extensions import PluginListParams, PluginListResponse, ResourceContent
    from treadle.protocol.app.handshake import InitializeParams
    from treadle.protocol.app.item_parts import AddPatchChangeKind, CommandAction, DeletePatchChangeKind
    from treadle.protocol.app.item_parts import DynamicToolSpec, FileUpdateChange, FunctionDynamicToolNamespaceTool
    from treadle.protocol.app.item_parts import FunctionDynamicToolSpec, ImageUserInput
    from treadle.protocol.app.item_parts import InputImageDynamicToolCallOutputContentItem
    from treadle.protocol.app.item_parts import InputImageFunctionCallOutputContentItem
    from treadle.protocol.app.item_parts import InputTextDynamicToolCallOutputContentItem
    from treadle.protocol.app.item_parts import InputTextFunctionCallOutputContentItem, ListFilesCommandAction
    from treadle.protocol.app.item_parts import LocalImageUserInput, MentionUserInput, NamespaceDynamicToolSpec
    from treadle.protocol.app.item_parts import ReadCommandAction, SearchCommandAction, SkillUserInput, TextUserInput
    from treadle.protocol.app.item_parts import UnknownCommandAction, UpdatePatchChangeKind, UserInput
    from treadle.protocol.app.items import AgentMessageThreadItem, CollabAgentState, CollabAgentToolCallThreadItem
    from treadle.protocol.app.items import CommandExecutionSource, CommandExecutionThreadItem
    from treadle.protocol.app.items import ContextCompactionThreadItem, DynamicToolCallThreadItem
    from treadle.protocol.app.items import EnteredReviewModeThreadItem, ExitedReviewModeThreadItem
    from treadle.protocol.app.items import FileChangeThreadItem, FindInPageWebSearchAction
    from treadle.protocol.app.items import FunctionCallOutputThreadItem, HookPromptFragment, HookPromptThreadItem
    from treadle.protocol.app.items import ImageGenerationThreadItem, ImageViewThreadItem, KnownItem, McpToolCallError
    from treadle.protocol.app.items import McpToolCallResult, McpToolCallThreadItem, MessagePhase
    from treadle.protocol.app.items import OpenPageWebSearchAction, PlanThreadItem, ReasoningThreadItem
    from treadle.protocol.app.items import SearchWebSearchAction, SleepThreadItem, SubAgentActivityThreadItem
    from treadle.protocol.app.items import ThreadItem, UnknownItem, UserMessageThreadItem, WebSearchThreadItem
    from treadle.protocol.app.machine_methods import CommandExecParams, FuzzyFileSearchResult
    from treadle.protocol.app.methods import RECORDS
    from treadle.protocol.app.models import ModelListParams, ModelListResponse
    from treadle.protocol.app.notifications import AgentMessageDeltaNotification
    from treadle.protocol.app.notifications import CommandExecutionOutputDeltaNotification
    from treadle.protocol.app.notifications import DeprecationNoticeNotification, EnvironmentConnectionNotification
    from treadle.protocol.app.notifications import ErrorNotification, ItemCompletedNotification
    from treadle.protocol.app.notifications import ItemStartedNotification, McpToolCallProgressNotification
    from treadle.protocol.app.notifications import ReasoningSummaryTextDeltaNotification
    from treadle.protocol.app.notifications import ThreadTokenUsageUpdatedNotification, TurnCompletedNotification
    from treadle.protocol.app.notifications import TurnPlanStep, TurnPlanUpdatedNotification, TurnStartedNotification
    from treadle.protocol.app.notifications import WarningNotification
    from treadle.protocol.app.ours import McpPrompt, McpPromptArgument
    from treadle.protocol.app.settings import ActivePermissionProfile, AskForApproval, AskForApprovalValue
    from treadle.protocol.app.settings import DangerFullAccessSandboxPolicy, ExternalSandboxSandboxPolicy, Granular
    from treadle.protocol.app.settings import GranularAskForApproval, ReadOnlySandboxPolicy, ReasoningEffort
    from treadle.protocol.app.settings import SandboxMode, SandboxPolicy, ThreadSettings, WorkspaceWriteSandboxPolicy
    from treadle.protocol.app.thread_methods import SortDirection, ThreadForkParams, ThreadListParams
    from treadle.protocol.app.thread_methods import ThreadMetadataGitInfoUpdateParams, ThreadReadParams
    from treadle.protocol.app.thread_methods import ThreadReadResponse, ThreadStartParams, ThreadStartResponse
    from treadle.protocol.app.threads import GitInfo, NotLoadedThreadStatus, SessionSource, Thread, ThreadGoalStatus
    from treadle.protocol.app.threads import ThreadTokenUsage, TokenUsageBreakdown, UsageCost
    from treadle.protocol.app.turns import BaseBranchReviewTarget, CodexErrorInfo, CommitReviewTarget
    from treadle.protocol.app.turns import CustomReviewTarget, HttpConnectionFailedCodexErrorInfo, HttpFailure
    from treadle.protocol.app.turns import ModelFailure, ResponseTooManyFailedAttemptsCodexErrorInfo
    from treadle.protocol.app.turns import ReviewStartParams, ReviewTarget, Turn, TurnError, TurnItemsView
    from treadle.protocol.app.turns import TurnStartParams, TurnStartResponse, TurnStatus
    from treadle.protocol.app.turns import UncommittedChangesReviewTarget
