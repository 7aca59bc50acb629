"""`retry_on_overload`, where `openai_codex_0_131` had it."""

from treadle.client.lifecycle import retry_on_overload as retry_on_overload
