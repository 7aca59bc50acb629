"""Keys of `config.toml` that Codex has and we do not read: people share one file between both.

It owns the lists. A key that changes what an agent does or may do is `IGNORED`: it gets a warning, because its author
relies on it. A key about the screen, logging, or a feature that we do not have is `SILENT`. All others are typos, or
newer than we are.
"""

from __future__ import annotations

from typing import Final

IGNORED: Final = frozenset(
    [
        "agents",
        "allow_login_shell",
        "apps",
        "background_terminal_max_timeout",
        "browser_use",
        "cli_auth_credentials_store",
        "computer_use",
        "experimental_compact_prompt_file",
        "experimental_instructions_file",
        "experimental_realtime_start_instructions",
        "experimental_realtime_webrtc_call_base_url",
        "experimental_realtime_ws_backend_prompt",
        "experimental_realtime_ws_base_url",
        "experimental_realtime_ws_model",
        "experimental_realtime_ws_startup_context",
        "experimental_thread_store",
        "experimental_thread_store_endpoint",
        "experimental_use_freeform_apply_patch",
        "experimental_use_unified_exec_tool",
        "forced_chatgpt_workspace_id",
        "forced_login_method",
        "ghost_snapshot",
        "goals",
        "hooks",
        "include_apply_patch_tool",
        "include_apps_instructions",
        "include_collaboration_mode_instructions",
        "include_environment_context",
        "include_environment_context_time",
        "include_permissions_instructions",
        "instructions_file",
        "marketplaces",
        "mcp_servers",
        "memories",
        "model_auto_compact_token_limit_scope",
        "model_catalog_json",
        "model_post_turn_compact_threshold_percent",
        "model_supports_reasoning_summaries",
        "model_verbosity",
        "notify",
        "orchestrator",
        "plan_mode_reasoning_effort",
        "plugins",
        "project_root_markers",
        "projects",
        "responses_api_metadata",
        "sqlite_home",
        "thread_unload_delay_secs",
        "tool_suggest",
        "web_search",
    ]
)

# `skills` is among them because it is read, by the list of skills.
SILENT: Final = frozenset(
    [
        "allow_symlinked_codex_home",
        "analytics",
        "apps_mcp_product_sku",
        "audio",
        "chatgpt_base_url",
        "check_for_update_on_startup",
        "cloud",
        "daybreak",
        "desktop",
        "disable_paste_burst",
        "disable_response_storage",
        "feedback",
        "file_opener",
        "history",
        "js_repl_node_module_dirs",
        "js_repl_node_path",
        "log_dir",
        "mcp_enterprise_managed_auth",
        "mcp_oauth_callback_port",
        "mcp_oauth_callback_url",
        "mcp_oauth_credentials_store",
        "mcp_optional_startup_grace_ms",
        "notice",
        "oss_provider",
        "otel",
        "preferred_auth_method",
        "realtime",
        "skills",
        "suppress_unstable_features_warning",
        "tui",
        "windows",
        "windows_wsl_setup_acknowledged",
    ]
)

IGNORED_IN_TABLE: Final = {
    "auto_review": frozenset(
        [
            "circuit_break_action",
            "conversation_history_max_output_tokens",
            "experimental_conversation_history_prompt",
            "experimental_policy_template",
        ]
    ),
    "shell_environment_policy": frozenset({"experimental_use_profile", "filters"}),
}

# They say how a provider is reached or paid for.
IGNORED_IN_PROVIDER: Final = frozenset(
    ["auth", "aws", "credential_file", "gateway_oauth", "location", "model_catalog_url", "project_id"]
)
SILENT_IN_PROVIDER: Final = frozenset(
    ["capabilities", "supports_standalone_web_search", "websocket_connect_timeout_ms"]
)
