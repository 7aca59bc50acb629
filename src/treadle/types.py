"""The values of the protocol, and the events of the SDK: for annotations, matching and enums.

Made by scripts/make_types.py. `Thread` and `Turn` here are what a server says of them; `treadle.Thread` is
what you work with.
"""

# fmt: off
# isort: off
from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from treadle.client.lifecycle import InitializeResponse, ServerInfo
from treadle.client.notification import Notification, UnknownNotification
from treadle.client.params import TurnOptions
from treadle.client.turn_events import CommandFinished, CommandOutput, CommandStarted, Done, Event, FileChange, Plan
from treadle.client.turn_events import PlanStep, Problem, Reasoning, Text, TextDelta, TextRestarted, ToolCall
from treadle.client.turn_events import ToolCallProgress, ToolCallStarted, Usage
from treadle.protocol.app.accounts import Account, AccountLoginCompletedNotification
from treadle.protocol.app.accounts import AccountRateLimitsUpdatedNotification, AccountUpdatedNotification
from treadle.protocol.app.accounts import AmazonBedrockAccessKeysLoginAccountParams, AmazonBedrockAccount
from treadle.protocol.app.accounts import AmazonBedrockLoginAccountParams, AmazonBedrockLoginAccountResponse
from treadle.protocol.app.accounts import ApiKeyAccount, ApiKeyLoginAccountParams, ApiKeyLoginAccountResponse, AuthMode
from treadle.protocol.app.accounts import BedrockCheckGovCloudRequirementsParams
from treadle.protocol.app.accounts import BedrockCheckGovCloudRequirementsResponse, CancelLoginAccountParams
from treadle.protocol.app.accounts import CancelLoginAccountResponse, CancelLoginAccountStatus, ChatgptAccount
from treadle.protocol.app.accounts import ChatgptAuthTokensLoginAccountParams, ChatgptAuthTokensLoginAccountResponse
from treadle.protocol.app.accounts import ChatgptAuthTokensRefreshParams, ChatgptAuthTokensRefreshReason
from treadle.protocol.app.accounts import ChatgptAuthTokensRefreshResponse, ChatgptDeviceCodeLoginAccountParams
from treadle.protocol.app.accounts import ChatgptDeviceCodeLoginAccountResponse, ChatgptLoginAccountParams
from treadle.protocol.app.accounts import ChatgptLoginAccountResponse, CreditsSnapshot, DesktopOnboardingEntrypoint
from treadle.protocol.app.accounts import GcpAccount, GetAccountParams, GetAccountRateLimitsParams
from treadle.protocol.app.accounts import GetAccountRateLimitsResponse, GetAccountResponse, LoginAccountParams
from treadle.protocol.app.accounts import LoginAccountResponse, LoginAppBrand, LogoutAccountParams
from treadle.protocol.app.accounts import LogoutAccountResponse, PlanType, RateLimitReachedType, RateLimitSnapshot
from treadle.protocol.app.accounts import RateLimitWindow, SpendControlLimitSnapshot
from treadle.protocol.app.approvals import AcceptWithExecpolicyAmendmentDecision, AdditionalFileSystemPermissions
from treadle.protocol.app.approvals import AdditionalNetworkPermissions, ApplyNetworkPolicyAmendmentDecision
from treadle.protocol.app.approvals import ApplyPatchGuardianApprovalReviewAction, AutoReviewDecisionSource
from treadle.protocol.app.approvals import CommandExecutionApprovalDecision, CommandExecutionApprovalKind
from treadle.protocol.app.approvals import CommandExecutionRequestApprovalParams
from treadle.protocol.app.approvals import CommandExecutionRequestApprovalResponse, CommandGuardianApprovalReviewAction
from treadle.protocol.app.approvals import Decision, ExecpolicyAmendment, ExecveGuardianApprovalReviewAction
from treadle.protocol.app.approvals import FileChangeApprovalDecision, FileChangeRequestApprovalParams
from treadle.protocol.app.approvals import FileChangeRequestApprovalResponse, FileSystemAccessMode, FileSystemPath
from treadle.protocol.app.approvals import FileSystemSandboxEntry, FileSystemSpecialPath, GlobPatternFileSystemPath
from treadle.protocol.app.approvals import GuardianApprovalReview, GuardianApprovalReviewAction
from treadle.protocol.app.approvals import GuardianApprovalReviewStatus, GuardianCommandSource, GuardianRiskLevel
from treadle.protocol.app.approvals import GuardianUserAuthorization, GuardianWarningNotification
from treadle.protocol.app.approvals import ItemGuardianApprovalReviewCompletedNotification
from treadle.protocol.app.approvals import ItemGuardianApprovalReviewStartedNotification
from treadle.protocol.app.approvals import McpServerElicitationRequestParams, McpServerElicitationRequestResponse
from treadle.protocol.app.approvals import McpToolCallGuardianApprovalReviewAction
from treadle.protocol.app.approvals import NetworkAccessGuardianApprovalReviewAction, NetworkAmendment
from treadle.protocol.app.approvals import NetworkApprovalContext, NetworkApprovalProtocol, NetworkPolicyAmendment
from treadle.protocol.app.approvals import NetworkPolicyRuleAction, OfferedDecision, PathFileSystemPath
from treadle.protocol.app.approvals import PermissionsRequestApprovalParams, PermissionsRequestApprovalResponse
from treadle.protocol.app.approvals import RequestPermissionProfile, RequestPermissionsGuardianApprovalReviewAction
from treadle.protocol.app.approvals import SpecialFileSystemPath, ToolRequestUserInputAnswer, ToolRequestUserInputOption
from treadle.protocol.app.approvals import ToolRequestUserInputParams, ToolRequestUserInputQuestion
from treadle.protocol.app.approvals import ToolRequestUserInputResponse, WriteStdinGuardianApprovalReviewAction
from treadle.protocol.app.base import JsonObject, Unknown
from treadle.protocol.app.config import ConfigBatchWriteParams, ConfigBatchWriteResponse, ConfigEdit, ConfigLayer
from treadle.protocol.app.config import ConfigLayerMetadata, ConfigLayerSource, ConfigReadParams, ConfigReadResponse
from treadle.protocol.app.config import ConfigRequirementsReadParams, ConfigRequirementsReadResponse
from treadle.protocol.app.config import ConfigValueWriteParams, ConfigValueWriteResponse, ConfigWriteResponse
from treadle.protocol.app.config import EnterpriseManagedConfigLayerSource, ExperimentalFeature
from treadle.protocol.app.config import ExperimentalFeatureEnablementSetParams, ExperimentalFeatureEnablementSetResponse
from treadle.protocol.app.config import ExperimentalFeatureListParams, ExperimentalFeatureListResponse
from treadle.protocol.app.config import ExperimentalFeatureStage, FeedbackSaveParams, FeedbackSaveResponse
from treadle.protocol.app.config import LegacyManagedConfigTomlFromFileConfigLayerSource
from treadle.protocol.app.config import LegacyManagedConfigTomlFromMdmConfigLayerSource, MdmConfigLayerSource
from treadle.protocol.app.config import MergeStrategy, OverriddenMetadata, PackagedDefaultsConfigLayerSource
from treadle.protocol.app.config import PermissionProfileListParams, PermissionProfileListResponse
from treadle.protocol.app.config import PermissionProfileSummary, ProjectConfigLayerSource
from treadle.protocol.app.config import SessionFlagsConfigLayerSource, SystemConfigLayerSource, UserConfigLayerSource
from treadle.protocol.app.config import WriteStatus
from treadle.protocol.app.environment_messages import EnvironmentAddParams, EnvironmentAddResponse
from treadle.protocol.app.environment_messages import EnvironmentInfoParams, EnvironmentInfoResponse
from treadle.protocol.app.environment_messages import EnvironmentListParams, EnvironmentListResponse, EnvironmentShell
from treadle.protocol.app.environment_messages import EnvironmentStatusParams, EnvironmentStatusResponse
from treadle.protocol.app.environment_messages import ListedEnvironment
from treadle.protocol.app.extensions import ExternalAgentConfigDetectParams, ExternalAgentConfigDetectResponse
from treadle.protocol.app.extensions import HookCompletedNotification, HookErrorInfo, HookEventName, HookExecutionMode
from treadle.protocol.app.extensions import HookHandlerType, HookMetadata, HookOutputEntry, HookOutputEntryKind
from treadle.protocol.app.extensions import HookRunStatus, HookRunSummary, HookScope, HookSource
from treadle.protocol.app.extensions import HookStartedNotification, HookTrustStatus, HooksListEntry, HooksListParams
from treadle.protocol.app.extensions import HooksListResponse, ListMcpServerStatusParams, ListMcpServerStatusResponse
from treadle.protocol.app.extensions import McpAuthStatus, McpResourceReadParams, McpResourceReadResponse
from treadle.protocol.app.extensions import McpResourceReadTarget, McpServerConnectionStatus, McpServerInfo
from treadle.protocol.app.extensions import McpServerOauthClientRegistration, McpServerOauthLoginCompletedNotification
from treadle.protocol.app.extensions import McpServerOauthLoginParams, McpServerOauthLoginResponse
from treadle.protocol.app.extensions import McpServerRefreshParams, McpServerRefreshResponse
from treadle.protocol.app.extensions import McpServerStartupFailureReason, McpServerStartupState, McpServerStatus
from treadle.protocol.app.extensions import McpServerStatusDetail, McpServerStatusUpdatedNotification
from treadle.protocol.app.extensions import McpServerToolCallParams, McpServerToolCallResponse, PluginInstalledParams
from treadle.protocol.app.extensions import PluginInstalledResponse, PluginListParams, PluginListResponse, Resource
from treadle.protocol.app.extensions import ResourceContent, ResourceTemplate, SkillDependencies, SkillErrorInfo
from treadle.protocol.app.extensions import SkillInterface, SkillMetadata, SkillScope, SkillToolDependency
from treadle.protocol.app.extensions import SkillsChangedNotification, SkillsConfigWriteParams
from treadle.protocol.app.extensions import SkillsConfigWriteResponse, SkillsExtraRootsSetParams
from treadle.protocol.app.extensions import SkillsExtraRootsSetResponse, SkillsListEntry, SkillsListParams
from treadle.protocol.app.extensions import SkillsListResponse, Tool
from treadle.protocol.app.item_parts import AddPatchChangeKind, AudioUserInput, ByteRange, CommandAction
from treadle.protocol.app.item_parts import DeletePatchChangeKind, DynamicToolCallOutputContentItem
from treadle.protocol.app.item_parts import DynamicToolCallParams, DynamicToolCallResponse, DynamicToolNamespaceTool
from treadle.protocol.app.item_parts import DynamicToolSpec, EncryptedContentFunctionCallOutputContentItem
from treadle.protocol.app.item_parts import FileUpdateChange, FunctionCallOutputBody, FunctionCallOutputContentItem
from treadle.protocol.app.item_parts import FunctionDynamicToolNamespaceTool, FunctionDynamicToolSpec, ImageDetail
from treadle.protocol.app.item_parts import ImageUserInput, InputAudioDynamicToolCallOutputContentItem
from treadle.protocol.app.item_parts import InputAudioFunctionCallOutputContentItem
from treadle.protocol.app.item_parts import InputImageDynamicToolCallOutputContentItem
from treadle.protocol.app.item_parts import InputImageFunctionCallOutputContentItem
from treadle.protocol.app.item_parts import InputTextDynamicToolCallOutputContentItem
from treadle.protocol.app.item_parts import InputTextFunctionCallOutputContentItem, ListFilesCommandAction
from treadle.protocol.app.item_parts import LocalAudioUserInput, LocalImageUserInput, MentionUserInput
from treadle.protocol.app.item_parts import NamespaceDynamicToolSpec, PatchChangeKind, ReadCommandAction
from treadle.protocol.app.item_parts import SearchCommandAction, SkillUserInput, TextElement, TextUserInput
from treadle.protocol.app.item_parts import UnknownCommandAction, UpdatePatchChangeKind, UserInput
from treadle.protocol.app.items import AgentMessageDelivery, AgentMessageThreadItem, AsyncUserInputQuestion
from treadle.protocol.app.items import CollabAgentState, CollabAgentStatus, CollabAgentTool, CollabAgentToolCallStatus
from treadle.protocol.app.items import CollabAgentToolCallThreadItem, CommandExecutionSource, CommandExecutionStatus
from treadle.protocol.app.items import CommandExecutionThreadItem, ContextCompactionThreadItem, DynamicToolCallStatus
from treadle.protocol.app.items import DynamicToolCallThreadItem, EnteredReviewModeThreadItem
from treadle.protocol.app.items import ExitedReviewModeThreadItem, FileChangeThreadItem, FindInPageWebSearchAction
from treadle.protocol.app.items import FunctionCallOutputThreadItem, HookPromptFragment, HookPromptThreadItem
from treadle.protocol.app.items import ImageGenerationFailure, ImageGenerationInputImage, ImageGenerationThreadItem
from treadle.protocol.app.items import ImageViewThreadItem, Item, KnownItem, McpAppDisplayMode, McpAppUi
from treadle.protocol.app.items import McpToolCallAppContext, McpToolCallError, McpToolCallResult, McpToolCallStatus
from treadle.protocol.app.items import McpToolCallThreadItem, MemoryCitation, MemoryCitationEntry, MessagePhase
from treadle.protocol.app.items import OpenPageWebSearchAction, OtherWebSearchAction, PatchApplyStatus, PlanThreadItem
from treadle.protocol.app.items import ReasoningThreadItem, SearchWebSearchAction, SleepThreadItem, SubAgentActivityKind
from treadle.protocol.app.items import SubAgentActivityThreadItem, ThreadItem, UnknownItem
from treadle.protocol.app.items import UsageLimitExceededImageGenerationFailure, UserMessageThreadItem, WebSearchAction
from treadle.protocol.app.items import WebSearchThreadItem
from treadle.protocol.app.machine_methods import CommandExecOutputDeltaNotification, CommandExecOutputStream
from treadle.protocol.app.machine_methods import CommandExecParams, CommandExecResizeParams, CommandExecResizeResponse
from treadle.protocol.app.machine_methods import CommandExecResponse, CommandExecTerminalSize
from treadle.protocol.app.machine_methods import CommandExecTerminateParams, CommandExecTerminateResponse
from treadle.protocol.app.machine_methods import CommandExecWriteParams, CommandExecWriteResponse, FsChangedNotification
from treadle.protocol.app.machine_methods import FsCopyParams, FsCopyResponse, FsCreateDirectoryParams
from treadle.protocol.app.machine_methods import FsCreateDirectoryResponse, FsGetMetadataParams, FsGetMetadataResponse
from treadle.protocol.app.machine_methods import FsReadDirectoryEntry, FsReadDirectoryParams, FsReadDirectoryResponse
from treadle.protocol.app.machine_methods import FsReadFileParams, FsReadFileResponse, FsRemoveParams, FsRemoveResponse
from treadle.protocol.app.machine_methods import FsUnwatchParams, FsUnwatchResponse, FsWatchParams, FsWatchResponse
from treadle.protocol.app.machine_methods import FsWriteFileParams, FsWriteFileResponse, FuzzyFileSearchParams
from treadle.protocol.app.machine_methods import FuzzyFileSearchResponse, FuzzyFileSearchResult
from treadle.protocol.app.machine_methods import FuzzyFileSearchSessionCompletedNotification
from treadle.protocol.app.machine_methods import FuzzyFileSearchSessionStartParams, FuzzyFileSearchSessionStartResponse
from treadle.protocol.app.machine_methods import FuzzyFileSearchSessionStopParams, FuzzyFileSearchSessionStopResponse
from treadle.protocol.app.machine_methods import FuzzyFileSearchSessionUpdateParams
from treadle.protocol.app.machine_methods import FuzzyFileSearchSessionUpdateResponse
from treadle.protocol.app.machine_methods import FuzzyFileSearchSessionUpdatedNotification, ProcessExitedNotification
from treadle.protocol.app.machine_methods import ProcessKillParams, ProcessKillResponse, ProcessOutputDeltaNotification
from treadle.protocol.app.machine_methods import ProcessOutputStream, ProcessResizePtyParams, ProcessResizePtyResponse
from treadle.protocol.app.machine_methods import ProcessSpawnParams, ProcessSpawnResponse, ProcessTerminalSize
from treadle.protocol.app.machine_methods import ProcessWriteStdinParams, ProcessWriteStdinResponse
from treadle.protocol.app.models import CyberAccessProgram, InputModality, Model, ModelAccessPrograms
from treadle.protocol.app.models import ModelAvailabilityNux, ModelListParams, ModelListResponse
from treadle.protocol.app.models import ModelProviderCapabilitiesReadParams, ModelProviderCapabilitiesReadResponse
from treadle.protocol.app.models import ModelServiceTier, ModelUpgradeInfo, MultiAgentVersion, ReasoningEffortOption
from treadle.protocol.app.notifications import AgentMessageDeltaNotification, CommandExecutionOutputDeltaNotification
from treadle.protocol.app.notifications import ConfigWarningNotification, ContextCompactedNotification
from treadle.protocol.app.notifications import DeprecationNoticeNotification, EnvironmentConnectionNotification
from treadle.protocol.app.notifications import ErrorNotification, FileChangeOutputDeltaNotification
from treadle.protocol.app.notifications import FileChangePatchUpdatedNotification, ItemCompletedNotification
from treadle.protocol.app.notifications import ItemStartedNotification, McpToolCallProgressNotification
from treadle.protocol.app.notifications import ModelRerouteReason, ModelReroutedNotification, PlanDeltaNotification
from treadle.protocol.app.notifications import ReasoningSummaryPartAddedNotification
from treadle.protocol.app.notifications import ReasoningSummaryTextDeltaNotification, ReasoningTextDeltaNotification
from treadle.protocol.app.notifications import ServerRequestResolvedNotification, TerminalInteractionNotification
from treadle.protocol.app.notifications import TextPosition, TextRange, ThreadArchivedNotification
from treadle.protocol.app.notifications import ThreadClosedNotification, ThreadDeletedNotification
from treadle.protocol.app.notifications import ThreadGoalClearedNotification, ThreadGoalUpdatedNotification
from treadle.protocol.app.notifications import ThreadNameUpdatedNotification, ThreadReadStateChangedNotification
from treadle.protocol.app.notifications import ThreadRevertedNotification, ThreadSettingsUpdatedNotification
from treadle.protocol.app.notifications import ThreadStartedNotification, ThreadStatusChangedNotification
from treadle.protocol.app.notifications import ThreadTokenUsageUpdatedNotification, ThreadUnarchivedNotification
from treadle.protocol.app.notifications import TurnCompletedNotification, TurnDiffUpdatedNotification, TurnPlanStep
from treadle.protocol.app.notifications import TurnPlanStepStatus, TurnPlanUpdatedNotification, TurnStartedNotification
from treadle.protocol.app.notifications import WarningNotification
from treadle.protocol.app.payloads import NotificationPayload
from treadle.protocol.app.settings import ActivePermissionProfile, ApprovalsReviewer, AskForApproval
from treadle.protocol.app.settings import AskForApprovalValue, CollaborationMode, CollaborationModeListParams
from treadle.protocol.app.settings import CollaborationModeListResponse, CollaborationModeMask
from treadle.protocol.app.settings import DangerFullAccessSandboxPolicy, ExternalSandboxSandboxPolicy, Granular
from treadle.protocol.app.settings import GranularAskForApproval, KnownApproval, ModeKind, NetworkAccess, Personality
from treadle.protocol.app.settings import ReadOnlySandboxPolicy, ReasoningEffort, ReasoningSummary, SandboxMode
from treadle.protocol.app.settings import SandboxPolicy, Settings, ThreadSettings, ThreadSettingsUpdateParams
from treadle.protocol.app.settings import ThreadSettingsUpdateResponse, TurnEnvironmentParams, WantedEffort
from treadle.protocol.app.settings import WorkspaceWriteSandboxPolicy
from treadle.protocol.app.thread_history import ItemThreadItemsListAnchor, RevertedFile, RevertedFiles
from treadle.protocol.app.thread_history import ThreadInjectItemsParams, ThreadInjectItemsResponse, ThreadItemEntry
from treadle.protocol.app.thread_history import ThreadItemsListAnchor, ThreadItemsListCursor, ThreadItemsListParams
from treadle.protocol.app.thread_history import ThreadItemsListResponse, ThreadItemsReadParams, ThreadItemsReadResponse
from treadle.protocol.app.thread_history import ThreadRevertParams, ThreadRevertResponse, ThreadRollbackParams
from treadle.protocol.app.thread_history import ThreadRollbackResponse, ThreadSearchOccurrence
from treadle.protocol.app.thread_history import ThreadSearchOccurrencesParams, ThreadSearchOccurrencesResponse
from treadle.protocol.app.thread_history import ThreadSearchParams, ThreadSearchResponse, ThreadSearchResult
from treadle.protocol.app.thread_history import ThreadSearchSortKey, ThreadSearchTextRange, ThreadTurnsListParams
from treadle.protocol.app.thread_history import ThreadTurnsListResponse
from treadle.protocol.app.thread_methods import QueuedSubmission, SortDirection, ThreadApproveGuardianDeniedActionParams
from treadle.protocol.app.thread_methods import ThreadApproveGuardianDeniedActionResponse, ThreadArchiveParams
from treadle.protocol.app.thread_methods import ThreadArchiveResponse, ThreadBackgroundTerminal
from treadle.protocol.app.thread_methods import ThreadBackgroundTerminalsCleanParams
from treadle.protocol.app.thread_methods import ThreadBackgroundTerminalsCleanResponse
from treadle.protocol.app.thread_methods import ThreadBackgroundTerminalsListParams
from treadle.protocol.app.thread_methods import ThreadBackgroundTerminalsListResponse
from treadle.protocol.app.thread_methods import ThreadBackgroundTerminalsTerminateParams
from treadle.protocol.app.thread_methods import ThreadBackgroundTerminalsTerminateResponse, ThreadCompactStartParams
from treadle.protocol.app.thread_methods import ThreadCompactStartResponse, ThreadDeleteParams, ThreadDeleteResponse
from treadle.protocol.app.thread_methods import ThreadForkParams, ThreadForkResponse, ThreadGoalClearParams
from treadle.protocol.app.thread_methods import ThreadGoalClearResponse, ThreadGoalGetParams, ThreadGoalGetResponse
from treadle.protocol.app.thread_methods import ThreadGoalMutationOrigin, ThreadGoalSetParams, ThreadGoalSetResponse
from treadle.protocol.app.thread_methods import ThreadListParams, ThreadListResponse, ThreadLoadedListParams
from treadle.protocol.app.thread_methods import ThreadLoadedListResponse, ThreadMetadataGitInfoUpdateParams
from treadle.protocol.app.thread_methods import ThreadMetadataUpdateParams, ThreadMetadataUpdateResponse
from treadle.protocol.app.thread_methods import ThreadQueueAddParams, ThreadQueueAddResponse
from treadle.protocol.app.thread_methods import ThreadQueueChangedNotification, ThreadQueueDeleteParams
from treadle.protocol.app.thread_methods import ThreadQueueDeleteResponse, ThreadQueueListParams
from treadle.protocol.app.thread_methods import ThreadQueueListResponse, ThreadQueueReorderParams
from treadle.protocol.app.thread_methods import ThreadQueueReorderResponse, ThreadQueueStartParams
from treadle.protocol.app.thread_methods import ThreadQueueStartResponse, ThreadQueueUpdateParams
from treadle.protocol.app.thread_methods import ThreadQueueUpdateResponse, ThreadReadParams, ThreadReadResponse
from treadle.protocol.app.thread_methods import ThreadResumeParams, ThreadResumeResponse, ThreadSectionCreateParams
from treadle.protocol.app.thread_methods import ThreadSectionCreateResponse, ThreadSectionDeleteParams
from treadle.protocol.app.thread_methods import ThreadSectionDeleteResponse, ThreadSectionListParams
from treadle.protocol.app.thread_methods import ThreadSectionListResponse, ThreadSectionMoveParams
from treadle.protocol.app.thread_methods import ThreadSectionMoveResponse, ThreadSectionUpdateParams
from treadle.protocol.app.thread_methods import ThreadSectionUpdateResponse, ThreadSetNameParams, ThreadSetNameResponse
from treadle.protocol.app.thread_methods import ThreadShellCommandParams, ThreadShellCommandResponse, ThreadSortKey
from treadle.protocol.app.thread_methods import ThreadSourceKind, ThreadStartParams, ThreadStartResponse
from treadle.protocol.app.thread_methods import ThreadStartSource, ThreadUnarchiveParams, ThreadUnarchiveResponse
from treadle.protocol.app.thread_methods import ThreadUnsubscribeParams, ThreadUnsubscribeResponse
from treadle.protocol.app.thread_methods import ThreadUnsubscribeStatus
from treadle.protocol.app.threads import ActiveThreadStatus, AgentsUsage, CustomSessionSource, GitInfo, IdleThreadStatus
from treadle.protocol.app.threads import KnownSource, NotLoadedThreadStatus, OtherSubAgentSource, SessionSource
from treadle.protocol.app.threads import SubAgentSessionSource, SubAgentSource, SubAgentThreadSpawn
from treadle.protocol.app.threads import SystemErrorThreadStatus, Thread, ThreadActiveFlag, ThreadEnvironment
from treadle.protocol.app.threads import ThreadGoal, ThreadGoalStatus, ThreadHistoryMode, ThreadReadState, ThreadSection
from treadle.protocol.app.threads import ThreadSectionAppearance, ThreadSource, ThreadSpawnSubAgentSource
from treadle.protocol.app.threads import ThreadStartThreadUnreadPosition, ThreadStatus, ThreadTokenUsage
from treadle.protocol.app.threads import ThreadUnreadPosition, TokenUsageBreakdown, TurnThreadUnreadPosition, UsageCost
from treadle.protocol.app.turns import ActiveTurnNotSteerable, ActiveTurnNotSteerableCodexErrorInfo
from treadle.protocol.app.turns import BaseBranchReviewTarget, CodexErrorInfo, CodexErrorWord, CommitReviewTarget
from treadle.protocol.app.turns import CustomReviewTarget, HttpConnectionFailedCodexErrorInfo, HttpFailure
from treadle.protocol.app.turns import KnownErrorInfo, MisalignmentErrorDetails, MisalignmentSteer, ModelFailure
from treadle.protocol.app.turns import NonSteerableTurnKind, ResponseStreamConnectionFailedCodexErrorInfo
from treadle.protocol.app.turns import ResponseStreamDisconnectedCodexErrorInfo
from treadle.protocol.app.turns import ResponseTooManyFailedAttemptsCodexErrorInfo, ReviewDelivery, ReviewStartParams
from treadle.protocol.app.turns import ReviewStartResponse, ReviewTarget, Turn, TurnError, TurnInterruptParams
from treadle.protocol.app.turns import TurnInterruptResponse, TurnItemsView, TurnLimit, TurnStartParams
from treadle.protocol.app.turns import TurnStartResponse, TurnStatus, TurnSteerParams, TurnSteerResponse, TurnToolOutput
from treadle.protocol.app.turns import UncommittedChangesReviewTarget
from treadle.protocol.app.base import union as _union

