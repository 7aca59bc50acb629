"""The search of a provider: what it is offered, the items that people see of it, and what goes back in the history."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from model_server import sse
from system.agent.order import check_thread
from system.agent.scene import DEADLINE, Json, Scene
from treadle.testing import AppServerHarness

pytestmark = [pytest.mark.anyio]

# As recorded from codex 0.166: what the model's service sent, and the items that clients were sent for it.
CALLS: list[Json] = [
    {"type": "search", "query": "weather", "queries": ["weather", "rain"]},
    {"type": "open_page", "url": "http://e.com"},
    {"type": "find_in_page", "url": "http://e.com", "pattern": "x"},
]
ITEMS: list[Json] = [
    {"query": "weather", "action": {"type": "search", "query": "weather", "queries": ["weather", "rain"]}},
    {"query": "http://e.com", "action": {"type": "openPage", "url": "http://e.com"}},
    {"query": "'x' in http://e.com", "action": {"type": "findInPage", "url": "http://e.com", "pattern": "x"}},
]
USAGE: Json = {"input_tokens": 1, "output_tokens": 1}


@asynccontextmanager
async def searching(
    tmp_path: Path, wire_api: Any, *, searches: bool = True, **settings: str | int | bool
) -> AsyncIterator[Scene]:
    provider: Mapping[str, str | int | bool] = {"supports_standalone_web_search": searches}
    given = {"web_search": "live", **settings}
    with AppServerHarness(tmp_path, wire_api=wire_api, provider=provider, settings=given) as harness:
        async with asyncio.timeout(DEADLINE), harness.server() as server, harness.connect(server=server) as client:
            yield Scene(harness, server, client)


async def test_the_searches_of_a_responses_provider_are_items_as_recorded(tmp_path: Path) -> None:
    calls = [
        {"type": "web_search_call", "id": f"ws_{number}", "status": "completed", "action": action}
        for number, action in enumerate(CALLS, 1)
    ]
    message = {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]}
    events = [{"type": "response.output_item.done", "item": item} for item in [*calls, message]]
    end = {"type": "response.completed", "response": {"id": "r", "usage": USAGE}}
    async with searching(tmp_path, "responses") as stage:
        stage.model.enqueue_sse([*events, end])
        stage.model.enqueue_assistant_message("again")
        thread = await stage.start()
        assert (await stage.run(thread))["status"] == "completed"
        await stage.run(thread, "and now?")
        await check_thread(stage, thread)
        for method in ("item/started", "item/completed"):
            items = [message["params"]["item"] for message in stage.client.told(method)]
            shown = [item for item in items if item["type"] == "webSearch"]
            assert [item["id"] for item in shown] == ["ws_1", "ws_2", "ws_3"]
            assert [{"query": item["query"], "action": item["action"]} for item in shown] == ITEMS
            assert {item["results"] for item in shown} == {None}
        first, second = (request.json for request in stage.model.requests())
        assert {"type": "web_search", "external_web_access": True} in first["tools"]
        assert [item for item in second["input"] if item["type"] == "web_search_call"] == calls


@pytest.mark.parametrize(
    ("settings", "searches"), [({"web_search": "disabled"}, True), ({}, False), ({"web_search": "cached"}, False)]
)
async def test_a_provider_of_which_nobody_said_that_it_searches_is_not_offered_it(
    tmp_path: Path, settings: Json, searches: bool
) -> None:
    async with searching(tmp_path, "responses", searches=searches, **settings) as stage:
        stage.model.enqueue_assistant_message("hello")
        await stage.run(await stage.start())
        assert "web_search" not in [tool["type"] for tool in stage.model.requests()[0].json["tools"]]


async def test_the_search_of_anthropic_is_an_item_and_goes_back_with_its_result(tmp_path: Path) -> None:
    used = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
    hit = {"type": "web_search_result", "url": "https://e.com", "title": "E", "encrypted_content": "abc"}
    found = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [hit]}
    cited = {"type": "web_search_result_location", "url": "https://e.com", "title": "E", "encrypted_index": "x"}

    def block(index: int, begin: Json, *deltas: Json) -> list[Json]:
        return [
            {"type": "content_block_start", "index": index, "content_block": begin},
            *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
            {"type": "content_block_stop", "index": index},
        ]

    text = {"type": "text", "text": ""}
    answer: list[Json] = [
        {"type": "message_start", "message": {"id": "msg_1", "usage": USAGE}},
        *block(0, used, {"type": "input_json_delta", "partial_json": '{"query": "looms"}'}),
        *block(1, found),
        *block(2, text, {"type": "text_delta", "text": "Looms are "}),
        *block(3, text, {"type": "citations_delta", "citation": cited}, {"type": "text_delta", "text": "old"}),
        *block(4, text, {"type": "text_delta", "text": "."}),
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": USAGE},
        {"type": "message_stop"},
    ]
    async with searching(tmp_path, "anthropic") as stage:
        stage.model.enqueue_sse(sse(*answer))
        stage.model.enqueue_assistant_message("again")
        thread = await stage.start()
        assert (await stage.run(thread))["status"] == "completed"
        await stage.run(thread, "and now?")
        await check_thread(stage, thread)
        (item,) = stage.completed("webSearch")
        assert (item["query"], item["action"]) == ("looms", {"type": "search", "query": "looms", "queries": None})
        assert stage.completed("agentMessage")[0]["text"] == "Looms are old."
        first, second = (request.json for request in stage.model.requests())
        assert "web_search_20250305" in [tool.get("type") for tool in first["tools"]]
        (said,) = [message["content"] for message in second["messages"] if message["role"] == "assistant"]
        assert said == [
            {**used, "input": {"query": "looms"}},
            found,
            {"type": "text", "text": "Looms are "},
            {"type": "text", "text": "old", "citations": [cited]},
            {"type": "text", "text": "."},
        ]
