"""The list of threads: a table on a terminal, lines with tabs for programs, JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from treadle.cli.threads.facts import ThreadFacts
from treadle.cli.threads.figures import count, money, when
from treadle.cli.threads.json_page import usage_members
from treadle.cli.threads.page import title_of
from treadle.cli.threads.thread_choice import SHORT
from treadle.cli.visible import visible_line
from treadle.protocol.app.base import encode
from treadle.protocol.app.threads import Thread

if TYPE_CHECKING:
    from rich.text import Text

_STYLES: Final = {"id": "cyan", "where": "dim", "model": "dim"}
_FIGURES: Final = ("tokens", "cost")


@dataclass(frozen=True, slots=True)
class Row:
    thread: Thread
    facts: ThreadFacts


def table(rows: Sequence[Row], width: int, now: float, home: str) -> Text:
    """What does not fit is left out, the least important first. Of a path the end is shown."""
    from rich.cells import cell_len  # rich takes 60 ms
    from rich.text import Text

    columns = _columns(rows, width)
    head = {name: name for name in columns}
    lines = [head, *(_cells(row, now, home) for row in rows)]
    natural = {name: max(cell_len(cells[name]) for cells in lines) for name in columns}
    widths = _widths(natural, width)
    shown = Text(no_wrap=True)
    for cells in lines:
        parts = []
        for name in columns:
            style = "dim" if cells is head else _STYLES.get(name, "")
            parts.append(_cell(cells[name], widths[name], style, from_end=name == "where", right=name in _FIGURES))
        line = Text("  ").join(parts)
        line.rstrip()
        shown.append_text(line).append("\n")
    return shown


def _widths(natural: Mapping[str, int], width: int) -> dict[str, int]:
    """The titles and the paths share what the others leave."""
    others = sum(size for name, size in natural.items() if name not in ("thread", "where"))
    room = max(10, width - others - 2 * (len(natural) - 1))
    where = min(natural.get("where", 0), max(room - natural["thread"], room * 2 // 5))
    return {**natural, "where": where, "thread": min(natural["thread"], room - where)}


def _cell(text: str, size: int, style: str, *, from_end: bool, right: bool) -> Text:
    from rich.text import Text

    cell = Text(text, style)
    if from_end and cell.cell_len > size:
        while cell.cell_len > size - 1:
            cell = cell[1:]
        cell = Text("…", style).append_text(cell)
    if right:
        cell.pad_left(max(0, size - cell.cell_len))
    cell.truncate(size, overflow="ellipsis", pad=True)
    return cell


def _columns(rows: Sequence[Row], width: int) -> list[str]:
    columns = ["id", "thread", "when"] if width >= 50 else ["id", "thread"]
    if width >= 80:
        columns.insert(2, "where")
    if width >= 96:
        columns.insert(3, "model")
    if width >= 64 and any(row.facts.tokens for row in rows):
        columns.append("tokens")
    if width >= 72 and any(row.facts.cost_usd for row in rows):
        columns.append("cost")
    return columns


def _cells(row: Row, now: float, home: str) -> dict[str, str]:
    thread, facts = row.thread, row.facts
    return {
        "id": thread.id[:SHORT],
        "thread": visible_line(title_of(thread)) or "(nothing said yet)",
        "where": visible_line(at_home(thread.cwd, home)),
        "model": visible_line(thread.model or thread.model_provider),
        "when": when(thread.updated_at, now),
        "tokens": "" if facts.tokens is None else count(facts.tokens.total),
        "cost": money(facts.cost_usd) if facts.cost_usd else "",
    }


def at_home(path: str, home: str) -> str:
    """With `~` for the home directory."""
    if home not in ("", "/") and (path == home or path.startswith(f"{home}/")):
        return f"~{path[len(home) :]}"
    return path


def tab_lines(rows: Sequence[Row]) -> str:
    """id, when it was last used, title, directory, model, tokens, dollars: one line each, for programs that cut."""
    lines = []
    for row in rows:
        thread, facts = row.thread, row.facts
        used = datetime.fromtimestamp(thread.updated_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        tokens = "" if facts.tokens is None else str(facts.tokens.total)
        cost = "" if facts.cost_usd is None else f"{facts.cost_usd:.6f}"
        cells = (thread.id, used, title_of(thread), thread.cwd, thread.model or "", tokens, cost)
        lines.append("\t".join(visible_line(cell).replace("\t", " ") for cell in cells) + "\n")
    return "".join(lines)


def as_json(rows: Sequence[Row]) -> str:
    """The threads of the protocol, each with its `usage`."""
    threads: list[dict[str, Any]] = []
    for row in rows:
        members = msgspec.json.decode(encode(row.thread))
        threads.append({**members, "usage": usage_members(row.facts.tokens, row.facts.cost_usd)})
    return msgspec.json.format(msgspec.json.encode(threads), indent=2).decode() + "\n"
