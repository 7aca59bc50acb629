"""The body of a request to the Chat Completions API: options, and the messages made of the neutral history.

It owns the API's rules: one assistant message for what a model said and called in one response, followed directly by
the results of its calls, exactly one for each. What does not fit is rephrased as a user message.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw, Struct
from msgspec.json import encode

from treadle.llm.chat.chat_tools import ChatCallIds, ChatToolNames, FunctionTool, as_raw
from treadle.llm.chat.failure import (
    ALTERNATING,
    AS_DEVELOPER,
    AS_USER,
    JSON_OBJECT,
    NINE,
    NO_EFFORT,
    NO_FORMAT,
    NO_PARALLEL,
    NO_STREAM_OPTIONS,
    OTHER_LIMIT,
    SYSTEM_FIRST,
    THOUGHTS_BACK,
)
from treadle.llm.model import JsonObject, ModelRequest
from treadle.llm.provider import OPENAI_HOST
from treadle.llm.wire_api import Asking

# --- the history: parsed once, calls paired with their outputs --------------------------------------------------------


CALLS: Final = frozenset({"function_call", "custom_tool_call"})
OUTPUTS: Final = frozenset({"function_call_output", "custom_tool_call_output"})
_DETAILS: Final = frozenset({"auto", "low", "high"})


class ImageUrl(Struct, omit_defaults=True):
    url: str
    detail: str | None = None


class ChatPart(Struct):
    """A part of the content of a message, or of a tool output."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None
    image_url: str | ImageUrl | None = None
    detail: str | None = None
    filename: str | None = None


Content: TypeAlias = str | list[ChatPart] | None


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
    output: str | list[ChatPart] | _Wrapped | None = None

    @property
    def result(self) -> Content:
        """The content of the output of a call."""
        return self.output.content if isinstance(self.output, _Wrapped) else self.output


@dataclass(slots=True)
class HistoryEntry:
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


def read_history(items: Sequence[JsonObject]) -> list[HistoryEntry]:
    """The items that can be read. An output belongs to the first call before it that has its id and no output yet."""
    entries: list[HistoryEntry] = []
    waiting: defaultdict[str | None, deque[HistoryEntry]] = defaultdict(deque)
    for raw in items:
        try:
            item = _item.decode(as_raw(raw))
        except (msgspec.DecodeError, RecursionError):
            continue  # a client put it there; this API has no place for it
        entry = HistoryEntry(item)
        entries.append(entry)
        if item.type in CALLS:
            waiting[item.call_id].append(entry)
        elif item.type in OUTPUTS and item.call_id is not None and waiting[item.call_id]:
            waiting[item.call_id].popleft().output = item
            entry.has_call = True
    return entries


def text_of(content: Content, *, between: str = "") -> str:
    """The text of a content. What is neither text nor image is named, so that the model knows that something was
    there."""
    if content is None or isinstance(content, str):
        return content or ""
    texts: list[str] = []
    for part in content:
        if part.text is not None or part.refusal is not None:
            texts.append(part.text or part.refusal or "")
        elif part.type in ("input_file", "input_audio") or (part.type == "input_image" and not part.image_url):
            texts.append(f"[{part.filename or part.type.removeprefix('input_')}: it cannot be shown to this model]")
    return between.join(filter(None, texts))


def images_of(content: Content) -> list[ImageUrl]:
    if content is None or isinstance(content, str):
        return []
    return [image for part in content if (image := image_of(part)) is not None]


def image_of(part: ChatPart) -> ImageUrl | None:
    url = part.image_url
    if isinstance(url, ImageUrl):
        return url
    if not url:
        return None
    return ImageUrl(url, part.detail if part.detail in _DETAILS else None)


# --- messages ---------------------------------------------------------------------------------------------------------


NO_RESULT: Final = "(no result: the call was given up)"
NO_OUTPUT: Final = "(no output)"
NOTHING_SAID: Final = "Go on."
_SYSTEM: Final = frozenset({"system", "developer"})


class TextPart(Struct):
    text: str
    type: str = "text"


class ImagePart(Struct):
    image_url: ImageUrl
    type: str = "image_url"


class CalledFunction(Struct):
    name: str
    arguments: str


class ChatToolCall(Struct):
    id: str
    function: CalledFunction
    type: str = "function"


