"""The methods, notifications and server requests of the app-server: one record for each method, which feeds the
server's routes and the generated calls of the clients.

The tables name structs and handlers; a module is imported when one of its methods is first used: a server that starts
should not pay for the vocabulary of what nobody asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from typing import Any

from treadle.protocol.app.base import NoParams, Wire


class Method:
    """What a request takes and gives (structs, or unions of structs, to be read with `decode`), and who handles it.

    Args:
        structs: Module of `treadle.protocol.app` and the name that `Params` and `Response` are added to.
        handler: Module of `treadle.server.methods` and function in it; None for a method that our server does not have.
        params_optional: Whether a request without params is one with empty ones.
        experimental: Whether a client must have asked for the experimental API.
        ours: Whether it is none of Codex: such a method is advertised as an extension.
    """

    def __init__(
        self,
        structs: str,
        handler: str | None = None,
        *,
        params_optional: bool = False,
        experimental: bool = False,
        ours: bool = False,
    ) -> None:
        module, _, stem = structs.partition(".")
        self.module: str = module
        self.stem: str = stem
        self.handler: str | None = handler
        self.params_optional: bool = params_optional
        self.experimental: bool = experimental
        self.ours: bool = ours

    @cached_property
    def params(self) -> Any:
        return _struct(self.module, self.stem + "Params")

    @cached_property
    def result(self) -> Any:
        return _struct(self.module, self.stem + "Response")


class _Notifications(Mapping[str, type[Wire]]):
    """From a method to its struct, given as `module.Name` and imported when it is first asked for."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._loaded: dict[str, type[Wire]] = {}

    def __getitem__(self, method: str) -> type[Wire]:
        if method not in self._loaded:
            module, _, name = self._names[method].partition(".")
            self._loaded[method] = _struct(module, name)
        return self._loaded[method]

    def __contains__(self, method: object) -> bool:
        return method in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _struct(module: str, name: str) -> Any:
    return getattr(import_module(f"treadle.protocol.app.{module}"), name)


