"""`TextPage`: a thread as lines to read, on a terminal or in a pipe. Pure but for the width it was given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import StringIO
from typing import Final, Literal

from treadle.cli.figures import duration
from treadle.cli.terminal import Colors, printable, printable_line
from treadle.cli.threads.page import Heading
from treadle.cli.view_blocks import (
    Block,
    ChangeBlock,
    CommandBlock,
    MessageBlock,
    NoteBlock,
    Picture,
    PlanBlock,
    ThoughtBlock,
    ToolBlock,
    item_blocks,
    shortened,
)
from treadle.protocol.app.items import ThreadItem
from treadle.protocol.app.notifications import TurnPlanStep
from treadle.protocol.app.turns import Turn

# Of an output and of a diff: the first lines and the last ones.
HEAD_LINES: Final = 30
TAIL_LINES: Final = 10
_MAX_LINE: Final = 2_000
_MARKS: Final = {"completed": "[x]", "inProgress": "[>]"}

Rendering = Callable[[str], str]


class TextPage:
    """`markdown` gives the lines of a message: as it is, or rendered for a terminal. With `hint` it ends with how to
    go on."""

    def __init__(self, colors: Colors, markdown: Rendering = printable, *, hint: bool = False) -> None:
        self._hint = hint
        self._colors = colors
        self._markdown = markdown
        self._heading: Heading | None = None
        self._plan: Sequence[TurnPlanStep] = ()  # that of the turn, until it has its place

    def head(self, heading: Heading) -> str:
        self._heading = heading
        rows = [*heading.rows(), *heading.sums()]
        width = max(len(name) for name, _ in rows) + 2
        facts = [f"{self._colors.dim(name)}{' ' * (width - len(name))}{printable_line(text)}" for name, text in rows]
        return _lines(self._colors.bold(printable_line(heading.title)), *facts)

    def turn_begun(self, number: int, turn: Turn) -> str:
        assert self._heading is not None
        self._plan = self._heading.facts.of(turn.id).plan
        figures = " · ".join(filter(None, (f"turn {number}", self._heading.turn_figures(turn))))
        return _lines("", self._colors.dim(f"── {figures} ──"))

    def item(self, item: ThreadItem) -> str:
        assert self._heading is not None
        pieces: list[str] = []
        for block in item_blocks(item, self._heading.thread.cwd):
            pieces.append(f"\n{self._block(block)}")
            if isinstance(block, MessageBlock) and block.by == "user":
                pieces.append(self._take_plan())
        return "".join(pieces)

    def turn_ended(self, turn: Turn) -> str:
        end = ""
        if turn.status == "failed":
            why = "it failed" if turn.error is None else printable(turn.error.message)
            end = _lines("", self._colors.red(f"failed: {why}"))
        elif turn.status in ("interrupted", "inProgress"):
            end = _lines("", self._colors.red("interrupted" if turn.status == "interrupted" else "still running"))
        return self._take_plan() + end

    def foot(self) -> str:
        if not self._hint or self._heading is None:
            return ""
        return _lines("", self._colors.dim(f'go on: treadle exec resume {self._heading.thread.id} "…"'))

    def _take_plan(self) -> str:
        plan, self._plan = self._plan, ()
        steps = [f"  {_MARKS.get(str(step.status), '[ ]')} {printable_line(step.step)}" for step in plan]
        return _lines("", self._colors.cyan("plan"), *steps) if steps else ""

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
                title = f"{block.verb} {printable_line(block.path)}{outcome}  +{block.added} −{block.removed}"
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
    from rich.console import Console  # rich takes 60 ms

    from treadle.cli.turn.rich_blocks import markdown

    def rendered(text: str) -> str:
        out = StringIO()
        system: Literal["standard"] | None = "standard" if colors else None
        screen = Console(file=out, width=width, force_terminal=True, color_system=system, highlight=False, emoji=False)
        screen.print(markdown(text))
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
