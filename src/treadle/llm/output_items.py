"""The output items of a model, parsed from JSON.

The JSON is that of the Responses API, for every provider. It goes back to the model unchanged as input of the next
request, so `raw` is kept; the other members are only a view of it. Unknown item types are `OtherItem`s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec
from msgspec import Raw, Struct

OPAQUE_PREFIX: Final = "treadle-sealed:"
"""How `encrypted_content` begins that is not OpenAI's: the name of the wire API that can read it follows."""

OPAQUE_MEMBER: Final = f'"encrypted_content":"{OPAQUE_PREFIX}'.encode()


def is_opaque(item: Mapping[str, object] | Raw) -> bool:
    """Whether only another wire API than `responses` can make something of this item."""
    if isinstance(item, Raw):
        return OPAQUE_MEMBER in bytes(item)  # inside of a text, the quotes would be escaped
    sealed = item.get("encrypted_content")
    return isinstance(sealed, str) and sealed.startswith(OPAQUE_PREFIX)


class Item(Struct, frozen=True, kw_only=True):
    """`id` is the provider's; if it gave none, one of ours, which is not in `raw`."""

    id: str
    raw: Raw


class MessageItem(Item, frozen=True, kw_only=True):
    role: str
    text: str
    phase: str | None = None


class ReasoningItem(Item, frozen=True, kw_only=True):
    summary: tuple[str, ...] = ()
    content: tuple[str, ...] = ()


class FunctionCallItem(Item, frozen=True, kw_only=True):
    """`arguments` is JSON text exactly as the model wrote it; it may be invalid."""

    call_id: str
    name: str
    namespace: str | None
    arguments: str


class CustomToolCallItem(Item, frozen=True, kw_only=True):
    call_id: str
    name: str
    namespace: str | None
    input: str


class OtherItem(Item, frozen=True, kw_only=True):
    type: str


OutputItem: TypeAlias = MessageItem | ReasoningItem | FunctionCallItem | CustomToolCallItem | OtherItem


class _Part(Struct):
    type: str = ""
    text: str = ""


class _Kind(Struct):
    type: str = ""
    id: str | None = None


class _Message(Struct):
    role: str = "assistant"
    content: list[_Part] | str = ""
    phase: str | None = None


class _Reasoning(Struct):
    summary: list[_Part] | None = None
    content: list[_Part] | None = None


class _Call(Struct):
    call_id: str
    name: str
    namespace: str | None = None
    arguments: str = ""
    input: str = ""


_kind = msgspec.json.Decoder(_Kind)
_message = msgspec.json.Decoder(_Message)
_reasoning = msgspec.json.Decoder(_Reasoning)
_call = msgspec.json.Decoder(_Call)


def upstream_id(raw: Raw) -> str:
    """The id that the provider gave the item, or ""."""
    return _kind.decode(raw).id or ""


def read_item(raw: Raw, item_id: str) -> OutputItem:
    """The item in `raw`, under `item_id`. One that lacks what its type needs is kept as an `OtherItem`.

    Raises `msgspec.ValidationError` when it is no object with a `type` at all.
    """
    kind = _kind.decode(raw).type
    if not kind:
        raise msgspec.ValidationError("an output item without a `type`")
    raw = raw.copy()  # else it would keep alive the whole event that it was part of
    try:
        return _read(kind, raw, item_id)
    except msgspec.ValidationError:
        return OtherItem(id=item_id, raw=raw, type=kind)


def _read(kind: str, raw: Raw, item_id: str) -> OutputItem:
    if kind == "message":
        message = _message.decode(raw)
        return MessageItem(id=item_id, raw=raw, role=message.role, text=_text(message.content), phase=message.phase)
    if kind == "reasoning":
        reasoning = _reasoning.decode(raw)
        return ReasoningItem(id=item_id, raw=raw, summary=_texts(reasoning.summary), content=_texts(reasoning.content))
    if kind not in ("function_call", "custom_tool_call"):
        return OtherItem(id=item_id, raw=raw, type=kind)
    call = _call.decode(raw)
    common = (call.call_id, call.name, call.namespace)
    if kind == "function_call":
        return _function(item_id, raw, common, call.arguments)
    return _custom(item_id, raw, common, call.input)


def _function(item_id: str, raw: Raw, common: tuple[str, str, str | None], arguments: str) -> FunctionCallItem:
    call_id, name, namespace = common
    return FunctionCallItem(id=item_id, raw=raw, call_id=call_id, name=name, namespace=namespace, arguments=arguments)


def _custom(item_id: str, raw: Raw, common: tuple[str, str, str | None], text: str) -> CustomToolCallItem:
    call_id, name, namespace = common
    return CustomToolCallItem(id=item_id, raw=raw, call_id=call_id, name=name, namespace=namespace, input=text)


def _text(content: list[_Part] | str) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)


def _texts(parts: list[_Part] | None) -> tuple[str, ...]:
    return tuple(part.text for part in parts or ())