# In the order in which a server names them to a client that asks for an unknown one.
RECORDS: dict[str, Method] = {
    "initialize": Method("handshake.Initialize", "initialize.initialize"),
    "thread/start": Method("thread_methods.ThreadStart", "thread_lifecycle.start"),
    "thread/resume": Method("thread_methods.ThreadResume", "thread_lifecycle.resume"),
    "thread/fork": Method("thread_methods.ThreadFork", "thread_lifecycle.fork"),
    "thread/archive": Method("thread_methods.ThreadArchive", "thread_lifecycle.archive"),
    "thread/unarchive": Method("thread_methods.ThreadUnarchive", "thread_lifecycle.unarchive"),
    "thread/delete": Method("thread_methods.ThreadDelete", "thread_lifecycle.delete"),
    "thread/unsubscribe": Method("thread_methods.ThreadUnsubscribe", "thread_lifecycle.unsubscribe"),
    "thread/name/set": Method("thread_methods.ThreadSetName", "thread_changes.set_name"),
    "thread/metadata/update": Method("thread_methods.ThreadMetadataUpdate", "thread_changes.update_metadata"),
    "thread/settings/update": Method(
        "settings.ThreadSettingsUpdate", "thread_changes.update_settings", experimental=True
    ),
    "thread/list": Method("thread_methods.ThreadList", "thread_listing.list_threads"),
    "thread/loaded/list": Method("thread_methods.ThreadLoadedList", "thread_listing.list_loaded"),
    "thread/read": Method("thread_methods.ThreadRead", "thread_listing.read"),
    "thread/turns/list": Method("thread_history.ThreadTurnsList", "thread_listing.list_turns"),
    "thread/items/list": Method("thread_history.ThreadItemsList", "thread_listing.list_items"),
    "thread/items/read": Method("thread_history.ThreadItemsRead", "thread_listing.read_items", experimental=True),
    "thread/events/list": Method("ours.ThreadEventsList", "thread_listing.list_events", ours=True),
    "thread/messages/search": Method("ours.MessageSearch", "search_methods.search_messages", ours=True),
    "thread/search": Method("thread_history.ThreadSearch", "search_methods.search_threads", experimental=True),
    "thread/searchOccurrences": Method(
        "thread_history.ThreadSearchOccurrences", "search_methods.search_occurrences", experimental=True
    ),
    "thread/queue/add": Method("thread_methods.ThreadQueueAdd", "thread_changes.add_queued", experimental=True),
    "thread/queue/list": Method("thread_methods.ThreadQueueList", "thread_changes.list_queued", experimental=True),
    "thread/queue/update": Method(
        "thread_methods.ThreadQueueUpdate", "thread_changes.update_queued", experimental=True
    ),
    "thread/queue/delete": Method(
        "thread_methods.ThreadQueueDelete", "thread_changes.delete_queued", experimental=True
    ),
    "thread/queue/reorder": Method(
        "thread_methods.ThreadQueueReorder", "thread_changes.reorder_queue", experimental=True
    ),
    "thread/queue/start": Method("thread_methods.ThreadQueueStart", "thread_changes.start_queued", experimental=True),
    "thread/revert": Method("thread_history.ThreadRevert", "thread_changes.revert"),
    "thread/rollback": Method("thread_history.ThreadRollback", "thread_changes.rollback"),
    "thread/inject_items": Method("thread_history.ThreadInjectItems", "thread_changes.inject_items"),
    "thread/compact/start": Method("thread_methods.ThreadCompactStart", "turn_methods.compact"),
    "thread/shellCommand": Method("thread_methods.ThreadShellCommand", "turn_methods.shell_command"),
    "thread/approveGuardianDeniedAction": Method(
        "thread_methods.ThreadApproveGuardianDeniedAction", "turn_methods.approve_denied_action"
    ),
    "thread/backgroundTerminals/list": Method(
        "thread_methods.ThreadBackgroundTerminalsList", "turn_methods.list_terminals", experimental=True
    ),
    "thread/backgroundTerminals/clean": Method(
        "thread_methods.ThreadBackgroundTerminalsClean", "turn_methods.clean_terminals", experimental=True
    ),
    "thread/backgroundTerminals/terminate": Method(
        "thread_methods.ThreadBackgroundTerminalsTerminate", "turn_methods.terminate_terminal", experimental=True
    ),
    "thread/goal/set": Method("thread_methods.ThreadGoalSet", "turn_methods.set_goal"),
    "thread/goal/get": Method("thread_methods.ThreadGoalGet", "turn_methods.get_goal"),
    "thread/goal/clear": Method("thread_methods.ThreadGoalClear", "turn_methods.clear_goal"),
    "turn/start": Method("turns.TurnStart", "turn_methods.start"),
    "turn/steer": Method("turns.TurnSteer", "turn_methods.steer"),
    "turn/interrupt": Method("turns.TurnInterrupt", "turn_methods.interrupt"),
    "review/start": Method("turns.ReviewStart", "turn_methods.review"),
    "model/list": Method("models.ModelList", "account_methods.list_models"),
    "modelProvider/capabilities/read": Method(
        "models.ModelProviderCapabilitiesRead", "account_methods.read_capabilities"
    ),
    "collaborationMode/list": Method(
        "settings.CollaborationModeList", "account_methods.list_collaboration_modes", experimental=True
    ),
    "account/read": Method("accounts.GetAccount", "account_methods.read_account"),
    "account/login/start": Method("accounts.LoginAccount", "account_methods.start_login"),
    "account/login/cancel": Method("accounts.CancelLoginAccount", "account_methods.cancel_login"),
    "account/logout": Method("accounts.LogoutAccount", "account_methods.logout", params_optional=True),
    "account/rateLimits/read": Method(
        "accounts.GetAccountRateLimits", "account_methods.read_rate_limits", params_optional=True
    ),
    "account/bedrock/checkGovCloudRequirements": Method(
        "accounts.BedrockCheckGovCloudRequirements", "account_methods.check_gov_cloud", experimental=True
    ),
    "config/read": Method("config.ConfigRead", "config_methods.read"),
    "config/value/write": Method("config.ConfigValueWrite", "config_methods.write_value"),
    "config/batchWrite": Method("config.ConfigBatchWrite", "config_methods.write_batch"),
    "configRequirements/read": Method(
        "config.ConfigRequirementsRead", "config_methods.read_requirements", params_optional=True
    ),
    "permissionProfile/list": Method("config.PermissionProfileList", "config_methods.list_permission_profiles"),
    "experimentalFeature/list": Method("config.ExperimentalFeatureList", "config_methods.list_features"),
    "experimentalFeature/enablement/set": Method(
        "config.ExperimentalFeatureEnablementSet", "config_methods.set_features"
    ),
    "command/exec": Method("machine_methods.CommandExec", "command_methods.execute"),
    "command/exec/write": Method("machine_methods.CommandExecWrite", "command_methods.write"),
    "command/exec/resize": Method("machine_methods.CommandExecResize", "command_methods.resize"),
    "command/exec/terminate": Method("machine_methods.CommandExecTerminate", "command_methods.terminate"),
    "process/spawn": Method("machine_methods.ProcessSpawn", "command_methods.spawn_process", experimental=True),
    "process/writeStdin": Method(
        "machine_methods.ProcessWriteStdin", "command_methods.write_process", experimental=True
    ),
    "process/resizePty": Method(
        "machine_methods.ProcessResizePty", "command_methods.resize_process", experimental=True
    ),
    "process/kill": Method("machine_methods.ProcessKill", "command_methods.kill_process", experimental=True),
    "fs/readFile": Method("machine_methods.FsReadFile", "fs_methods.read_file"),
    "fs/writeFile": Method("machine_methods.FsWriteFile", "fs_methods.write_file"),
    "fs/createDirectory": Method("machine_methods.FsCreateDirectory", "fs_methods.create_directory"),
    "fs/getMetadata": Method("machine_methods.FsGetMetadata", "fs_methods.get_metadata"),
    "fs/readDirectory": Method("machine_methods.FsReadDirectory", "fs_methods.read_directory"),
    "fs/remove": Method("machine_methods.FsRemove", "fs_methods.remove"),
    "fs/copy": Method("machine_methods.FsCopy", "fs_methods.copy"),
    "fs/watch": Method("machine_methods.FsWatch", "fs_methods.watch"),
    "fs/unwatch": Method("machine_methods.FsUnwatch", "fs_methods.unwatch"),
    "fuzzyFileSearch": Method("machine_methods.FuzzyFileSearch", "search_files.search_files"),
    "fuzzyFileSearch/sessionStart": Method(
        "machine_methods.FuzzyFileSearchSessionStart", "search_files.start_session", experimental=True
    ),
    "fuzzyFileSearch/sessionUpdate": Method(
        "machine_methods.FuzzyFileSearchSessionUpdate", "search_files.update_session", experimental=True
    ),
    "fuzzyFileSearch/sessionStop": Method(
        "machine_methods.FuzzyFileSearchSessionStop", "search_files.stop_session", experimental=True
    ),
    "skills/list": Method("extensions.SkillsList", "skill_methods.list_skills"),
    "skills/config/write": Method("extensions.SkillsConfigWrite", "skill_methods.write_config"),
    "skills/extraRoots/set": Method("extensions.SkillsExtraRootsSet", "skill_methods.set_extra_roots"),
    "hooks/list": Method("extensions.HooksList", "hook_methods.list_hooks"),
    "mcpServerStatus/list": Method("extensions.ListMcpServerStatus", "mcp_methods.list_statuses"),
    "plugin/list": Method("extensions.PluginList", "account_methods.list_plugins"),
    "plugin/installed": Method("extensions.PluginInstalled", "account_methods.list_installed_plugins"),
    "externalAgentConfig/detect": Method("extensions.ExternalAgentConfigDetect", "account_methods.detect_other_agents"),
    "threadSection/list": Method("thread_methods.ThreadSectionList", "account_methods.list_sections"),
    "feedback/save": Method("config.FeedbackSave", "feedback_methods.save"),
    "config/mcpServer/reload": Method("extensions.McpServerRefresh", "mcp_methods.reload", params_optional=True),
    "mcpServer/resource/read": Method("extensions.McpResourceRead", "mcp_methods.read_resource"),
    "mcpServer/oauth/login": Method("extensions.McpServerOauthLogin", "mcp_methods.log_in"),
    "mcpServer/tool/call": Method("extensions.McpServerToolCall", "mcp_methods.call_tool"),
    "mcpServer/prompt/list": Method("ours.McpServerPromptList", "mcp_methods.list_prompts", ours=True),
    "mcpServer/prompt/get": Method("ours.McpServerPromptGet", "mcp_methods.get_prompt", ours=True),
    "environment/add": Method("environment_messages.EnvironmentAdd", "environment_methods.add", experimental=True),
    "environment/info": Method("environment_messages.EnvironmentInfo", "environment_methods.info", experimental=True),
    "environment/status": Method(
        "environment_messages.EnvironmentStatus", "environment_methods.status", experimental=True
    ),
    "environment/list": Method("environment_messages.EnvironmentList", "environment_methods.list_all", ours=True),
    # Known, for clients of other servers; ours does not have them.
    "thread/section/move": Method("thread_methods.ThreadSectionMove"),
    "threadSection/create": Method("thread_methods.ThreadSectionCreate"),
    "threadSection/delete": Method("thread_methods.ThreadSectionDelete"),
    "threadSection/update": Method("thread_methods.ThreadSectionUpdate"),
}


