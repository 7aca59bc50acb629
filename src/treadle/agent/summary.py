"""What is left of a history that was summed up: the summary, and what the user said, as far as it fits. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from treadle.config import SUMMARY_PREFIX

# What the user said is worth keeping word for word, within reason.
KEPT_USER_TOKENS: Final = 20_000


class _Part(Struct):
    type: str = ""
    text: str = ""


class _Message(Struct):
    type: str = ""
    role: str = ""
    content: list[_Part] | str = ""


_message = msgspec.json.Decoder(_Message)


def history_after(summary: str, items: Sequence[Raw]) -> list[dict[str, Any] | Raw]:
    """The history to go on with.

    Args:
        summary: What the model wrote about its work.
        items: The history until then.
    """
    prefix = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": SUMMARY_PREFIX}]}
    # In the role of who wrote it: it may repeat what a web page or a file said, and that must not become an order.
    told = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": summary}]}
    # What the user said is last, so that the model answers to that, and not to its own words.
    return [prefix, told, *kept_messages(items)]


def kept_messages(items: Sequence[Raw]) -> list[Raw]:
    """What the user said, without what a program said in the user's name, oldest first."""
    kept: list[Raw] = []
    room = KEPT_USER_TOKENS * 4
    for item in reversed(items):
        message = _read(item)
        if message.type != "message" or message.role != "user":
            continue
        room -= len(bytes(item))
        if room < 0 and kept:  # the newest may be what the turn is about, and is kept however long it is
            break
        kept.append(item)
    return kept[::-1]


def _read(item: Raw) -> _Message:
    try:
        return _message.decode(item)
    except (msgspec.DecodeError, RecursionError):
        return _Message()


def user_message(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
