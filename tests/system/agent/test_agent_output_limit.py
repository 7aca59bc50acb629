"""How long an answer may be: as the user says, and where the user says nothing, what the API needs."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from system.agent.scene import scene

pytestmark = [pytest.mark.anyio, pytest.mark.every_wire]

LIMITS: Final = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens"})
NAMES: Final = {"responses": "max_output_tokens", "chat": "max_tokens", "anthropic": "max_tokens"}


async def _limits(tmp_path: Path, model: str, extra_toml: str = "") -> list[dict[str, int]]:
    """What two requests say of it: one of a turn, and one for a summary."""
    async with scene(tmp_path, settings={"model": model}, extra_toml=extra_toml) as stage:
        stage.model.enqueue_assistant_message("hello")
        stage.model.enqueue_assistant_message("we said hello")
        thread = await stage.start()
        await stage.run(thread)
        await stage.client.request("thread/compact/start", {"threadId": thread})
        await stage.client.wait_for("turn/completed", lambda _: len(stage.client.told("turn/completed")) == 2)
        bodies = [request.json for request in stage.model.requests()]
        return [{key: body[key] for key in LIMITS & body.keys()} for body in bodies]


async def test_the_limit_of_the_user_is_in_every_request(tmp_path: Path, wire_api: str) -> None:
    told = await _limits(tmp_path, "claude-opus-5", '[models."claude-opus-5"]\noutput_limit = 4321\n')
    assert told == [{NAMES[wire_api]: 4321}] * 2


@pytest.mark.parametrize(("model", "needed"), [("claude-opus-4-5", 64_000), ("claude-opus-5", 128_000), ("m", 16_384)])
async def test_without_it_only_the_api_that_needs_one_gets_one(
    tmp_path: Path, wire_api: str, model: str, needed: int
) -> None:
    told = await _limits(tmp_path, model, f'[models."{model}"]\ncontext_window = 200000\n')
    assert told == [{"max_tokens": needed} if wire_api == "anthropic" else {}] * 2