ThreadListCwdFilter = str | list[str]

if not TYPE_CHECKING:
    # As in the official SDK: `SandboxPolicy(root=…)` is what it is given.
    Account = _union("Account", get_args(Account))
    AskForApproval = _union("AskForApproval", get_args(AskForApproval))
    LoginAccountParams = _union("LoginAccountParams", get_args(LoginAccountParams))
    SandboxPolicy = _union("SandboxPolicy", get_args(SandboxPolicy))
    ThreadListCwdFilter = _union("ThreadListCwdFilter", get_args(ThreadListCwdFilter))
    ThreadStatus = _union("ThreadStatus", get_args(ThreadStatus))

__all__ = [
    "AcceptWithExecpolicyAmendmentDecision", "Account", "AccountLoginCompletedNotification",
    "AccountRateLimitsUpdatedNotification", "AccountUpdatedNotification", "ActivePermissionProfile",
    "ActiveThreadStatus", "ActiveTurnNotSteerable", "ActiveTurnNotSteerableCodexErrorInfo", "AddPatchChangeKind",
    "AdditionalFileSystemPermissions", "AdditionalNetworkPermissions", "AgentMessageDelivery",
    "AgentMessageDeltaNotification", "AgentMessageThreadItem", "AgentsUsage",
    "AmazonBedrockAccessKeysLoginAccountParams", "AmazonBedrockAccount", "AmazonBedrockLoginAccountParams",
    "AmazonBedrockLoginAccountResponse", "ApiKeyAccount", "ApiKeyLoginAccountParams", "ApiKeyLoginAccountResponse",
    "ApplyNetworkPolicyAmendmentDecision", "ApplyPatchGuardianApprovalReviewAction", "ApprovalsReviewer",
    "AskForApproval", "AskForApprovalValue", "AsyncUserInputQuestion", "AudioUserInput", "AuthMode",
    "AutoReviewDecisionSource", "BaseBranchReviewTarget", "BedrockCheckGovCloudRequirementsParams",
    "BedrockCheckGovCloudRequirementsResponse", "ByteRange", "CancelLoginAccountParams", "CancelLoginAccountResponse",
    "CancelLoginAccountStatus", "ChatgptAccount", "ChatgptAuthTokensLoginAccountParams",
    "ChatgptAuthTokensLoginAccountResponse", "ChatgptAuthTokensRefreshParams", "ChatgptAuthTokensRefreshReason",
    "ChatgptAuthTokensRefreshResponse", "ChatgptDeviceCodeLoginAccountParams", "ChatgptDeviceCodeLoginAccountResponse",
    "ChatgptLoginAccountParams", "ChatgptLoginAccountResponse", "CodexErrorInfo", "CodexErrorWord", "CollabAgentState",
    "CollabAgentStatus", "CollabAgentTool", "CollabAgentToolCallStatus", "CollabAgentToolCallThreadItem",
    "CollaborationMode", "CollaborationModeListParams", "CollaborationModeListResponse", "CollaborationModeMask",
    "CommandAction", "CommandExecOutputDeltaNotification", "CommandExecOutputStream", "CommandExecParams",
    "CommandExecResizeParams", "CommandExecResizeResponse", "CommandExecResponse", "CommandExecTerminalSize",
    "CommandExecTerminateParams", "CommandExecTerminateResponse", "CommandExecWriteParams", "CommandExecWriteResponse",
    "CommandExecutionApprovalDecision", "CommandExecutionApprovalKind", "CommandExecutionOutputDeltaNotification",
    "CommandExecutionRequestApprovalParams", "CommandExecutionRequestApprovalResponse", "CommandExecutionSource",
    "CommandExecutionStatus", "CommandExecutionThreadItem", "CommandFinished", "CommandGuardianApprovalReviewAction",
    "CommandOutput", "CommandStarted", "CommitReviewTarget", "ConfigBatchWriteParams", "ConfigBatchWriteResponse",
    "ConfigEdit", "ConfigLayer", "ConfigLayerMetadata", "ConfigLayerSource", "ConfigReadParams", "ConfigReadResponse",
    "ConfigRequirementsReadParams", "ConfigRequirementsReadResponse", "ConfigValueWriteParams",
    "ConfigValueWriteResponse", "ConfigWarningNotification", "ConfigWriteResponse", "ContextCompactedNotification",
    "ContextCompactionThreadItem", "CreditsSnapshot", "CustomReviewTarget", "CustomSessionSource", "CyberAccessProgram",
    "DangerFullAccessSandboxPolicy", "Decision", "DeletePatchChangeKind", "DeprecationNoticeNotification",
    "DesktopOnboardingEntrypoint", "Done", "DynamicToolCallOutputContentItem", "DynamicToolCallParams",
    "DynamicToolCallResponse", "DynamicToolCallStatus", "DynamicToolCallThreadItem", "DynamicToolNamespaceTool",
    "DynamicToolSpec", "EncryptedContentFunctionCallOutputContentItem", "EnteredReviewModeThreadItem",
    "EnterpriseManagedConfigLayerSource", "EnvironmentAddParams", "EnvironmentAddResponse",
    "EnvironmentConnectionNotification", "EnvironmentInfoParams", "EnvironmentInfoResponse", "EnvironmentListParams",
    "EnvironmentListResponse", "EnvironmentShell", "EnvironmentStatusParams", "EnvironmentStatusResponse",
    "ErrorNotification", "Event", "ExecpolicyAmendment", "ExecveGuardianApprovalReviewAction",
    "ExitedReviewModeThreadItem", "ExperimentalFeature", "ExperimentalFeatureEnablementSetParams",
    "ExperimentalFeatureEnablementSetResponse", "ExperimentalFeatureListParams", "ExperimentalFeatureListResponse",
    "ExperimentalFeatureStage", "ExternalAgentConfigDetectParams", "ExternalAgentConfigDetectResponse",
    "ExternalSandboxSandboxPolicy", "FeedbackSaveParams", "FeedbackSaveResponse", "FileChange",
    "FileChangeApprovalDecision", "FileChangeOutputDeltaNotification", "FileChangePatchUpdatedNotification",
    "FileChangeRequestApprovalParams", "FileChangeRequestApprovalResponse", "FileChangeThreadItem",
    "FileSystemAccessMode", "FileSystemPath", "FileSystemSandboxEntry", "FileSystemSpecialPath", "FileUpdateChange",
    "FindInPageWebSearchAction", "FsChangedNotification", "FsCopyParams", "FsCopyResponse", "FsCreateDirectoryParams",
    "FsCreateDirectoryResponse", "FsGetMetadataParams", "FsGetMetadataResponse", "FsReadDirectoryEntry",
    "FsReadDirectoryParams", "FsReadDirectoryResponse", "FsReadFileParams", "FsReadFileResponse", "FsRemoveParams",
    "FsRemoveResponse", "FsUnwatchParams", "FsUnwatchResponse", "FsWatchParams", "FsWatchResponse", "FsWriteFileParams",
    "FsWriteFileResponse", "FunctionCallOutputBody", "FunctionCallOutputContentItem", "FunctionCallOutputThreadItem",
    "FunctionDynamicToolNamespaceTool", "FunctionDynamicToolSpec", "FuzzyFileSearchParams", "FuzzyFileSearchResponse",
    "FuzzyFileSearchResult", "FuzzyFileSearchSessionCompletedNotification", "FuzzyFileSearchSessionStartParams",
    "FuzzyFileSearchSessionStartResponse", "FuzzyFileSearchSessionStopParams", "FuzzyFileSearchSessionStopResponse",
    "FuzzyFileSearchSessionUpdateParams", "FuzzyFileSearchSessionUpdateResponse",
    "FuzzyFileSearchSessionUpdatedNotification", "GcpAccount", "GetAccountParams", "GetAccountRateLimitsParams",
    "GetAccountRateLimitsResponse", "GetAccountResponse", "GitInfo", "GlobPatternFileSystemPath", "Granular",
    "GranularAskForApproval", "GuardianApprovalReview", "GuardianApprovalReviewAction", "GuardianApprovalReviewStatus",
    "GuardianCommandSource", "GuardianRiskLevel", "GuardianUserAuthorization", "GuardianWarningNotification",
    "HookCompletedNotification", "HookErrorInfo", "HookEventName", "HookExecutionMode", "HookHandlerType",
    "HookMetadata", "HookOutputEntry", "HookOutputEntryKind", "HookPromptFragment", "HookPromptThreadItem",
    "HookRunStatus", "HookRunSummary", "HookScope", "HookSource", "HookStartedNotification", "HookTrustStatus",
    "HooksListEntry", "HooksListParams", "HooksListResponse", "HttpConnectionFailedCodexErrorInfo", "HttpFailure",
    "IdleThreadStatus", "ImageDetail", "ImageGenerationFailure", "ImageGenerationInputImage",
    "ImageGenerationThreadItem", "ImageUserInput", "ImageViewThreadItem", "InitializeResponse",
    "InputAudioDynamicToolCallOutputContentItem", "InputAudioFunctionCallOutputContentItem",
    "InputImageDynamicToolCallOutputContentItem", "InputImageFunctionCallOutputContentItem", "InputModality",
    "InputTextDynamicToolCallOutputContentItem", "InputTextFunctionCallOutputContentItem", "Item",
    "ItemCompletedNotification", "ItemGuardianApprovalReviewCompletedNotification",
    "ItemGuardianApprovalReviewStartedNotification", "ItemStartedNotification", "ItemThreadItemsListAnchor",
    "JsonObject", "KnownApproval", "KnownErrorInfo", "KnownItem", "KnownSource",
    "LegacyManagedConfigTomlFromFileConfigLayerSource", "LegacyManagedConfigTomlFromMdmConfigLayerSource",
    "ListFilesCommandAction", "ListMcpServerStatusParams", "ListMcpServerStatusResponse", "ListedEnvironment",
    "LocalAudioUserInput", "LocalImageUserInput", "LoginAccountParams", "LoginAccountResponse", "LoginAppBrand",
    "LogoutAccountParams", "LogoutAccountResponse", "McpAppDisplayMode", "McpAppUi", "McpAuthStatus",
    "McpResourceReadParams", "McpResourceReadResponse", "McpResourceReadTarget", "McpServerConnectionStatus",
    "McpServerElicitationRequestParams", "McpServerElicitationRequestResponse", "McpServerInfo",
    "McpServerOauthClientRegistration", "McpServerOauthLoginCompletedNotification", "McpServerOauthLoginParams",
    "McpServerOauthLoginResponse", "McpServerRefreshParams", "McpServerRefreshResponse",
    "McpServerStartupFailureReason", "McpServerStartupState", "McpServerStatus", "McpServerStatusDetail",
    "McpServerStatusUpdatedNotification", "McpServerToolCallParams", "McpServerToolCallResponse",
    "McpToolCallAppContext", "McpToolCallError", "McpToolCallGuardianApprovalReviewAction",
    "McpToolCallProgressNotification", "McpToolCallResult", "McpToolCallStatus", "McpToolCallThreadItem",
    "MdmConfigLayerSource", "MemoryCitation", "MemoryCitationEntry", "MentionUserInput", "MergeStrategy",
    "MessagePhase", "MisalignmentErrorDetails", "MisalignmentSteer", "ModeKind", "Model", "ModelAccessPrograms",
    "ModelAvailabilityNux", "ModelFailure", "ModelListParams", "ModelListResponse",
    "ModelProviderCapabilitiesReadParams", "ModelProviderCapabilitiesReadResponse", "ModelRerouteReason",
    "ModelReroutedNotification", "ModelServiceTier", "ModelUpgradeInfo", "MultiAgentVersion",
    "NamespaceDynamicToolSpec", "NetworkAccess", "NetworkAccessGuardianApprovalReviewAction", "NetworkAmendment",
    "NetworkApprovalContext", "NetworkApprovalProtocol", "NetworkPolicyAmendment", "NetworkPolicyRuleAction",
    "NonSteerableTurnKind", "NotLoadedThreadStatus", "Notification", "NotificationPayload", "OfferedDecision",
    "OpenPageWebSearchAction", "OtherSubAgentSource", "OtherWebSearchAction", "OverriddenMetadata",
    "PackagedDefaultsConfigLayerSource", "PatchApplyStatus", "PatchChangeKind", "PathFileSystemPath",
    "PermissionProfileListParams", "PermissionProfileListResponse", "PermissionProfileSummary",
    "PermissionsRequestApprovalParams", "PermissionsRequestApprovalResponse", "Personality", "Plan",
    "PlanDeltaNotification", "PlanStep", "PlanThreadItem", "PlanType", "PluginInstalledParams",
    "PluginInstalledResponse", "PluginListParams", "PluginListResponse", "Problem", "ProcessExitedNotification",
    "ProcessKillParams", "ProcessKillResponse", "ProcessOutputDeltaNotification", "ProcessOutputStream",
    "ProcessResizePtyParams", "ProcessResizePtyResponse", "ProcessSpawnParams", "ProcessSpawnResponse",
    "ProcessTerminalSize", "ProcessWriteStdinParams", "ProcessWriteStdinResponse", "ProjectConfigLayerSource",
    "QueuedSubmission", "RateLimitReachedType", "RateLimitSnapshot", "RateLimitWindow", "ReadCommandAction",
    "ReadOnlySandboxPolicy", "Reasoning", "ReasoningEffort", "ReasoningEffortOption", "ReasoningSummary",
    "ReasoningSummaryPartAddedNotification", "ReasoningSummaryTextDeltaNotification", "ReasoningTextDeltaNotification",
    "ReasoningThreadItem", "RequestPermissionProfile", "RequestPermissionsGuardianApprovalReviewAction", "Resource",
    "ResourceContent", "ResourceTemplate", "ResponseStreamConnectionFailedCodexErrorInfo",
    "ResponseStreamDisconnectedCodexErrorInfo", "ResponseTooManyFailedAttemptsCodexErrorInfo", "RevertedFile",
    "RevertedFiles", "ReviewDelivery", "ReviewStartParams", "ReviewStartResponse", "ReviewTarget", "SandboxMode",
    "SandboxPolicy", "SearchCommandAction", "SearchWebSearchAction", "ServerInfo", "ServerRequestResolvedNotification",
    "SessionFlagsConfigLayerSource", "SessionSource", "Settings", "SkillDependencies", "SkillErrorInfo",
    "SkillInterface", "SkillMetadata", "SkillScope", "SkillToolDependency", "SkillUserInput",
    "SkillsChangedNotification", "SkillsConfigWriteParams", "SkillsConfigWriteResponse", "SkillsExtraRootsSetParams",
    "SkillsExtraRootsSetResponse", "SkillsListEntry", "SkillsListParams", "SkillsListResponse", "SleepThreadItem",
    "SortDirection", "SpecialFileSystemPath", "SpendControlLimitSnapshot", "SubAgentActivityKind",
    "SubAgentActivityThreadItem", "SubAgentSessionSource", "SubAgentSource", "SubAgentThreadSpawn",
    "SystemConfigLayerSource", "SystemErrorThreadStatus", "TerminalInteractionNotification", "Text", "TextDelta",
    "TextElement", "TextPosition", "TextRange", "TextRestarted", "TextUserInput", "Thread", "ThreadActiveFlag",
    "ThreadApproveGuardianDeniedActionParams", "ThreadApproveGuardianDeniedActionResponse", "ThreadArchiveParams",
    "ThreadArchiveResponse", "ThreadArchivedNotification", "ThreadBackgroundTerminal",
    "ThreadBackgroundTerminalsCleanParams", "ThreadBackgroundTerminalsCleanResponse",
    "ThreadBackgroundTerminalsListParams", "ThreadBackgroundTerminalsListResponse",
    "ThreadBackgroundTerminalsTerminateParams", "ThreadBackgroundTerminalsTerminateResponse",
    "ThreadClosedNotification", "ThreadCompactStartParams", "ThreadCompactStartResponse", "ThreadDeleteParams",
    "ThreadDeleteResponse", "ThreadDeletedNotification", "ThreadEnvironment", "ThreadForkParams", "ThreadForkResponse",
    "ThreadGoal", "ThreadGoalClearParams", "ThreadGoalClearResponse", "ThreadGoalClearedNotification",
    "ThreadGoalGetParams", "ThreadGoalGetResponse", "ThreadGoalMutationOrigin", "ThreadGoalSetParams",
    "ThreadGoalSetResponse", "ThreadGoalStatus", "ThreadGoalUpdatedNotification", "ThreadHistoryMode",
    "ThreadInjectItemsParams", "ThreadInjectItemsResponse", "ThreadItem", "ThreadItemEntry", "ThreadItemsListAnchor",
    "ThreadItemsListCursor", "ThreadItemsListParams", "ThreadItemsListResponse", "ThreadItemsReadParams",
    "ThreadItemsReadResponse", "ThreadListCwdFilter", "ThreadListParams", "ThreadListResponse",
    "ThreadLoadedListParams", "ThreadLoadedListResponse", "ThreadMetadataGitInfoUpdateParams",
    "ThreadMetadataUpdateParams", "ThreadMetadataUpdateResponse", "ThreadNameUpdatedNotification",
    "ThreadQueueAddParams", "ThreadQueueAddResponse", "ThreadQueueChangedNotification", "ThreadQueueDeleteParams",
    "ThreadQueueDeleteResponse", "ThreadQueueListParams", "ThreadQueueListResponse", "ThreadQueueReorderParams",
    "ThreadQueueReorderResponse", "ThreadQueueStartParams", "ThreadQueueStartResponse", "ThreadQueueUpdateParams",
    "ThreadQueueUpdateResponse", "ThreadReadParams", "ThreadReadResponse", "ThreadReadState",
    "ThreadReadStateChangedNotification", "ThreadResumeParams", "ThreadResumeResponse", "ThreadRevertParams",
    "ThreadRevertResponse", "ThreadRevertedNotification", "ThreadRollbackParams", "ThreadRollbackResponse",
    "ThreadSearchOccurrence", "ThreadSearchOccurrencesParams", "ThreadSearchOccurrencesResponse", "ThreadSearchParams",
    "ThreadSearchResponse", "ThreadSearchResult", "ThreadSearchSortKey", "ThreadSearchTextRange", "ThreadSection",
    "ThreadSectionAppearance", "ThreadSectionCreateParams", "ThreadSectionCreateResponse", "ThreadSectionDeleteParams",
    "ThreadSectionDeleteResponse", "ThreadSectionListParams", "ThreadSectionListResponse", "ThreadSectionMoveParams",
    "ThreadSectionMoveResponse", "ThreadSectionUpdateParams", "ThreadSectionUpdateResponse", "ThreadSetNameParams",
    "ThreadSetNameResponse", "ThreadSettings", "ThreadSettingsUpdateParams", "ThreadSettingsUpdateResponse",
    "ThreadSettingsUpdatedNotification", "ThreadShellCommandParams", "ThreadShellCommandResponse", "ThreadSortKey",
    "ThreadSource", "ThreadSourceKind", "ThreadSpawnSubAgentSource", "ThreadStartParams", "ThreadStartResponse",
    "ThreadStartSource", "ThreadStartThreadUnreadPosition", "ThreadStartedNotification", "ThreadStatus",
    "ThreadStatusChangedNotification", "ThreadTokenUsage", "ThreadTokenUsageUpdatedNotification",
    "ThreadTurnsListParams", "ThreadTurnsListResponse", "ThreadUnarchiveParams", "ThreadUnarchiveResponse",
    "ThreadUnarchivedNotification", "ThreadUnreadPosition", "ThreadUnsubscribeParams", "ThreadUnsubscribeResponse",
    "ThreadUnsubscribeStatus", "TokenUsageBreakdown", "Tool", "ToolCall", "ToolCallProgress", "ToolCallStarted",
    "ToolRequestUserInputAnswer", "ToolRequestUserInputOption", "ToolRequestUserInputParams",
    "ToolRequestUserInputQuestion", "ToolRequestUserInputResponse", "Turn", "TurnCompletedNotification",
    "TurnDiffUpdatedNotification", "TurnEnvironmentParams", "TurnError", "TurnInterruptParams", "TurnInterruptResponse",
    "TurnItemsView", "TurnLimit", "TurnOptions", "TurnPlanStep", "TurnPlanStepStatus", "TurnPlanUpdatedNotification",
    "TurnStartParams", "TurnStartResponse", "TurnStartedNotification", "TurnStatus", "TurnSteerParams",
    "TurnSteerResponse", "TurnThreadUnreadPosition", "TurnToolOutput", "UncommittedChangesReviewTarget", "Unknown",
    "UnknownCommandAction", "UnknownItem", "UnknownNotification", "UpdatePatchChangeKind", "Usage", "UsageCost",
    "UsageLimitExceededImageGenerationFailure", "UserConfigLayerSource", "UserInput", "UserMessageThreadItem",
    "WantedEffort", "WarningNotification", "WebSearchAction", "WebSearchThreadItem", "WorkspaceWriteSandboxPolicy",
    "WriteStatus", "WriteStdinGuardianApprovalReviewAction",
]
