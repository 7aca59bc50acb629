"""`AsyncAppServerClient`, where `codex_app_server` had it."""

from treadle.compat.older import AsyncAppServerClient

__all__ = ["AsyncAppServerClient"]
