"""`AppServerClient` and `AppServerConfig`, where `codex_app_server` had them."""

from treadle.compat.older import AppServerClient, AppServerConfig
from treadle.compat.older import params_dict as _params_dict

__all__ = ["AppServerClient", "AppServerConfig", "_params_dict"]
