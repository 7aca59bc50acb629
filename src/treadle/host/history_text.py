"""`history_text`: earlier messages as a text for the instructions of a new thread. Pure.

It is for a runtime that cannot be given messages. The end is kept, because the next message refers to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from treadle.host.runtime import Message

MAX_CHARS: Final = 32_000
"""About a tenth of what a small model can read."""
TOOL_PREVIEW: Final = 400
_HEADER: Final = (
    "The conversation so far, which began before this thread. Treat it as already happened: the work in it is done, "
    "the questions in it were answered. Do not answer it again and do not repeat its actions."
)
_CUT: Final = "[earlier messages are left out]"


def history_text(history: Sequence[Message], *, limit: int = MAX_CHARS) -> str:
    """The end of a history with its roles, no longer than `limit`; empty when there is nothing to tell."""
    blocks: list[str] = []
    room = limit - len(_HEADER) - len(_CUT) - 4
    for message in reversed(history):
        block = _block(message)
        if not block:
            continue
        if len(block) + 2 > room:
            if not blocks and room > 0:
                blocks.append(f"…{block[-(room - 1) :]}")  # of one that is longer than everything, its end
            blocks.append(_CUT)
            break
        blocks.append(block)
        room -= len(block) + 2
    return "\n\n".join([_HEADER, *reversed(blocks)]) if blocks else ""


def _block(message: Message) -> str:
    text = content_text(message.get("content")).strip()
    match message.get("role"):
        case "user":
            return f"[USER]\n{text}" if text else ""
        case "assistant":
            return "\n".join(filter(None, [f"[ASSISTANT]\n{text}" if text else "", _called(message)]))
        case "tool":
            shown = text if len(text) <= TOOL_PREVIEW else f"{text[:TOOL_PREVIEW]}… ({len(text)} characters)"
            return f"[TOOL RESULT]\n{shown}" if shown else ""
    return ""  # what the host told the model is told again anyway


def _called(message: Message) -> str:
    calls = message.get("tool_calls")
    named = [call["function"]["name"] for call in calls if _is_call(call)] if isinstance(calls, list) else []
    return f"[ASSISTANT called tools: {', '.join(named)}]" if named else ""


def _is_call(call: Any) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str)


def content_text(content: Any) -> str:
    """The text of a message, whose content may be a text or parts; of an image, that there was one."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        return ""
    texts = [_part(part) for part in content if isinstance(part, dict)]
    return "\n\n".join(text for text in texts if text)


def _part(part: dict[str, Any]) -> str:
    text = part.get("text")
    if isinstance(text, str):
        return text
    return "[image]" if "image" in str(part.get("type")).lower() else ""
