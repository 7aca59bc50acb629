"""Where `openai_codex_0_131` had the values of the protocol."""
