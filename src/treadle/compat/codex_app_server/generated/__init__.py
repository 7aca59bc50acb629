"""Where `codex_app_server` had the values of the protocol."""
