"""`AppServerClient` and `AppServerConfig`, where `openai_codex_0_131` had them."""

from treadle.compat.clients import AppServerClient
from treadle.compat.older import AppServerConfig
from treadle.compat.older import params_dict as _params_dict

__all__ = ["AppServerClient", "AppServerConfig", "_params_dict"]
