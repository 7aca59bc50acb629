"""What the offline model sees in a request: the last user message, the tools, and the results of its calls since.

Items that it does not understand are ignored.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw, Struct

from treadle.llm.model import JsonObject, ModelRequest


class Done(Struct, frozen=True):
    """A call that has an output."""

    name: str
    input: str
    output: str


class View(Struct, frozen=True, kw_only=True):
    """`tools` maps each name to whether the tool takes free text. `done`: the calls since the last user message.

    `planning` is whether it was told to propose a plan instead of working.
    """

    user_text: str
    tools: dict[str, bool]
    done: tuple[Done, ...]
    parallel: bool
    planning: bool
    schema: object
    size: int
    fingerprint: bytes


class _Part(Struct):
    text: str = ""


class _Item(Struct):
    type: str = "message"
    role: str = ""
    content: list[_Part] | str | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    input: str = ""
    output: Raw = Raw()


class _Tool(Struct):
    type: str = "function"
    name: str = ""


PLAN_TAG: Final = "<proposed_plan>"
_output_decoder: Final = msgspec.json.Decoder(str | list[_Part])
_CALLS: Final = ("function_call", "custom_tool_call")
_OUTPUTS: Final = ("function_call_output", "custom_tool_call_output")


def read_view(request: ModelRequest) -> View:
    encoded = [msgspec.json.encode(item) for item in request.input]
    items = [item for item in map(_item, encoded) if item is not None]
    last = max((n for n, item in enumerate(items) if item.type == "message" and item.role == "user"), default=-1)
    return View(
        user_text=_text(items[last]) if last >= 0 else "",
        tools=dict(_tools(request)),
        done=_done(items[last + 1 :]),
        parallel=request.parallel_tool_calls,
        planning=any(item.role == "developer" and PLAN_TAG in _text(item) for item in items),
        schema=None if request.output_schema is None else _plain(request.output_schema),
        size=sum(map(len, encoded)),
        fingerprint=b"\n".join(encoded),
    )


def _item(encoded: bytes) -> _Item | None:
    try:
        return msgspec.json.decode(encoded, type=_Item)
    except msgspec.ValidationError:
        return None


def _tools(request: ModelRequest) -> list[tuple[str, bool]]:
    tools: list[tuple[str, bool]] = []
    for offered in request.tools:
        try:
            tool = msgspec.json.decode(msgspec.json.encode(offered), type=_Tool)
        except msgspec.ValidationError:
            continue
        if tool.type in ("function", "custom") and tool.name:
            tools.append((tool.name, tool.type == "custom"))
    return tools


def _text(item: _Item) -> str:
    if isinstance(item.content, list):
        return "\n".join(part.text for part in item.content if part.text)
    return item.content or ""


def _done(items: list[_Item]) -> tuple[Done, ...]:
    outputs = {item.call_id: _output(item.output) for item in items if item.type in _OUTPUTS}
    return tuple(
        Done(item.name, item.input or item.arguments, outputs[item.call_id])
        for item in items
        if item.type in _CALLS and item.call_id in outputs
    )


def _output(raw: Raw) -> str:
    """Text, or parts of it; anything else as its JSON."""
    try:
        value = _output_decoder.decode(raw)
    except msgspec.DecodeError:
        return bytes(raw).decode()
    return value if isinstance(value, str) else "\n".join(part.text for part in value)


def _plain(value: JsonObject) -> object:
    return msgspec.json.decode(msgspec.json.encode(value))
