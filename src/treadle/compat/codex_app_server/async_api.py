"""`AsyncCodex`, `AsyncThread`, `AsyncTurnHandle`: `api` has them too."""

from treadle.compat.codex_app_server.api import *  # noqa: F403
