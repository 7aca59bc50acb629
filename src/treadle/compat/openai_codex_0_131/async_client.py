"""`AsyncAppServerClient`, where `openai_codex_0_131` had it."""

from treadle.compat.clients import AsyncAppServerClient

__all__ = ["AsyncAppServerClient"]
