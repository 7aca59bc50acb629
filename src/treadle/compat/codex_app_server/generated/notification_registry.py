"""To which turn a notification belongs, where `codex_app_server` had it."""

from treadle.compat.openai_codex_0_131.generated.notification_registry import *  # noqa: F403
