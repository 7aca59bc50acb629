"""The rules that recorded requests are checked with: each of these requests breaks one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from treadle.testing import RecordedRequest
from wire_rules import check_request

Json = dict[str, Any]
PATHS = {"responses": "/v1/responses", "chat": "/v1/chat/completions", "anthropic": "/v1/messages"}
USER: Json = {"role": "user", "content": "hi"}


def _check(wire: str, body: Json) -> None:
    check_request(RecordedRequest("POST", PATHS[wire], {}, json.dumps(body).encode()))


def _responses(*items: Json) -> Json:
    return {"store": False, "input": [{"type": "message", **USER}, *items]}


def _call(call_id: str = "c", **more: object) -> Json:
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}", **more}


def _output(call_id: str = "c") -> Json:
    return {"type": "function_call_output", "call_id": call_id, "output": ""}


def _chat(*messages: Json) -> Json:
    return {"messages": [USER, *messages]}


def _chat_call(call_id: str = "c", arguments: str = "{}") -> Json:
    call = {"id": call_id, "type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _result(call_id: str = "c") -> Json:
    return {"role": "tool", "tool_call_id": call_id, "content": ""}


def _anthropic(*messages: Json) -> Json:
    return {"max_tokens": 1, "messages": [USER, *messages]}


def _use(call_id: str = "c", **more: object) -> Json:
    block = {"type": "tool_use", "id": call_id, "name": "f", "input": {}, **more}
    return {"role": "assistant", "content": [block]}


def _used(*before: Json) -> Json:
    return {"role": "user", "content": [*before, {"type": "tool_result", "tool_use_id": "c", "content": "x"}]}


@pytest.mark.parametrize(
    ("wire", "body"),
    [
        ("responses", _responses(_call(), _output())),
        ("chat", _chat(_chat_call(), _result())),
        ("anthropic", _anthropic(_use(), _used())),
    ],
)
def test_what_is_right_passes(wire: str, body: Json) -> None:
    _check(wire, body)


@pytest.mark.parametrize(
    ("wire", "body", "says"),
    [
        ("responses", _responses(_call()), "without an output"),
        ("responses", _responses(_output()), "answers no call"),
        ("responses", _responses(_call("c" * 65), _output("c" * 65)), "the call id"),
        ("responses", _responses(_call(id="msg_1"), _output()), "not one of a function_call"),
        ("responses", _responses({"type": "reasoning", "summary": []}, _call(), _output()), "neither stored"),
        ("responses", _responses({"type": "reasoning", "encrypted_content": "x"}), "what followed"),
        ("responses", _responses({"type": "anthropic_block"}), "anthropic_block"),
        ("responses", _responses(_call(treadle_origin="x"), _output()), "treadle_origin"),
        ("chat", _chat(_chat_call()), "without a result"),
        ("chat", _chat(_chat_call(), USER, _result()), "speaks before the results"),
        ("chat", _chat(_result()), "did not call for"),
        ("chat", _chat(_chat_call("c" * 41), _result("c" * 41)), "the call id"),
        ("chat", _chat(_chat_call(arguments="[]"), _result()), "the call"),
        ("chat", _chat({"role": "assistant", "content": "so"}), "last word"),
        ("chat", _chat({"role": "wizard", "content": "so"}), "the role"),
        ("anthropic", _anthropic(_use()), "the roles"),
        ("anthropic", _anthropic(USER), "the roles"),
        ("anthropic", _anthropic(_use(), USER), "are answered by"),
        ("anthropic", _anthropic(_use(), _used({"type": "text", "text": "x"})), "before the results"),
        ("anthropic", _anthropic(_use("c|d"), _used()), "the call"),
        ("anthropic", _anthropic(_use(input="x"), _used()), "the call"),
        ("anthropic", _anthropic({"role": "assistant", "content": " "}, USER), "an empty text"),
        (
            "anthropic",
            _anthropic({"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}]}, USER),
            "without a signature",
        ),
    ],
)
def test_what_is_wrong_is_named(wire: str, body: Json, says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        _check(wire, body)
