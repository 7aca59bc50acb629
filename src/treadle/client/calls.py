"""One method for each RPC of the app-server. Made by scripts/make_calls.py: edit that one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from treadle.client.requests import input_items, wire_object, with_members, without_none
from treadle.protocol.app.methods import METHODS

if TYPE_CHECKING:
    from treadle.protocol.app.accounts import (
        BedrockCheckGovCloudRequirementsResponse,
        CancelLoginAccountResponse,
        GetAccountParams,
        GetAccountRateLimitsParams,
        GetAccountRateLimitsResponse,
        GetAccountResponse,
        LoginAccountParams,
        LoginAccountResponse,
        LogoutAccountResponse,
    )
    from treadle.protocol.app.base import JsonObject
    from treadle.protocol.app.config import (
        ConfigBatchWriteParams,
        ConfigBatchWriteResponse,
        ConfigReadParams,
        ConfigReadResponse,
        ConfigRequirementsReadResponse,
        ConfigValueWriteParams,
        ConfigValueWriteResponse,
        ExperimentalFeatureEnablementSetParams,
        ExperimentalFeatureEnablementSetResponse,
        ExperimentalFeatureListParams,
        ExperimentalFeatureListResponse,
        FeedbackSaveParams,
        FeedbackSaveResponse,
        PermissionProfileListParams,
        PermissionProfileListResponse,
    )
    from treadle.protocol.app.environment_messages import (
        EnvironmentAddParams,
        EnvironmentAddResponse,
        EnvironmentInfoParams,
        EnvironmentInfoResponse,
        EnvironmentStatusParams,
        EnvironmentStatusResponse,
    )
    from treadle.protocol.app.extensions import (
        ExternalAgentConfigDetectParams,
        ExternalAgentConfigDetectResponse,
        HooksListParams,
        HooksListResponse,
        ListMcpServerStatusParams,
        ListMcpServerStatusResponse,
        McpResourceReadParams,
        McpResourceReadResponse,
        McpServerOauthLoginParams,
        McpServerOauthLoginResponse,
        McpServerRefreshResponse,
        McpServerToolCallParams,
        McpServerToolCallResponse,
        PluginInstalledParams,
        PluginInstalledResponse,
        PluginListParams,
        PluginListResponse,
        SkillsConfigWriteParams,
        SkillsConfigWriteResponse,
        SkillsExtraRootsSetParams,
        SkillsExtraRootsSetResponse,
        SkillsListParams,
        SkillsListResponse,
    )
    from treadle.protocol.app.machine_methods import (
        CommandExecParams,
        CommandExecResizeParams,
        CommandExecResizeResponse,
        CommandExecResponse,
        CommandExecTerminateParams,
        CommandExecTerminateResponse,
        CommandExecWriteParams,
        CommandExecWriteResponse,
        FsCopyParams,
        FsCopyResponse,
        FsCreateDirectoryParams,
        FsCreateDirectoryResponse,
        FsGetMetadataParams,
        FsGetMetadataResponse,
        FsReadDirectoryParams,
        FsReadDirectoryResponse,
        FsReadFileParams,
        FsReadFileResponse,
        FsRemoveParams,
        FsRemoveResponse,
        FsUnwatchParams,
        FsUnwatchResponse,
        FsWatchParams,
        FsWatchResponse,
        FsWriteFileParams,
        FsWriteFileResponse,
        FuzzyFileSearchParams,
        FuzzyFileSearchResponse,
        FuzzyFileSearchSessionStartParams,
        FuzzyFileSearchSessionStartResponse,
        FuzzyFileSearchSessionStopParams,
        FuzzyFileSearchSessionStopResponse,
        FuzzyFileSearchSessionUpdateParams,
        FuzzyFileSearchSessionUpdateResponse,
        ProcessKillParams,
        ProcessKillResponse,
        ProcessResizePtyParams,
        ProcessResizePtyResponse,
        ProcessSpawnParams,
        ProcessSpawnResponse,
        ProcessWriteStdinParams,
        ProcessWriteStdinResponse,
    )
    from treadle.protocol.app.models import ModelListResponse, ModelProviderCapabilitiesReadResponse
    from treadle.protocol.app.settings import (
        CollaborationModeListParams,
        CollaborationModeListResponse,
        ThreadSettingsUpdateParams,
        ThreadSettingsUpdateResponse,
    )
    from treadle.protocol.app.thread_history import (
        ThreadInjectItemsParams,
        ThreadInjectItemsResponse,
        ThreadItemsListParams,
        ThreadItemsListResponse,
        ThreadItemsReadParams,
        ThreadItemsReadResponse,
        ThreadRevertParams,
        ThreadRevertResponse,
        ThreadRollbackParams,
        ThreadRollbackResponse,
        ThreadSearchOccurrencesParams,
        ThreadSearchOccurrencesResponse,
        ThreadSearchParams,
        ThreadSearchResponse,
        ThreadTurnsListParams,
        ThreadTurnsListResponse,
    )
    from treadle.protocol.app.thread_methods import (
        ThreadApproveGuardianDeniedActionParams,
        ThreadApproveGuardianDeniedActionResponse,
        ThreadArchiveResponse,
        ThreadBackgroundTerminalsCleanParams,
        ThreadBackgroundTerminalsCleanResponse,
        ThreadBackgroundTerminalsListParams,
        ThreadBackgroundTerminalsListResponse,
        ThreadBackgroundTerminalsTerminateParams,
        ThreadBackgroundTerminalsTerminateResponse,
        ThreadCompactStartResponse,
        ThreadDeleteParams,
        ThreadDeleteResponse,
        ThreadForkParams,
        ThreadForkResponse,
        ThreadGoalClearResponse,
        ThreadGoalGetParams,
        ThreadGoalGetResponse,
        ThreadGoalSetResponse,
        ThreadListParams,
        ThreadListResponse,
        ThreadLoadedListParams,
        ThreadLoadedListResponse,
        ThreadMetadataUpdateParams,
        ThreadMetadataUpdateResponse,
        ThreadQueueAddParams,
        ThreadQueueAddResponse,
        ThreadQueueDeleteParams,
        ThreadQueueDeleteResponse,
        ThreadQueueListParams,
        ThreadQueueListResponse,
        ThreadQueueReorderParams,
        ThreadQueueReorderResponse,
        ThreadQueueStartParams,
        ThreadQueueStartResponse,
        ThreadQueueUpdateParams,
        ThreadQueueUpdateResponse,
        ThreadReadResponse,
        ThreadResumeParams,
        ThreadResumeResponse,
        ThreadSectionCreateParams,
        ThreadSectionCreateResponse,
        ThreadSectionDeleteParams,
        ThreadSectionDeleteResponse,
        ThreadSectionListParams,
        ThreadSectionListResponse,
        ThreadSectionMoveParams,
        ThreadSectionMoveResponse,
        ThreadSectionUpdateParams,
        ThreadSectionUpdateResponse,
        ThreadSetNameResponse,
        ThreadShellCommandParams,
        ThreadShellCommandResponse,
        ThreadStartParams,
        ThreadStartResponse,
        ThreadUnarchiveResponse,
        ThreadUnsubscribeParams,
        ThreadUnsubscribeResponse,
    )
    from treadle.protocol.app.threads import ThreadGoalStatus
    from treadle.protocol.app.turns import (
        ReviewStartParams,
        ReviewStartResponse,
        TurnInterruptResponse,
        TurnSteerResponse,
    )


class Calls(ABC):
    """What can be asked of a server. Each call goes through `request`; `timeout` is in seconds."""

    @abstractmethod
    def request(self, method: str, params: Any, *, response_model: type[Any], timeout: float | None = None) -> Any:
        """Ask, and wait for the answer."""

    def _call(self, method: str, params: Any, timeout: float | None) -> Any:
        params, model = wire_object(params), METHODS[method].result
        if timeout is None:  # so that a `request` of a subclass need not know it
            return self.request(method, params, response_model=model)
        return self.request(method, params, response_model=model, timeout=timeout)

    def account_bedrock_check_gov_cloud_requirements(
        self, *, timeout: float | None = None
    ) -> BedrockCheckGovCloudRequirementsResponse:
        """Whether the login is for a region with special requirements. (`account/bedrock/checkGovCloudRequirements`)"""
        answer: BedrockCheckGovCloudRequirementsResponse = self._call(
            "account/bedrock/checkGovCloudRequirements", None, timeout
        )
        return answer

    def account_login_cancel(self, login_id: str, *, timeout: float | None = None) -> CancelLoginAccountResponse:
        """Cancel an interactive login. (`account/login/cancel`)"""
        answer: CancelLoginAccountResponse = self._call("account/login/cancel", {"loginId": login_id}, timeout)
        return answer

    def account_login_start(
        self, params: LoginAccountParams | JsonObject, *, timeout: float | None = None
    ) -> LoginAccountResponse:
        """Log in with a key, or begin an interactive login. (`account/login/start`)"""
        answer: LoginAccountResponse = self._call("account/login/start", params, timeout)
        return answer

    def account_logout(self, *, timeout: float | None = None) -> LogoutAccountResponse:
        """Forget the credentials. (`account/logout`)"""
        answer: LogoutAccountResponse = self._call("account/logout", None, timeout)
        return answer

    def account_rate_limits_read(
        self, params: GetAccountRateLimitsParams | JsonObject | None = None, *, timeout: float | None = None
    ) -> GetAccountRateLimitsResponse:
        """How much of its limits the account has used. (`account/rateLimits/read`)"""
        answer: GetAccountRateLimitsResponse = self._call("account/rateLimits/read", params or {}, timeout)
        return answer

    def account_read(
        self, params: GetAccountParams | JsonObject | None = None, *, timeout: float | None = None
    ) -> GetAccountResponse:
        """Who is logged in. (`account/read`)"""
        answer: GetAccountResponse = self._call("account/read", params or {}, timeout)
        return answer

    def collaboration_mode_list(
        self, params: CollaborationModeListParams | JsonObject | None = None, *, timeout: float | None = None
    ) -> CollaborationModeListResponse:
        """The modes that a thread can work in. (`collaborationMode/list`)"""
        answer: CollaborationModeListResponse = self._call("collaborationMode/list", params or {}, timeout)
        return answer

    def command_exec(
        self, params: CommandExecParams | JsonObject, *, timeout: float | None = None
    ) -> CommandExecResponse:
        """Run a command outside of any thread, and wait for its end. (`command/exec`)"""
        answer: CommandExecResponse = self._call("command/exec", params, timeout)
        return answer

    def command_exec_resize(
        self, params: CommandExecResizeParams | JsonObject, *, timeout: float | None = None
    ) -> CommandExecResizeResponse:
        """Set the size of the terminal of such a command. (`command/exec/resize`)"""
        answer: CommandExecResizeResponse = self._call("command/exec/resize", params, timeout)
        return answer

    def command_exec_terminate(
        self, params: CommandExecTerminateParams | JsonObject, *, timeout: float | None = None
    ) -> CommandExecTerminateResponse:
        """End such a command. (`command/exec/terminate`)"""
        answer: CommandExecTerminateResponse = self._call("command/exec/terminate", params, timeout)
        return answer

    def command_exec_write(
        self, params: CommandExecWriteParams | JsonObject, *, timeout: float | None = None
    ) -> CommandExecWriteResponse:
        """Write to such a command's standard input. (`command/exec/write`)"""
        answer: CommandExecWriteResponse = self._call("command/exec/write", params, timeout)
        return answer

    def config_batch_write(
        self, params: ConfigBatchWriteParams | JsonObject, *, timeout: float | None = None
    ) -> ConfigBatchWriteResponse:
        """Change several settings in the configuration file. (`config/batchWrite`)"""
        answer: ConfigBatchWriteResponse = self._call("config/batchWrite", params, timeout)
        return answer

    def config_mcp_server_reload(self, *, timeout: float | None = None) -> McpServerRefreshResponse:
        """Read the settings of the MCP servers anew. (`config/mcpServer/reload`)"""
        answer: McpServerRefreshResponse = self._call("config/mcpServer/reload", None, timeout)
        return answer

    def config_read(
        self, params: ConfigReadParams | JsonObject | None = None, *, timeout: float | None = None
    ) -> ConfigReadResponse:
        """The settings in force, and where each comes from. (`config/read`)"""
        answer: ConfigReadResponse = self._call("config/read", params or {}, timeout)
        return answer

    def config_value_write(
        self, params: ConfigValueWriteParams | JsonObject, *, timeout: float | None = None
    ) -> ConfigValueWriteResponse:
        """Change a setting in the configuration file. (`config/value/write`)"""
        answer: ConfigValueWriteResponse = self._call("config/value/write", params, timeout)
        return answer

    def config_requirements_read(self, *, timeout: float | None = None) -> ConfigRequirementsReadResponse:
        """What an administrator demands of the settings. (`configRequirements/read`)"""
        answer: ConfigRequirementsReadResponse = self._call("configRequirements/read", None, timeout)
        return answer

    def environment_add(
        self, params: EnvironmentAddParams | JsonObject, *, timeout: float | None = None
    ) -> EnvironmentAddResponse:
        """Name an exec-server that threads can work on, until this server ends. (`environment/add`)"""
        answer: EnvironmentAddResponse = self._call("environment/add", params, timeout)
        return answer

    def environment_info(
        self, params: EnvironmentInfoParams | JsonObject, *, timeout: float | None = None
    ) -> EnvironmentInfoResponse:
        """Say what an environment says of itself; it is connected for that. (`environment/info`)"""
        answer: EnvironmentInfoResponse = self._call("environment/info", params, timeout)
        return answer

    def environment_status(
        self, params: EnvironmentStatusParams | JsonObject, *, timeout: float | None = None
    ) -> EnvironmentStatusResponse:
        """Say how an environment is, without connecting it. (`environment/status`)"""
        answer: EnvironmentStatusResponse = self._call("environment/status", params, timeout)
        return answer

    def experimental_feature_enablement_set(
        self, params: ExperimentalFeatureEnablementSetParams | JsonObject, *, timeout: float | None = None
    ) -> ExperimentalFeatureEnablementSetResponse:
        """Switch experimental features on or off. (`experimentalFeature/enablement/set`)"""
        answer: ExperimentalFeatureEnablementSetResponse = self._call(
            "experimentalFeature/enablement/set", params, timeout
        )
        return answer

    def experimental_feature_list(
        self, params: ExperimentalFeatureListParams | JsonObject | None = None, *, timeout: float | None = None
    ) -> ExperimentalFeatureListResponse:
        """The experimental features. (`experimentalFeature/list`)"""
        answer: ExperimentalFeatureListResponse = self._call("experimentalFeature/list", params or {}, timeout)
        return answer

    def external_agent_config_detect(
        self, params: ExternalAgentConfigDetectParams | JsonObject | None = None, *, timeout: float | None = None
    ) -> ExternalAgentConfigDetectResponse:
        """What other agents have configured here. (`externalAgentConfig/detect`)"""
        answer: ExternalAgentConfigDetectResponse = self._call("externalAgentConfig/detect", params or {}, timeout)
        return answer

    def feedback_save(
        self, params: FeedbackSaveParams | JsonObject, *, timeout: float | None = None
    ) -> FeedbackSaveResponse:
        """Write a report about a thread to a file; nothing is sent. (`feedback/save`)"""
        answer: FeedbackSaveResponse = self._call("feedback/save", params, timeout)
        return answer

    def fs_copy(self, params: FsCopyParams | JsonObject, *, timeout: float | None = None) -> FsCopyResponse:
        """Copy a file or a folder. (`fs/copy`)"""
        answer: FsCopyResponse = self._call("fs/copy", params, timeout)
        return answer

    def fs_create_directory(
        self, params: FsCreateDirectoryParams | JsonObject, *, timeout: float | None = None
    ) -> FsCreateDirectoryResponse:
        """Make a folder. (`fs/createDirectory`)"""
        answer: FsCreateDirectoryResponse = self._call("fs/createDirectory", params, timeout)
        return answer

    def fs_get_metadata(
        self, params: FsGetMetadataParams | JsonObject, *, timeout: float | None = None
    ) -> FsGetMetadataResponse:
        """What kind of file there is, and how large. (`fs/getMetadata`)"""
        answer: FsGetMetadataResponse = self._call("fs/getMetadata", params, timeout)
        return answer

    def fs_read_directory(
        self, params: FsReadDirectoryParams | JsonObject, *, timeout: float | None = None
    ) -> FsReadDirectoryResponse:
        """What is in a folder. (`fs/readDirectory`)"""
        answer: FsReadDirectoryResponse = self._call("fs/readDirectory", params, timeout)
        return answer

    def fs_read_file(
        self, params: FsReadFileParams | JsonObject, *, timeout: float | None = None
    ) -> FsReadFileResponse:
        """What is in a file, as base64. (`fs/readFile`)"""
        answer: FsReadFileResponse = self._call("fs/readFile", params, timeout)
        return answer

    def fs_remove(self, params: FsRemoveParams | JsonObject, *, timeout: float | None = None) -> FsRemoveResponse:
        """Remove a file or a folder. (`fs/remove`)"""
        answer: FsRemoveResponse = self._call("fs/remove", params, timeout)
        return answer

    def fs_unwatch(self, params: FsUnwatchParams | JsonObject, *, timeout: float | None = None) -> FsUnwatchResponse:
        """Stop watching. (`fs/unwatch`)"""
        answer: FsUnwatchResponse = self._call("fs/unwatch", params, timeout)
        return answer

    def fs_watch(self, params: FsWatchParams | JsonObject, *, timeout: float | None = None) -> FsWatchResponse:
        """Have changes under a path notified. (`fs/watch`)"""
        answer: FsWatchResponse = self._call("fs/watch", params, timeout)
        return answer

    def fs_write_file(
        self, params: FsWriteFileParams | JsonObject, *, timeout: float | None = None
    ) -> FsWriteFileResponse:
        """Write a file, from base64. (`fs/writeFile`)"""
        answer: FsWriteFileResponse = self._call("fs/writeFile", params, timeout)
        return answer

    def fuzzy_file_search(
        self, params: FuzzyFileSearchParams | JsonObject, *, timeout: float | None = None
    ) -> FuzzyFileSearchResponse:
        """Find files by a part of their names. (`fuzzyFileSearch`)"""
        answer: FuzzyFileSearchResponse = self._call("fuzzyFileSearch", params, timeout)
        return answer

    def fuzzy_file_search_session_start(
        self, params: FuzzyFileSearchSessionStartParams | JsonObject, *, timeout: float | None = None
    ) -> FuzzyFileSearchSessionStartResponse:
        """Begin a search that follows what somebody types. (`fuzzyFileSearch/sessionStart`)"""
        answer: FuzzyFileSearchSessionStartResponse = self._call("fuzzyFileSearch/sessionStart", params, timeout)
        return answer

    def fuzzy_file_search_session_stop(
        self, params: FuzzyFileSearchSessionStopParams | JsonObject, *, timeout: float | None = None
    ) -> FuzzyFileSearchSessionStopResponse:
        """End such a search. (`fuzzyFileSearch/sessionStop`)"""
        answer: FuzzyFileSearchSessionStopResponse = self._call("fuzzyFileSearch/sessionStop", params, timeout)
        return answer

    def fuzzy_file_search_session_update(
        self, params: FuzzyFileSearchSessionUpdateParams | JsonObject, *, timeout: float | None = None
    ) -> FuzzyFileSearchSessionUpdateResponse:
        """Look for something else; `sessionUpdated` notifies of what is found. (`fuzzyFileSearch/sessionUpdate`)"""
        answer: FuzzyFileSearchSessionUpdateResponse = self._call("fuzzyFileSearch/sessionUpdate", params, timeout)
        return answer

    def hooks_list(
        self, params: HooksListParams | JsonObject | None = None, *, timeout: float | None = None
    ) -> HooksListResponse:
        """The hooks that are configured. (`hooks/list`)"""
        answer: HooksListResponse = self._call("hooks/list", params or {}, timeout)
        return answer

    def mcp_server_oauth_login(
        self, params: McpServerOauthLoginParams | JsonObject, *, timeout: float | None = None
    ) -> McpServerOauthLoginResponse:
        """Log in to an MCP server. (`mcpServer/oauth/login`)"""
        answer: McpServerOauthLoginResponse = self._call("mcpServer/oauth/login", params, timeout)
        return answer

    def mcp_server_resource_read(
        self, params: McpResourceReadParams | JsonObject, *, timeout: float | None = None
    ) -> McpResourceReadResponse:
        """Read a resource of an MCP server. (`mcpServer/resource/read`)"""
        answer: McpResourceReadResponse = self._call("mcpServer/resource/read", params, timeout)
        return answer

    def mcp_server_tool_call(
        self, params: McpServerToolCallParams | JsonObject, *, timeout: float | None = None
    ) -> McpServerToolCallResponse:
        """Call a tool of an MCP server. (`mcpServer/tool/call`)"""
        answer: McpServerToolCallResponse = self._call("mcpServer/tool/call", params, timeout)
        return answer

    def mcp_server_status_list(
        self, params: ListMcpServerStatusParams | JsonObject | None = None, *, timeout: float | None = None
    ) -> ListMcpServerStatusResponse:
        """The MCP servers and what they offer. (`mcpServerStatus/list`)"""
        answer: ListMcpServerStatusResponse = self._call("mcpServerStatus/list", params or {}, timeout)
        return answer

    def model_list(self, include_hidden: bool = False, *, timeout: float | None = None) -> ModelListResponse:
        """The models to choose from. (`model/list`)"""
        answer: ModelListResponse = self._call("model/list", {"includeHidden": include_hidden}, timeout)
        return answer

    def model_provider_capabilities_read(
        self, *, timeout: float | None = None
    ) -> ModelProviderCapabilitiesReadResponse:
        """What the provider of the models can do. (`modelProvider/capabilities/read`)"""
        answer: ModelProviderCapabilitiesReadResponse = self._call("modelProvider/capabilities/read", None, timeout)
        return answer

    def permission_profile_list(
        self, params: PermissionProfileListParams | JsonObject | None = None, *, timeout: float | None = None
    ) -> PermissionProfileListResponse:
        """The permission profiles to choose from. (`permissionProfile/list`)"""
        answer: PermissionProfileListResponse = self._call("permissionProfile/list", params or {}, timeout)
        return answer

    def plugin_installed(
        self, params: PluginInstalledParams | JsonObject | None = None, *, timeout: float | None = None
    ) -> PluginInstalledResponse:
        """The plugins that are installed. (`plugin/installed`)"""
        answer: PluginInstalledResponse = self._call("plugin/installed", params or {}, timeout)
        return answer

    def plugin_list(
        self, params: PluginListParams | JsonObject | None = None, *, timeout: float | None = None
    ) -> PluginListResponse:
        """The plugins to choose from. (`plugin/list`)"""
        answer: PluginListResponse = self._call("plugin/list", params or {}, timeout)
        return answer

    def process_kill(
        self, params: ProcessKillParams | JsonObject, *, timeout: float | None = None
    ) -> ProcessKillResponse:
        """End such a process. (`process/kill`)"""
        answer: ProcessKillResponse = self._call("process/kill", params, timeout)
        return answer

    def process_resize_pty(
        self, params: ProcessResizePtyParams | JsonObject, *, timeout: float | None = None
    ) -> ProcessResizePtyResponse:
        """Set the size of the terminal of such a process. (`process/resizePty`)"""
        answer: ProcessResizePtyResponse = self._call("process/resizePty", params, timeout)
        return answer

    def process_spawn(
        self, params: ProcessSpawnParams | JsonObject, *, timeout: float | None = None
    ) -> ProcessSpawnResponse:
        """Start a process outside of any thread and sandbox; `process/exited` notifies of its end. (`process/spawn`)"""
        answer: ProcessSpawnResponse = self._call("process/spawn", params, timeout)
        return answer

    def process_write_stdin(
        self, params: ProcessWriteStdinParams | JsonObject, *, timeout: float | None = None
    ) -> ProcessWriteStdinResponse:
        """Write to such a process's standard input. (`process/writeStdin`)"""
        answer: ProcessWriteStdinResponse = self._call("process/writeStdin", params, timeout)
        return answer

    def review_start(
        self, params: ReviewStartParams | JsonObject, *, timeout: float | None = None
    ) -> ReviewStartResponse:
        """Have changes reviewed. (`review/start`)"""
        answer: ReviewStartResponse = self._call("review/start", params, timeout)
        return answer

    def skills_config_write(
        self, params: SkillsConfigWriteParams | JsonObject, *, timeout: float | None = None
    ) -> SkillsConfigWriteResponse:
        """Switch a skill on or off. (`skills/config/write`)"""
        answer: SkillsConfigWriteResponse = self._call("skills/config/write", params, timeout)
        return answer

    def skills_extra_roots_set(
        self, params: SkillsExtraRootsSetParams | JsonObject, *, timeout: float | None = None
    ) -> SkillsExtraRootsSetResponse:
        """Look for skills in these folders, too. (`skills/extraRoots/set`)"""
        answer: SkillsExtraRootsSetResponse = self._call("skills/extraRoots/set", params, timeout)
        return answer

    def skills_list(
        self, params: SkillsListParams | JsonObject | None = None, *, timeout: float | None = None
    ) -> SkillsListResponse:
        """The skills, by folder. (`skills/list`)"""
        answer: SkillsListResponse = self._call("skills/list", params or {}, timeout)
        return answer

    def thread_approve_guardian_denied_action(
        self, params: ThreadApproveGuardianDeniedActionParams | JsonObject, *, timeout: float | None = None
    ) -> ThreadApproveGuardianDeniedActionResponse:
        """Allow once what the automatic reviewer of a thread denied. (`thread/approveGuardianDeniedAction`)"""
        answer: ThreadApproveGuardianDeniedActionResponse = self._call(
            "thread/approveGuardianDeniedAction", params, timeout
        )
        return answer

    def thread_archive(self, thread_id: str, *, timeout: float | None = None) -> ThreadArchiveResponse:
        """Archive a thread. (`thread/archive`)"""
        answer: ThreadArchiveResponse = self._call("thread/archive", {"threadId": thread_id}, timeout)
        return answer

    def thread_background_terminals_clean(
        self, params: ThreadBackgroundTerminalsCleanParams | JsonObject, *, timeout: float | None = None
    ) -> ThreadBackgroundTerminalsCleanResponse:
        """End all commands that run for a thread. (`thread/backgroundTerminals/clean`)"""
        answer: ThreadBackgroundTerminalsCleanResponse = self._call("thread/backgroundTerminals/clean", params, timeout)
        return answer

    def thread_background_terminals_list(
        self, params: ThreadBackgroundTerminalsListParams | JsonObject, *, timeout: float | None = None
    ) -> ThreadBackgroundTerminalsListResponse:
        """The commands that run for a thread, page by page. (`thread/backgroundTerminals/list`)"""
        answer: ThreadBackgroundTerminalsListResponse = self._call("thread/backgroundTerminals/list", params, timeout)
        return answer

    def thread_background_terminals_terminate(
        self, params: ThreadBackgroundTerminalsTerminateParams | JsonObject, *, timeout: float | None = None
    ) -> ThreadBackgroundTerminalsTerminateResponse:
        """End one of the commands that run for a thread. (`thread/backgroundTerminals/terminate`)"""
        answer: ThreadBackgroundTerminalsTerminateResponse = self._call(
            "thread/backgroundTerminals/terminate", params, timeout
        )
        return answer

    def thread_compact(self, thread_id: str, *, timeout: float | None = None) -> ThreadCompactStartResponse:
        """Begin to summarise a thread's history. (`thread/compact/start`)"""
        answer: ThreadCompactStartResponse = self._call("thread/compact/start", {"threadId": thread_id}, timeout)
        return answer

    def thread_delete(
        self, params: ThreadDeleteParams | JsonObject, *, timeout: float | None = None
    ) -> ThreadDeleteResponse:
        """Remove a thread for good. (`thread/delete`)"""
        answer: ThreadDeleteResponse = self._call("thread/delete", params, timeout)
        return answer

    def thread_fork(
        self, thread_id: str, params: ThreadForkParams | JsonObject | None = None, *, timeout: float | None = None
    ) -> ThreadForkResponse:
        """A new thread with the history of another. (`thread/fork`)"""
        answer: ThreadForkResponse = self._call("thread/fork", with_members(params, threadId=thread_id), timeout)
        return answer

    def thread_goal_clear(self, thread_id: str, *, timeout: float | None = None) -> ThreadGoalClearResponse:
        """Remove the goal of a thread. (`thread/goal/clear`)"""
        answer: ThreadGoalClearResponse = self._call("thread/goal/clear", {"threadId": thread_id}, timeout)
        return answer

    def thread_goal_get(
        self, params: ThreadGoalGetParams | JsonObject, *, timeout: float | None = None
    ) -> ThreadGoalGetResponse:
        """The goal of a thread. (`thread/goal/get`)"""
        answer: ThreadGoalGetResponse = self._call("thread/goal/get", params, timeout)
        return answer

    def thread_goal_set(
        self,
        thread_id: str,
        *,
        objective: str | None = None,
        status: ThreadGoalStatus | None = None,
        timeout: float | None = None,
    ) -> ThreadGoalSetResponse:
        """Give a thread a goal, or change it. (`thread/goal/set`)"""
        answer: ThreadGoalSetResponse = self._call(
            "thread/goal/set", without_none(threadId=thread_id, objective=objective, status=status), timeout
        )
        return answer

    def thread_inject_items(
        self, params: ThreadInjectItemsParams | JsonObject, *, timeout: float | None = None
    ) -> ThreadInjectItemsResponse:
        """Add items to a thread's history. (`thread/inject_items`)"""
        answer: ThreadInjectItemsResponse = self._call("thread/inject_items", params, timeout)
        return answer

    def thread_items_list(
        self, params: ThreadItemsListParams | JsonObject, *, timeout: float | None = None
    ) -> ThreadItemsListResponse:
        """The items of a thread, page by page. (`thread/items/list`)"""
        answer: ThreadItemsListResponse = self._call("thread/items/list", params, timeout)
        return answer

    def thread_items_read(
        self, params: ThreadItemsReadParams | JsonObject, *, timeout: float | None = None
    ) -> ThreadItemsReadResponse:
        """Some items of a turn, by their ids. (`thread/items/read`)"""
        answer: ThreadItemsReadResponse = self._call("thread/items/read", params, timeout)
        return answer

    def thread_list(
        self, params: ThreadListParams | JsonObject | None = None, *, timeout: float | None = None
    ) -> ThreadListResponse:
        """Threads, page by page. (`thread/list`)"""
        answer: ThreadListResponse = self._call("thread/list", params or {}, timeout)
        return answer

    def thread_loaded_list(
        self, params: ThreadLoadedListParams | JsonObject | None = None, *, timeout: float | None = None
    ) -> ThreadLoadedListResponse:
        """The threads that are in the server's memory. (`thread/loaded/list`)"""
        answer: ThreadLoadedListResponse = self._call("thread/loaded/list", params or {}, timeout)
        return answer

    def thread_metadata_update(
        self, params: ThreadMetadataUpdateParams | JsonObject, *, timeout: float | None = None
    ) -> ThreadMetadataUpdateResponse:
        """Change what is noted about a thread. (`thread/metadata/update`)"""
        answer: ThreadMetadataUpdateResponse = self._call("thread/metadata/update", params, timeout)
        return answer

    def thread_set_name(self, thread_id: str, name: str, *, timeout: float | None = None) -> ThreadSetNameResponse:
        """Name a thread. (`thread/name/set`)"""
        answer: ThreadSetNameResponse = self._call("thread/name/set", {"threadId": thread_id, "name": name}, timeout)
        return answer

    def thread_queue_add(
        self, params: ThreadQueueAddParams | JsonObject, *, timeout: float | None = None
    ) -> ThreadQueueAddResponse:
        """Let a message wait for the thread to have no turn running. (`thread/queue/add`)"""
        answer: ThreadQueueAddResponse = self._call("thread/queue/add", params, timeout)
        return answer

    def thread_queue_delete(
        self, params: ThreadQueueDeleteParams | JsonObject, *, timeout: float | None = None
    ) -> ThreadQueueDeleteResponse:
        """Take a waiting message back. (`thread/queue/delete`)"""
        answer: ThreadQueueDeleteResponse = self._call("thread/queue/delete", params, timeout)
        return answer

    def thread_queue_list(
        self, params: ThreadQueueListParams | JsonObject, *, timeout: float | None = None
    ) -> ThreadQueueListResponse:
        """The messages that wait. (`thread/queue/list`)"""
        answer: ThreadQueueListResponse = self._call("thread/queue/list", params, timeout)
        return answer

    def thread_queue_reorder(
        self, params: ThreadQueueReorderParams | JsonObject, *, timeout: float | None = None
    ) -> ThreadQueueReorderResponse:
        """Change the order of the messages that wait. (`thread/queue/reorder`)"""
        answer: ThreadQueueReorderResponse = self._call("thread/queue/reorder", params, timeout)
        return answer

    def thread_queue_start(
        self, params: ThreadQueueStartParams | JsonObject, *, timeout: float | None = None
    ) -> ThreadQueueStartResponse:
        """Send a waiting message now. (`thread/queue/start`)"""
        answer: ThreadQueueStartResponse = self._call("thread/queue/start", params, timeout)
        return answer

    def thread_queue_update(
        self, params: ThreadQueueUpdateParams | JsonObject, *, timeout: float | None = None
    ) -> ThreadQueueUpdateResponse:
        """Change a waiting message. (`thread/queue/update`)"""
        answer: ThreadQueueUpdateResponse = self._call("thread/queue/update", params, timeout)
        return answer

    def thread_read(
        self, thread_id: str, include_turns: bool = False, *, timeout: float | None = None
    ) -> ThreadReadResponse:
        """A thread as it is stored. (`thread/read`)"""
        answer: ThreadReadResponse = self._call(
            "thread/read", {"threadId": thread_id, "includeTurns": include_turns}, timeout
        )
        return answer

    def thread_resume(
        self, thread_id: str, params: ThreadResumeParams | JsonObject | None = None, *, timeout: float | None = None
    ) -> ThreadResumeResponse:
        """Load a stored thread. (`thread/resume`)"""
        answer: ThreadResumeResponse = self._call("thread/resume", with_members(params, threadId=thread_id), timeout)
        return answer

    def thread_revert(
        self, params: ThreadRevertParams | JsonObject, *, timeout: float | None = None
    ) -> ThreadRevertResponse:
        """Go back to an earlier state of a thread. (`thread/revert`)"""
        answer: ThreadRevertResponse = self._call("thread/revert", params, timeout)
        return answer

    def thread_rollback(
        self, params: ThreadRollbackParams | JsonObject, *, timeout: float | None = None
    ) -> ThreadRollbackResponse:
        """Take the last turns of a thread back. (`thread/rollback`)"""
        answer: ThreadRollbackResponse = self._call("thread/rollback", params, timeout)
        return answer

    def thread_search(
        self, params: ThreadSearchParams | JsonObject, *, timeout: float | None = None
    ) -> ThreadSearchResponse:
        """Threads in which a text occurs. (`thread/search`)"""
        answer: ThreadSearchResponse = self._call("thread/search", params, timeout)
        return answer

    def thread_search_occurrences(
        self, params: ThreadSearchOccurrencesParams | JsonObject, *, timeout: float | None = None
    ) -> ThreadSearchOccurrencesResponse:
        """Where a text occurs in a thread. (`thread/searchOccurrences`)"""
        answer: ThreadSearchOccurrencesResponse = self._call("thread/searchOccurrences", params, timeout)
        return answer

    def thread_section_move(
        self, params: ThreadSectionMoveParams | JsonObject, *, timeout: float | None = None
    ) -> ThreadSectionMoveResponse:
        """Put a thread into a section. (`thread/section/move`)"""
        answer: ThreadSectionMoveResponse = self._call("thread/section/move", params, timeout)
        return answer

    def thread_settings_update(
        self, params: ThreadSettingsUpdateParams | JsonObject, *, timeout: float | None = None
    ) -> ThreadSettingsUpdateResponse:
        """Change how the next turns of a thread run. (`thread/settings/update`)"""
        answer: ThreadSettingsUpdateResponse = self._call("thread/settings/update", params, timeout)
        return answer

    def thread_shell_command(
        self, params: ThreadShellCommandParams | JsonObject, *, timeout: float | None = None
    ) -> ThreadShellCommandResponse:
        """Run a command of the user's in a thread. (`thread/shellCommand`)"""
        answer: ThreadShellCommandResponse = self._call("thread/shellCommand", params, timeout)
        return answer

    def thread_start(
        self, params: ThreadStartParams | JsonObject | None = None, *, timeout: float | None = None
    ) -> ThreadStartResponse:
        """A new thread. (`thread/start`)"""
        answer: ThreadStartResponse = self._call("thread/start", params or {}, timeout)
        return answer

    def thread_turns_list(
        self, params: ThreadTurnsListParams | JsonObject, *, timeout: float | None = None
    ) -> ThreadTurnsListResponse:
        """The turns of a thread, page by page. (`thread/turns/list`)"""
        answer: ThreadTurnsListResponse = self._call("thread/turns/list", params, timeout)
        return answer

    def thread_unarchive(self, thread_id: str, *, timeout: float | None = None) -> ThreadUnarchiveResponse:
        """Take a thread out of the archive. (`thread/unarchive`)"""
        answer: ThreadUnarchiveResponse = self._call("thread/unarchive", {"threadId": thread_id}, timeout)
        return answer

    def thread_unsubscribe(
        self, params: ThreadUnsubscribeParams | JsonObject, *, timeout: float | None = None
    ) -> ThreadUnsubscribeResponse:
        """Hear no more of a thread. (`thread/unsubscribe`)"""
        answer: ThreadUnsubscribeResponse = self._call("thread/unsubscribe", params, timeout)
        return answer

    def thread_section_create(
        self, params: ThreadSectionCreateParams | JsonObject, *, timeout: float | None = None
    ) -> ThreadSectionCreateResponse:
        """Make a section for threads. (`threadSection/create`)"""
        answer: ThreadSectionCreateResponse = self._call("threadSection/create", params, timeout)
        return answer

    def thread_section_delete(
        self, params: ThreadSectionDeleteParams | JsonObject, *, timeout: float | None = None
    ) -> ThreadSectionDeleteResponse:
        """Remove a section. (`threadSection/delete`)"""
        answer: ThreadSectionDeleteResponse = self._call("threadSection/delete", params, timeout)
        return answer

    def thread_section_list(
        self, params: ThreadSectionListParams | JsonObject | None = None, *, timeout: float | None = None
    ) -> ThreadSectionListResponse:
        """The sections. (`threadSection/list`)"""
        answer: ThreadSectionListResponse = self._call("threadSection/list", params or {}, timeout)
        return answer

    def thread_section_update(
        self, params: ThreadSectionUpdateParams | JsonObject, *, timeout: float | None = None
    ) -> ThreadSectionUpdateResponse:
        """Change a section. (`threadSection/update`)"""
        answer: ThreadSectionUpdateResponse = self._call("threadSection/update", params, timeout)
        return answer

    def turn_interrupt(self, thread_id: str, turn_id: str, *, timeout: float | None = None) -> TurnInterruptResponse:
        """End a turn that runs. (`turn/interrupt`)"""
        answer: TurnInterruptResponse = self._call(
            "turn/interrupt", {"threadId": thread_id, "turnId": turn_id}, timeout
        )
        return answer

    def turn_steer(
        self,
        thread_id: str,
        expected_turn_id: str,
        input: list[JsonObject] | JsonObject | str,
        *,
        timeout: float | None = None,
    ) -> TurnSteerResponse:
        """Add input to a turn that runs. (`turn/steer`)"""
        answer: TurnSteerResponse = self._call(
            "turn/steer",
            {"threadId": thread_id, "expectedTurnId": expected_turn_id, "input": input_items(input)},
            timeout,
        )
        return answer
