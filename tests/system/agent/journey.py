"""A thread that travels: a home with providers of all three wire APIs, all of which are one mock model.

`WIRES` says which API each of them speaks. Two of them speak the same as another, but are not the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from system.agent.scene import DEADLINE
from treadle.testing import AppServerHarness, HarnessClient

WIRES: Final = {"a": "responses", "b": "chat", "c": "anthropic", "d": "responses", "e": "anthropic"}


def journey(folder: Path, **settings: str) -> AppServerHarness:
    harness = AppServerHarness(folder, settings=settings)
    tables = [
        f'[model_providers.{name}]\nbase_url = "{harness.model.base_url}"\nwire_api = "{wire}"\n'
        for name, wire in WIRES.items()
    ]
    config = harness.home / "config.toml"
    config.write_text(config.read_text() + "\n".join(tables))
    return harness


def at(provider: str) -> dict[str, Any]:
    """The params of a thread at a provider."""
    return {"modelProvider": provider, "model": f"model-of-{WIRES[provider]}"}


@asynccontextmanager
async def on(harness: AppServerHarness, thread: str | None, provider: str) -> AsyncIterator[tuple[HarnessClient, str]]:
    """A thread on a server of its own, so that it is read from the store."""
    async with asyncio.timeout(DEADLINE), harness.connect() as client:
        if thread is None:
            answer = await client.request("thread/start", at(provider))
        else:
            answer = await client.request("thread/resume", {**at(provider), "threadId": thread})
        assert answer["modelProvider"] == provider
        yield client, answer["thread"]["id"]
