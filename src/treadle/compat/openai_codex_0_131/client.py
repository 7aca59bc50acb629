"""`AppServerClient` and `AppServerConfig`, where `openai_codex_0_131` had them."""

from treadle.compat import clients
from treadle.compat.clients import AppServerConfig as AppServerConfig


class AppServerClient(clients.OneId, clients.AppServerClient):
    """The blocking client."""
