"""The program that asks with one client: `python -m bench.models.player CLIENT API ADDRESS SHORT LONG RUNS`.

It prints, as JSON, the CPU time of a request whose answer is short, and that of a delta: what an answer that is long
takes more, by the deltas that it has more. Every text is checked.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

from bench.models import wire

Ask = Callable[[str], Awaitable[str]]
_WARM_UP = 5


async def measure(ask: Ask, address: str, short: int, long: int, runs: int) -> dict[str, float]:
    """`ask` gives the text of an answer from a base URL."""
    small, large = f"{address}/short/v1", f"{address}/long/v1"
    for url in (small, large) * _WARM_UP:
        await ask(url)
    few = [await _cpu(ask, small, short) for _ in range(runs * 10)]
    many = [await _cpu(ask, large, long) for _ in range(runs)]
    request, whole = statistics.median(few), statistics.median(many)
    return {"request": request * 1e6, "delta": (whole - request) / (long - short) * 1e6}


async def _cpu(ask: Ask, url: str, deltas: int) -> float:
    began = time.process_time()
    said = await ask(url)
    spent = time.process_time() - began
    if said != wire.text(deltas):
        raise SystemExit(f"the text is another one, of {len(said)} characters")
    return spent


def ours(api: str) -> Ask:
    from treadle.llm.model import ModelRequest, TextDelta
    from treadle.llm.provider import read_provider
    from treadle.llm.provider_model import ProviderModel

    models: dict[str, ProviderModel] = {}
    message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    request = ModelRequest(model="m", input=[message])

    async def ask(url: str) -> str:
        if url not in models:
            models[url] = ProviderModel(read_provider("bench", {"base_url": url, "wire_api": api}))
        async with models[url].stream(request) as stream:
            return "".join([event.delta async for event in stream if isinstance(event, TextDelta)])

    return ask


def openai(api: str) -> Ask:
    client = import_module("openai").OpenAI
    clients: dict[str, Any] = {}

    def responses(url: str) -> str:
        with clients[url].responses.create(model="m", input="hi", stream=True) as stream:
            return "".join([event.delta for event in stream if event.type == "response.output_text.delta"])

    def chat(url: str) -> str:
        said = [{"role": "user", "content": "hi"}]
        options = {"include_usage": True}
        with clients[url].chat.completions.create(model="m", messages=said, stream=True, stream_options=options) as got:
            return "".join([chunk.choices[0].delta.content or "" for chunk in got if chunk.choices])

    return _blocking(
        clients, lambda url: client(base_url=url, api_key="none"), responses if api == "responses" else chat
    )


def anthropic(api: str) -> Ask:
    client = import_module("anthropic").Anthropic
    clients: dict[str, Any] = {}

    def messages(url: str) -> str:
        said = [{"role": "user", "content": "hi"}]
        with clients[url].messages.create(model="m", max_tokens=100, messages=said, stream=True) as stream:
            return "".join([event.delta.text for event in stream if event.type == "content_block_delta"])

    return _blocking(clients, lambda url: client(base_url=url.removesuffix("/v1"), api_key="none"), messages)


def _blocking(clients: dict[str, Any], make: Callable[[str], Any], ask: Callable[[str], str]) -> Ask:
    """Their blocking clients, which cost less than their asyncio ones."""

    async def asked(url: str) -> str:
        if url not in clients:
            clients[url] = make(url)
        return ask(url)

    return asked


CLIENTS = {"ours": ours, "openai": openai, "anthropic": anthropic}


def main() -> None:
    name, api, address, *numbers = sys.argv[1:]
    short, long, runs = map(int, numbers)
    print(json.dumps(asyncio.run(measure(CLIENTS[name](api), address, short, long, runs))))


if __name__ == "__main__":
    main()