class ChatApiMessage(Struct, omit_defaults=True):
    """`content` is always sent, the other members only where they apply."""

    role: str
    content: str | list[TextPart | ImagePart] | None
    tool_calls: list[ChatToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None


def messages_of(
    request: ModelRequest, names: ChatToolNames, quirks: frozenset[str], schema_text: str = ""
) -> list[ChatApiMessage]:
    """The whole conversation. `schema_text` follows the instructions."""
    entries = read_history(request.input)
    items = [entry.item for entry in entries]
    said = (at for at, item in enumerate(items) if item.type != "message" or item.role not in _SYSTEM)
    begin = next(said, len(entries))
    system = [request.instructions or "", *(text_of(entry.item.content) for entry in entries[:begin]), schema_text]
    writer = _Writer(names, quirks)
    writer.system("\n\n".join(text for text in system if text.strip()), first=True)
    for entry in entries[begin:]:
        writer.take(entry)
    writer.close_answer()
    if all(message.role in _SYSTEM for message in writer.messages):
        writer.messages.append(ChatApiMessage("user", NOTHING_SAID))
    if ALTERNATING not in quirks:
        return writer.messages
    # Without two messages of the same role in a row, but for results of tools.
    merged: list[ChatApiMessage] = []
    for message in writer.messages:
        last = merged[-1] if merged else None
        if last is None or message.role != last.role or message.role == "tool" or last.tool_calls:
            merged.append(message)
            continue
        both = [*_listed(last.content), *_listed(message.content)]
        texts = [part.text for part in both if isinstance(part, TextPart)]
        last.content = "\n\n".join(texts) if len(texts) == len(both) else both
        last.tool_calls = message.tool_calls
        thoughts = [each.reasoning_content for each in (last, message) if each.reasoning_content]
        last.reasoning_content = "\n".join(thoughts) or None
    return merged


class _Writer:
    """`messages`, and the assistant message that is being built."""

    def __init__(self, names: ChatToolNames, quirks: frozenset[str]) -> None:
        self.messages: list[ChatApiMessage] = []
        self._names = names
        self._quirks = quirks
        self._ids = ChatCallIds(nine=NINE in quirks)
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._calls: list[HistoryEntry] = []

    def take(self, entry: HistoryEntry) -> None:
        item = entry.item
        if item.type in CALLS:
            self._calls.append(entry)
        elif item.type in OUTPUTS:
            self.close_answer()
            # A result that was not asked for here: by a program, or by a call that was forgotten.
            if not entry.has_call and (parts := _parts(item.result)):
                title = TextPart(f"Result of {item.name or 'a tool'}:\n")
                self.messages.append(ChatApiMessage("user", _plain([title, *parts])))
        elif item.type == "reasoning":
            self._thoughts.append(text_of(item.content, between="\n") or text_of(item.summary, between="\n"))
        elif item.type == "message" and item.role == "assistant":
            self._texts.append(text_of(item.content))
        elif item.type == "message":
            self.close_answer()
            if item.role in _SYSTEM:
                self.system(text_of(item.content))
            elif parts := _parts(item.content):
                self.messages.append(ChatApiMessage("user", _plain(parts)))

    def system(self, text: str, *, first: bool = False) -> None:
        if not text.strip():
            return
        role = "developer" if AS_DEVELOPER in self._quirks else "system"
        if AS_USER in self._quirks or (SYSTEM_FIRST in self._quirks and not first):
            role = "user"
        self.messages.append(ChatApiMessage(role, text))

    def close_answer(self) -> None:
        """The assistant's message ends here, and the results of its calls follow, wherever they were."""
        said = "\n\n".join(text for text in self._texts if text)
        thoughts = "\n".join(self._thoughts) if THOUGHTS_BACK in self._quirks else ""
        entries = self._calls
        self._texts, self._thoughts, self._calls = [], [], []
        calls: list[ChatToolCall] = []
        for item in (entry.item for entry in entries):
            name = self._names.name_of(item.namespace, item.name)
            arguments = encode({"input": item.input}).decode() if item.type == "custom_tool_call" else item.arguments
            function = CalledFunction(name, arguments.strip() or "{}")
            calls.append(ChatToolCall(self._ids.take(item.call_id or ""), function))
        if said or calls:
            self.messages.append(
                ChatApiMessage("assistant", said or None, tool_calls=calls or None, reasoning_content=thoughts or None)
            )
        shown: list[TextPart | ImagePart] = []
        for call, output in zip(calls, (entry.output for entry in entries), strict=True):
            images = images_of(output.result) if output is not None else []
            text = NO_RESULT if output is None else text_of(output.result, between="\n")
            if images:  # a tool message takes no images
                note = f"(images of {call.function.name}, {call.id}: in the next message)"
                text = f"{text}\n{note}" if text else note
                shown.append(TextPart(f"Images that {call.function.name} ({call.id}) gave:"))
                shown += map(ImagePart, images)
            self.messages.append(ChatApiMessage("tool", text or NO_OUTPUT, tool_call_id=call.id))
        if shown:
            self.messages.append(ChatApiMessage("user", shown))


def _parts(content: Content) -> list[TextPart | ImagePart]:
    if content is None or isinstance(content, str):
        return [TextPart(content)] if content else []
    parts: list[TextPart | ImagePart] = []
    for part in content:
        image = image_of(part)
        if image is not None:
            parts.append(ImagePart(image))
        elif text := text_of([part]):
            parts.append(TextPart(text))
    return parts


def _plain(parts: list[TextPart | ImagePart]) -> str | list[TextPart | ImagePart]:
    """The parts as one text where there is nothing else: not every server takes parts."""
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    return "".join(texts) if len(texts) == len(parts) else parts


def _listed(content: str | list[TextPart | ImagePart] | None) -> list[TextPart | ImagePart]:
    return content if isinstance(content, list) else [TextPart(content)] if content else []


# --- the body ---------------------------------------------------------------------------------------------------------


_SCHEMA_TEXT: Final = (
    "Your last message has to be one JSON value, with nothing before or behind it and no code fence around it. It has "
    "to follow this JSON Schema:\n"
)


class _Schema(Struct):
    schema: Raw
    name: str = "codex_output_schema"
    strict: bool = True


class _Format(Struct, omit_defaults=True):
    type: str
    json_schema: _Schema | None = None


class _StreamOptions(Struct):
    include_usage: bool = True


class _Body(Struct, omit_defaults=True, kw_only=True):
    """Members at their default are omitted: the less we send, the less a limited server can reject."""

    model: str
    messages: list[ChatApiMessage]
    stream: bool
    stream_options: _StreamOptions | None = None
    tools: list[FunctionTool] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    response_format: _Format | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    store: bool | None = None
    prompt_cache_key: str | None = None


_encoder = msgspec.json.Encoder()


def encode_body(request: ModelRequest, asking: Asking) -> bytes:
    """JSON for `POST …/chat/completions`."""
    quirks = asking.quirks
    names = ChatToolNames(request.tools)
    at_openai = urlsplit(asking.provider.base_url).hostname == OPENAI_HOST
    limit = request.max_output_tokens
    new_name = at_openai is not (OTHER_LIMIT in quirks)
    schema = None if request.output_schema is None else Raw(as_raw(request.output_schema))
    as_text = schema is not None and quirks & {JSON_OBJECT, NO_FORMAT}
    schema_text = _SCHEMA_TEXT + bytes(schema).decode() if schema is not None and as_text else ""
    form = None
    if schema is not None and NO_FORMAT not in quirks:
        form = _Format("json_object") if JSON_OBJECT in quirks else _Format("json_schema", _Schema(schema))
    body = _Body(
        model=request.model,
        messages=messages_of(request, names, quirks, schema_text),
        stream=True,
        stream_options=None if NO_STREAM_OPTIONS in quirks else _StreamOptions(),
        tools=names.functions or None,
        # To call several at once is the default everywhere.
        parallel_tool_calls=None
        if request.parallel_tool_calls or not names.functions or NO_PARALLEL in quirks
        else False,
        reasoning_effort=None if NO_EFFORT in quirks else request.reasoning_effort,
        response_format=form,
        max_tokens=None if new_name else limit,
        max_completion_tokens=limit if new_name else None,
        store=False if at_openai else None,
        prompt_cache_key=request.prompt_cache_key if at_openai else None,
    )
    return _encoder.encode(body)
