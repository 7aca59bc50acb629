"""`retry_on_overload`, where `openai_codex_0_131` had it."""

from treadle.client.retry import retry_on_overload

__all__ = ["retry_on_overload"]
