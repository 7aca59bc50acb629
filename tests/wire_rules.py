"""The public rules of the three wire APIs, for recorded requests: `check_request` says which of them are broken.

They are those that servers refuse a request for: roles, the pairing of calls and results, ids and names, what may be
empty, and that nothing is in it that only we know.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from treadle.testing import RecordedRequest

NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
OURS: Final = ("treadle_origin", "treadle-sealed")  # what is never sent to a provider
MAX_CALL_ID: Final = {"responses": 64, "chat": 40}
PREFIXES: Final = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_", "custom_tool_call": "ctc_"}
OUTPUT_OF: Final = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
MAX_CACHE_MARKS: Final = 4
IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")


def wire_of(request: RecordedRequest) -> str:
    """The API that was asked."""
    route = request.path.partition("?")[0].removeprefix("/v1")
    return {"/responses": "responses", "/chat/completions": "chat", "/messages": "anthropic"}[route]


def check_request(request: RecordedRequest) -> None:
    """Raises `AssertionError` with every rule that is broken."""
    wire = wire_of(request)
    rules = {"responses": _responses, "chat": _chat, "anthropic": _anthropic}[wire]
    problems = list(rules(request.json))
    problems += [f"{word!r} is in the request" for word in OURS if word.encode() in request.body]
    assert not problems, f"{wire}: {'; '.join(problems)}\n{json.dumps(request.json, indent=1)[:20_000]}"


def _names(names: Sequence[object]) -> Iterator[str]:
    for name, count in Counter(names).items():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            yield f"{name!r} is no name of a tool"
        if count > 1:
            yield f"the tool {name!r} is there {count} times"


# --- Responses --------------------------------------------------------------------------------------------------------


def _responses(body: dict[str, Any]) -> Iterator[str]:
    items = body["input"]
    yield from _names([tool["name"] for tool in body.get("tools", ()) if tool["type"] in ("function", "custom")])
    yield from _paired_items(items)
    for item, after in zip(items, [*items[1:], None], strict=True):
        kind = item.get("type", "message")
        if "id" in item and not str(item["id"]).startswith(PREFIXES.get(kind, "")):
            yield f"the id {item['id']!r} is not one of a {kind}"
        match kind:
            case "message":
                yield from _responses_message(item)
            case "reasoning":
                if not item.get("encrypted_content") and body.get("store") is False:
                    yield "a thought that is neither stored nor brought along"
                if after is None or after.get("type") not in ("message", "reasoning", *OUTPUT_OF):
                    yield "a thought without what followed from it"
            case "function_call" | "custom_tool_call":
                yield from _names([item["name"]])
            case "function_call_output" | "custom_tool_call_output":
                if not isinstance(item["output"], str | list):
                    yield "an output that is neither a text nor parts"
            case _:
                yield f"an item of the type {kind!r}"


def _responses_message(item: dict[str, Any]) -> Iterator[str]:
    if item["role"] not in ("user", "assistant", "developer", "system"):
        yield f"the role {item['role']!r}"
    allowed = ("output_text", "refusal") if item["role"] == "assistant" else ("input_text", "input_image", "input_file")
    if isinstance(item["content"], list):
        kinds = {part["type"] for part in item["content"]}
        if not kinds <= set(allowed):
            yield f"a message of {item['role']} with {sorted(kinds)}"


def _paired_items(items: list[dict[str, Any]]) -> Iterator[str]:
    open_calls: dict[str, str] = {}
    seen: set[str] = set()
    for item in items:
        kind, call_id = item.get("type"), item.get("call_id")
        if kind in OUTPUT_OF:
            if not call_id or len(call_id) > MAX_CALL_ID["responses"] or call_id in seen:
                yield f"the call id {call_id!r}"
            seen.add(str(call_id))
            open_calls[str(call_id)] = OUTPUT_OF[kind]
        elif kind in OUTPUT_OF.values() and open_calls.pop(str(call_id), None) != kind:
            yield f"a {kind} for {call_id!r} that answers no call of its kind"
    if open_calls:
        yield f"calls without an output: {sorted(open_calls)}"


# --- Chat Completions -------------------------------------------------------------------------------------------------


def _chat(body: dict[str, Any]) -> Iterator[str]:
    yield from _names([tool["function"]["name"] for tool in body.get("tools", ())])
    if body.get("tools") == []:
        yield "an empty list of tools"
    waiting: list[str] = []
    for message in body["messages"]:
        role = message["role"]
        if role == "tool":
            if message.get("tool_call_id") not in waiting:
                yield f"a result for {message.get('tool_call_id')!r}, which the message before did not call for"
            else:
                waiting.remove(message["tool_call_id"])
        elif waiting:
            yield f"{role} speaks before the results of {waiting}"
            waiting = []
        yield from _chat_content(role, message)
        if role == "assistant":
            waiting = [call["id"] for call in message.get("tool_calls") or ()]
            yield from _chat_calls(message)
    if waiting:
        yield f"calls without a result: {waiting}"
    if body["messages"][-1]["role"] not in ("user", "tool", "developer", "system"):
        yield "the assistant has the last word"


def _chat_content(role: str, message: dict[str, Any]) -> Iterator[str]:
    kinds = {
        "system": ("text",),
        "developer": ("text",),
        "user": ("text", "image_url"),
        "assistant": ("text", "refusal"),
        "tool": ("text",),
    }
    content = message.get("content")
    if role not in kinds:
        yield f"the role {role!r}"
    elif isinstance(content, list):
        wrong = {part["type"] for part in content} - set(kinds[role])
        if wrong or not content:
            yield f"{role} with {sorted(wrong) or 'no parts'}"
    elif not isinstance(content, str) and not (role == "assistant" and message.get("tool_calls")):
        yield f"{role} without content"
    known = {"role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning", "refusal"}
    if set(message) - known:
        yield f"members that nobody knows: {sorted(set(message) - known)}"


def _chat_calls(message: dict[str, Any]) -> Iterator[str]:
    calls = message.get("tool_calls")
    if calls == []:
        yield "an empty list of calls"
    for call_id, count in Counter(call["id"] for call in calls or ()).items():
        if count > 1 or not call_id or len(call_id) > MAX_CALL_ID["chat"]:
            yield f"the call id {call_id!r}, {count} times"
    for call in calls or ():
        yield from _names([call["function"]["name"]])
        if call["type"] != "function" or not isinstance(json.loads(call["function"]["arguments"]), dict):
            yield f"the call {call}"


# --- Anthropic Messages -----------------------------------------------------------------------------------------------


def _anthropic(body: dict[str, Any]) -> Iterator[str]:
    if not body.get("max_tokens"):
        yield "no max_tokens"
    yield from _names([tool["name"] for tool in body.get("tools", ())])
    if any(tool["input_schema"].get("type") != "object" for tool in body.get("tools", ())):
        yield "a tool whose input is no object"
    marks = json.dumps(body).count('"cache_control"')
    if marks > MAX_CACHE_MARKS:
        yield f"{marks} marks for the cache"
    system = body.get("system") or []
    if isinstance(system, list) and any(block["type"] != "text" or not block["text"].strip() for block in system):
        yield "a system prompt with an empty or strange block"
    yield from _anthropic_order(body["messages"])
    for message in body["messages"]:
        for block in _blocks(message):
            yield from _anthropic_block(message["role"], block)


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _anthropic_order(messages: list[dict[str, Any]]) -> Iterator[str]:
    roles = [message["role"] for message in messages]
    if roles != (["user", "assistant"] * len(roles))[: len(roles)] or roles[-1:] != ["user"]:
        yield f"the roles {roles}"
    called: list[str] = []
    seen: set[str] = set()
    for message in messages:
        blocks = _blocks(message)
        if not blocks:
            yield "an empty message"
        answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if sorted(answered) != sorted(called):
            yield f"the calls {called} are answered by {answered}"
        if any(block["type"] != "tool_result" for block in blocks[: len(answered)]):
            yield "something comes before the results"
        called = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if seen & set(called) or len(called) != len(set(called)):
            yield f"a call id is used again: {called}"
        seen |= set(called)
    if called:
        yield f"calls without a result: {called}"


def _anthropic_block(role: str, block: dict[str, Any]) -> Iterator[str]:
    kinds = {
        "user": ("text", "image", "tool_result"),
        "assistant": ("text", "thinking", "redacted_thinking", "tool_use"),
    }
    if block["type"] not in kinds[role]:
        yield f"a block {block['type']!r} of the role {role}"
    match block["type"]:
        case "text" if not block["text"].strip():
            yield "an empty text"
        case "tool_use":
            if not re.fullmatch(r"[a-zA-Z0-9_-]+", block["id"]) or not isinstance(block["input"], dict):
                yield f"the call {block}"
            yield from _names([block["name"]])
        case "tool_result" if isinstance(block.get("content"), list):
            for part in block["content"]:
                yield from _anthropic_block("user", part)
        case "thinking" if not block.get("signature"):
            yield "a thought without a signature"
        case "image":
            source = block["source"]
            if source["type"] == "base64" and source["media_type"] not in IMAGES:
                yield f"an image of {source['media_type']}"
