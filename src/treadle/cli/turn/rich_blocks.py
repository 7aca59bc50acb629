"""Blocks on a terminal, drawn with rich: text with a sign in front, the output of a command, a diff, Markdown.

All wrap by words at any width. Text of others is made `printable` here, by whoever makes a renderable of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from io import StringIO
from typing import ClassVar, Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markdown import Heading, Markdown, MarkdownElement
from rich.padding import Padding
from rich.segment import Segment
from rich.style import Style
from rich.syntax import ANSISyntaxTheme
from rich.text import Text

from treadle.cli.terminal import file_address, make_console
from treadle.cli.turn.output_view import MAX_LINE, Hint
from treadle.pages.safe_text import printable, printable_line
from treadle.pages.view_blocks import (
    DONE,
    FAILED,
    NOTE,
    RUNNING,
    SIGN_STYLES,
    Block,
    ChangeBlock,
    NoteBlock,
    PlanBlock,
    ThoughtBlock,
    ToolBlock,
    shortened,
)

# Of a diff: the first lines and the last ones, the rest is counted.
DIFF_HEAD: Final = 40
DIFF_TAIL: Final = 10
_DIFF_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}
# Colours that can be read on a dark and on a light ground: no blue, no yellow, none of the bright ones.
_CODE: Final = ANSISyntaxTheme(
    {
        ("Comment",): Style(dim=True, italic=True),
        ("Keyword",): Style(color="magenta"),
        ("Literal", "Number"): Style(color="cyan"),
        ("Literal", "String"): Style(color="green"),
        ("Name", "Builtin"): Style(color="cyan"),
        ("Name", "Class"): Style(bold=True),
        ("Name", "Function"): Style(bold=True),
        ("Name", "Tag"): Style(color="magenta"),
        ("Generic", "Deleted"): Style(color="red"),
        ("Generic", "Inserted"): Style(color="green"),
    }
)
# Of a thought that is over: it was read while it came.
_THOUGHT: Final = 240
# Of the error that a tool ended with.
_MAX_REASON: Final = 500


class Hanging:
    """Text that wraps by words, with something in front of its first row and of the others."""

    def __init__(self, front: Text, body: Text, *, repeat: bool = False) -> None:
        self._front = front
        self._body = body
        self._rest = front if repeat else Text(" " * front.cell_len)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(2, options.max_width - self._front.cell_len)
        for number, row in enumerate(self._body.wrap(console, width, overflow="fold") or [Text()]):
            row.rstrip()
            yield Text.assemble(self._rest if number else self._front, row, no_wrap=True)


def signed(sign: str, body: Text) -> Hanging:
    """A sign such as ✓, and what it is about."""
    return Hanging(Text(f"{sign} ", SIGN_STYLES.get(sign, "")), body)


def file_text(path: str, shown: str | None = None) -> Text:
    """The name of a file, which terminals can click."""
    return Text(printable_line(shown or path), f"link {file_address(path)}" if os.path.isabs(path) else "")


def note(text: str, style: str = "dim") -> Hanging:
    return signed(NOTE, Text(printable(text), style))


def beneath(lines: Iterable[str], style: str = "dim") -> list[RenderableType]:
    """The output of something, beneath it."""
    bar = Text("  │ ", "dim")
    return [Hanging(bar, Text(printable(line), style), repeat=True) for line in lines]


def hint_blocks(hint: Hint | None) -> list[RenderableType]:
    if hint is None:
        return []
    return [Hanging(Text(f"  {word}: ", "bold"), Text(text)) for word, text in hint.lines()]


def left_out(count: int) -> str:
    return f"… {count} lines left out …"


def rendered(block: RenderableType, width: int) -> list[Text]:
    """The rows of a block, one by one."""
    console = make_console(StringIO())
    rows = console.render_lines(block, console.options.update(width=max(2, width)), pad=False)
    return [Text.assemble(*((part.text, part.style or "") for part in row)) for row in rows]


# --- blocks that need nothing but themselves to be drawn ---


def drawn(block: Block) -> list[RenderableType]:
    """A block that has ended; nothing for messages and commands, which are drawn while they go on."""
    match block:
        case ChangeBlock():
            return drawn_change(block)
        case ToolBlock():
            title = Text(printable_line(block.title))
            if block.failed:
                reason = printable_line(" ".join(block.result.split("\n"))[:_MAX_REASON])
                title.append(f" · {block.outcome or 'failed'}" + (f": {reason}" if reason else ""), "red")
            return [signed(FAILED if block.failed else DONE, title)]
        case ThoughtBlock():
            text = ""
            for word in printable(block.text).replace("**", "").split():
                if cell_len(text) + cell_len(word) > _THOUGHT:
                    text += " …"
                    break
                text += f" {word}" if text else word
            return [note(text, "dim italic"), ""] if text else []
        case PlanBlock():
            return [markdown(block.text), ""]
        case NoteBlock():
            return [note(block.title), *([markdown(block.text), ""] if block.text.strip() else [])]
    return []


def drawn_change(block: ChangeBlock, *, whole: bool = False) -> list[RenderableType]:
    """A file that a patch has changed, would change, or could not change. `whole`: with every line, for a person who
    has to judge it."""
    lines = [printable(line) for line in block.lines]
    counts = [f" +{block.added}" if block.added else "", f" −{block.removed}" if block.removed else ""]
    verb = block.verb if block.made else block.kind
    title = (
        Text(f"{verb} ", "bold").append_text(file_text(block.file, block.path)).append("".join(counts), "not bold dim")
    )
    sign = DONE if block.made else RUNNING if block.running else FAILED
    if sign == FAILED:
        title.append(f" · {block.status}", "red")
    if not whole and len(lines) > DIFF_HEAD + DIFF_TAIL + 1:
        head, hidden, tail = shortened(lines, DIFF_HEAD, DIFF_TAIL)
        lines = [*head, left_out(hidden), *tail]
    rows = (line if whole else line[:MAX_LINE] for line in lines)
    return [signed(sign, title), *diff_rows(rows, indent=4)]


def diff_rows(lines: Iterable[str], *, indent: int = 2) -> list[RenderableType]:
    """The lines of a diff, in its colours."""
    rows: list[RenderableType] = []
    in_head = False  # where a removed line that begins with two dashes cannot be
    for line in lines:
        in_head = line.startswith("diff ") or (in_head and not line.startswith("@"))
        style = "bold" if in_head else _DIFF_STYLES.get(line[:1], "dim")
        rows.append(Padding(Text(line, style, overflow="fold"), (0, 0, 0, indent), expand=False))
    return rows


# --- Markdown ---


class _LeftHeading(Heading):
    """In a terminal that is as wide as the desk, nobody finds what is centred."""

    LEVEL_ALIGN: ClassVar = {}


class _Answer(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "heading_open": _LeftHeading}


class _Trimmed:
    """Markdown without the empty lines around it, and the spaces behind its lines: a copy of it has the text alone."""

    def __init__(self, inner: Markdown) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._inner, options, pad=False)
        for line in lines:
            while line and not line[-1].text.strip():
                line.pop()
            if line:
                line[-1] = Segment(line[-1].text.rstrip(), line[-1].style)
        filled = [number for number, line in enumerate(lines) if line]
        for line in lines[filled[0] : filled[-1] + 1] if filled else []:
            yield from line
            yield Segment.line()


def markdown(text: str) -> RenderableType:
    """Links are spelt out: where one leads is to be seen. Colours are those of the terminal. JSON, which an answer that
    fits a schema is, stays as it is."""
    shown = printable(text)
    parsed = _Answer(f"```json\n{shown}\n```" if _is_json(text) else shown, code_theme=_CODE, hyperlinks=False)  # type: ignore[arg-type]  # passed on to `Syntax`, which takes both
    for token in parsed.parsed:
        for child in token.children or ():  # what was written as &#8238; is a letter only now
            child.content = printable(child.content)
    return _Trimmed(parsed)


def _is_json(text: str) -> bool:
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def finished_part(text: str) -> int:
    """How many characters of a Markdown text that is still being written are whole blocks, and will stay as they are:
    all but the last one that has begun."""
    whole = text.rfind("\n") + 1
    starts = [token.map[0] for token in Markdown(text[:whole]).parsed if token.level == 0 and token.map]
    lines = text[:whole].splitlines(keepends=True)
    return sum(map(len, lines[: starts[-1]])) if len(starts) > 1 else 0