METHODS: Mapping[str, Method] = {name: record for name, record in sorted(RECORDS.items()) if not record.ours}
"""Requests of a client: `X` stands for `XParams` and `XResponse`."""

NOTIFICATIONS: Mapping[str, type[Wire]] = _Notifications(
    {
        "account/login/completed": "accounts.AccountLoginCompletedNotification",
        "account/rateLimits/updated": "accounts.AccountRateLimitsUpdatedNotification",
        "account/updated": "accounts.AccountUpdatedNotification",
        "command/exec/outputDelta": "machine_methods.CommandExecOutputDeltaNotification",
        "configWarning": "notifications.ConfigWarningNotification",
        "deprecationNotice": "notifications.DeprecationNoticeNotification",
        "error": "notifications.ErrorNotification",
        "thread/environment/connected": "notifications.EnvironmentConnectionNotification",
        "thread/environment/disconnected": "notifications.EnvironmentConnectionNotification",
        "fs/changed": "machine_methods.FsChangedNotification",
        "fuzzyFileSearch/sessionCompleted": "machine_methods.FuzzyFileSearchSessionCompletedNotification",
        "fuzzyFileSearch/sessionUpdated": "machine_methods.FuzzyFileSearchSessionUpdatedNotification",
        "guardianWarning": "approvals.GuardianWarningNotification",
        "hook/completed": "extensions.HookCompletedNotification",
        "hook/started": "extensions.HookStartedNotification",
        "item/agentMessage/delta": "notifications.AgentMessageDeltaNotification",
        "item/autoApprovalReview/completed": "approvals.ItemGuardianApprovalReviewCompletedNotification",
        "item/autoApprovalReview/started": "approvals.ItemGuardianApprovalReviewStartedNotification",
        "item/commandExecution/outputDelta": "notifications.CommandExecutionOutputDeltaNotification",
        "item/commandExecution/terminalInteraction": "notifications.TerminalInteractionNotification",
        "item/completed": "notifications.ItemCompletedNotification",
        "item/fileChange/outputDelta": "notifications.FileChangeOutputDeltaNotification",
        "item/fileChange/patchUpdated": "notifications.FileChangePatchUpdatedNotification",
        "item/mcpToolCall/progress": "notifications.McpToolCallProgressNotification",
        "item/plan/delta": "notifications.PlanDeltaNotification",
        "item/reasoning/summaryPartAdded": "notifications.ReasoningSummaryPartAddedNotification",
        "item/reasoning/summaryTextDelta": "notifications.ReasoningSummaryTextDeltaNotification",
        "item/reasoning/textDelta": "notifications.ReasoningTextDeltaNotification",
        "item/started": "notifications.ItemStartedNotification",
        "mcpServer/oauthLogin/completed": "extensions.McpServerOauthLoginCompletedNotification",
        "mcpServer/startupStatus/updated": "extensions.McpServerStatusUpdatedNotification",
        "model/rerouted": "notifications.ModelReroutedNotification",
        "process/exited": "machine_methods.ProcessExitedNotification",
        "process/outputDelta": "machine_methods.ProcessOutputDeltaNotification",
        "serverRequest/resolved": "notifications.ServerRequestResolvedNotification",
        "skills/changed": "extensions.SkillsChangedNotification",
        "thread/archived": "notifications.ThreadArchivedNotification",
        "thread/closed": "notifications.ThreadClosedNotification",
        "thread/compacted": "notifications.ContextCompactedNotification",
        "thread/deleted": "notifications.ThreadDeletedNotification",
        "thread/goal/cleared": "notifications.ThreadGoalClearedNotification",
        "thread/goal/updated": "notifications.ThreadGoalUpdatedNotification",
        "thread/name/updated": "notifications.ThreadNameUpdatedNotification",
        "thread/queue/changed": "thread_methods.ThreadQueueChangedNotification",
        "thread/readState/changed": "notifications.ThreadReadStateChangedNotification",
        "thread/reverted": "notifications.ThreadRevertedNotification",
        "thread/settings/updated": "notifications.ThreadSettingsUpdatedNotification",
        "thread/started": "notifications.ThreadStartedNotification",
        "thread/status/changed": "notifications.ThreadStatusChangedNotification",
        "thread/tokenUsage/updated": "notifications.ThreadTokenUsageUpdatedNotification",
        "thread/unarchived": "notifications.ThreadUnarchivedNotification",
        "turn/completed": "notifications.TurnCompletedNotification",
        "turn/diff/updated": "notifications.TurnDiffUpdatedNotification",
        "turn/plan/updated": "notifications.TurnPlanUpdatedNotification",
        "turn/started": "notifications.TurnStartedNotification",
        "warning": "notifications.WarningNotification",
    },
)
"""Notifications of a server."""

SERVER_REQUESTS: Mapping[str, Method] = {
    "account/chatgptAuthTokens/refresh": Method("accounts.ChatgptAuthTokensRefresh"),
    "item/commandExecution/requestApproval": Method("approvals.CommandExecutionRequestApproval"),
    "item/fileChange/requestApproval": Method("approvals.FileChangeRequestApproval"),
    "item/permissions/requestApproval": Method("approvals.PermissionsRequestApproval"),
    "item/tool/call": Method("item_parts.DynamicToolCall"),
    "item/tool/requestUserInput": Method("approvals.ToolRequestUserInput"),
    "mcpServer/elicitation/request": Method("approvals.McpServerElicitationRequest"),
}
"""Requests of a server, answered by its client."""

CLIENT_NOTIFICATIONS: Mapping[str, type[Wire]] = {"initialized": NoParams}
"""Notifications of a client."""
