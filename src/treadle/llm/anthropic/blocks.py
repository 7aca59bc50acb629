"""The content blocks of a request, and how parts of a neutral item become such blocks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Raw, Struct

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


class Block(Struct, tag_field="type", omit_defaults=True, kw_only=True):
    """`cache_control` marks the end of a prefix that will be sent again."""


class Text(Block, tag="text", kw_only=True):
    text: str
    cache_control: CacheControl | None = None


class Base64(Struct, tag_field="type", tag="base64"):
    media_type: str
    data: str


class Url(Struct, tag_field="type", tag="url"):
    url: str


class Image(Block, tag="image", kw_only=True):
    source: Base64 | Url
    cache_control: CacheControl | None = None


class Thought(Block, tag="thinking", kw_only=True):
    thinking: str
    signature: str


class RedactedThought(Block, tag="redacted_thinking", kw_only=True):
    data: str


class ToolUse(Block, tag="tool_use", kw_only=True):
    id: str
    name: str
    input: Raw | dict[str, str]


class ToolResult(Block, tag="tool_result", kw_only=True):
    tool_use_id: str
    content: str | list[Text | Image] = ""
    is_error: bool = False
    cache_control: CacheControl | None = None


class Part(Struct):
    """A part of a message, of a summary, or of a tool output."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None


_output = msgspec.json.Decoder(str | list[Part])


def content_blocks(content: Iterable[Part] | str, *, images: bool = True) -> list[Text | Image]:
    """What can be said of it in blocks: an empty text is refused by the API, so it is left out."""
    if isinstance(content, str):
        return [Text(text=content)] if content.strip() else []
    found: list[Text | Image] = []
    for part in content:
        text = part.text or part.refusal
        if part.type == "input_image":
            found.append(_image(part.image_url or "") if images else Text(text=_NO_IMAGE))
        elif text and text.strip():
            found.append(Text(text=text))
    return found


def output_of(raw: Raw) -> str | list[Text | Image]:
    """What a tool gave."""
    try:
        output = _output.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return bytes(raw).decode("utf-8", "replace")
    if isinstance(output, str):
        return output if output.strip() else ""
    return content_blocks(output) or ""


def _image(url: str) -> Image | Text:
    if url[:8].lower() == "https://":
        return Image(source=Url(url))
    found = _DATA_URL.fullmatch(url)
    kind = _IMAGES.get(found[1].lower()) if found else None
    if found is None or kind is None:
        return Text(text=_NO_IMAGE)
    return Image(source=Base64(kind, found[2]))
