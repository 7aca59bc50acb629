"""Bodies of requests to the Responses API."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from treadle.llm import FLAT, Asking, HttpFailure, ModelRequest, read_provider
from treadle.llm.responses import encode_body, other_way

USER = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}


def body(**members: Any) -> dict[str, Any]:
    request = ModelRequest(**{"model": "m", "input": [USER], **members})
    read = json.loads(encode_body(request, Asking(read_provider("mock", {"base_url": "http://127.0.0.1:1/v1"}))))
    assert isinstance(read, dict)
    return read


def test_the_least() -> None:
    assert body(reasoning_summary=None) == {
        "model": "m",
        "input": [USER],
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
    }


def test_the_most() -> None:
    tool = {"type": "function", "name": "t"}
    made = body(
        instructions="be brief",
        tools=[tool],
        parallel_tool_calls=False,
        reasoning_effort="high",
        output_schema={"type": "object"},
        prompt_cache_key="thread",
        client_metadata={"a": "b"},
        headers={"session-id": "never in the body"},
    )
    assert made["instructions"] == "be brief"
    assert made["tools"] == [tool]
    assert made["parallel_tool_calls"] is False
    assert made["reasoning"] == {"effort": "high", "summary": "auto"}
    assert made["prompt_cache_key"] == "thread"
    assert made["client_metadata"] == {"a": "b"}
    assert made["text"] == {
        "format": {"type": "json_schema", "name": "codex_output_schema", "strict": True, "schema": {"type": "object"}}
    }
    assert "never in the body" not in json.dumps(made)


def test_reasoning_without_effort_or_summary() -> None:
    assert body()["reasoning"] == {"summary": "auto"}
    assert body(reasoning_effort="low", reasoning_summary="none")["reasoning"] == {"effort": "low"}
    assert "reasoning" not in body(reasoning_summary="none")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text(), JSON, max_size=4), max_size=4))
def test_items_pass_unchanged_as_objects_and_as_bytes(items: list[dict[str, Any]]) -> None:
    raw = [Raw(json.dumps(item).encode()) for item in items]
    assert body(input=items)["input"] == items
    assert body(input=raw)["input"] == items


# --- namespaces -------------------------------------------------------------------------------------------------------

GO = {"type": "function", "name": "go", "description": "Goes.", "strict": False, "parameters": {"type": "object"}}
SPACE = {"type": "namespace", "name": "mcp__s", "description": "d", "tools": [GO, {**GO, "name": "x" * 80}]}
CALL = {"type": "function_call", "call_id": "1", "name": "go", "namespace": "mcp__s", "arguments": "{}"}


@pytest.mark.parametrize("as_raw", [False, True])
@pytest.mark.parametrize(("quirks", "setting"), [({FLAT}, True), (set(), False)])
def test_a_server_without_namespaces_gets_plain_functions(as_raw: bool, quirks: set[str], setting: bool) -> None:
    tools: list[Any] = [{"type": "function", "name": "own"}, {**SPACE, "tools": [{**GO, "defer_loading": True}]}]
    items: list[Any] = [USER, CALL, {"type": "function_call_output", "call_id": "1", "output": '"namespace"'}]
    if as_raw:
        tools, items = ([Raw(msgspec.json.encode(each)) for each in kind] for kind in (tools, items))
    provider = read_provider("mock", {"base_url": "http://127.0.0.1:1/v1", "namespaces": setting})
    request = ModelRequest(model="m", input=items, tools=tools)
    made = json.loads(encode_body(request, Asking(provider, frozenset(quirks))))
    assert made["tools"] == [{"type": "function", "name": "own"}, {**GO, "name": "mcp__s__go"}]
    flat = {key: value for key, value in CALL.items() if key != "namespace"}
    assert made["input"][:2] == [USER, {**flat, "name": "mcp__s__go"}]
    assert made["input"][2]["output"] == '"namespace"'


def test_namespaces_stay_where_they_are_known() -> None:
    made = body(tools=[SPACE], input=[CALL])
    assert (made["tools"], made["input"]) == ([SPACE], [CALL])


@pytest.mark.parametrize(
    ("status", "said", "learned"),
    [
        (400, "Input tag 'namespace' found using 'type' does not match any of the expected tags: 'function'", {FLAT}),
        (422, '{"error":{"message":"Unknown tool type: Namespace"}}', {FLAT}),
        (400, "the model is not loaded", None),
        (500, "namespace", None),
    ],
)
def test_a_refusal_of_namespaces_is_understood(status: int, said: str, learned: set[str] | None) -> None:
    assert other_way(HttpFailure(status, {}, said.encode(), "url"), frozenset()) == learned
