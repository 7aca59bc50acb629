"""What a server sends, where `openai_codex_0_131` had it."""

from treadle.types import *  # noqa: F403
