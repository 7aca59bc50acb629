"""Content blocks of the Messages API, and the names of tools and calls in them.

`OpaqueBlock` packs content that only this API can read, so that it survives in the neutral history: signatures of
thinking, redacted (encrypted) thinking, and block types that we do not know. It names its model: the API rejects the
thinking of one model in a request to another.

Tool names and call ids have letters, digits, `_` and `-`, and a maximum length. `AnthropicToolNames` maps the name
that the model uses back to a tool; a namespace becomes a prefix of the name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import Raw, Struct

from treadle.llm.model import JsonObject
from treadle.llm.output_items import OPAQUE_PREFIX

_DATA_URL: Final = re.compile(r"data:(image/[a-z+.-]+)(?:;[^,;]+)*;base64,([A-Za-z0-9+/]+={0,2})\s*", re.IGNORECASE)
_IMAGES: Final = {
    "image/png": "image/png",
    "image/jpeg": "image/jpeg",
    "image/jpg": "image/jpeg",
    "image/gif": "image/gif",
    "image/webp": "image/webp",
}
_NO_IMAGE: Final = "(there was an image here that cannot be shown to this model)"


class CacheControl(Struct):
    type: str = "ephemeral"


class ContentBlock(Struct, tag_field="type", omit_defaults=True, kw_only=True):
    """`cache_control` marks the end of a prefix that will be sent again."""


class TextBlock(ContentBlock, tag="text", kw_only=True):
    """`citations` are those of a search of the server, verbatim."""

    text: str
    citations: list[Raw] = []
    cache_control: CacheControl | None = None


class Base64(Struct, tag_field="type", tag="base64"):
    media_type: str
    data: str


class Url(Struct, tag_field="type", tag="url"):
    url: str


class ImageBlock(ContentBlock, tag="image", kw_only=True):
    source: Base64 | Url
    cache_control: CacheControl | None = None


class ThinkingBlock(ContentBlock, tag="thinking", kw_only=True):
    thinking: str
    signature: str


class RedactedThinkingBlock(ContentBlock, tag="redacted_thinking", kw_only=True):
    data: str


class ToolUseBlock(ContentBlock, tag="tool_use", kw_only=True):
    id: str
    name: str
    input: Raw | dict[str, str]


class ToolResultBlock(ContentBlock, tag="tool_result", kw_only=True):
    tool_use_id: str
    content: str | list[TextBlock | ImageBlock] = ""
    is_error: bool = False
    cache_control: CacheControl | None = None


class AnthropicPart(Struct):
    """A part of a message, of a summary, or of a tool output."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None


_output = msgspec.json.Decoder(str | list[AnthropicPart])


def content_blocks(content: Iterable[AnthropicPart] | str, *, images: bool = True) -> list[TextBlock | ImageBlock]:
    """Content as blocks. An empty text is refused by the API, so it is left out."""
    if isinstance(content, str):
        return [TextBlock(text=content)] if content.strip() else []
    found: list[TextBlock | ImageBlock] = []
    for part in content:
        text = part.text or part.refusal
        if part.type == "input_image":
            found.append(_image(part.image_url or "") if images else TextBlock(text=_NO_IMAGE))
        elif text and text.strip():
            found.append(TextBlock(text=text))
    return found


def output_of(raw: Raw) -> str | list[TextBlock | ImageBlock]:
    """The output of a tool, as the content of a result."""
    try:
        output = _output.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return bytes(raw).decode("utf-8", "replace")
    if isinstance(output, str):
        return output if output.strip() else ""
    return content_blocks(output) or ""


def _image(url: str) -> ImageBlock | TextBlock:
    if url[:8].lower() == "https://":
        return ImageBlock(source=Url(url))
    found = _DATA_URL.fullmatch(url)
    kind = _IMAGES.get(found[1].lower()) if found else None
    if found is None or kind is None:
        return TextBlock(text=_NO_IMAGE)
    return ImageBlock(source=Base64(kind, found[2]))


_PREFIX: Final = OPAQUE_PREFIX + "anthropic:"


