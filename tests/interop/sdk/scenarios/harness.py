# mypy: disable-error-code="import-not-found"
"""What must not go unnoticed: a notification that fits no model of the SDK, and a scenario that fails."""

from __future__ import annotations

import os
from typing import Any

from openai_codex.client import CodexClient

from interop.sdk.stage import Stage


async def misfit(stage: Stage) -> Any:
    params: dict[str, Any] = {"threadId": "t", "turnId": "u", "itemId": "i", "delta": "text"}
    client = CodexClient(stage.config())
    client._coerce_notification("item/agentMessage/delta", params)
    client._coerce_notification("item/started", {**params, "item": {"type": "contextCompaction", "id": "i"}})
    return "played"


async def broken(stage: Stage) -> Any:
    raise LookupError(f"nothing in {stage.home.name}")


async def gone(stage: Stage) -> Any:
    os._exit(3)
