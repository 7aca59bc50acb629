"""What a provider offers: every form of the list, and every way in which there is none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from model_server import ModelServer, Reply, model_server, status
from treadle.llm import (
    MAX_BYTES,
    ModelError,
    ModelListing,
    Price,
    ProviderConfig,
    list_provider_models,
    read_listings,
    read_provider,
)
from treadle.llm.anthropic import WIRE_API as ANTHROPIC

pytestmark = pytest.mark.anyio

KEY = "s3cret-value"
ENVIRON = {"KEY": KEY}


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with model_server() as running:
        running.lists_models = True
        yield running


def provider(server: ModelServer, **table: Any) -> ProviderConfig:
    return read_provider("x", {"base_url": server.base_url, "env_key": "KEY", **table})


def read(answer: object) -> list[ModelListing]:
    return read_listings(json.dumps(answer).encode(), "u")


def test_the_list_of_openai_and_most_others() -> None:
    answer = {"object": "list", "data": [{"id": "a", "object": "model", "owned_by": "o"}, {"id": "b"}, {"id": "a"}]}
    assert read(answer) == [ModelListing(id="a", name="a"), ModelListing(id="b", name="b")]


def test_the_list_of_anthropic() -> None:
    entry = {"id": "claude-x", "display_name": "Claude X", "max_input_tokens": 200_000, "max_tokens": 64_000}
    answer = {"data": [{**entry, "type": "model"}], "has_more": False}
    assert read(answer) == [ModelListing(id="claude-x", name="Claude X", context_window=200_000, output_limit=64_000)]


def test_the_list_of_a_gateway_has_prices() -> None:
    pricing = {"prompt": "0.000003", "completion": "0.000015", "input_cache_read": "0.0000003", "image": "0"}
    entry = {
        "id": "v/m",
        "name": "Vendor: M",
        "context_length": 131072,
        "pricing": pricing,
        "top_provider": {"max_completion_tokens": 8192, "context_length": 1},
    }
    (offer,) = read({"data": [entry]})
    price = Price(input=3.0, output=15.0, cached_input=0.3)
    assert offer == ModelListing(id="v/m", name="Vendor: M", context_window=131072, output_limit=8192, price=price)
    unpriced: list[object] = [
        {"prompt": "-1", "completion": "-1"},
        {"prompt": "x", "completion": "1"},
        {"prompt": "0"},
        [],
        None,
    ]
    assert [read([{**entry, "pricing": each}])[0].price for each in unpriced] == [None] * 5


def test_the_lists_of_servers_on_this_machine() -> None:
    assert read({"models": [{"name": "qwen3:8b", "model": "qwen3:8b", "size": 1}]}) == [
        ModelListing(id="qwen3:8b", name="qwen3:8b")
    ]
    assert read([{"id": "m", "max_model_len": 4096}]) == [ModelListing(id="m", name="m", context_window=4096)]


def test_entries_that_make_no_sense_are_left_out() -> None:
    odd = [1, None, {}, {"id": 3}, {"id": ""}, {"id": "ok", "context_length": "big", "max_tokens": True}]
    assert read(odd) == [ModelListing(id="ok", name="ok")]


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b'"x"', b'{"data": {}}', b"\xff", b"[" * 100_000])
def test_what_is_no_list_is_told(body: bytes) -> None:
    with pytest.raises(ModelError, match="is the base_url right"):
        read_listings(body, "u")


async def test_it_is_a_get_with_the_key(server: ModelServer) -> None:
    server.play(status(200, '{"data": [{"id": "a"}]}'))
    assert await list_provider_models(provider(server), environ=ENVIRON) == [ModelListing(id="a", name="a")]
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("GET", "/v1/models")
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert "content-length" not in asked.headers


async def test_a_list_of_anthropic_is_asked_for_as_a_whole(server: ModelServer) -> None:
    wire = replace(ANTHROPIC, headers={"anthropic-version": "v"}, key_header=lambda key: ("x-k", key))
    server.play(status(200, '{"data": [{"id": "a"}]}'))
    await list_provider_models(provider(server), wire=wire, environ=ENVIRON)
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("GET", "/v1/models?limit=1000")
    assert (asked.headers["anthropic-version"], asked.headers["x-k"]) == ("v", KEY)


async def test_of_ollama_what_is_loaded_says_how_long_its_context_is(server: ModelServer) -> None:
    listed = '{"data": [{"id": "qwen3:8b"}, {"id": "gpt-oss:20b"}]}'
    loaded = '{"models": [{"name": "qwen3:8b", "model": "qwen3:8b", "context_length": 4096}]}'
    server.play(status(200, listed), status(200, loaded))
    ollama = replace(provider(server), id="ollama")
    offers = await list_provider_models(ollama, environ=ENVIRON)
    assert [(offer.id, offer.context_window) for offer in offers] == [("qwen3:8b", 4096), ("gpt-oss:20b", None)]
    assert [asked.path for asked in server.asked] == ["/v1/models", "/api/ps"]
    server.play(status(200, listed), status(404, "no such page"))  # what only calls itself so
    assert [offer.id for offer in await list_provider_models(ollama, environ=ENVIRON)] == ["qwen3:8b", "gpt-oss:20b"]


@pytest.mark.parametrize("code", [401, 404, 500])
async def test_a_refusal_is_told_once_and_without_the_key(server: ModelServer, code: int) -> None:
    server.play(status(code, f'{{"error": {{"message": "no {KEY}"}}}}'))
    with pytest.raises(ModelError) as caught:
        await list_provider_models(provider(server), environ=ENVIRON)
    assert caught.value.http_status == code
    assert KEY not in str(caught.value)
    assert len(server.asked) == 1


async def test_a_silent_server_has_no_list(server: ModelServer) -> None:
    server.play(Reply([b"HTTP/1.1 200 OK\r\n"], then="hang"))
    with pytest.raises(ModelError, match="no list of models within 0 s"):
        await asyncio.wait_for(list_provider_models(provider(server), environ=ENVIRON, deadline_s=0.2), 20)


async def test_a_list_without_end_is_not_read_to_it(server: ModelServer) -> None:
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    server.play(Reply([head, *[b"x" * 1024 * 1024] * (MAX_BYTES // 2**20 + 1)], then="hang"))
    with pytest.raises(ModelError, match="longer than"):
        await list_provider_models(provider(server), environ=ENVIRON)


async def test_without_a_key_nobody_is_asked(server: ModelServer) -> None:
    with pytest.raises(ModelError, match="`KEY`, which is not set"):
        await list_provider_models(provider(server), environ={})
    assert server.asked == []
