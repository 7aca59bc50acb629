"""`MockModel` over its three APIs: what is queued once means the same in each, and requests are read in one form."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from treadle.testing import MockModel, RecordedRequest, ToolCall, Usage, is_delta

DEADLINE_S = 30
OPEN: dict[MockModel, contextlib.ExitStack] = {}  # ends the connections to a model
PATHS = {"responses": "/v1/responses", "chat": "/v1/chat/completions", "anthropic": "/v1/messages"}


@pytest.fixture
def model() -> Iterator[MockModel]:
    with MockModel() as model, contextlib.ExitStack() as connections:
        OPEN[model] = connections
        yield model
        del OPEN[model]


@pytest.fixture(params=PATHS)
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["chat", "anthropic"])
def other(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def post(model: MockModel, api: str, **members: object) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", model.port, timeout=DEADLINE_S)
    connection.request("POST", PATHS[api], json.dumps({"model": "m", "stream": True, **members}))
    response = connection.getresponse()
    OPEN[model].callback(connection.close)
    OPEN[model].callback(response.close)
    return response


def parsed(body: bytes) -> list[dict[str, Any]]:
    data = [line.removeprefix(b"data: ") for line in body.split(b"\n") if line.startswith(b"data: ")]
    return [json.loads(line) for line in data if line != b"[DONE]"]


def ask(model: MockModel, api: str, **members: object) -> list[dict[str, Any]]:
    response = post(model, api, **members)
    body = response.read()
    assert response.status == 200, body
    if api == "chat" and response.headers["Content-Type"] == "text/event-stream":
        assert body.endswith(b"data: [DONE]\n\n")
    return parsed(body)


def gist(api: str, events: list[dict[str, Any]]) -> dict[str, Any]:
    """Thoughts, text and calls of a stream, put together as a client would."""
    made: dict[str, Any] = {"thought": "", "text": "", "calls": {}}
    for event in events:
        {"responses": responses_gist, "chat": chat_gist, "anthropic": anthropic_gist}[api](event, made)
    return {**made, "calls": [call for call in made["calls"].values() if isinstance(call, list)]}


def responses_gist(event: dict[str, Any], made: dict[str, Any]) -> None:
    match event["type"]:
        case "response.output_text.delta":
            made["text"] += event["delta"]
        case "response.reasoning_summary_text.delta":
            made["thought"] += event["delta"]
        case "response.output_item.done" if "call_id" in event["item"]:
            item = event["item"]
            text = item["arguments"] if "arguments" in item else json.dumps({"input": item["input"]})
            made["calls"][item["call_id"]] = [item["call_id"], item["name"], text]


def chat_gist(event: dict[str, Any], made: dict[str, Any]) -> None:
    for choice in event["choices"]:
        made["text"] += choice["delta"].get("content") or ""
        made["thought"] += choice["delta"].get("reasoning_content") or ""
        for call in choice["delta"].get("tool_calls", ()):
            if "id" in call:
                made["calls"][call["index"]] = [call["id"], call["function"]["name"], ""]
            made["calls"][call["index"]][2] += call["function"]["arguments"]


def anthropic_gist(event: dict[str, Any], made: dict[str, Any]) -> None:
    match event["type"]:
        case "content_block_start":
            block = event["content_block"]
            if block["type"] == "tool_use":
                made["calls"][event["index"]] = [block["id"], block["name"], ""]
        case "content_block_delta":
            delta = event["delta"]
            made["text"] += delta.get("text", "")
            made["thought"] += delta.get("thinking", "")
            if "partial_json" in delta:
                made["calls"][event["index"]][2] += delta["partial_json"]


def test_a_message_with_a_thought(model: MockModel, api: str) -> None:
    model.enqueue_assistant_message("one two", deltas=["one", " two"], reasoning="hm")
    assert gist(api, ask(model, api)) == {"thought": "hm", "text": "one two", "calls": []}


def test_calls_with_text_and_thought(model: MockModel, api: str) -> None:
    calls = [ToolCall("a", {"x": 1}, "c1"), ToolCall("b", "{oops", "c2"), ToolCall("p", "free", "c3", custom=True)]
    model.enqueue_calls(*calls, text="first this", reasoning="hm")
    assert gist(api, ask(model, api)) == {
        "thought": "hm",
        "text": "first this",
        "calls": [["c1", "a", '{"x": 1}'], ["c2", "b", "{oops"], ["c3", "p", '{"input": "free"}']],
    }


def test_free_text_is_given_under_the_name_that_the_request_has_for_it(model: MockModel, other: str) -> None:
    schema = {"type": "object", "properties": {"patch": {"type": "string"}}}
    tool = {
        "chat": {"type": "function", "function": {"name": "p", "parameters": schema}},
        "anthropic": {"name": "p", "input_schema": schema},
    }
    model.enqueue_custom_call("p", "a\nb")
    (call,) = gist(other, ask(model, other, tools=[tool[other]]))["calls"]
    assert json.loads(call[2]) == {"patch": "a\nb"}


def test_arguments_in_pieces(model: MockModel, other: str) -> None:
    item = ToolCall("a", {"x": 1}).item("c1")
    delta = {"type": "response.function_call_arguments.delta", "item_id": item["id"], "output_index": 0}
    model.enqueue_sse(
        [
            {"type": "response.created", "response": {"id": "resp_1"}},
            {"type": "response.output_item.added", "output_index": 0, "item": {**item, "arguments": ""}},
            {**delta, "delta": '{"x'},
            {**delta, "delta": '": 1}'},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": {"id": "resp_1"}},
        ]
    )
    events = ask(model, other)
    assert gist(other, events)["calls"] == [["c1", "a", '{"x": 1}']]


def test_token_counts(model: MockModel, other: str) -> None:
    model.enqueue_assistant_message(
        "a", usage=Usage(input_tokens=7, cached_input_tokens=3, output_tokens=5, reasoning_output_tokens=2)
    )
    events = ask(model, other)
    if other == "chat":
        assert events[-1]["usage"] == {
            "prompt_tokens": 7,
            "completion_tokens": 5,
            "total_tokens": 12,
            "prompt_tokens_details": {"cached_tokens": 3},
            "completion_tokens_details": {"reasoning_tokens": 2},
        }
    else:
        read = {"input_tokens": 4, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 0}
        assert events[0]["message"]["usage"] == {**read, "output_tokens": 1}
        assert events[-2]["usage"] == {**read, "output_tokens": 5}


@pytest.mark.parametrize(
    ("reason", "chat", "anthropic"),
    [
        ("max_output_tokens", "length", "max_tokens"),
        ("content_filter", "content_filter", "refusal"),
        ("some_other", "length", "max_tokens"),
    ],
)
def test_an_incomplete_response(model: MockModel, reason: str, chat: str, anthropic: str) -> None:
    cut = {"type": "response.incomplete", "response": {"id": "r", "incomplete_details": {"reason": reason}}}
    for api, expected in (("chat", chat), ("anthropic", anthropic)):
        model.enqueue_sse([cut])
        events = ask(model, api)
        found = [event["choices"][0]["finish_reason"] for event in events] if api == "chat" else []
        assert expected in (found or [event.get("delta", {}).get("stop_reason") for event in events])


def test_a_thought_that_is_sealed(model: MockModel) -> None:
    model.enqueue_assistant_message("a", reasoning="hm")
    model.enqueue_assistant_message("a", reasoning="")
    signed, redacted = ask(model, "anthropic"), ask(model, "anthropic")
    (signature,) = [event["delta"]["signature"] for event in signed if "signature" in event.get("delta", {})]
    assert signature == "sealed-1"
    assert redacted[1]["content_block"] == {"type": "redacted_thinking", "data": "sealed-2"}
    assert [event["type"] for event in redacted[1:3]] == ["content_block_start", "content_block_stop"]


# --- failures, cuts and pace ------------------------------------------------------------------------------------------


def test_an_error(model: MockModel, api: str) -> None:
    model.enqueue_error(429, {"error": {"message": "slow down", "code": "rate_limit_exceeded"}}, {"Retry-After": "3"})
    response = post(model, api)
    body = json.loads(response.read())
    assert (response.status, response.headers["Retry-After"]) == (429, "3")
    assert body["error"]["message"] == "slow down"
    if api == "anthropic":
        assert (body["type"], body["error"]["type"]) == ("error", "rate_limit_error")


def test_an_error_in_the_words_of_its_api_stays(model: MockModel) -> None:
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
    model.enqueue_error(529, body)
    assert json.loads(post(model, "anthropic").read()) == body


def test_a_full_context(model: MockModel) -> None:
    model.enqueue_error(400, {"error": {"message": "too much", "code": "context_length_exceeded"}})
    error = json.loads(post(model, "anthropic").read())["error"]
    assert (error["type"], error["message"].partition(":")[0]) == ("invalid_request_error", "prompt is too long")


def test_a_failure_in_the_stream(model: MockModel, other: str) -> None:
    error = {"code": "server_is_overloaded", "message": "busy"}
    model.enqueue_sse([{"type": "response.failed", "response": {"id": "r", "error": error}}])
    (event,) = parsed(post(model, other).read())
    assert event["error"]["message"] == "busy"
    assert event["error"]["type"] == ("overloaded_error" if other == "anthropic" else "server_error")


def test_the_same_place_is_cut(model: MockModel, api: str) -> None:
    model.enqueue_assistant_message("abc", deltas=["a", "b", "c"], cut_after=4)
    with pytest.raises(http.client.IncompleteRead) as caught:
        post(model, api).read()
    assert gist(api, parsed(caught.value.partial))["text"] == "ab"


def test_a_gate_behind_what_an_api_leaves_out(model: MockModel, other: str) -> None:
    gate = threading.Event()
    model.enqueue_assistant_message("ab", deltas=["a", "b"], gate=gate, gate_after=2)
    response = post(model, other)
    first = response.read1()
    assert gist(other, parsed(first))["text"] == ""
    gate.set()
    assert gist(other, parsed(first + response.read()))["text"] == "ab"


def test_a_slow_stream_comes_delta_by_delta(model: MockModel, api: str) -> None:
    model.enqueue_assistant_message("abc", deltas=["a", "b", "c"], delta_delay_s=0.01)
    response = post(model, api)
    pieces = []
    while piece := response.read1():  # at most one chunk of the encoding
        pieces.append(gist(api, parsed(piece))["text"])
    assert pieces == ["", "a", "b", "c"]


def test_ends_are_no_deltas(model: MockModel, api: str) -> None:
    model.enqueue_calls(ToolCall("a", {}), text="x")
    body = post(model, api).read()
    grown = [is_delta(part + b"\n\n") for part in body.split(b"\n\n") if part]
    assert grown[-1] is False
    assert any(grown)


def test_an_answer_in_one_piece(model: MockModel, other: str) -> None:
    model.enqueue_calls(ToolCall("a", {"x": 1}, "c1"), text="hi", reasoning="hm")
    whole = json.loads(post(model, other, stream=False).read())
    if other == "chat":
        message = whole["choices"][0]["message"]
        assert (message["content"], message["reasoning_content"]) == ("hi", "hm")
        assert message["tool_calls"][0]["function"] == {"name": "a", "arguments": '{"x": 1}'}
    else:
        assert [block["type"] for block in whole["content"]] == ["thinking", "text", "tool_use"]
        assert whole["content"][2]["input"] == {"x": 1}


def test_bytes_are_sent_as_they_are(model: MockModel, api: str) -> None:
    model.enqueue_sse(b"data: mine\n\n")
    model.enqueue_error(503, "busy")
    assert post(model, api).read() == b"data: mine\n\n"
    assert post(model, api).read() == b"busy"


def test_an_empty_queue_is_told_in_every_api(model: MockModel, api: str) -> None:
    response = post(model, api)
    assert response.status == 500
    assert "no response queued" in json.loads(response.read())["error"]["message"]


# --- requests ---------------------------------------------------------------------------------------------------------

CHAT = {
    "messages": [
        {"role": "system", "content": "rules"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "U"}}],
        },
        {
            "role": "assistant",
            "content": "so",
            "reasoning_content": "hm",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
        {"role": "user", "content": "more"},
    ],
    "tools": [{"type": "function", "function": {"name": "f"}}],
}
ANTHROPIC = {
    "system": [{"type": "text", "text": "rules"}],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image", "source": {"type": "url", "url": "U"}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "so"},
                {"type": "tool_use", "id": "c1", "name": "f", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "done"}]},
                {"type": "text", "text": "more"},
            ],
        },
    ],
    "tools": [{"name": "f", "input_schema": {}}],
}


@pytest.mark.parametrize(("api", "body"), [("chat", CHAT), ("anthropic", ANTHROPIC)])
def test_a_request_is_read_as_items(api: str, body: object) -> None:
    request = RecordedRequest("POST", PATHS[api] + "?beta=true", {}, json.dumps(body).encode())
    assert [item.get("role") or item["type"] for item in request.input] == [
        "developer", "user", "reasoning", "assistant", "function_call", "function_call_output", "user",
    ]  # fmt: skip
    assert request.input_texts("user") == ["look", "more"]
    assert request.input_texts("developer") == ["rules"]
    assert request.input_texts("assistant") == ["so"]
    assert request.last_user_text == "more"
    assert request.tool_outputs == {"c1": "done"}
    assert request.tool_names == ["f"]
    image = request.input[1]["content"][1]
    assert (image["type"], image["image_url"]) == ("input_image", "U")
    call = request.input[4]
    assert (call["call_id"], call["name"], call["arguments"]) == ("c1", "f", "{}")
    assert request.input[2]["content"][0]["text"] == "hm"


@pytest.mark.parametrize("api", ["chat", "anthropic"])
def test_what_is_missing_reads_as_empty(api: str) -> None:
    request = RecordedRequest("POST", PATHS[api], {}, b"{}")
    assert (request.input, request.last_user_text, request.tool_outputs, request.tool_names) == ([], None, {}, [])
