"""When a provider is asked for its list of models: once for all who wait, and again when the list is old."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from treadle.llm import ModelListing, ProviderConfig, read_provider
from treadle.server import FAILURE_KEPT_S, KEPT_S, MAX_LISTS, ModelLists, model_clients

pytestmark = pytest.mark.anyio

LIST = (ModelListing(id="a", name="A"),)


CONFIG: Any = None  # only for what the user says of models


def provided(name: str = "x") -> ProviderConfig:
    return read_provider(name, {"base_url": f"http://127.0.0.1:9/{name}"})


def key() -> None:
    return None


class Provider:
    """Answers in place of the network, when the test lets it; counts."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer: Sequence[ModelListing] = LIST
        self.gate = asyncio.Event()
        self.gate.set()

    async def ask(self, _config: Any, given: ProviderConfig, *_: object) -> Sequence[ModelListing]:
        self.asked.append(given.id)
        await self.gate.wait()
        return self.answer


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
async def provider(monkeypatch: pytest.MonkeyPatch) -> Provider:
    made = Provider()
    monkeypatch.setattr(model_clients, "_ask", made.ask)
    return made


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(model_clients, "asyncio", SimpleNamespace(get_running_loop=lambda: made, Lock=asyncio.Lock))
    return made


async def test_all_who_wait_get_the_answer_to_one_question(provider: Provider) -> None:
    offers = ModelLists()
    provider.gate.clear()
    waiting = [asyncio.create_task(offers.of(CONFIG, provided(), key)) for _ in range(5)]
    while not provider.asked:
        await asyncio.sleep(0)
    provider.gate.set()
    assert await asyncio.gather(*waiting) == [LIST] * 5
    assert provider.asked == ["x"]


@pytest.mark.parametrize(("answer", "kept_s"), [(LIST, KEPT_S), ((), FAILURE_KEPT_S)])
async def test_a_list_and_a_failure_are_kept_for_their_time(
    provider: Provider, clock: Clock, answer: Sequence[ModelListing], kept_s: float
) -> None:
    offers = ModelLists()
    provider.answer = answer
    assert await offers.of(CONFIG, provided(), key) == answer
    clock.now += kept_s - 1
    assert await offers.of(CONFIG, provided(), key) == answer
    assert len(provider.asked) == 1
    clock.now += 1
    await offers.of(CONFIG, provided(), key)
    assert len(provider.asked) == 2


async def test_each_provider_has_a_list_and_there_are_only_so_many(provider: Provider, clock: Clock) -> None:
    offers = ModelLists()
    for number in range(MAX_LISTS):
        await offers.of(CONFIG, provided(f"p{number}"), key)
    await offers.of(CONFIG, provided("p0"), key)
    assert len(provider.asked) == MAX_LISTS
    await offers.of(CONFIG, provided("one-more"), key)
    await offers.of(CONFIG, provided("p0"), key)
    assert provider.asked[-2:] == ["one-more", "p0"]
