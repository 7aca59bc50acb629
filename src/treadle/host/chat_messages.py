"""Inspects chat messages: their text, the tools called in them, calls without an answer. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from treadle.arguments import wrong_type
from treadle.errors import ArgumentValueError
from treadle.host.runtime import Message, UserInput

INTERRUPTED: Final = "[interrupted before it ended]"


def checked_input(name: str, said: object) -> UserInput:
    """What a user says, if it is a text or a list of parts, and not empty. Which parts there are, the runtime knows.

    Args:
        name: The parameter.
        said: What was passed.
    """
    if isinstance(said, str):
        parts: list[Any] = [{"text": said}]
    elif isinstance(said, bytes | Mapping) or not isinstance(said, Iterable):
        raise wrong_type(name, "a str or a list of parts", said)
    else:
        said = parts = list(said)
    for index, part in enumerate(parts):
        if not isinstance(part, Mapping):
            raise wrong_type(f"{name}[{index}]", 'a dict such as {"type": "text", "text": …}', part)
    if not any(part.get("type", "text") != "text" or str(part.get("text", "")).strip() for part in parts):
        raise ArgumentValueError(name, f"{name} is empty: there is nothing to say")
    return said


def user_message(user_input: UserInput) -> Message:
    """What the user says, as a message. Half characters (lone surrogates), which nothing can store or send, become
    question marks."""
    content: Any = user_input if isinstance(user_input, str) else [dict(part) for part in user_input]
    return clean({"role": "user", "content": content})


def text_of(message: Mapping[str, Any]) -> str:
    """Its text; of parts, those that are text."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return ""
    parts = [part.get("text") for part in content if isinstance(part, Mapping)]
    return "\n\n".join(part for part in parts if isinstance(part, str))


def clean(message: Message) -> Message:
    """The message as JSON can have it; the same one if there is nothing to be changed."""
    try:
        msgspec.json.encode(message)
    except (UnicodeEncodeError, TypeError, ValueError, OverflowError):
        found: Message = _plain(message)
        return found
    return message


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {_plain(str(key)): _plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    return value if value is None or isinstance(value, bool | int | float) else _plain(str(value))


def without_echo(messages: Sequence[Message], said: Message) -> list[Message]:
    """What a runtime told of a turn, without the user's own message, which is there already."""
    for index, message in enumerate(messages):
        if message.get("role") != "user":
            break
        if message.get("content") == said["content"] or text_of(message) == text_of(said):
            return [*messages[:index], *messages[index + 1 :]]
    return list(messages)


def called_tools(messages: Iterable[Message]) -> set[str]:
    """The names of the tools that were called."""
    return {name for message in messages for _, name in _calls(message)}


def close_calls(messages: Sequence[Message]) -> list[Message]:
    """The messages, with a result for every call that has none: models refuse a history with a call left open."""
    answered = {message.get("tool_call_id") for message in messages if message.get("role") == "tool"}
    closed: list[Message] = []
    for message in messages:
        closed.append(message)
        closed += [
            {"role": "tool", "tool_call_id": call_id, "name": name, "content": INTERRUPTED}
            for call_id, name in _calls(message)
            if call_id not in answered
        ]
    return closed


def _calls(message: Mapping[str, Any]) -> Iterator[tuple[Any, str]]:
    for call in message.get("tool_calls") or ():
        if isinstance(call, Mapping):
            function = call.get("function")
            name = function.get("name") if isinstance(function, Mapping) else call.get("name")
            yield call.get("id"), str(name or "")


def said_after(steered: list[str], said: UserInput) -> UserInput:
    """What was said between the turns comes before what is said now."""
    if not steered:
        return said
    if isinstance(said, str):
        return "\n\n".join([*steered, said])
    return [*({"type": "text", "text": words} for words in steered), *said]
