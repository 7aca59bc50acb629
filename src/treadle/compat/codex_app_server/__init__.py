"""The official SDK as it was under the name `codex_app_server`.

    from treadle.compat.codex_app_server import Codex

What is not named here is in the submodules that it had: `types`, `client`, `errors`, `models`, `generated.v2_all`.
"""

from treadle.compat import openai_codex_0_131 as _later
from treadle.compat.openai_codex_0_131 import *  # noqa: F403

# isort: split
from treadle.compat.codex_app_server.api import AsyncCodex as AsyncCodex
from treadle.compat.codex_app_server.api import AsyncThread as AsyncThread
from treadle.compat.codex_app_server.api import Codex as Codex
from treadle.compat.codex_app_server.api import Thread as Thread

__all__ = [name for name in _later.__all__ if name != "ApprovalMode"]