class OpaqueBlock(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Exactly one of the last four is set.

    Args:
        model: The model that wrote it.
        signature: The signature of thinking whose text is in the item.
        redacted: Thinking that only the server can decrypt.
        block: Any other block, verbatim.
        cited: The message before it in blocks, with what each is taken from: later requests have to have that.
    """

    model: str
    signature: str | None = None
    redacted: str | None = None
    block: Raw = Raw()
    cited: list[TextBlock] = []

    def packed(self) -> str:
        return _PREFIX + msgspec.json.encode(self).decode()


_decoder = msgspec.json.Decoder(OpaqueBlock)


def unpacked(text: str | None, model: str) -> OpaqueBlock | None:
    """The block that was packed into a text; None if another API or another model wrote it."""
    if text is None or not text.startswith(_PREFIX):
        return None
    try:
        opaque = _decoder.decode(text[len(_PREFIX) :])
    except (msgspec.DecodeError, RecursionError):
        return None
    return opaque if opaque.model == model else None


MAX_NAME: Final = 64
# The tool that the server runs itself.
WEB_SEARCH: Final = "web_search"
_VALID: Final = re.compile(r"[a-zA-Z0-9_-]+")
_OTHER: Final = re.compile(r"[^a-zA-Z0-9_-]")
_HASH: Final = 8


class AnthropicTool(Struct):
    """A tool as in a request to the Responses API."""

    type: str = ""
    name: str = ""
    description: str | None = None
    parameters: Raw = Raw()
    format: Raw = Raw()
    tools: list[AnthropicTool] = []
    external_web_access: bool = False
    filters: SearchFilters | None = None
    user_location: dict[str, str] | None = None


class SearchFilters(Struct):
    allowed_domains: list[str] = []


class NamedTool(Struct, frozen=True):
    """A tool and its name on the wire."""

    wire: str
    tool: AnthropicTool
    namespace: str | None = None


_tool = msgspec.json.Decoder(AnthropicTool)


def valid(text: str, limit: int = MAX_NAME) -> str:
    """The same if it is valid; else one that stays different from others, and is the same every time."""
    if len(text) <= limit and _VALID.fullmatch(text):
        return text
    return _OTHER.sub("_", text)[: limit - _HASH - 1] + "_" + _short_hash(text)


def wire_name(namespace: str | None, name: str) -> str:
    return valid(name if namespace is None else f"{namespace}__{name}")


class AnthropicToolNames:
    """The tools of a request that this API can offer, in order. Use `tool_names` to make one."""

    def __init__(self, specs: Sequence[bytes]) -> None:
        self.all: dict[str, NamedTool] = {}
        self.web_search: AnthropicTool | None = None
        for spec in specs:
            try:
                tool = _tool.decode(spec)
            except (msgspec.DecodeError, RecursionError):
                continue
            if tool.type == "namespace":
                for inner in tool.tools:
                    self._add(tool.name, inner)
            elif tool.type == "web_search":
                self.web_search = tool if tool.external_web_access else None  # this API knows no other search
            else:
                self._add(None, tool)
        self._wires = {(named.namespace, named.tool.name): named.wire for named in self.all.values()}

    def wire(self, namespace: str | None, name: str) -> str:
        """What the model calls it, also if it is not offered any more."""
        return self._wires.get((namespace, name)) or wire_name(namespace, name)

    def _add(self, namespace: str | None, tool: AnthropicTool) -> None:
        if tool.type not in ("function", "custom") or not tool.name:
            return  # what a provider runs itself is another one's
        wire = wire_name(namespace, tool.name)
        if wire in self.all:  # `a__b` beside `b` of the namespace `a`
            wire = f"{wire[: MAX_NAME - _HASH - 1]}_{_short_hash(f'{namespace}/{tool.name}')}"
        self.all.setdefault(wire, NamedTool(wire, tool, namespace))


class AnthropicCallIds:
    """Ids for the calls of a history: valid and unique."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def take(self, call_id: str) -> str:
        wanted = valid(call_id)
        taken, number = wanted, 1
        while taken in self._used:
            number += 1
            taken = f"{wanted[: MAX_NAME - 8]}_{number}"
        self._used.add(taken)
        return taken


def _short_hash(text: str) -> str:
    from hashlib import sha256  # only for names that are too long

    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]


def tool_names(specs: Sequence[JsonObject]) -> AnthropicToolNames:
    """The names of tools, which are the same for many requests, so they are read once."""
    return _tool_names(tuple(bytes(spec) if isinstance(spec, Raw) else msgspec.json.encode(spec) for spec in specs))


_tool_names = lru_cache(maxsize=8)(AnthropicToolNames)
