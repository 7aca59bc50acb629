"""The values of the protocol that `codex_app_server` gave public names."""

from treadle.compat.openai_codex_0_131.types import *  # noqa: F403
from treadle.compat.openai_codex_0_131.types import __all__ as __all__
