"""The end of a conversation that is gone on with: what was said last, so that one knows where one is."""

from __future__ import annotations

from typing import Final

from rich.console import RenderableType
from rich.text import Text

from treadle.cli.turn.turn_blocks import Hanging, markdown
from treadle.cli.visible import visible
from treadle.client import AsyncAppServerClient
from treadle.protocol.app.inputs import TextUserInput
from treadle.protocol.app.items import AgentMessageThreadItem, UserMessageThreadItem
from treadle.protocol.app.turns import Turn

TURNS: Final = 3
# Of a message; the rest is in the thread.
MAX_CHARACTERS: Final = 4000


async def recap(client: AsyncAppServerClient, thread_id: str) -> list[RenderableType]:
    """The messages of the last turns, the oldest first."""
    params = {"threadId": thread_id, "limit": TURNS, "sortDirection": "desc", "itemsView": "full"}
    turns = (await client.thread_turns_list(params)).data
    return [block for turn in reversed(turns) for block in blocks(turn)]


def blocks(turn: Turn) -> list[RenderableType]:
    shown: list[RenderableType] = []
    for item in turn.items:
        if isinstance(item, UserMessageThreadItem):
            text = "\n".join(part.text for part in item.content if isinstance(part, TextUserInput))
            shown += [said(_short(text)), ""]
        elif isinstance(item, AgentMessageThreadItem) and item.text.strip():
            shown += [markdown(_short(item.text)), ""]
    return shown


def said(text: str, style: str = "bold") -> RenderableType:
    """What the user said, as it stands above the answer."""
    return Hanging(Text("› ", "bold cyan"), Text(visible(text), style))


def _short(text: str) -> str:
    text = text.strip()
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]} …"
