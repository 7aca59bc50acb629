"""Chat messages as input for a model: items of the Responses API, whichever wire API carries them.

It also parses user input, in the parts that a host supports. What has no equivalent is described in words, so that the
model knows that there was something.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw

from treadle.agent.model_history import repaired
from treadle.agent.pending_input import model_items
from treadle.host.faults import Fault, RuntimeFault
from treadle.host.runtime import Message
from treadle.host.runtime import UserInput as HostInput
from treadle.protocol.app.inputs import ImageUserInput, LocalImageUserInput, TextUserInput, UserInput

LEFT_OUT: Final = "[earlier messages of this conversation are left out]"


def read_input(user_input: HostInput) -> list[UserInput]:
    """What a user says, in its parts. Raises `RuntimeFault` for what cannot be taken."""
    if isinstance(user_input, str):
        parts: list[UserInput] = [TextUserInput(text=user_input)]
    else:
        parts = [_part(part) for part in user_input]
    if not any(not isinstance(part, TextUserInput) or part.text.strip() for part in parts):
        raise RuntimeFault(Fault(kind="refused", message="there is nothing to ask: the input is empty"))
    return parts


def _part(part: Mapping[str, Any]) -> UserInput:
    match part:
        case {"type": "text", "text": str(text)}:
            return TextUserInput(text=text)
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return ImageUserInput(url=url)
        case {"type": "local_image", "path": path}:
            return LocalImageUserInput(path=str(path))
    shown = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    problem = f"a part of the input is not understood ({shown!r}): it is text, image_url or local_image"
    raise RuntimeFault(Fault(kind="refused", message=problem))


async def input_items(user_input: HostInput, cwd: str) -> list[Raw]:
    """What a user says, for a model; images of this machine are read. Raises `RuntimeFault`."""
    return [_raw(item) for item in await model_items(read_input(user_input), cwd)]


def recent(history: Sequence[Message], max_bytes: int) -> Sequence[Message]:
    """The end of a conversation, from something that the user said on: all of it if it is not too long.

    Args:
        history: The conversation.
        max_bytes: How much of it a model can be given.
    """
    left, first = max_bytes, len(history)
    while first and (left := left - len(msgspec.json.encode(history[first - 1]))) >= 0:
        first -= 1
    if first == 0:
        return history
    turns = (index for index in range(first, len(history)) if history[index].get("role") == "user")
    return [{"role": "developer", "content": LEFT_OUT}, *history[next(turns, first) :]]


async def history_items(history: Iterable[Message], cwd: str) -> list[Raw]:
    """What was said before, for a model: every call with its output, and no output without its call."""
    items: list[Raw] = []
    answered: set[str] = set()
    for message in history:
        role, call_id = message.get("role"), message.get("tool_call_id")
        if role == "tool":
            if isinstance(call_id, str) and call_id not in answered:
                answered.add(call_id)
                items.append(_output(call_id, message.get("content")))
        elif role == "assistant":
            items += _said_by_model(message)
        elif role == "user":
            items += await _said_by_user(message.get("content"), cwd)
        elif role in ("system", "developer"):
            items.append(_message("developer", "input_text", _text(message.get("content"))))
    return repaired(items)


def _said_by_model(message: Message) -> Iterable[Raw]:
    text = _text(message.get("content"))
    if text:
        yield _message("assistant", "output_text", text)
    for call in message.get("tool_calls") or ():
        match call:
            case {"id": str(call_id), "function": {"name": str(name), "arguments": arguments}}:
                given = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
                yield _raw({"type": "function_call", "call_id": call_id, "name": name, "arguments": given or "{}"})


async def _said_by_user(content: object, cwd: str) -> list[Raw]:
    parts: Sequence[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else _list(content)
    known: list[UserInput] = []
    for part in parts:
        try:
            known.append(_part(part))
        except RuntimeFault:
            known.append(TextUserInput(text="[something was attached that cannot be shown any more]"))
    return [_raw(item) for item in await model_items(known, cwd)]


def _output(call_id: str, content: object) -> Raw:
    return _raw({"type": "function_call_output", "call_id": call_id, "output": _text(content)})


def _text(content: object) -> str:
    """The text of a message; of parts those that are text."""
    if isinstance(content, str):
        return content
    texts = [part["text"] for part in _list(content) if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
    return "\n".join(texts)


def _list(content: object) -> Sequence[Any]:
    return content if isinstance(content, list | tuple) else ()


def _message(role: str, kind: str, text: str) -> Raw:
    return _raw({"type": "message", "role": role, "content": [{"type": kind, "text": text}]})


def _raw(item: object) -> Raw:
    return Raw(msgspec.json.encode(item))
