"""The bodies of our requests, judged by the types of the official `openai` and `anthropic` packages.

A member that the types do not have is wrong, at any depth, and so is one that is missing or has another type.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from contract.wire_plays import DIALECTS, Answer, Call, Dialect
from contract.wire_stage import Outcome
from interop.models.official import PACKAGE, Official
from treadle.http import SseParser
from treadle.llm import Asking, FunctionCallItem, ItemDone, ModelRequest, ProviderConfig, find_wire_api

pytestmark = pytest.mark.interop

# What we send and the types do not have: the first is what codex sends as well.
KNOWN_STRANGERS: Final = {"responses": ("client_metadata",), "chat": (), "anthropic": ()}
PIXEL: Final = "data:image/png;base64,iVBORw0KGgo="
SCHEMA: Final = {
    "type": "object",
    "properties": {"at": {"type": "integer"}},
    "required": ["at"],
    "additionalProperties": False,
}
TOOLS: Final = (
    {"type": "function", "name": "look", "description": "Look.", "strict": False, "parameters": SCHEMA},
    {"type": "custom", "name": "apply_patch", "description": "Patch.", "format": {"type": "text"}},
)


def said(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def answered(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}


IMAGE: Final = {"type": "input_image", "image_url": PIXEL, "detail": "high"}
CALL: Final = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": '{"at":1}'}
RESULT: Final = {"type": "function_call_output", "call_id": "call_1", "output": "nothing"}
PATCH: Final = {"type": "custom_tool_call", "call_id": "call_2", "name": "apply_patch", "input": "*** Begin Patch"}
PATCHED: Final = {"type": "custom_tool_call_output", "call_id": "call_2", "output": "done"}
THOUGHT: Final = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": "bm90IHlvdXJz",
}
DEVELOPER: Final = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "be kind"}]}

REQUESTS: Final[dict[str, dict[str, Any]]] = {
    "words": {"input": [said("hi")]},
    "instructions": {"input": [DEVELOPER, said("hi")], "instructions": "be brief"},
    "conversation": {"input": [said("hi"), answered("yes"), said("go on"), answered("no"), said("again")]},
    "image": {"input": [{**said("hi"), "content": [*said("what is it?")["content"], IMAGE]}]},
    "tools": {"input": [said("hi")], "tools": TOOLS},
    "one-at-a-time": {"input": [said("hi")], "tools": TOOLS, "parallel_tool_calls": False},
    "call": {"input": [said("hi"), CALL, RESULT], "tools": TOOLS},
    "call-after-text": {"input": [said("hi"), answered("I look."), CALL, RESULT, answered("ok"), said("more")]},
    "calls": {"input": [said("hi"), CALL, PATCH, RESULT, PATCHED], "tools": TOOLS},
    "call-with-image": {"input": [said("hi"), CALL, {**RESULT, "output": [IMAGE]}], "tools": TOOLS},
    "call-without-result": {"input": [said("hi"), CALL, said("never mind")], "tools": TOOLS},
    "thought": {"input": [said("hi"), THOUGHT, answered("yes"), said("go on")]},
    "schema": {"input": [said("hi")], "output_schema": SCHEMA},
    "effort": {"input": [said("hi")], "reasoning_effort": "high", "tools": TOOLS},
    "least-effort": {"input": [said("hi")], "reasoning_effort": "minimal", "reasoning_summary": "none"},
    "cache": {"input": [said("hi")], "prompt_cache_key": "thread-1", "client_metadata": {"a": "b"}},
}
MODELS: Final = {"responses": "gpt-5.5", "chat": "gpt-5.5", "anthropic": "claude-opus-4-5"}


def body_of(api: str, **request: Any) -> dict[str, Any]:
    asking = Asking(ProviderConfig(id="judged", base_url="http://127.0.0.1:1/v1", wire_api=api))
    written = find_wire_api(api).encode(ModelRequest(model=MODELS[api], **request), asking)
    body: dict[str, Any] = json.loads(written)
    return {name: value for name, value in body.items() if name not in KNOWN_STRANGERS[api]}


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("api", [dialect.wire_api for dialect in DIALECTS])
def test_a_request_has_the_official_types(name: str, api: str, official: Official) -> None:
    assert official.problems(api, body_of(api, **REQUESTS[name])) == []


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.wire_api)
def test_so_has_the_next_request_after_an_answer(dialect: Dialect, request: pytest.FixtureRequest) -> None:
    """What the model said and thought goes back as the API wants it, with the results of its calls."""
    answer = Answer("I look.", "hm", (Call("call_1", "look", '{"at":1}'), Call("call_2", "look", '{"at":2}')))
    found, translator = Outcome(), find_wire_api(dialect.wire_api).translator(ModelRequest(model="m", input=[]))
    for event in SseParser().receive(b"".join(dialect.frames(answer))):
        found.events += translator.receive(event)
    items = [event.item for event in found.events if isinstance(event, ItemDone)]
    calls = [item.call_id for item in items if isinstance(item, FunctionCallItem)]
    results = [{"type": "function_call_output", "call_id": call, "output": "nothing"} for call in calls]
    history = [said("hi"), *(item.raw for item in items), *results]
    official: Official = request.getfixturevalue(f"{PACKAGE[dialect.wire_api]}_client")
    body = body_of(dialect.wire_api, input=history, tools=TOOLS, reasoning_effort="high")
    assert official.problems(dialect.wire_api, body) == []


@pytest.mark.parametrize("api", [dialect.wire_api for dialect in DIALECTS])
def test_what_is_wrong_is_found(api: str, official: Official) -> None:
    """Else all of the above would prove nothing."""
    body = body_of(api, input=[said("hi"), CALL, RESULT], tools=TOOLS)
    history = "input" if api == "responses" else "messages"
    assert official.problems(api, {**body, "no_such_member": 1})
    assert official.problems(api, {**body, "model": 7})
    assert official.problems(api, {**body, history: [*body[history], {"role": "nobody", "content": "hi"}]})
    assert official.problems(api, {**body, history: [{**body[history][0], "no_such_member": 1}, *body[history][1:]]})
