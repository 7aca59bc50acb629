"""The methods of the app-server: one record for each, which feeds the registry, the server's routes and the generated
calls of the clients.

A record names structs and handler; a module is imported when one of its methods is first used: a server that starts
should not pay for the vocabulary of what nobody asks.
"""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import Any


class Method:
    """What a request takes and gives (structs, or unions of structs, to be read with `decode`), and who handles it.

    Args:
        structs: Module of `treadle.protocol.app` and the name that `Params` and `Response` are added to.
        handler: Module of `treadle.server.methods` and function in it; None for a method that our server does not have.
        params_optional: Whether a request without params is one with empty ones.
        experimental: Whether a client must have asked for the experimental API.
        ours: Whether it is none of Codex: such a method is announced as an extension.
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
        return self._struct("Params")

    @cached_property
    def result(self) -> Any:
        return self._struct("Response")

    def _struct(self, suffix: str) -> Any:
        return getattr(import_module(f"treadle.protocol.app.{self.module}"), self.stem + suffix)


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
    "thread/search": Method("thread_search.ThreadSearch", "search_methods.search_threads", experimental=True),
    "thread/searchOccurrences": Method(
        "thread_search.ThreadSearchOccurrences", "search_methods.search_occurrences", experimental=True
    ),
    "thread/queue/add": Method("queue.ThreadQueueAdd", "queue_methods.add", experimental=True),
    "thread/queue/list": Method("queue.ThreadQueueList", "queue_methods.list_queued", experimental=True),
    "thread/queue/update": Method("queue.ThreadQueueUpdate", "queue_methods.update", experimental=True),
    "thread/queue/delete": Method("queue.ThreadQueueDelete", "queue_methods.delete", experimental=True),
    "thread/queue/reorder": Method("queue.ThreadQueueReorder", "queue_methods.reorder", experimental=True),
    "thread/queue/start": Method("queue.ThreadQueueStart", "queue_methods.start", experimental=True),
    "thread/revert": Method("thread_history.ThreadRevert", "thread_changes.revert"),
    "thread/rollback": Method("thread_history.ThreadRollback", "thread_changes.rollback"),
    "thread/inject_items": Method("thread_history.ThreadInjectItems", "thread_changes.inject_items"),
    "thread/compact/start": Method("thread_methods.ThreadCompactStart", "turn_methods.compact"),
    "thread/shellCommand": Method("thread_methods.ThreadShellCommand", "turn_methods.shell_command"),
    "thread/approveGuardianDeniedAction": Method(
        "thread_methods.ThreadApproveGuardianDeniedAction", "turn_methods.approve_denied_action"
    ),
    "thread/backgroundTerminals/list": Method(
        "background_terminals.ThreadBackgroundTerminalsList", "terminal_methods.list_terminals", experimental=True
    ),
    "thread/backgroundTerminals/clean": Method(
        "background_terminals.ThreadBackgroundTerminalsClean", "terminal_methods.clean", experimental=True
    ),
    "thread/backgroundTerminals/terminate": Method(
        "background_terminals.ThreadBackgroundTerminalsTerminate", "terminal_methods.terminate", experimental=True
    ),
    "thread/goal/set": Method("goals.ThreadGoalSet", "turn_methods.set_goal"),
    "thread/goal/get": Method("goals.ThreadGoalGet", "turn_methods.get_goal"),
    "thread/goal/clear": Method("goals.ThreadGoalClear", "turn_methods.clear_goal"),
    "turn/start": Method("turns.TurnStart", "turn_methods.start"),
    "turn/steer": Method("turns.TurnSteer", "turn_methods.steer"),
    "turn/interrupt": Method("turns.TurnInterrupt", "turn_methods.interrupt"),
    "review/start": Method("turns.ReviewStart", "turn_methods.review"),
    "model/list": Method("models.ModelList", "model_methods.list_models"),
    "modelProvider/capabilities/read": Method(
        "models.ModelProviderCapabilitiesRead", "model_methods.read_capabilities"
    ),
    "collaborationMode/list": Method(
        "settings.CollaborationModeList", "model_methods.list_collaboration_modes", experimental=True
    ),
    "account/read": Method("accounts.GetAccount", "account_methods.read"),
    "account/login/start": Method("accounts.LoginAccount", "account_methods.start_login"),
    "account/login/cancel": Method("accounts.CancelLoginAccount", "account_methods.cancel_login"),
    "account/logout": Method("accounts.LogoutAccount", "account_methods.logout", params_optional=True),
    "account/rateLimits/read": Method(
        "accounts.GetAccountRateLimits", "absent_features.read_rate_limits", params_optional=True
    ),
    "account/bedrock/checkGovCloudRequirements": Method(
        "accounts.BedrockCheckGovCloudRequirements", "absent_features.check_gov_cloud", experimental=True
    ),
    "config/read": Method("config.ConfigRead", "config_methods.read"),
    "config/value/write": Method("config.ConfigValueWrite", "config_methods.write_value"),
    "config/batchWrite": Method("config.ConfigBatchWrite", "config_methods.write_batch"),
    "configRequirements/read": Method(
        "config.ConfigRequirementsRead", "config_methods.read_requirements", params_optional=True
    ),
    "permissionProfile/list": Method("features.PermissionProfileList", "config_methods.list_permission_profiles"),
    "experimentalFeature/list": Method("features.ExperimentalFeatureList", "config_methods.list_features"),
    "experimentalFeature/enablement/set": Method(
        "features.ExperimentalFeatureEnablementSet", "config_methods.set_features"
    ),
    "command/exec": Method("commands.CommandExec", "command_exec.execute"),
    "command/exec/write": Method("commands.CommandExecWrite", "command_exec.write"),
    "command/exec/resize": Method("commands.CommandExecResize", "command_exec.resize"),
    "command/exec/terminate": Method("commands.CommandExecTerminate", "command_exec.terminate"),
    "process/spawn": Method("commands.ProcessSpawn", "process_methods.spawn", experimental=True),
    "process/writeStdin": Method("commands.ProcessWriteStdin", "process_methods.write", experimental=True),
    "process/resizePty": Method("commands.ProcessResizePty", "process_methods.resize", experimental=True),
    "process/kill": Method("commands.ProcessKill", "process_methods.kill", experimental=True),
    "fs/readFile": Method("files.FsReadFile", "fs_methods.read_file"),
    "fs/writeFile": Method("files.FsWriteFile", "fs_methods.write_file"),
    "fs/createDirectory": Method("files.FsCreateDirectory", "fs_methods.create_directory"),
    "fs/getMetadata": Method("files.FsGetMetadata", "fs_methods.get_metadata"),
    "fs/readDirectory": Method("files.FsReadDirectory", "fs_methods.read_directory"),
    "fs/remove": Method("files.FsRemove", "fs_methods.remove"),
    "fs/copy": Method("files.FsCopy", "fs_methods.copy"),
    "fs/watch": Method("files.FsWatch", "fs_methods.watch"),
    "fs/unwatch": Method("files.FsUnwatch", "fs_methods.unwatch"),
    "fuzzyFileSearch": Method("search.FuzzyFileSearch", "fuzzy_file_search.search_files"),
    "fuzzyFileSearch/sessionStart": Method(
        "search.FuzzyFileSearchSessionStart", "search_sessions.start", experimental=True
    ),
    "fuzzyFileSearch/sessionUpdate": Method(
        "search.FuzzyFileSearchSessionUpdate", "search_sessions.update", experimental=True
    ),
    "fuzzyFileSearch/sessionStop": Method(
        "search.FuzzyFileSearchSessionStop", "search_sessions.stop", experimental=True
    ),
    "skills/list": Method("skills.SkillsList", "skill_methods.list_skills"),
    "skills/config/write": Method("skills.SkillsConfigWrite", "skill_methods.write_config"),
    "hooks/list": Method("hooks.HooksList", "skill_methods.list_hooks"),
    "mcpServerStatus/list": Method("mcp.ListMcpServerStatus", "skill_methods.list_mcp_servers"),
    "plugin/list": Method("plugins.PluginList", "absent_features.list_plugins"),
    "plugin/installed": Method("plugins.PluginInstalled", "absent_features.list_installed_plugins"),
    "externalAgentConfig/detect": Method("plugins.ExternalAgentConfigDetect", "absent_features.detect_other_agents"),
    "threadSection/list": Method("sections.ThreadSectionList", "absent_features.list_sections"),
    "feedback/save": Method("feedback.FeedbackSave", "feedback_methods.save"),
    # Known, for clients of other servers; ours does not have them.
    "config/mcpServer/reload": Method("mcp.McpServerRefresh"),
    "mcpServer/oauth/login": Method("mcp.McpServerOauthLogin"),
    "mcpServer/resource/read": Method("mcp.McpResourceRead"),
    "mcpServer/tool/call": Method("mcp.McpServerToolCall"),
    "skills/extraRoots/set": Method("skills.SkillsExtraRootsSet"),
    "thread/section/move": Method("sections.ThreadSectionMove"),
    "threadSection/create": Method("sections.ThreadSectionCreate"),
    "threadSection/delete": Method("sections.ThreadSectionDelete"),
    "threadSection/update": Method("sections.ThreadSectionUpdate"),
}
