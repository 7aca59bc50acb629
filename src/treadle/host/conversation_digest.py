"""`digest`: a conversation shortened to be read once more: the last messages verbatim, older ones as single lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from treadle.host.memory.entries import one_line
from treadle.host.runtime import Message

VERBATIM: Final = 24
# About 25,000 tokens at most for what is shown as it is, and 4,000 for the rest.
MAX_VERBATIM_CHARS: Final = 100_000
MAX_MESSAGE_CHARS: Final = 8_000
MAX_ARGUMENTS_CHARS: Final = 2_000
MAX_LINES_CHARS: Final = 16_000
_LINE_CHARS: Final = {"user": 300, "assistant": 200, "tool": 200}


def digest(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The conversation, bounded in all. Every call of a tool in it has its result, and every result its call."""
    shown: list[Message] = []
    room, start = MAX_VERBATIM_CHARS, len(messages)
    while start > max(0, len(messages) - VERBATIM):
        message = _shortened(messages[start - 1])
        room -= _size(message)
        if room < 0:
            break
        shown.insert(0, message)
        start -= 1
    # A result whose call is among the lines would be an answer to nothing.
    while shown and shown[0].get("role") == "tool":
        shown.pop(0)
        start += 1
    lines = _lines(messages[:start])
    head: list[Message] = [{"role": "user", "content": lines}] if lines else []
    return (*head, *_paired(shown))


def _shortened(message: Message) -> Message:
    found: Message = {"role": message.get("role", "user"), "content": _cut(text_of(message), MAX_MESSAGE_CHARS)}
    for member in ("tool_call_id", "name"):
        if isinstance(message.get(member), str):
            found[member] = message[member]
    calls = [_call(call) for call in _calls(message)] if found["role"] == "assistant" else []
    return {**found, "tool_calls": calls} if calls else found


def text_of(message: Message) -> str:
    """What a message says; of its pictures only that they were there."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list | tuple) else []
    said = [str(part.get("text") or f"[{part.get('type', 'part')}]") for part in parts if isinstance(part, Mapping)]
    return "\n\n".join(said)


def _calls(message: Message) -> list[Mapping[str, Any]]:
    return [call for call in message.get("tool_calls") or () if isinstance(call, Mapping)]


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = _function(call).get("arguments") or "{}"
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    if len(text) > MAX_ARGUMENTS_CHARS:
        text = msgspec.json.encode({"cut": _cut(text, MAX_ARGUMENTS_CHARS)}).decode()
    function = {"name": str(_function(call).get("name", "tool")), "arguments": text}
    return {"id": str(call.get("id", "")), "type": "function", "function": function}


def _function(call: Mapping[str, Any]) -> Mapping[str, Any]:
    function = call.get("function")
    return function if isinstance(function, Mapping) else {}


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}\n[cut: {len(text) - most:,} more characters]"


def _size(message: Message) -> int:
    return len(message["content"]) + sum(len(call["function"]["arguments"]) for call in message.get("tool_calls", ()))


def _paired(rows: Sequence[Message]) -> list[Message]:
    """Without the calls that no result follows, and the results that no call precedes: providers refuse both."""
    found: list[Message] = []
    waiting, called = set[str](), set[str]()
    for index, row in enumerate(rows):
        if row["role"] == "tool":
            if row.get("tool_call_id") in waiting:
                waiting.remove(row["tool_call_id"])
                found.append(row)
            continue
        later = {other.get("tool_call_id") for other in rows[index + 1 :] if other["role"] == "tool"}
        kept = {call["id"]: call for call in row.get("tool_calls", ()) if call["id"] in later - called}
        waiting |= kept.keys()
        called |= kept.keys()
        plain = {member: value for member, value in row.items() if member != "tool_calls"}
        if kept:
            found.append({**plain, "tool_calls": list(kept.values())})
        elif plain["content"]:
            found.append(plain)
    return found


def _lines(messages: Sequence[Message]) -> str:
    """The older part, a line for each message, the newest of them when there are too many."""
    lines: list[str] = []
    room = MAX_LINES_CHARS
    for message in reversed(messages):
        line = _line(message)
        room -= len(line) + 1
        if room < 0:
            break
        lines.insert(0, line)
    if not messages:
        return ""
    missing = len(messages) - len(lines)
    left_out = [f"({missing} older messages are left out)"] if missing else []
    return "\n".join(["The earlier part of the conversation, in short:", *left_out, *lines])


def _line(message: Message) -> str:
    role = str(message.get("role", "user"))
    names = ", ".join(str(_function(call).get("name", "tool")) for call in _calls(message))
    called = f" (called {one_line(names, 100)})" if names else ""
    return f"[{role.upper()[:20]}]{called} {one_line(text_of(message)[:2000], _LINE_CHARS.get(role, 200))}".rstrip()
