"""From the neutral history to the messages of the Chat Completions API.

It owns the API's rules: one assistant message for what a model said and called in one response, followed directly by
the results of its calls, exactly one for each. What does not fit is rephrased as a user message.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.json import encode

from treadle.llm.chat.call_ids import CallIds
from treadle.llm.chat.chat_history import (
    CALLS,
    OUTPUTS,
    Content,
    Entry,
    HistoryItem,
    ImageUrl,
    image_of,
    images_of,
    read_history,
    text_of,
)
from treadle.llm.chat.chat_tools import ToolNames
from treadle.llm.chat.unsupported import ALTERNATING, AS_DEVELOPER, AS_USER, NINE, SYSTEM_FIRST, THOUGHTS_BACK
from treadle.llm.model import ModelRequest

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


class ToolCall(Struct):
    id: str
    function: CalledFunction
    type: str = "function"


class Message(Struct, omit_defaults=True):
    """`content` is always sent, the other members only where they apply."""

    role: str
    content: str | list[TextPart | ImagePart] | None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None


def messages_of(request: ModelRequest, names: ToolNames, quirks: frozenset[str], told: str = "") -> list[Message]:
    """The whole conversation. `told` is said to the model behind the instructions."""
    entries = read_history(request.input)
    begin = next((at for at, entry in enumerate(entries) if not _is_system(entry.item)), len(entries))
    system = [request.instructions or "", *(text_of(entry.item.content) for entry in entries[:begin]), told]
    writer = _Writer(names, quirks)
    writer.system("\n\n".join(text for text in system if text.strip()), first=True)
    for entry in entries[begin:]:
        writer.take(entry)
    writer.close_answer()
    if all(message.role in _SYSTEM for message in writer.messages):
        writer.messages.append(Message("user", NOTHING_SAID))
    return _merged(writer.messages) if ALTERNATING in quirks else writer.messages


def _is_system(item: HistoryItem) -> bool:
    return item.type == "message" and item.role in _SYSTEM


class _Writer:
    """`messages`, and the assistant message that is being built."""

    def __init__(self, names: ToolNames, quirks: frozenset[str]) -> None:
        self.messages: list[Message] = []
        self._names = names
        self._quirks = quirks
        self._ids = CallIds(nine=NINE in quirks)
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._calls: list[Entry] = []

    def take(self, entry: Entry) -> None:
        item = entry.item
        if item.type in CALLS:
            self._calls.append(entry)
        elif item.type in OUTPUTS:
            self.close_answer()
            if not entry.has_call:
                self._orphan(item)
        elif item.type == "reasoning":
            self._thoughts.append(text_of(item.content, between="\n") or text_of(item.summary, between="\n"))
        elif item.type == "message" and item.role == "assistant":
            self._texts.append(text_of(item.content))
        elif item.type == "message":
            self.close_answer()
            if item.role in _SYSTEM:
                self.system(text_of(item.content))
            else:
                self._user(item.content)

    def system(self, text: str, *, first: bool = False) -> None:
        if not text.strip():
            return
        role = "developer" if AS_DEVELOPER in self._quirks else "system"
        if AS_USER in self._quirks or (SYSTEM_FIRST in self._quirks and not first):
            role = "user"
        self.messages.append(Message(role, text))

    def close_answer(self) -> None:
        """The assistant's message ends here, and the results of its calls follow, wherever they were."""
        text = "\n\n".join(text for text in self._texts if text)
        calls = [self._call(entry.item) for entry in self._calls]
        if text or calls:
            thoughts = "\n".join(self._thoughts) if THOUGHTS_BACK in self._quirks else ""
            self.messages.append(
                Message("assistant", text or None, tool_calls=calls or None, reasoning_content=thoughts or None)
            )
            self._results(calls, [entry.output for entry in self._calls])
        self._texts, self._thoughts, self._calls = [], [], []

    def _call(self, item: HistoryItem) -> ToolCall:
        name = self._names.name_of(item.namespace, item.name)
        arguments = encode({"input": item.input}).decode() if item.type == "custom_tool_call" else item.arguments
        return ToolCall(self._ids.take(item.call_id or ""), CalledFunction(name, arguments.strip() or "{}"))

    def _results(self, calls: list[ToolCall], outputs: list[HistoryItem | None]) -> None:
        shown: list[TextPart | ImagePart] = []
        for call, output in zip(calls, outputs, strict=True):
            images = images_of(output.result) if output is not None else []
            text = NO_RESULT if output is None else text_of(output.result, between="\n")
            if images:  # a tool message takes no images
                note = f"(images of {call.function.name}, {call.id}: in the next message)"
                text = f"{text}\n{note}" if text else note
                shown.append(TextPart(f"Images that {call.function.name} ({call.id}) gave:"))
                shown += map(ImagePart, images)
            self.messages.append(Message("tool", text or NO_OUTPUT, tool_call_id=call.id))
        if shown:
            self.messages.append(Message("user", shown))

    def _orphan(self, item: HistoryItem) -> None:
        """A result that was not asked for here: by a program, or by a call that was forgotten."""
        parts = _parts(item.result)
        if parts:
            self.messages.append(Message("user", _plain([TextPart(f"Result of {item.name or 'a tool'}:\n"), *parts])))

    def _user(self, content: Content) -> None:
        parts = _parts(content)
        if parts:
            self.messages.append(Message("user", _plain(parts)))


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
    """As one text where there is nothing else: not every server takes parts."""
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    return "".join(texts) if len(texts) == len(parts) else parts


def _merged(messages: list[Message]) -> list[Message]:
    """Without two messages of the same role in a row, but for results of tools."""
    result: list[Message] = []
    for message in messages:
        last = result[-1] if result else None
        if last is None or message.role != last.role or message.role == "tool" or last.tool_calls:
            result.append(message)
        else:
            both = [*_listed(last.content), *_listed(message.content)]
            last.content = _plain_lines(both)
            last.tool_calls = message.tool_calls
            thoughts = [each.reasoning_content for each in (last, message) if each.reasoning_content]
            last.reasoning_content = "\n".join(thoughts) or None
    return result


def _listed(content: str | list[TextPart | ImagePart] | None) -> list[TextPart | ImagePart]:
    return content if isinstance(content, list) else [TextPart(content)] if content else []


def _plain_lines(parts: list[TextPart | ImagePart]) -> str | list[TextPart | ImagePart]:
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    return "\n\n".join(texts) if len(texts) == len(parts) else parts
