"""How long the context of a model is that nobody knows: its server is asked, once a response has come."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from system.agent.scene import Scene, scene
from treadle.llm import ModelListing
from treadle.testing import Usage

pytestmark = pytest.mark.anyio


class Offers:
    """Stands for the lists of providers."""

    def __init__(self, *listed: ModelListing) -> None:
        self.listed = listed
        self.asked: list[str] = []

    async def of(self, _config: Any, provider: Any, _key: Any) -> Sequence[ModelListing]:
        self.asked.append(provider.id)
        return self.listed


async def turn(stage: Scene, thread: str, tokens: int = 1) -> int:
    """Run a turn whose response counts so many tokens; the window that clients are sent then."""
    stage.model.enqueue_assistant_message("Hello.", usage=Usage(input_tokens=tokens, output_tokens=0))
    assert (await stage.run(thread))["status"] == "completed"
    window: int = stage.client.told("thread/tokenUsage/updated")[-1]["params"]["tokenUsage"]["modelContextWindow"]
    return window


def usable(window: int) -> int:
    return window * 95 // 100


async def test_the_server_of_an_unknown_model_is_asked_once(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        listed = ModelListing(id="mock-model", name="m", context_window=32_768)
        offers = stage.server.__dict__["offers"] = Offers(listed)
        thread = await stage.start()
        assert offers.asked == []
        assert await turn(stage, thread) == usable(272_000)
        assert [await turn(stage, thread) for _ in range(2)] == [usable(32_768)] * 2
        assert offers.asked == ["mock_provider"]
        assert stage.client.told("warning") == []


async def test_what_nobody_says_is_assumed_and_noted_once_it_matters(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        offers = stage.server.__dict__["offers"] = Offers(ModelListing(id="another", name="a", context_window=1000))
        thread = await stage.start()
        assert [await turn(stage, thread) for _ in range(2)] == [usable(272_000)] * 2
        assert stage.client.told("warning") == []
        assert [await turn(stage, thread, 70_000) for _ in range(2)] == [usable(272_000)] * 2
        (warning,) = stage.client.told("warning")
        assert "summed up at 115,200 tokens" in warning["params"]["message"]
        assert '[models."mock-model"]' in warning["params"]["message"]
        assert offers.asked == ["mock_provider"]


@pytest.mark.parametrize("toml", ['[models."mock-model"]\ncontext_window = 9000', None])
async def test_nobody_is_asked_about_what_is_known(tmp_path: Path, toml: str | None) -> None:
    settings = {"model": "gpt-5.5"} if toml is None else {}
    async with scene(tmp_path, settings=settings, extra_toml=toml or "") as stage:
        offers = stage.server.__dict__["offers"] = Offers()
        thread = await stage.start()
        assert {await turn(stage, thread) for _ in range(2)} == {usable(272_000 if toml is None else 9000)}
        assert offers.asked == []


async def test_the_list_of_a_real_server_is_read(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        stage.model.list_models({"id": "mock-model", "max_model_len": 16_384})
        thread = await stage.start()
        while await turn(stage, thread) != usable(16_384):  # with the deadline of the scene
            pass
