"""`AsyncAppServerClient`, where `codex_app_server` had it."""

from treadle.compat.clients import AsyncAppServerClient as AsyncAppServerClient
