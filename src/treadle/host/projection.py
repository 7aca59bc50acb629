"""`project`: the items of a turn as chat messages. Pure: the same items give the same messages, live and on resume."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from treadle.host.runtime import Message
from treadle.protocol.app.items import ThreadItem


@dataclass(slots=True)
class Projection:
    """What the items of a turn are in a chat: its messages, the answer among them, and how many tools were used."""

    messages: list[Message] = field(default_factory=list)
    final_text: str = ""
    tool_iterations: int = 0


def project(items: Sequence[ThreadItem], *, submitted: str | None = None) -> Projection:
    """The messages of completed items, in their order. A user message that only echoes `submitted` is left out."""
    found = Projection()
    for item in items:
        root: Any = item.root
        if item.type == "agentMessage":
            found.messages.append({"role": "assistant", "content": root.text})
            found.final_text = root.text
    return found
