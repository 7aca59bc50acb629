"""Every method, notification and server request that Treadle knows, with the structs that it carries.

The tables name the structs, and a module is imported when one of its methods is first looked up: a server that starts
should not pay for the vocabulary of what nobody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

import msgspec

from treadle.protocol.app.base import NoParams, Wire, decode

V = TypeVar("V")


class Method(NamedTuple):
    """What a request takes and gives: structs, or unions of structs. To be read with `decode`."""

    params: Any
    result: Any


class UnknownNotification(msgspec.Struct, frozen=True, kw_only=True):
    """A notification that we don't know, or whose params are not what we know: then `problem` says why."""

    method: str
    params: msgspec.Raw
    problem: str | None = None


class _Table(Mapping[str, V]):
    """From a method to `module.Name`, loaded by `load` when it is first asked for."""

    def __init__(self, load: Callable[[str, str], V], names: Mapping[str, str]) -> None:
        self._load = load
        self._names = names
        self._loaded: dict[str, V] = {}

    def __getitem__(self, method: str) -> V:
        if method not in self._loaded:
            module, _, name = self._names[method].partition(".")
            self._loaded[method] = self._load(module, name)
        return self._loaded[method]

    def __contains__(self, method: object) -> bool:
        return method in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _struct(module: str, name: str) -> Any:
    return getattr(import_module(f"treadle.protocol.app.{module}"), name)


def _method(module: str, stem: str) -> Method:
    return Method(_struct(module, f"{stem}Params"), _struct(module, f"{stem}Response"))


METHODS: Mapping[str, Method] = _Table(
    _method,
    {
        "account/login/cancel": "accounts.CancelLoginAccount",
        "account/login/start": "accounts.LoginAccount",
        "account/logout": "accounts.LogoutAccount",
        "account/read": "accounts.GetAccount",
        "command/exec": "commands.CommandExec",
        "command/exec/resize": "commands.CommandExecResize",
        "command/exec/terminate": "commands.CommandExecTerminate",
        "command/exec/write": "commands.CommandExecWrite",
        "config/batchWrite": "config.ConfigBatchWrite",
        "config/mcpServer/reload": "mcp.McpServerRefresh",
        "config/read": "config.ConfigRead",
        "config/value/write": "config.ConfigValueWrite",
        "configRequirements/read": "config.ConfigRequirementsRead",
        "experimentalFeature/enablement/set": "features.ExperimentalFeatureEnablementSet",
        "experimentalFeature/list": "features.ExperimentalFeatureList",
        "fs/copy": "files.FsCopy",
        "fs/createDirectory": "files.FsCreateDirectory",
        "fs/getMetadata": "files.FsGetMetadata",
        "fs/readDirectory": "files.FsReadDirectory",
        "fs/readFile": "files.FsReadFile",
        "fs/remove": "files.FsRemove",
        "fs/unwatch": "files.FsUnwatch",
        "fs/watch": "files.FsWatch",
        "fs/writeFile": "files.FsWriteFile",
        "fuzzyFileSearch": "search.FuzzyFileSearch",
        "hooks/list": "hooks.HooksList",
        "initialize": "handshake.Initialize",
        "mcpServer/oauth/login": "mcp.McpServerOauthLogin",
        "mcpServer/resource/read": "mcp.McpResourceRead",
        "mcpServer/tool/call": "mcp.McpServerToolCall",
        "mcpServerStatus/list": "mcp.ListMcpServerStatus",
        "model/list": "models.ModelList",
        "modelProvider/capabilities/read": "models.ModelProviderCapabilitiesRead",
        "permissionProfile/list": "features.PermissionProfileList",
        "review/start": "turns.ReviewStart",
        "skills/config/write": "skills.SkillsConfigWrite",
        "skills/extraRoots/set": "skills.SkillsExtraRootsSet",
        "skills/list": "skills.SkillsList",
        "thread/archive": "thread_methods.ThreadArchive",
        "thread/compact/start": "thread_methods.ThreadCompactStart",
        "thread/delete": "thread_methods.ThreadDelete",
        "thread/fork": "thread_methods.ThreadFork",
        "thread/goal/clear": "goals.ThreadGoalClear",
        "thread/goal/get": "goals.ThreadGoalGet",
        "thread/goal/set": "goals.ThreadGoalSet",
        "thread/inject_items": "thread_history.ThreadInjectItems",
        "thread/items/list": "thread_history.ThreadItemsList",
        "thread/list": "thread_methods.ThreadList",
        "thread/loaded/list": "thread_methods.ThreadLoadedList",
        "thread/metadata/update": "thread_methods.ThreadMetadataUpdate",
        "thread/name/set": "thread_methods.ThreadSetName",
        "thread/read": "thread_methods.ThreadRead",
        "thread/resume": "thread_methods.ThreadResume",
        "thread/revert": "thread_history.ThreadRevert",
        "thread/rollback": "thread_history.ThreadRollback",
        "thread/section/move": "sections.ThreadSectionMove",
        "thread/settings/update": "settings.ThreadSettingsUpdate",
        "thread/shellCommand": "thread_methods.ThreadShellCommand",
        "thread/start": "thread_methods.ThreadStart",
        "thread/turns/list": "thread_history.ThreadTurnsList",
        "thread/unarchive": "thread_methods.ThreadUnarchive",
        "thread/unsubscribe": "thread_methods.ThreadUnsubscribe",
        "threadSection/create": "sections.ThreadSectionCreate",
        "threadSection/delete": "sections.ThreadSectionDelete",
        "threadSection/list": "sections.ThreadSectionList",
        "threadSection/update": "sections.ThreadSectionUpdate",
        "turn/interrupt": "turns.TurnInterrupt",
        "turn/start": "turns.TurnStart",
        "turn/steer": "turns.TurnSteer",
    },
)
"""Requests of a client: `X` stands for `XParams` and `XResponse`."""

