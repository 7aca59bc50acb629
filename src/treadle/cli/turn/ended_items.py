"""Items that have ended, as blocks: those that need nothing but themselves to be shown."""

from __future__ import annotations

from typing import Any, Final

from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text

from treadle.cli.run.run_text import DONE, FAILED
from treadle.cli.turn.turn_blocks import markdown, note, signed
from treadle.cli.visible import visible, visible_line
from treadle.protocol.app.items import (
    ContextCompactionThreadItem,
    DynamicToolCallThreadItem,
    ImageViewThreadItem,
    McpToolCallThreadItem,
    PlanThreadItem,
    ReasoningThreadItem,
    WebSearchThreadItem,
)

# Of a thought that is over: it was read while it came.
_THOUGHT: Final = 240
# The error that a tool ended with.
_MAX_REASON: Final = 500


def ended_item(item: Any) -> list[RenderableType]:
    """Nothing for an item that is not shown."""
    match item:
        case ReasoningThreadItem():
            return _thought(item)
        case PlanThreadItem():
            return [markdown(item.text), ""]
        case ImageViewThreadItem():
            return [signed(DONE, Text(f"looked at {visible_line(item.path)}"))]
        case WebSearchThreadItem():
            return [signed(DONE, Text(f"searched the web: {visible_line(item.query)}"))]
        case ContextCompactionThreadItem():
            return [note("the conversation was summarised to make room")]
        case McpToolCallThreadItem():
            said = "" if item.error is None else item.error.message
            return [_tool(f"{item.server}.{item.tool}", str(item.status), said)]
        case DynamicToolCallThreadItem():
            return [_tool(item.tool, str(item.status), _told(item))]
        case _ if (call := item.as_tool_call()) is not None:
            return [_tool(call.tool, str(call.status), _told(call))]
    return []


def _thought(item: ReasoningThreadItem) -> list[RenderableType]:
    words = visible(" ".join(item.summary)).replace("**", "").split()
    text = ""
    for word in words:
        if cell_len(text) + cell_len(word) > _THOUGHT:
            text += " …"
            break
        text += f" {word}" if text else word
    return [note(text, "dim italic"), ""] if text else []


def _tool(name: str, status: str, said: str) -> RenderableType:
    failed = status == "failed"
    title = Text(visible_line(name))
    if failed:
        title.append(" · failed" + (f": {visible_line(said[:_MAX_REASON])}" if said else ""), "red")
    return signed(FAILED if failed else DONE, title)


def _told(call: DynamicToolCallThreadItem) -> str:
    texts = [str(text) for part in call.content_items or () if (text := getattr(part, "text", None))]
    return " ".join(texts)
