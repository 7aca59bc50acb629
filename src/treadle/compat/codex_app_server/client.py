"""`AppServerClient` and `AppServerConfig`, where `codex_app_server` had them."""

from treadle.compat.clients import AppServerClient as AppServerClient
from treadle.compat.clients import AppServerConfig as AppServerConfig
