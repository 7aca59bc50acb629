"""The stream parsers of the official packages read what our mock models write, and agree with our translators."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from contract.wire_plays import DIALECTS, Answer, heard, used
from contract.wire_stage import outcome
from interop.models.official import Official
from treadle.llm import ModelRequest, ProviderModel, read_provider
from treadle.testing import EngineModel, MockModel, ToolCall, Usage

pytestmark = [pytest.mark.interop, pytest.mark.anyio]
APIS = [dialect.wire_api for dialect in DIALECTS]
LOOK = {"type": "object", "properties": {"at": {"type": "integer"}}}
USAGE = Usage(input_tokens=10, cached_input_tokens=2, output_tokens=5)


def body_of(api: str, prompt: str) -> dict[str, Any]:
    """A request as a user of the official client writes it."""
    message = {"role": "user", "content": prompt}
    function = {"name": "look", "description": "Look.", "parameters": LOOK}
    match api:
        case "responses":
            return {"model": "m", "input": [message], "tools": [{"type": "function", "strict": False, **function}]}
        case "chat":
            tools = [{"type": "function", "function": function}]
            return {"model": "m", "messages": [message], "tools": tools, "stream_options": {"include_usage": True}}
    tool = {"name": "look", "description": "Look.", "input_schema": LOOK}
    return {"model": "m", "max_tokens": 100, "messages": [message], "tools": [tool]}


async def ours(api: str, base_url: str, prompt: str) -> dict[str, Any]:
    """What our own client understands."""
    tools = [{"type": "function", "name": "look", "description": "Look.", "strict": False, "parameters": LOOK}]
    said = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": prompt}]}]
    model = ProviderModel(read_provider("mock", {"base_url": base_url, "wire_api": api, "request_max_retries": 0}))
    try:
        found = await outcome(model, ModelRequest(model="m", input=said, tools=tools))
    finally:
        await model.close()
    assert found.error is None
    return told(heard(found.events), used(found.events))


def told(answer: Answer, usage: Any) -> dict[str, Any]:
    return {
        "text": answer.text,
        "thought": answer.thought,
        "calls": [[call.call_id, call.name, json.loads(call.arguments)] for call in answer.calls],
        "usage": [usage.input_tokens, usage.cached_input_tokens, usage.output_tokens],
    }


def theirs(official: Official, api: str, base_url: str, prompt: str) -> tuple[dict[str, Any], list[str]]:
    found = official.ask(api, base_url, body_of(api, prompt))
    events = found.pop("events")
    found["calls"] = [[call_id, name, json.loads(arguments)] for call_id, name, arguments in found["calls"]]
    return found, events


@pytest.fixture
def mock() -> Iterator[MockModel]:
    with MockModel() as model:
        yield model


CALLS = (ToolCall("look", {"at": 1}, "call_1"), ToolCall("look", {"at": 2}, "call_2"))


def _queue(mock: MockModel, what: str) -> None:
    match what:
        case "text":
            mock.enqueue_assistant_message("hello, wörld", deltas=["hello, ", "wörld"], usage=USAGE)
        case "thought":
            mock.enqueue_assistant_message("so it is", reasoning="let me think", usage=USAGE)
        case "call":
            mock.enqueue_calls(CALLS[0], usage=USAGE)
        case "everything":
            mock.enqueue_calls(*CALLS, text="I look.", reasoning="hm", usage=USAGE)


EXPECTED: dict[str, dict[str, Any]] = {
    "text": {"text": "hello, wörld", "thought": "", "calls": []},
    "thought": {"text": "so it is", "thought": "let me think", "calls": []},
    "call": {"text": "", "thought": "", "calls": [["call_1", "look", {"at": 1}]]},
    "everything": {
        "text": "I look.",
        "thought": "hm",
        "calls": [["call_1", "look", {"at": 1}], ["call_2", "look", {"at": 2}]],
    },
}


@pytest.mark.parametrize("what", EXPECTED)
@pytest.mark.parametrize("api", APIS)
async def test_the_mock_model_is_understood_alike(api: str, what: str, mock: MockModel, official: Official) -> None:
    for _ in range(3):  # we ask once, the official client twice
        _queue(mock, what)
    mine = await ours(api, mock.base_url, "hi")
    their, events = theirs(official, api, mock.base_url, "hi")
    assert mine == their == {**EXPECTED[what], "usage": [10, 2, 5]}
    assert not [event for event in events if event in ("None", "")], "an event that the client does not know"
    assert len(mock.requests()) == 3


@pytest.mark.parametrize("prompt", ["hello", "THINK hello", 'CALL:look {"at": 3}'])
@pytest.mark.parametrize("api", APIS)
async def test_the_model_for_engines_is_understood_alike(api: str, prompt: str, official: Official) -> None:
    with EngineModel() as model:
        mine = await ours(api, model.base_url, prompt)
        their, _ = theirs(official, api, model.base_url, prompt)
    for found in (mine, their):  # ids are others each time
        found["calls"] = [[name, arguments] for _, name, arguments in found["calls"]]
    assert mine == their
    assert bool(mine["thought"]) == ("THINK" in prompt)
    assert mine["calls"] == ([["look", {"at": 3}]] if "CALL" in prompt else [])
