"""`RecordedRequest`: the shapes of input that clients send."""

from __future__ import annotations

import json

import pytest

from treadle.testing import RecordedRequest


def _request(body: object) -> RecordedRequest:
    return RecordedRequest("POST", "/v1/responses", {"x-a": "b"}, json.dumps(body).encode())


INPUT = [
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "rules"}]},
    {"role": "user", "content": "plain"},
    {
        "type": "message",
        "role": "user",
        "content": [
            {"type": "input_text", "text": "look"},
            {"type": "input_image", "image_url": "data:"},
            {"type": "input_text", "text": "here"},
        ],
    },
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "done"},
    {
        "type": "custom_tool_call_output",
        "call_id": "c2",
        "output": [{"type": "input_text", "text": "a"}, {"text": "b"}],
    },
]


def test_texts_by_role() -> None:
    request = _request({"input": INPUT})
    assert request.input_texts("user") == ["plain", "look", "here"]
    assert request.input_texts("developer") == ["rules"]
    assert request.input_texts("assistant") == []
    assert request.last_user_text == "here"


def test_tool_outputs_by_call() -> None:
    assert _request({"input": INPUT}).tool_outputs == {"c1": "done", "c2": "ab"}


def test_tool_names() -> None:
    tools = [{"type": "function", "name": "f"}, {"type": "web_search"}]
    assert _request({"tools": tools}).tool_names == ["f", "web_search"]


def test_what_is_missing_reads_as_empty() -> None:
    request = _request({})
    assert (request.input, request.last_user_text, request.tool_outputs, request.tool_names) == ([], None, {}, [])


def test_a_string_is_a_user_message() -> None:
    assert _request({"input": "hello"}).last_user_text == "hello"


@pytest.mark.parametrize("body", [b"{", b"[1]"])
def test_a_body_that_is_no_object(body: bytes) -> None:
    with pytest.raises(ValueError):
        _ = RecordedRequest("POST", "/", {}, body).json


ASKED = {
    "/v1/responses": {"reasoning": {"effort": "high"}, "text": {"format": {"schema": {"type": "object"}}}},
    "/v1/chat/completions": {
        "reasoning_effort": "high",
        "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}},
    },
    "/v1/messages": {"output_config": {"effort": "high", "format": {"schema": {"type": "object"}}}},
}


@pytest.mark.parametrize("path", ASKED)
def test_what_is_asked_for_beside_the_conversation(path: str) -> None:
    asked = RecordedRequest("POST", path, {}, json.dumps(ASKED[path]).encode())
    assert (asked.reasoning_effort, asked.output_schema) == ("high", {"type": "object"})
    bare = RecordedRequest("POST", path, {}, b'{"text": 7}')
    assert (bare.reasoning_effort, bare.output_schema) == (None, None)
