"""The public rules of a request to the Messages API, as far as a server checks them before it asks the model."""

from __future__ import annotations

import re
from typing import Any

Json = dict[str, Any]
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
MEDIA = {"image/png", "image/jpeg", "image/gif", "image/webp"}
THOUGHTS = ("thinking", "redacted_thinking")


def check_rules(body: Json) -> None:
    """Raises `AssertionError` for what the API would refuse."""
    assert body["max_tokens"] > 0
    assert body["stream"] is True
    for block in body.get("system", []):
        _check_text(block)
    names = [tool["name"] for tool in body.get("tools", [])]
    assert len(names) == len(set(names)), names
    for tool in body.get("tools", []):
        assert NAME.fullmatch(tool["name"]), tool["name"]
        if tool.get("type") == "web_search_20250305":  # the server runs it
            assert tool["name"] == "web_search"
            continue
        assert tool["input_schema"]["type"] == "object"
    messages = body["messages"]
    assert messages, "a request needs a message"
    for index, message in enumerate(messages):
        assert message["role"] == ("user", "assistant")[index % 2], "roles alternate, and a user begins"
        assert message["content"], "no message is empty"
        for block in message["content"]:
            _check_block(message["role"], block)
    _check_calls(body, messages)
    _check_thinking(body, messages)
    assert _marks(body) <= 4


def _check_text(block: Json) -> None:
    assert block["type"] == "text"
    assert block["text"].strip(), "a text block has a word in it"


def _check_block(role: str, block: Json) -> None:
    match block["type"]:
        case "text":
            _check_text(block)
        case "image":
            assert role == "user"
            source = block["source"]
            assert source["type"] != "base64" or (source["media_type"] in MEDIA and source["data"])
            assert source["type"] != "url" or source["url"].startswith("https://")
        case "tool_use":
            assert role == "assistant"
            assert NAME.fullmatch(block["name"])
            assert NAME.fullmatch(block["id"])
            assert isinstance(block["input"], dict)
        case "tool_result":
            assert role == "user"
            content = block.get("content", "")
            for inner in content if isinstance(content, list) else []:
                _check_block("user", inner)
        case "thinking" | "redacted_thinking":
            assert role == "assistant"
            assert "cache_control" not in block
        case other:
            assert role == "assistant", other


def _check_calls(body: Json, messages: list[Json]) -> None:
    seen: set[str] = set()
    for index, message in enumerate(messages):
        calls = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        assert not seen & set(calls), "an id is used once"
        assert len(calls) == len(set(calls))
        seen |= set(calls)
        following = messages[index + 1]["content"] if index + 1 < len(messages) else []
        results = [block.get("tool_use_id") for block in following if block["type"] == "tool_result"]
        if message["role"] == "assistant":
            assert sorted(calls) == sorted(results), "each call has its result in the next message, and only there"
            assert all(block["type"] == "tool_result" for block in following[: len(results)]), "results come first"
    if messages[0]["content"]:
        assert all(block["type"] != "tool_result" for block in messages[0]["content"])
    assert not seen or body.get("tools"), "a conversation with calls needs tools"


def _check_thinking(body: Json, messages: list[Json]) -> None:
    for message in messages:
        assert message["content"][-1]["type"] not in THOUGHTS, "a message does not end with a thought"
    thinking = body.get("thinking")
    if thinking is None or thinking["type"] != "enabled":
        return
    assert 1024 <= thinking["budget_tokens"] < body["max_tokens"]
    answers: list[Json] = []  # since the user said something
    for message in reversed(messages):
        if message["role"] == "assistant":
            answers.append(message)
        elif all(block["type"] != "tool_result" for block in message["content"]):
            break
    assert not answers or answers[-1]["content"][0]["type"] in THOUGHTS, "calls follow a thought"


def _marks(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(_marks, value))
    if isinstance(value, dict):
        return ("cache_control" in value) + sum(_marks(inner) for key, inner in value.items() if key != "input_schema")
    return 0
