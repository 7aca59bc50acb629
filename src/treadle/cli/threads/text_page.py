"""`TextPage`: a thread as lines to read, on a terminal or in a pipe. Pure but for the width it was given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import StringIO
from typing import Final, Literal

from treadle.cli.terminal import Colors
from treadle.cli.threads.figures import clock, duration
from treadle.cli.threads.item_blocks import item_blocks
from treadle.cli.threads.page import Heading, turn_figures
from treadle.cli.threads.page_blocks import (
    Block,
    Changed,
    Noted,
    Picture,
    Proposed,
    Ran,
    Said,
    Thought,
    Used,
    shortened,
)
from treadle.cli.visible import visible, visible_line
from treadle.protocol.app.items import ThreadItem, UserMessageThreadItem
from treadle.protocol.app.thread_notifications import TurnPlanStep
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

    def __init__(self, colors: Colors, markdown: Rendering = visible, *, hint: bool = False) -> None:
        self._hint = hint
        self._colors = colors
        self._markdown = markdown
        self._heading: Heading | None = None
        self._plan: Sequence[TurnPlanStep] = ()  # that of the turn, until it has its place

    def head(self, heading: Heading) -> str:
        self._heading = heading
        rows = [*heading.rows(), *heading.sums()]
        width = max(len(name) for name, _ in rows) + 2
        facts = [f"{self._colors.dim(name)}{' ' * (width - len(name))}{visible_line(text)}" for name, text in rows]
        return _lines(self._colors.bold(visible_line(heading.title)), *facts)

    def turn_begun(self, number: int, turn: Turn) -> str:
        assert self._heading is not None
        facts = self._heading.facts.of(turn.id)
        self._plan = facts.plan
        told = [] if turn.started_at is None else [clock(turn.started_at, self._heading.zone)]
        figures = " · ".join([f"turn {number}", *told, *turn_figures(turn, facts)])
        return _lines("", self._colors.dim(f"── {figures} ──"))

    def item(self, item: ThreadItem) -> str:
        assert self._heading is not None
        pieces = [f"\n{self._block(block)}" for block in item_blocks(item, self._heading.thread.cwd)]
        if isinstance(item, UserMessageThreadItem):
            pieces.append(self._take_plan())
        return "".join(pieces)

    def turn_ended(self, turn: Turn) -> str:
        end = ""
        if turn.status == "failed":
            why = "it failed" if turn.error is None else visible(turn.error.message)
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
        steps = [f"  {_MARKS.get(str(step.status), '[ ]')} {visible_line(step.step)}" for step in plan]
        return _lines("", self._colors.cyan("plan"), *steps) if steps else ""

    # --- blocks ---

    def _block(self, block: Block) -> str:
        colors = self._colors
        match block:
            case Said(by="user"):
                return self._user(block)
            case Said():
                return self._message(block.text)
            case Thought():
                return _lines(*(colors.dim(line) for line in visible(block.text).splitlines()))
            case Ran():
                return self._ran(block)
            case Changed():
                return self._changed(block)
            case Used():
                return self._used(block)
            case Proposed():
                return _lines(colors.cyan("proposed plan")) + self._message(block.text)
            case Noted():
                title = _lines(colors.dim(f"· {visible_line(block.title)}"))
                return title + (self._message(block.text) if block.text.strip() else "")

    def _user(self, block: Said) -> str:
        said = visible(block.text).strip("\n").splitlines()
        lines = [self._colors.cyan(f"{'›' if number == 0 else ' '} {line}") for number, line in enumerate(said)]
        return _lines(*lines, *self._pictures(block.pictures))

    def _message(self, text: str) -> str:
        return self._markdown(text).rstrip("\n") + "\n"

    def _ran(self, block: Ran) -> str:
        first, *rest = visible(block.command).splitlines() or [""]
        command = [self._colors.bold(f"$ {first}"), *(self._colors.bold(f"  {line}") for line in rest)]
        return _lines(*command, *self._output(block.output), self._end(block.outcome, block.duration_ms, block.failed))

    def _used(self, block: Used) -> str:
        told = self._end(block.outcome, block.duration_ms, block.failed)
        got = self._output(block.got) if block.got.strip() else []
        return _lines(
            f"* {visible_line(block.title)}", *got, *self._pictures(block.pictures), *([told] if told else [])
        )

    def _changed(self, block: Changed) -> str:
        outcome = "" if block.outcome is None else f" ({block.outcome})"
        title = f"{block.verb} {visible_line(block.path)}{outcome}  +{block.added} −{block.removed}"
        paints = {"+": self._colors.green, "-": self._colors.red, "@": self._colors.cyan}
        lines = [f"  {paints.get(line[:1], str)(line)}" for line in _short("\n".join(block.lines))]
        return _lines(self._colors.bold(title) if block.outcome is None else self._colors.red(title), *lines)

    def _output(self, text: str) -> list[str]:
        return [f"{self._colors.dim('  | ')}{line}" for line in _short(text)]

    def _end(self, outcome: str, duration_ms: int | None, failed: bool) -> str:
        told = " · ".join(filter(None, (outcome, "" if duration_ms is None else duration(duration_ms))))
        return (self._colors.red if failed else self._colors.dim)(f"  {visible_line(told)}") if told else ""

    def _pictures(self, pictures: Sequence[Picture]) -> list[str]:
        return [self._colors.dim(f"  picture: {visible_line(picture.name[:200])}") for picture in pictures]


def markdown_for(width: int, *, colors: bool) -> Rendering:
    """Messages as `treadle exec` shows them on a terminal of this width."""
    from rich.console import Console  # rich takes 60 ms

    from treadle.cli.turn.turn_blocks import markdown

    def rendered(text: str) -> str:
        out = StringIO()
        system: Literal["standard"] | None = "standard" if colors else None
        screen = Console(file=out, width=width, force_terminal=True, color_system=system, highlight=False, emoji=False)
        screen.print(markdown(text))
        return out.getvalue()

    return rendered


def _short(text: str) -> list[str]:
    lines = [visible(_cut(line)) for line in text.rstrip("\n").splitlines()]
    head, hidden, tail = shortened(lines, HEAD_LINES, TAIL_LINES)
    return [*head, f"… {hidden} lines left out …", *tail] if hidden else head


def _cut(line: str) -> str:
    return line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]} … {len(line) - _MAX_LINE} more"


def _lines(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)
