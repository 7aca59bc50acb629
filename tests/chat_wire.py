"""The Chat Completions API in tests: streams as bytes, and the public rules that a request has to follow."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from treadle.http import BodyReader
from treadle.llm import ChatTranslator, ModelError, ModelEvent, ModelRequest

Json = dict[str, Any]
REQUEST = ModelRequest(model="m", input=[{"type": "message", "role": "user", "content": "hi"}])
DONE = b"data: [DONE]\n\n"
USAGE: Json = {
    "prompt_tokens": 11,
    "completion_tokens": 7,
    "total_tokens": 18,
    "prompt_tokens_details": {"cached_tokens": 3},
    "completion_tokens_details": {"reasoning_tokens": 2},
}
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def chunk(delta: Json | None = None, finish: str | None = None, **more: Any) -> Json:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": choices, **more}


def call(index: int | None = 0, *, id: str | None = None, name: str | None = None, arguments: Any = None) -> Json:
    function = {key: value for key, value in {"name": name, "arguments": arguments}.items() if value is not None}
    piece: Json = {"function": function}
    if index is not None:
        piece["index"] = index
    if id is not None:
        piece["id"] = id
    return {"tool_calls": [piece]}


def frames(*chunks: Json, done: bool = True) -> bytes:
    return b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in chunks) + (DONE if done else b"")


def text_frames(text: str = "hello") -> bytes:
    letters = [chunk({"content": letter}) for letter in text]
    return frames(chunk({"role": "assistant", "content": ""}), *letters, chunk({}, "stop"), chunk(usage=USAGE))


def read(*pieces: bytes, request: ModelRequest = REQUEST) -> list[ModelEvent]:
    """As the client reads: until the response is whole, or to the end of the body. Raises `ModelError`."""
    return list(reading(*pieces, request=request))


def attempt(*pieces: bytes, request: ModelRequest = REQUEST) -> tuple[list[ModelEvent], ModelError | None]:
    """What came before the error, and the error, if there was one."""
    events: list[ModelEvent] = []
    try:
        events.extend(reading(*pieces, request=request))  # as far as it goes: `extend` keeps what came
    except ModelError as error:
        return events, error
    return events, None


def reading(*pieces: bytes, request: ModelRequest = REQUEST) -> Iterator[ModelEvent]:
    reader, translator = BodyReader(), ChatTranslator(request)
    for piece in pieces:
        for event in reader.receive(piece):
            yield from translator.receive(event)
            if translator.completed:
                return
    for event in reader.end():
        yield from translator.receive(event)
    yield from translator.end()


def check_body(body: Json) -> None:
    """The public rules: roles, the pairing of calls and results, ids, names, content."""
    messages = body["messages"]
    assert messages
    assert any(message["role"] not in ("system", "developer") for message in messages)
    waiting: list[str] = []
    seen: set[str] = set()
    for message in messages:
        role = message["role"]
        assert role in ("system", "developer", "user", "assistant", "tool")
        if role == "tool":
            assert message["tool_call_id"] == waiting.pop(0), "results come right behind their calls, in their order"
            assert isinstance(message["content"], str)
            assert message["content"]
            continue
        assert not waiting, f"no result for {waiting}"
        assert "tool_call_id" not in message
        check_content(message["content"], role, bool(message.get("tool_calls")))
        for made in message.get("tool_calls", ()):
            assert role == "assistant"
            assert made["type"] == "function"
            assert _ID.fullmatch(made["id"])
            assert _ID.fullmatch(made["function"]["name"])
            assert isinstance(made["function"]["arguments"], str)
            assert made["function"]["arguments"]
            assert made["id"] not in seen
            seen.add(made["id"])
            waiting.append(made["id"])
    assert not waiting, f"no result for {waiting}"
    names = [tool["function"]["name"] for tool in body.get("tools", ())]
    assert len(names) == len(set(names))
    assert all(_ID.fullmatch(name) for name in names)
    assert body.get("tools") != []


def check_content(content: object, role: str, has_calls: bool) -> None:
    if content is None:
        assert role == "assistant"
        assert has_calls
    elif isinstance(content, str):
        assert content
    else:
        assert role == "user"
        assert isinstance(content, list)
        assert content
        for part in content:
            assert part["type"] in ("text", "image_url")
            assert part["text"] if part["type"] == "text" else part["image_url"]["url"]
