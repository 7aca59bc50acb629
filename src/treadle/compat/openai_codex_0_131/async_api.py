"""`AsyncCodex`, `AsyncThread`, `AsyncTurnHandle`: `api` has them too."""

from treadle.compat.openai_codex_0_131.api import *  # noqa: F403
