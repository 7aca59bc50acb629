"""The output items of a model, parsed from JSON.

The JSON is that of the Responses API, for every provider. It goes back to the model unchanged as input of the next
request, so `raw` is stored; the other members are only a view of it. Unknown item types are `OtherItem`s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

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


class BaseOutputItem(Struct, frozen=True, kw_only=True):
    """`id` is the provider's; if it gave none, one of ours, which is not in `raw`."""

    id: str
    raw: Raw


class MessageItem(BaseOutputItem, frozen=True, kw_only=True):
    role: str
    text: str
    phase: str | None = None


class ReasoningItem(BaseOutputItem, frozen=True, kw_only=True):
    summary: tuple[str, ...] = ()
    content: tuple[str, ...] = ()


class FunctionCallItem(BaseOutputItem, frozen=True, kw_only=True):
    """`arguments` is JSON text exactly as the model wrote it; it may be invalid."""

    call_id: str
    name: str
    namespace: str | None
    arguments: str


class CustomToolCallItem(BaseOutputItem, frozen=True, kw_only=True):
    call_id: str
    name: str
    namespace: str | None
    input: str


class ToolSearchCallItem(BaseOutputItem, frozen=True, kw_only=True):
    """A search for tools, in the form that the Responses API has for it. `arguments` is JSON text."""

    call_id: str
    arguments: str


class OtherItem(BaseOutputItem, frozen=True, kw_only=True):
    type: str


class SearchedFor(Struct, frozen=True):
    """What a search of the provider looked for. `type` is `search`, `open_page` or `find_in_page`."""

    type: str = ""
    query: str | None = None
    queries: tuple[str, ...] | None = None
    url: str | None = None
    pattern: str | None = None


class WebSearchItem(OtherItem, frozen=True, kw_only=True):
    """A search of the web that the provider has made itself."""

    action: SearchedFor = SearchedFor()


OutputItem: TypeAlias = (
    MessageItem | ReasoningItem | FunctionCallItem | CustomToolCallItem | ToolSearchCallItem | OtherItem
)


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


class _Search(Struct):
    action: SearchedFor | None = None


class _ToolSearch(Struct):
    call_id: str
    execution: Literal["client"]  # a search that the provider runs itself has its answer already
    arguments: Raw = Raw(b"{}")


_kind = msgspec.json.Decoder(_Kind)
_message = msgspec.json.Decoder(_Message)
_reasoning = msgspec.json.Decoder(_Reasoning)
_call = msgspec.json.Decoder(_Call)
_search = msgspec.json.Decoder(_Search)
_tool_search = msgspec.json.Decoder(_ToolSearch)


def upstream_id(raw: Raw) -> str:
    """The id that the provider gave the item, or ""."""
    return _kind.decode(raw).id or ""


def read_item(raw: Raw, item_id: str) -> OutputItem:
    """The item in `raw`, under `item_id`. One that lacks what its type needs becomes an `OtherItem`.

    Raises `msgspec.ValidationError` when it is no object with a `type` at all.
    """
    kind = _kind.decode(raw).type
    if not kind:
        raise msgspec.ValidationError("an output item without a `type`")
    raw = raw.copy()  # else it would keep alive the whole event that it was part of
    try:
        match kind:
            case "message":
                message = _message.decode(raw)
                content = message.content
                text = content if isinstance(content, str) else "".join(part.text for part in content)
                return MessageItem(id=item_id, raw=raw, role=message.role, text=text, phase=message.phase)
            case "reasoning":
                read = _reasoning.decode(raw)
                summary, thoughts = _texts(read.summary), _texts(read.content)
                return ReasoningItem(id=item_id, raw=raw, summary=summary, content=thoughts)
            case "function_call":
                call = _call.decode(raw)
                return FunctionCallItem(
                    id=item_id,
                    raw=raw,
                    call_id=call.call_id,
                    name=call.name,
                    namespace=call.namespace,
                    arguments=call.arguments,
                )
            case "custom_tool_call":
                call = _call.decode(raw)
                return CustomToolCallItem(
                    id=item_id,
                    raw=raw,
                    call_id=call.call_id,
                    name=call.name,
                    namespace=call.namespace,
                    input=call.input,
                )
            case "web_search_call":
                action = _search.decode(raw).action or SearchedFor()
                return WebSearchItem(id=item_id, raw=raw, type=kind, action=action)
            case "tool_search_call":
                search = _tool_search.decode(raw)
                text = bytes(search.arguments).decode()
                return ToolSearchCallItem(id=item_id, raw=raw, call_id=search.call_id, arguments=text)
    except msgspec.ValidationError:
        if kind == "web_search_call":  # shown all the same
            return WebSearchItem(id=item_id, raw=raw, type=kind)
    return OtherItem(id=item_id, raw=raw, type=kind)


def _texts(parts: list[_Part] | None) -> tuple[str, ...]:
    return tuple(part.text for part in parts or ())
