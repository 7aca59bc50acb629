"""The errors, under the names that they had in `codex_app_server`."""

from treadle.compat.openai_codex_0_131.errors import *  # noqa: F403
