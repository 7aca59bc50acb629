"""`AsyncAppServerClient`, where `openai_codex_0_131` had it."""

from treadle.compat import clients


class AsyncAppServerClient(clients.OneId, clients.AsyncAppServerClient):
    """The client for asyncio."""
