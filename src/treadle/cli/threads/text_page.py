"""`TextPage`: a thread as lines to read, on a terminal or in a pipe. Pure but for the width it was given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import StringIO
from typing import Final

from treadle.cli.terminal import Colors, file_address, make_console
from treadle.pages.figures import duration
from treadle.pages.page import BlockPage, Heading
from treadle.pages.safe_text import printable, printable_line
from treadle.pages.view_blocks import (
    Block,
    ChangeBlock,
    CommandBlock,
    MessageBlock,
    NoteBlock,
    Picture,
    PlanBlock,
    ThoughtBlock,
    ToolBlock,
    shortened,
)
from treadle.protocol.app.notifications import TurnPlanStep
from treadle.protocol.app.turns import Turn

# Of an output and of a diff: the first lines and the last ones.
HEAD_LINES: Final = 30
TAIL_LINES: Final = 10
# No terminal is too wide to read on.
MAX_WIDTH: Final = 100
_MAX_LINE: Final = 2_000
_MARKS: Final = {"completed": "[x]", "inProgress": "[>]"}

Rendering = Callable[[str], str]


class TextPage(BlockPage):
    """`markdown` gives the lines of a message: as it is, or rendered for a terminal. With `hint` it ends with how to
    go on; with `links` the names of files can be clicked."""

    def __init__(
        self, colors: Colors, markdown: Rendering = printable, *, hint: bool = False, links: bool = False
    ) -> None:
        super().__init__()
        self._links = links
        self._hint = hint
        self._colors = colors
        self._markdown = markdown

    def head(self, heading: Heading) -> str:
        self.heading = heading
        rows = [*heading.rows(), *heading.sums()]
        width = max(len(name) for name, _ in rows) + 2
        facts = [f"{self._colors.dim(name)}{' ' * (width - len(name))}{printable_line(text)}" for name, text in rows]
        return _lines(self._colors.bold(printable_line(heading.title)), *facts)

    def turn_head(self, number: int, figures: str) -> str:
        title = " · ".join(filter(None, (f"turn {number}", figures)))
        return _lines("", self._colors.dim(f"── {title} ──"))

    def turn_end(self, turn: Turn) -> str:
        if turn.status == "failed":
            why = "it failed" if turn.error is None else printable(turn.error.message)
            return _lines("", self._colors.red(f"failed: {why}"))
        if turn.status in ("interrupted", "inProgress"):
            return _lines("", self._colors.red("interrupted" if turn.status == "interrupted" else "still running"))
        return ""

    def foot(self) -> str:
        if not self._hint:
            return ""
        return _lines("", self._colors.dim(f'go on: treadle exec resume {self.heading.thread.id} "…"'))

    def plan(self, steps: Sequence[TurnPlanStep]) -> str:
        lines = [f"  {_MARKS.get(str(step.status), '[ ]')} {printable_line(step.step)}" for step in steps]
        return _lines("", self._colors.cyan("plan"), *lines)

    def block(self, block: Block) -> str:
        return f"\n{self._block(block)}"

    def _block(self, block: Block) -> str:
        colors = self._colors
        match block:
            case MessageBlock(by="user"):
                text = printable(block.text).strip("\n").splitlines()
                lines = [colors.cyan(f"{'  ' if number else '› '}{line}") for number, line in enumerate(text)]
                return _lines(*lines, *self._pictures(block.pictures))
            case MessageBlock():
                return self._message(block.text)
            case ThoughtBlock():
                return _lines(*(colors.dim(line) for line in printable(block.text).splitlines()))
            case PlanBlock():
                return _lines(colors.cyan("proposed plan")) + self._message(block.text)
            case NoteBlock():
                title = _lines(colors.dim(f"· {printable_line(block.title)}"))
                return title + (self._message(block.text) if block.text.strip() else "")
            case CommandBlock():
                first, *rest = printable(block.command).splitlines() or [""]
                command = [colors.bold(f"$ {first}"), *(colors.bold(f"  {line}") for line in rest)]
                return _lines(*command, *self._output(block.output), *self._end(block))
            case ToolBlock():
                result = self._output(block.result) if block.result.strip() else []
                title = f"* {printable_line(block.title)}"
                return _lines(title, *result, *self._pictures(block.pictures), *self._end(block))
            case ChangeBlock():
                outcome = "" if block.made else f" ({block.status})"
                name = printable_line(block.path)
                if self._links and block.file:
                    name = f"\x1b]8;;{file_address(block.file)}\x1b\\{name}\x1b]8;;\x1b\\"
                title = f"{block.verb} {name}{outcome}  +{block.added} −{block.removed}"
                paints = {"+": colors.green, "-": colors.red, "@": colors.cyan}
                lines = [f"  {paints.get(line[:1], str)(line)}" for line in _short(list(block.lines))]
                return _lines((colors.bold if block.made else colors.red)(title), *lines)

    def _message(self, text: str) -> str:
        return self._markdown(text).rstrip("\n") + "\n"

    def _output(self, text: str) -> list[str]:
        return [f"{self._colors.dim('  | ')}{line}" for line in _short(text.rstrip("\n").splitlines())]

    def _end(self, block: CommandBlock | ToolBlock) -> list[str]:
        took = "" if block.duration_ms is None else duration(block.duration_ms)
        end = " · ".join(filter(None, (block.outcome, took)))
        return [(self._colors.red if block.failed else self._colors.dim)(f"  {printable_line(end)}")] if end else []

    def _pictures(self, pictures: Sequence[Picture]) -> list[str]:
        return [self._colors.dim(f"  picture: {printable_line(picture.name[:200])}") for picture in pictures]


def markdown_for(width: int, *, colors: bool) -> Rendering:
    """Messages as `treadle exec` shows them on a terminal of this width."""
    from treadle.cli.turn.rich_blocks import markdown  # rich takes 60 ms

    def rendered(text: str) -> str:
        out = StringIO()
        make_console(out, "always" if colors else "never", width=width).print(markdown(text))
        return out.getvalue()

    return rendered


def _short(lines: list[str]) -> list[str]:
    head, hidden, tail = shortened(lines, HEAD_LINES, TAIL_LINES)
    gap = [f"… {hidden} lines left out …"] if hidden else []
    return [*map(_cut, head), *gap, *map(_cut, tail)]


def _cut(line: str) -> str:
    return printable(line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]} … {len(line) - _MAX_LINE} more")


def _lines(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)
