"""`retry_on_overload`, where `codex_app_server` had it."""

from treadle.client.lifecycle import retry_on_overload as retry_on_overload
