"""To which turn a notification belongs, where `codex_app_server` told it."""

from treadle.compat.older import notification_turn_id

__all__ = ["notification_turn_id"]
