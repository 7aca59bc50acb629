"""What stays on the terminal is made of these: text with a sign in front, the output of a command, a diff, Markdown.

They wrap by words at any width. Text of others is made `visible` here, by whoever makes a block of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from io import StringIO
from typing import ClassVar, Final

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markdown import Heading, Markdown, MarkdownElement
from rich.padding import Padding
from rich.segment import Segment
from rich.text import Text

from treadle.cli.run.run_text import DONE, FAILED, NOTE, RUNNING, UNFINISHED, WARNING
from treadle.cli.terminal import make_console
from treadle.cli.turn.hints import Hint
from treadle.cli.turn.output_lines import MAX_LINE
from treadle.cli.visible import visible, visible_line
from treadle.protocol.app.actions import FileUpdateChange

SIGN_STYLES: Final = {DONE: "green", FAILED: "red", WARNING: "yellow", RUNNING: "cyan", NOTE: "dim", UNFINISHED: "dim"}
# Of a diff: the first lines and the last ones, the rest is counted.
DIFF_HEAD: Final = 40
DIFF_TAIL: Final = 10
_DIFF_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}
_VERBS: Final = {"add": "added", "delete": "deleted", "update": "changed"}


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


def note(text: str, style: str = "dim") -> Hanging:
    return signed(NOTE, Text(visible(text), style))


def beneath(lines: Iterable[str], style: str = "dim") -> list[RenderableType]:
    """The output of something, beneath it."""
    bar = Text("  │ ", "dim")
    return [Hanging(bar, Text(visible(line), style), repeat=True) for line in lines]


def hint_blocks(hint: Hint | None) -> list[RenderableType]:
    if hint is None:
        return []
    return [Hanging(Text(f"  {word}: ", "yellow"), Text(text)) for word, text in hint.lines()]


def left_out(count: int) -> str:
    return f"… {count} lines left out …"


def rendered(block: RenderableType, width: int) -> list[Text]:
    """The rows of a block, one by one."""
    console = make_console(StringIO())
    rows = console.render_lines(block, console.options.update(width=max(2, width)), pad=False)
    return [Text.assemble(*((part.text, part.style or "") for part in row)) for row in rows]


# --- diffs ---


def change_blocks(
    changes: Iterable[FileUpdateChange], status: str, *, whole: bool = False, titles: bool = False
) -> list[RenderableType]:
    """What a patch has changed, would change, or could not change. `whole`: who has to judge it sees every line.
    `titles`: only which files."""
    shown = [_change(change, status, whole) for change in changes]
    return [block for blocks in shown for block in (blocks[:1] if titles else blocks)]


def _change(change: FileUpdateChange, status: str, whole: bool) -> list[RenderableType]:
    kind = str(change.kind.type)
    lines = visible(change.diff).splitlines()
    if kind in ("add", "delete"):
        lines = [f"{'+' if kind == 'add' else '-'}{line}" for line in lines]
    verb = _VERBS.get(kind, kind) if status == "completed" else kind
    moved = getattr(change.kind, "move_path", None)
    name = visible_line(change.path) + (f" → {visible_line(moved)}" if moved else "")
    title = Text.assemble((f"{verb} {name}", "bold"), (_count(lines), "dim"))
    if status == "inProgress":
        sign = RUNNING
    else:
        sign = DONE if status == "completed" else FAILED
        title.append("" if status == "completed" else f" · {status}", "red")
    return [signed(sign, title), *map(_diff_line, lines if whole else _cut(lines))]


def _count(lines: Sequence[str]) -> str:
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return "".join([f" +{added}" if added else "", f" −{removed}" if removed else ""])


def _cut(lines: Sequence[str]) -> list[str]:
    hidden = len(lines) - DIFF_HEAD - DIFF_TAIL
    short = [line[:MAX_LINE] for line in lines]
    return short if hidden <= 1 else [*short[:DIFF_HEAD], left_out(hidden), *short[-DIFF_TAIL:]]


def _diff_line(line: str) -> RenderableType:
    return Padding(Text(line, _DIFF_STYLES.get(line[:1], "dim"), overflow="fold"), (0, 0, 0, 4), expand=False)


# --- Markdown ---


class _LeftHeading(Heading):
    """In a terminal that is as wide as the desk, nobody finds what is centred."""

    LEVEL_ALIGN: ClassVar = {}


class _Answer(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "heading_open": _LeftHeading}


class _Trimmed:
    """Without the empty lines around it, and the spaces behind it: who copies it gets the words alone."""

    def __init__(self, inner: Markdown) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = [_without_end(line) for line in console.render_lines(self._inner, options, pad=False)]
        filled = [number for number, line in enumerate(lines) if line]
        for line in lines[filled[0] : filled[-1] + 1] if filled else []:
            yield from line
            yield Segment.line()


def _without_end(line: list[Segment]) -> list[Segment]:
    while line and not line[-1].text.strip():
        line = line[:-1]
    return [*line[:-1], Segment(line[-1].text.rstrip(), line[-1].style)] if line else []


def markdown(text: str) -> RenderableType:
    """Links are spelt out: where one leads is to be seen. Colours are those of the terminal. JSON, which an answer that
    fits a schema is, stays as it is."""
    shown = visible(text)
    parsed = _Answer(f"```json\n{shown}\n```" if _is_json(text) else shown, code_theme="ansi_dark", hyperlinks=False)
    for token in parsed.parsed:
        for child in token.children or ():  # what was written as &#8238; is a letter only now
            child.content = visible(child.content)
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
