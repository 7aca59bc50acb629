"""The list of threads: a table on a terminal, lines with tabs for programs, JSON. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

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
    from rich.table import Table


@dataclass(frozen=True, slots=True)
class Row:
    thread: Thread
    facts: ThreadFacts


def table(rows: Sequence[Row], width: int, now: float, home: str) -> Table:
    """What does not fit is left out, the least important first."""
    from rich.table import Table  # rich takes 60 ms

    shown = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", expand=False, pad_edge=False)
    columns = _columns(rows, width)
    for name in columns:
        figures = name in ("tokens", "cost")
        wide = name in ("thread", "where")
        shown.add_column(
            name,
            justify="right" if figures else "left",
            no_wrap=True,
            overflow="ellipsis",
            ratio=(3 if name == "thread" else 2) if wide else None,
            min_width=10 if wide else SHORT if name == "id" else None,
            style={"id": "cyan", "where": "dim", "model": "dim"}.get(name, ""),
        )
    for row in rows:
        cells = _cells(row, now, home)
        shown.add_row(*(cells[name] for name in columns))
    return shown


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
