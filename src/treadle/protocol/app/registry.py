"""Every method, notification and server request that Treadle knows, with the structs that it carries.

The tables name the structs, and a module is imported when one of its methods is first looked up: a server that starts
should not pay for the vocabulary of what nobody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, TypeVar

import msgspec

from treadle.protocol.app.base import NoParams, Wire, decode
from treadle.protocol.app.methods import RECORDS, Method

V = TypeVar("V")


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


METHODS: Mapping[str, Method] = {name: record for name, record in sorted(RECORDS.items()) if not record.ours}
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
        "fuzzyFileSearch/sessionCompleted": "search.FuzzyFileSearchSessionCompletedNotification",
        "fuzzyFileSearch/sessionUpdated": "search.FuzzyFileSearchSessionUpdatedNotification",
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
        "process/exited": "commands.ProcessExitedNotification",
        "process/outputDelta": "commands.ProcessOutputDeltaNotification",
        "serverRequest/resolved": "notifications.ServerRequestResolvedNotification",
        "skills/changed": "skills.SkillsChangedNotification",
        "thread/archived": "thread_notifications.ThreadArchivedNotification",
        "thread/closed": "thread_notifications.ThreadClosedNotification",
        "thread/compacted": "thread_notifications.ContextCompactedNotification",
        "thread/deleted": "thread_notifications.ThreadDeletedNotification",
        "thread/goal/cleared": "thread_notifications.ThreadGoalClearedNotification",
        "thread/goal/updated": "thread_notifications.ThreadGoalUpdatedNotification",
        "thread/name/updated": "thread_notifications.ThreadNameUpdatedNotification",
        "thread/queue/changed": "queue.ThreadQueueChangedNotification",
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

SERVER_REQUESTS: Mapping[str, Method] = {
    "account/chatgptAuthTokens/refresh": Method("accounts.ChatgptAuthTokensRefresh"),
    "item/commandExecution/requestApproval": Method("approvals.CommandExecutionRequestApproval"),
    "item/fileChange/requestApproval": Method("approvals.FileChangeRequestApproval"),
    "item/permissions/requestApproval": Method("approvals.PermissionsRequestApproval"),
    "item/tool/call": Method("dynamic_tools.DynamicToolCall"),
    "item/tool/requestUserInput": Method("questions.ToolRequestUserInput"),
    "mcpServer/elicitation/request": Method("questions.McpServerElicitationRequest"),
}
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
