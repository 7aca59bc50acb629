"""`MarkdownPage`: a thread as Markdown that reads well on a forge and in an editor. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from treadle.cli.threads.figures import clock, duration
from treadle.cli.threads.item_blocks import item_blocks
from treadle.cli.threads.markdown_text import code, embedded, fenced, plain, quoted, span
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
from treadle.cli.visible import visible_line
from treadle.protocol.app.items import ThreadItem, UserMessageThreadItem
from treadle.protocol.app.thread_notifications import TurnPlanStep
from treadle.protocol.app.turns import Turn

# Of an output and of a diff: the first lines and the last ones. The whole is in the JSON export.
HEAD_LINES: Final = 200
TAIL_LINES: Final = 50
_MAX_LINE: Final = 2_000


class MarkdownPage:
    def __init__(self) -> None:
        self._heading: Heading | None = None
        self._plan: Sequence[TurnPlanStep] = ()  # that of the turn, until it has its place

    def head(self, heading: Heading) -> str:
        self._heading = heading
        rows = [*heading.rows(), *heading.sums()]
        facts = "\n".join(f"- {name}: {_fact(name, text)}" for name, text in rows)
        return f"# {plain(heading.title) or 'A conversation'}\n\n{facts}\n"

    def turn_begun(self, number: int, turn: Turn) -> str:
        assert self._heading is not None
        facts = self._heading.facts.of(turn.id)
        self._plan = facts.plan
        told = [] if turn.started_at is None else [clock(turn.started_at, self._heading.zone)]
        figures = " · ".join([*told, *turn_figures(turn, facts)])
        return f"\n## Turn {number}\n\n" + (f"*{plain(figures)}*\n" if figures else "")

    def item(self, item: ThreadItem) -> str:
        assert self._heading is not None
        pieces = [f"\n{_block(block)}" for block in item_blocks(item, self._heading.thread.cwd)]
        if isinstance(item, UserMessageThreadItem):
            pieces.append(self._take_plan())
        return "".join(pieces)

    def _take_plan(self) -> str:
        plan, self._plan = self._plan, ()
        steps = [f"- [{'x' if step.status == 'completed' else ' '}] {plain(step.step)}" for step in plan]
        return "\n".join(["\n**Plan**\n", *steps, ""]) if steps else ""

    def turn_ended(self, turn: Turn) -> str:
        end = ""
        if turn.status == "failed":
            why = "" if turn.error is None else f" {plain(turn.error.message)}"
            end = f"\n**The turn failed.**{why}\n"
        elif turn.status == "interrupted":
            end = "\n*The turn was interrupted.*\n"
        elif turn.status == "inProgress":
            end = "\n*The turn was still running.*\n"
        return self._take_plan() + end

    def foot(self) -> str:
        return "\n---\n\n*Exported by Treadle.*\n"


def _fact(name: str, text: str) -> str:
    return span(text) if name in ("thread", "where", "git", "forked from") else plain(text)


def _block(block: Block) -> str:
    match block:
        case Said(by="user"):
            pictures = _pictures(block.pictures)
            return f"**You**\n\n{quoted(block.text) if block.text.strip() else ''}{pictures}"
        case Said():
            return f"**Agent**\n\n{embedded(block.text)}"
        case Thought():
            return _folded("<em>thought</em>", embedded(block.text))
        case Ran():
            return _ran(block)
        case Changed():
            return _changed(block)
        case Used():
            return _used(block)
        case Proposed():
            return f"**Proposed plan**\n\n{embedded(block.text)}"
        case Noted():
            return f"*{plain(block.title)}*\n" + (f"\n{embedded(block.text)}" if block.text.strip() else "")


def _ran(block: Ran) -> str:
    told = [block.outcome, *([] if block.duration_ms is None else [duration(block.duration_ms)])]
    shown = " ".join(block.command.split())
    mark = "❌ " if block.failed else ""
    whole = fenced(block.command, "sh") + "\n" if len(shown) > 100 or "\n" in block.command.strip() else ""
    output = fenced(_shortened(block.output)) if block.output.strip() else "*no output*\n"
    return _folded(f"{mark}{code('$ ' + _cut(shown, 100))} {' · '.join(told)}", whole + output)


def _changed(block: Changed) -> str:
    outcome = "" if block.outcome is None else f" ({block.outcome})"
    mark = "" if block.outcome is None else "❌ "
    title = f"{mark}{visible_line(block.verb)} {code(block.path)} +{block.added} −{block.removed}{outcome}"
    return _folded(title, fenced(_shortened("\n".join(block.lines)), "diff"))


def _used(block: Used) -> str:
    told = [block.outcome] if block.outcome else []
    told += [] if block.duration_ms is None else [duration(block.duration_ms)]
    mark, name, end = "❌ " if block.failed else "", _cut(block.title, 200), " · ".join(told)
    given = fenced(_shortened(block.given), "json") if block.given.strip() else ""
    got = fenced(_shortened(block.got)) if block.got.strip() else ""
    pictures = _pictures(block.pictures)
    if not given and not got:
        return f"{mark}{span(name)} {end}".rstrip() + f"\n{pictures}"
    return _folded(f"{mark}{code(name)} {end}".rstrip(), "\n".join(filter(None, (given, got, pictures))))


def _folded(title: str, body: str) -> str:
    """Forges fold it; elsewhere it reads as a title and a text. `title` is HTML on one line."""
    return f"<details><summary>{title}</summary>\n\n{body}\n</details>\n"


def _pictures(pictures: Sequence[Picture]) -> str:
    """By name: a picture of the machine is not where the document is read."""
    return "".join(f"\n*picture: {plain(_cut(picture.name, 200))}*\n" for picture in pictures)


def _shortened(text: str) -> str:
    lines = [_cut(line, _MAX_LINE) for line in text.rstrip("\n").splitlines()]
    head, hidden, tail = shortened(lines, HEAD_LINES, TAIL_LINES)
    return "\n".join([*head, f"… {hidden:,} lines left out …", *tail] if hidden else head)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
