"""What a server sends, where `codex_app_server` had it."""

from treadle.types import *  # noqa: F403
