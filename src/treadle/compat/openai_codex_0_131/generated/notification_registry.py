"""To which turn a notification belongs, where `openai_codex_0_131` told it."""

from treadle.compat.older import notification_turn_id

__all__ = ["notification_turn_id"]
