"""The neutral history as messages of this API: roles alternate, and every call has its result in the next message.

It owns these rules. A history may break any of them: it may come from another provider, be cut short by an interrupt,
or be injected by a client. Items that mean nothing here are left out.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw, Struct

from treadle.llm.anthropic.blocks import (
    Image,
    Part,
    RedactedThought,
    Text,
    Thought,
    ToolResult,
    ToolUse,
    content_blocks,
    output_of,
)
from treadle.llm.anthropic.names import CallIds, ToolNames, valid
from treadle.llm.anthropic.opaque_block import unpacked
from treadle.llm.model import JsonObject

UNANSWERED: Final = "(this call has no result)"
OPENING: Final = "(The conversation begins with an answer.)"
GO_ON: Final = "Go on."
_CALLS: Final = ("function_call", "custom_tool_call")
_OUTPUTS: Final = ("function_call_output", "custom_tool_call_output")
_ANSWERS: Final = frozenset({*_CALLS, "reasoning", "anthropic_block"})
_OURS: Final = re.compile(r"(?:fc|ctc)_(.+)_\d+")


def call_item_id(kind: str, response_id: str, index: int) -> str:
    """The id of a call in the history: by it, the calls of one response are known again."""
    return f"{'fc' if kind == 'function_call' else 'ctc'}_{valid(response_id, 40)}_{index}"


class Item(Struct):
    type: str = "message"
    id: str | None = None
    role: str = "user"
    content: list[Part] | str | None = None
    summary: list[Part] | None = None
    encrypted_content: str | None = None
    call_id: str | None = None
    name: str = ""
    namespace: str | None = None
    arguments: str = ""
    input: str = ""
    output: Raw = Raw(b'""')

    @property
    def is_order(self) -> bool:
        """Whether it is from whoever runs the agent, and not from its user."""
        return self.type == "message" and self.role in ("developer", "system")

    @property
    def is_answer(self) -> bool:
        """Whether the model wrote it."""
        return self.role == "assistant" if self.type == "message" else self.type in _ANSWERS


class Message(Struct):
    role: Literal["user", "assistant"]
    content: list[Any]


class History(Struct):
    """`system` holds the instructions that precede the conversation."""

    system: list[Text]
    messages: list[Message]

    @property
    def called(self) -> list[str]:
        """Names of the tools that were called."""
        return [block.name for message in self.messages for block in message.content if isinstance(block, ToolUse)]


_item = msgspec.json.Decoder(Item)


def read_history(items: Sequence[JsonObject], model: str, names: ToolNames, *, thoughts: bool = True) -> History:
    """`thoughts`: whether those of this model are sent back to it."""
    read = _grouped([item for item in map(_read, items) if item is not None])
    count = next((index for index, item in enumerate(read) if not item.is_order), len(read))
    if count and count < len(read) and read[count].is_answer:
        count -= 1  # a summary: the order before it says what it is, and the conversation begins with a user
    system = [block for item in read[:count] for block in content_blocks(item.content or "", images=False)]
    writer = _Writer(read[count:], model, names, thoughts)
    return History([block for block in system if isinstance(block, Text)], writer.write())


def _grouped(items: list[Item]) -> list[Item]:
    """With the calls of one response together: the output of a quick one may have come before the next call did."""
    responses = [None if item.id is None else _response_of(item) for item in items]
    if not any(responses):
        return items
    last = {response: index for index, response in enumerate(responses)}
    ordered: list[Item] = []
    held: list[Item] = []
    until = -1
    for index, item in enumerate(items):
        if index > until or not (item.is_answer or item.type in _OUTPUTS):
            ordered += held
            held, until = [], -1
        if responses[index] is not None:
            until = max(until, last[responses[index]])
        (held if index < until and item.type in _OUTPUTS else ordered).append(item)
    return ordered + held


def _response_of(item: Item) -> str | None:
    found = _OURS.fullmatch(item.id or "") if item.type in _CALLS else None
    return None if found is None else found[1]


class _Writer:
    def __init__(self, items: list[Item], model: str, names: ToolNames, thoughts: bool) -> None:
        self._items = items
        self._model = model
        self._names = names
        self._thoughts = thoughts
        self._ids = CallIds()
        self._outputs: defaultdict[str, deque[tuple[int, Item]]] = defaultdict(deque)
        self._taken: set[int] = set()
        self._calls: list[tuple[str, Item | None]] = []  # of the message that is being written, with their outputs
        self._messages: list[Message] = []

    def write(self) -> list[Message]:
        for index, item in enumerate(self._items):
            if item.type in _OUTPUTS and item.call_id:
                self._outputs[item.call_id].append((index, item))
        for index, item in enumerate(self._items):
            self._take(index, item)
        self._end_answer()
        if not self._messages or self._messages[0].role != "user":
            self._messages.insert(0, Message("user", [Text(text=OPENING)]))
        # An answer that was begun can only be gone on with where the server itself has paused it.
        if self._messages[-1].role == "assistant" and not isinstance(self._messages[-1].content[-1], Raw):
            self._say("user", [Text(text=GO_ON)])
        return self._messages

    def _take(self, index: int, item: Item) -> None:
        if item.is_answer:
            self._answer(index, item)
        elif item.type in _OUTPUTS:
            self._end_answer()
            if index not in self._taken:
                self._say("user", _stray(item))
        elif item.type == "message":
            self._end_answer()
            self._say("user", _told(item) if item.is_order else content_blocks(item.content or ""))

    def _answer(self, index: int, item: Item) -> None:
        if item.type in _CALLS:
            self._say("assistant", [self._call(index, item)])
        elif item.type == "message":
            self._say("assistant", content_blocks(item.content or "", images=False))
        else:
            self._say("assistant", self._unpacked(item))

    def _call(self, index: int, item: Item) -> ToolUse:
        call_id = self._ids.take(item.call_id or "")
        self._calls.append((call_id, self._output_of(index, item.call_id or "")))
        name = self._names.wire(item.namespace, item.name or "unnamed")
        return ToolUse(id=call_id, name=name, input=_input(item))

    def _output_of(self, index: int, call_id: str) -> Item | None:
        """The first after the call that no other call of the same id has."""
        waiting = self._outputs.get(call_id)
        while waiting:
            place, output = waiting.popleft()
            if place > index:
                self._taken.add(place)
                return output
        return None

    def _unpacked(self, item: Item) -> list[Thought | RedactedThought | Raw]:
        opaque = unpacked(item.encrypted_content, self._model)
        if opaque is None:
            return []
        if bytes(opaque.block):
            return [opaque.block]
        if not self._thoughts:
            return []
        if opaque.redacted is not None:
            return [RedactedThought(data=opaque.redacted)]
        text = "".join(part.text or "" for part in item.summary or ())
        return [Thought(thinking=text, signature=opaque.signature or "")]

    def _end_answer(self) -> None:
        """Thoughts that led to nothing are refused at the end of a message; calls get their results."""
        if self._messages and self._messages[-1].role == "assistant":
            content = self._messages[-1].content
            while content and isinstance(content[-1], Thought | RedactedThought):
                content.pop()
            if not content:
                self._messages.pop()
        calls, self._calls = self._calls, []
        self._say("user", [_result(call_id, output) for call_id, output in calls])

    def _say(self, role: Literal["user", "assistant"], blocks: Sequence[object]) -> None:
        if not blocks:
            return
        if self._messages and self._messages[-1].role == role:
            self._messages[-1].content += blocks
        else:
            self._messages.append(Message(role, list(blocks)))


def _read(item: JsonObject) -> Item | None:
    try:
        return _item.decode(item if isinstance(item, Raw) else msgspec.json.encode(item))
    except (msgspec.DecodeError, RecursionError):
        return None


def _input(item: Item) -> Raw | dict[str, str]:
    if item.type == "custom_tool_call":
        return {"input": item.input}
    if not item.arguments.strip():
        return {}
    try:
        if isinstance(msgspec.json.decode(item.arguments), dict):
            return Raw(item.arguments.encode())
    except (msgspec.DecodeError, RecursionError):
        pass  # the model wrote it wrong, and was told so in the result
    return {"arguments": item.arguments}


def _result(call_id: str, output: Item | None) -> ToolResult:
    if output is None:
        return ToolResult(tool_use_id=call_id, content=UNANSWERED, is_error=True)
    return ToolResult(tool_use_id=call_id, content=output_of(output.output))


def _stray(item: Item) -> list[Text | Image]:
    """An output that no call asked for: told by a program, or its call is gone."""
    output = output_of(item.output)
    blocks = content_blocks(output) if isinstance(output, str) else output
    title = f"Output of {item.name}:" if item.name else "Output of a tool:"
    return [Text(text=title), *blocks] if blocks else []


def _told(item: Item) -> list[Text]:
    """An order in the middle of a conversation, where this API has no place for one."""
    blocks = content_blocks(item.content or "", images=False)
    text = "\n".join(block.text for block in blocks if isinstance(block, Text))
    return [Text(text=f"<system-reminder>\n{text}\n</system-reminder>")] if text else []
