"""The neutral history as messages of this API: roles alternate, and every call has its result in the next message.

It owns these rules. A history may break any of them: it may come from another provider, be cut short by an interrupt,
or be injected by a client. Items that mean nothing here are left out.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw, Struct

from treadle.llm.anthropic.blocks import (
    AnthropicCallIds,
    AnthropicPart,
    AnthropicToolNames,
    ImageBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    content_blocks,
    output_of,
    unpacked,
    valid,
)
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


class AnthropicItem(Struct):
    type: str = "message"
    id: str | None = None
    role: str = "user"
    content: list[AnthropicPart] | str | None = None
    summary: list[AnthropicPart] | None = None
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


class AnthropicMessage(Struct):
    role: Literal["user", "assistant"]
    content: list[Any]


class ParsedHistory(Struct):
    """`system` holds the instructions that precede the conversation."""

    system: list[TextBlock]
    messages: list[AnthropicMessage]

    @property
    def called(self) -> list[str]:
        """Names of the tools that were called."""
        return [block.name for message in self.messages for block in message.content if isinstance(block, ToolUseBlock)]


_item = msgspec.json.Decoder(AnthropicItem)


def read_history(
    items: Sequence[JsonObject], model: str, names: AnthropicToolNames, *, thoughts: bool = True
) -> ParsedHistory:
    """The history as messages. `thoughts`: whether those of this model are sent back to it."""
    read: list[AnthropicItem] = []
    for given in items:
        with suppress(msgspec.DecodeError, RecursionError):
            read.append(_item.decode(given if isinstance(given, Raw) else msgspec.json.encode(given)))
    read = _grouped(read)
    count = next((index for index, item in enumerate(read) if not item.is_order), len(read))
    if count and count < len(read) and read[count].is_answer:
        count -= 1  # a summary: the order before it says what it is, and the conversation begins with a user
    system = [block for item in read[:count] for block in content_blocks(item.content or "", images=False)]
    writer = _Writer(read[count:], model, names, thoughts)
    return ParsedHistory([block for block in system if isinstance(block, TextBlock)], writer.write())


def _grouped(items: list[AnthropicItem]) -> list[AnthropicItem]:
    """With the calls of one response together: the output of a quick one may have come before the next call did."""
    found = [_OURS.fullmatch(item.id) if item.id and item.type in _CALLS else None for item in items]
    responses = [None if match is None else match[1] for match in found]
    if not any(responses):
        return items
    last = {response: index for index, response in enumerate(responses)}
    ordered: list[AnthropicItem] = []
    held: list[AnthropicItem] = []
    until = -1
    for index, item in enumerate(items):
        if index > until or not (item.is_answer or item.type in _OUTPUTS):
            ordered += held
            held, until = [], -1
        if responses[index] is not None:
            until = max(until, last[responses[index]])
        (held if index < until and item.type in _OUTPUTS else ordered).append(item)
    return ordered + held


class _Writer:
    def __init__(self, items: list[AnthropicItem], model: str, names: AnthropicToolNames, thoughts: bool) -> None:
        self._items = items
        self._model = model
        self._names = names
        self._thoughts = thoughts
        self._ids = AnthropicCallIds()
        self._outputs: defaultdict[str, deque[tuple[int, AnthropicItem]]] = defaultdict(deque)
        self._taken: set[int] = set()
        self._calls: list[
            tuple[str, AnthropicItem | None]
        ] = []  # of the message that is being written, with their outputs
        self._messages: list[AnthropicMessage] = []

    def write(self) -> list[AnthropicMessage]:
        for index, item in enumerate(self._items):
            if item.type in _OUTPUTS and item.call_id:
                self._outputs[item.call_id].append((index, item))
        for index, item in enumerate(self._items):
            if item.type in _CALLS:
                self._say("assistant", [self._call(index, item)])
                continue
            if item.is_answer:
                if item.type == "message":
                    said = content_blocks(item.content or "", images=False)
                    self._say("assistant", self._cited(index + 1, said) or said)
                else:
                    self._say("assistant", self._unpacked(item))
                continue
            if item.type not in _OUTPUTS and item.type != "message":
                continue
            self._end_answer()
            if item.is_order:
                # An order in the middle of a conversation, where this API has no place for one.
                blocks = content_blocks(item.content or "", images=False)
                text = "\n".join(block.text for block in blocks if isinstance(block, TextBlock))
                if text:
                    self._say("user", [TextBlock(text=f"<system-reminder>\n{text}\n</system-reminder>")])
            elif item.type == "message":
                self._say("user", content_blocks(item.content or ""))
            elif index not in self._taken:
                # An output without a call: a program injected it, or its call is gone.
                output = output_of(item.output)
                shown = content_blocks(output) if isinstance(output, str) else output
                title = f"Output of {item.name}:" if item.name else "Output of a tool:"
                if shown:
                    self._say("user", [TextBlock(text=title), *shown])
        self._end_answer(is_last=True)
        if not self._messages or self._messages[0].role != "user":
            self._messages.insert(0, AnthropicMessage("user", [TextBlock(text=OPENING)]))
        # An answer that was begun can only be gone on with where the server itself has paused it.
        if self._messages[-1].role == "assistant" and not isinstance(self._messages[-1].content[-1], Raw):
            self._say("user", [TextBlock(text=GO_ON)])
        return self._messages

    def _call(self, index: int, item: AnthropicItem) -> ToolUseBlock:
        call_id = self._ids.take(item.call_id or "")
        # Its output is the first after it that no other call of the same id has.
        waiting, found = self._outputs.get(item.call_id or ""), None
        while waiting and found is None:
            place, output = waiting.popleft()
            if place > index:
                self._taken.add(place)
                found = output
        self._calls.append((call_id, found))
        name = self._names.wire(item.namespace, item.name or "unnamed")
        if item.type == "custom_tool_call":
            return ToolUseBlock(id=call_id, name=name, input={"input": item.input})
        if not item.arguments.strip():
            return ToolUseBlock(id=call_id, name=name, input={})
        try:
            if isinstance(msgspec.json.decode(item.arguments), dict):
                return ToolUseBlock(id=call_id, name=name, input=Raw(item.arguments.encode()))
        except (msgspec.DecodeError, RecursionError):
            pass  # the model wrote it wrong, and the result says so
        return ToolUseBlock(id=call_id, name=name, input={"arguments": item.arguments})

    def _unpacked(self, item: AnthropicItem) -> list[ThinkingBlock | RedactedThinkingBlock | Raw]:
        opaque = unpacked(item.encrypted_content, self._model)
        if opaque is None:
            return []
        if bytes(opaque.block):
            return [opaque.block]
        if not self._thoughts or opaque.cited:
            return []
        if opaque.redacted is not None:
            return [RedactedThinkingBlock(data=opaque.redacted)]
        text = "".join(part.text or "" for part in item.summary or ())
        return [ThinkingBlock(thinking=text, signature=opaque.signature or "")]

    def _cited(self, index: int, said: Sequence[TextBlock | ImageBlock]) -> list[TextBlock]:
        """What a message has said, with what it was taken from: the item after it has that."""
        item = self._items[index] if index < len(self._items) else AnthropicItem()
        opaque = unpacked(item.encrypted_content, self._model)
        blocks = [] if opaque is None else opaque.cited
        same = "".join(block.text for block in said if isinstance(block, TextBlock))
        return blocks if same == "".join(block.text for block in blocks) else []

    def _end_answer(self, *, is_last: bool = False) -> None:
        """Thoughts that led to nothing are refused at the end of a message; calls get their results."""
        if self._messages and self._messages[-1].role == "assistant":
            content = self._messages[-1].content
            if any(isinstance(block, Raw) for block in content):
                content[:] = _paired(content, is_last)
            while content and isinstance(content[-1], ThinkingBlock | RedactedThinkingBlock):
                content.pop()
            if not content:
                self._messages.pop()
        calls, self._calls = self._calls, []
        results = [
            ToolResultBlock(tool_use_id=call_id, content=UNANSWERED, is_error=True)
            if output is None
            else ToolResultBlock(tool_use_id=call_id, content=output_of(output.output))
            for call_id, output in calls
        ]
        self._say("user", results)

    def _say(self, role: Literal["user", "assistant"], blocks: Sequence[object]) -> None:
        if not blocks:
            return
        if self._messages and self._messages[-1].role == role:
            self._messages[-1].content += blocks
        else:
            self._messages.append(AnthropicMessage(role, list(blocks)))


class _ServerBlock(Struct):
    type: str = ""
    id: str | None = None
    tool_use_id: str | None = None


_server_block = msgspec.json.Decoder(_ServerBlock)


def _paired(content: list[Any], is_last: bool) -> list[Any]:
    """The blocks without searches of the server that have no result, which are refused, and without results of none: an
    answer may have been cut between them. Only at the very end a search may still be under way: a paused answer."""
    read = [_server_block.decode(block) if isinstance(block, Raw) else _ServerBlock() for block in content]
    uses = {block.id for block in read if block.type == "server_tool_use"}
    results = {block.tool_use_id for block in read}
    if is_last and read[-1].type == "server_tool_use":
        results.add(read[-1].id)
    return [
        block
        for block, seen in zip(content, read, strict=True)
        if (seen.type != "server_tool_use" or seen.id in results)
        and (seen.tool_use_id is None or seen.tool_use_id in uses)
    ]
