"""`retry_on_overload`, where `codex_app_server` had it."""

from treadle.client.retry import retry_on_overload

__all__ = ["retry_on_overload"]