NOTIFICATIONS: Mapping[str, type[Wire]] = _Table(
    _struct,
    {
        "account/login/completed": "accounts.AccountLoginCompletedNotification",
        "account/rateLimits/updated": "accounts.AccountRateLimitsUpdatedNotification",
        "account/updated": "accounts.AccountUpdatedNotification",
        "command/exec/outputDelta": "commands.CommandExecOutputDeltaNotification",
        "configWarning": "notifications.ConfigWarningNotification",
        "deprecationNotice": "notifications.DeprecationNoticeNotification",
        "error": "notifications.ErrorNotification",
        "fs/changed": "files.FsChangedNotification",
        "guardianWarning": "reviews.GuardianWarningNotification",
        "hook/completed": "hooks.HookCompletedNotification",
        "hook/started": "hooks.HookStartedNotification",
        "item/agentMessage/delta": "item_notifications.AgentMessageDeltaNotification",
        "item/autoApprovalReview/completed": "reviews.ItemGuardianApprovalReviewCompletedNotification",
        "item/autoApprovalReview/started": "reviews.ItemGuardianApprovalReviewStartedNotification",
        "item/commandExecution/outputDelta": "item_notifications.CommandExecutionOutputDeltaNotification",
        "item/commandExecution/terminalInteraction": "item_notifications.TerminalInteractionNotification",
        "item/completed": "item_notifications.ItemCompletedNotification",
        "item/fileChange/outputDelta": "item_notifications.FileChangeOutputDeltaNotification",
        "item/fileChange/patchUpdated": "item_notifications.FileChangePatchUpdatedNotification",
        "item/mcpToolCall/progress": "item_notifications.McpToolCallProgressNotification",
        "item/plan/delta": "item_notifications.PlanDeltaNotification",
        "item/reasoning/summaryPartAdded": "item_notifications.ReasoningSummaryPartAddedNotification",
        "item/reasoning/summaryTextDelta": "item_notifications.ReasoningSummaryTextDeltaNotification",
        "item/reasoning/textDelta": "item_notifications.ReasoningTextDeltaNotification",
        "item/started": "item_notifications.ItemStartedNotification",
        "mcpServer/oauthLogin/completed": "mcp.McpServerOauthLoginCompletedNotification",
        "mcpServer/startupStatus/updated": "mcp.McpServerStatusUpdatedNotification",
        "model/rerouted": "notifications.ModelReroutedNotification",
        "serverRequest/resolved": "notifications.ServerRequestResolvedNotification",
        "skills/changed": "skills.SkillsChangedNotification",
        "thread/archived": "thread_notifications.ThreadArchivedNotification",
        "thread/closed": "thread_notifications.ThreadClosedNotification",
        "thread/compacted": "thread_notifications.ContextCompactedNotification",
        "thread/deleted": "thread_notifications.ThreadDeletedNotification",
        "thread/goal/cleared": "thread_notifications.ThreadGoalClearedNotification",
        "thread/goal/updated": "thread_notifications.ThreadGoalUpdatedNotification",
        "thread/name/updated": "thread_notifications.ThreadNameUpdatedNotification",
        "thread/readState/changed": "thread_notifications.ThreadReadStateChangedNotification",
        "thread/reverted": "thread_notifications.ThreadRevertedNotification",
        "thread/settings/updated": "thread_notifications.ThreadSettingsUpdatedNotification",
        "thread/started": "thread_notifications.ThreadStartedNotification",
        "thread/status/changed": "thread_notifications.ThreadStatusChangedNotification",
        "thread/tokenUsage/updated": "thread_notifications.ThreadTokenUsageUpdatedNotification",
        "thread/unarchived": "thread_notifications.ThreadUnarchivedNotification",
        "turn/completed": "thread_notifications.TurnCompletedNotification",
        "turn/diff/updated": "thread_notifications.TurnDiffUpdatedNotification",
        "turn/plan/updated": "thread_notifications.TurnPlanUpdatedNotification",
        "turn/started": "thread_notifications.TurnStartedNotification",
        "warning": "notifications.WarningNotification",
    },
)
"""Notifications of a server."""

SERVER_REQUESTS: Mapping[str, Method] = _Table(
    _method,
    {
        "account/chatgptAuthTokens/refresh": "accounts.ChatgptAuthTokensRefresh",
        "item/commandExecution/requestApproval": "approvals.CommandExecutionRequestApproval",
        "item/fileChange/requestApproval": "approvals.FileChangeRequestApproval",
        "item/permissions/requestApproval": "approvals.PermissionsRequestApproval",
        "item/tool/call": "dynamic_tools.DynamicToolCall",
        "item/tool/requestUserInput": "questions.ToolRequestUserInput",
        "mcpServer/elicitation/request": "questions.McpServerElicitationRequest",
    },
)
"""Requests of a server, answered by its client."""

CLIENT_NOTIFICATIONS: Mapping[str, type[Wire]] = {"initialized": NoParams}
"""Notifications of a client."""


def read_notification(method: str, params: msgspec.Raw) -> Wire | UnknownNotification:
    """What a server tells never breaks a stream: what cannot be read is kept as it came."""
    if method not in NOTIFICATIONS:
        return UnknownNotification(method=method, params=params.copy())
    try:
        return decode(params, NOTIFICATIONS[method])
    except msgspec.DecodeError as error:
        return UnknownNotification(method=method, params=params.copy(), problem=str(error))
