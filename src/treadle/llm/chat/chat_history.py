"""The items of the history as the Chat Completions API needs them: parsed once, calls paired with their outputs."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from treadle.llm.chat.chat_tools import as_raw
from treadle.llm.model import JsonObject

CALLS: Final = frozenset({"function_call", "custom_tool_call"})
OUTPUTS: Final = frozenset({"function_call_output", "custom_tool_call_output"})
_DETAILS: Final = frozenset({"auto", "low", "high"})


class ImageUrl(Struct, omit_defaults=True):
    url: str
    detail: str | None = None


class Part(Struct):
    """A part of the content of a message, or of a tool output."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None
    image_url: str | ImageUrl | None = None
    detail: str | None = None
    filename: str | None = None


Content: TypeAlias = str | list[Part] | None


class _Wrapped(Struct):
    content: Content = None


class HistoryItem(Struct):
    type: str = "message"
    role: str = ""
    content: Content = None
    summary: Content = None
    call_id: str | None = None
    name: str = ""
    namespace: str | None = None
    arguments: str = ""
    input: str = ""
    output: str | list[Part] | _Wrapped | None = None

    @property
    def result(self) -> Content:
        """Of the output of a call."""
        return self.output.content if isinstance(self.output, _Wrapped) else self.output


@dataclass(slots=True)
class Entry:
    """An item of the history.

    Args:
        item: The item.
        output: For a call: its output, if there is one.
        has_call: For an output: whether there is a call for it.
    """

    item: HistoryItem
    output: HistoryItem | None = None
    has_call: bool = False


_item = msgspec.json.Decoder(HistoryItem)


def read_history(items: Sequence[JsonObject]) -> list[Entry]:
    """All that can be read. An output belongs to the first call before it that has its id and no output yet."""
    entries: list[Entry] = []
    waiting: defaultdict[str | None, deque[Entry]] = defaultdict(deque)
    for raw in items:
        try:
            item = _item.decode(as_raw(raw))
        except (msgspec.DecodeError, RecursionError):
            continue  # a client put it there; this API has no place for it
        entry = Entry(item)
        entries.append(entry)
        if item.type in CALLS:
            waiting[item.call_id].append(entry)
        elif item.type in OUTPUTS and item.call_id is not None and waiting[item.call_id]:
            waiting[item.call_id].popleft().output = item
            entry.has_call = True
    return entries


def text_of(content: Content, *, between: str = "") -> str:
    """Its text. What is neither text nor image is named, so that the model knows that something was there."""
    if content is None or isinstance(content, str):
        return content or ""
    return between.join(text for part in content if (text := _text(part)))


def images_of(content: Content) -> list[ImageUrl]:
    if content is None or isinstance(content, str):
        return []
    return [image for part in content if (image := image_of(part)) is not None]


def image_of(part: Part) -> ImageUrl | None:
    url = part.image_url
    if isinstance(url, ImageUrl):
        return url
    if not url:
        return None
    return ImageUrl(url, part.detail if part.detail in _DETAILS else None)


def _text(part: Part) -> str:
    if part.text is not None or part.refusal is not None:
        return part.text or part.refusal or ""
    if part.type in ("input_file", "input_audio") or (part.type == "input_image" and not part.image_url):
        return f"[{part.filename or part.type.removeprefix('input_')}: it cannot be shown to this model]"
    return ""
