"""Lists of threads, and of messages that a search has found: on a terminal, as lines with tabs for programs, as JSON.
Pure.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from treadle.cli.thread_choice import short_id
from treadle.pages.figures import at_home, count, money, when
from treadle.pages.page import ThreadExtras, title_of, usage_members
from treadle.pages.safe_text import printable, printable_line
from treadle.protocol.app.base import encode
from treadle.protocol.app.threads import Thread

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

_STYLES: Final = {"id": "cyan", "where": "dim", "model": "dim"}
_FIGURES: Final = ("tokens", "cost")
_MARKED: Final = re.compile(r"\[([^\[\]]*)\]")
_WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Row:
    thread: Thread
    facts: ThreadExtras


def table(rows: Sequence[Row], width: int, now: float, home: str) -> Text:
    """What does not fit is left out, the least important first. Of a path the end is shown."""
    from rich.cells import cell_len  # rich takes 60 ms
    from rich.text import Text

    columns = ["id", "thread", "when"] if width >= 50 else ["id", "thread"]
    if width >= 80:
        columns.insert(2, "where")
    if width >= 96:
        columns.insert(3, "model")
    if width >= 64 and any(row.facts.tokens for row in rows):
        columns.append("tokens")
    if width >= 72 and any(row.facts.cost_usd for row in rows):
        columns.append("cost")
    head = {name: name for name in columns}
    lines = [head, *(_cells(row, now, home) for row in rows)]
    widths = {name: max(cell_len(cells[name]) for cells in lines) for name in columns}
    # The titles and the paths share what the others leave.
    others = sum(size for name, size in widths.items() if name not in ("thread", "where"))
    left = max(10, width - others - 2 * (len(widths) - 1))
    if "where" in widths:
        widths["where"] = min(widths["where"], max(left - widths["thread"], left * 2 // 5))
    widths["thread"] = min(widths["thread"], left - widths.get("where", 0))
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


def _cells(row: Row, now: float, home: str) -> dict[str, str]:
    thread, facts = row.thread, row.facts
    return {
        "id": short_id(thread.id),
        "thread": printable_line(title_of(thread)) or "(nothing said yet)",
        "where": printable_line(at_home(thread.cwd, home)),
        "model": printable_line(thread.model or thread.model_provider),
        "when": when(thread.updated_at, now),
        "tokens": "" if facts.tokens is None else count(facts.tokens.total),
        "cost": money(facts.cost_usd) if facts.cost_usd else "",
    }


def tab_lines(rows: Sequence[Row]) -> str:
    """id, when it was last used, title, directory, model, tokens, dollars: one line each, for programs that cut."""
    lines = []
    for row in rows:
        thread, facts = row.thread, row.facts
        used = datetime.fromtimestamp(thread.updated_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        tokens = "" if facts.tokens is None else str(facts.tokens.total)
        cost = "" if facts.cost_usd is None else f"{facts.cost_usd:.6f}"
        cells = (thread.id, used, title_of(thread), thread.cwd, thread.model or "", tokens, cost)
        lines.append("\t".join(printable_line(cell).replace("\t", " ") for cell in cells) + "\n")
    return "".join(lines)


def as_json(rows: Sequence[Row]) -> str:
    """The threads of the protocol, each with its `usage`."""
    threads: list[dict[str, Any]] = []
    for row in rows:
        members = msgspec.json.decode(encode(row.thread))
        threads.append({**members, "usage": usage_members(row.facts.tokens, row.facts.cost_usd)})
    return msgspec.json.format(msgspec.json.encode(threads), indent=2).decode() + "\n"


# --- what a search has found ---


@dataclass(frozen=True, slots=True)
class Hit:
    """`marked`: the words found are between `[` and `]` in the snippet."""

    thread: Thread
    item_id: str | None
    snippet: str
    marked: bool = False


def plain_snippet(hit: Hit, term: str) -> tuple[str, list[tuple[int, int]]]:
    """The text around the words on one line, and where in it the words are."""
    line = " ".join(hit.snippet.split())
    words = {_folded(word) for word in _WORD.findall(term)}
    if not hit.marked:
        shown = printable_line(line)
        return shown, [match.span() for match in _WORD.finditer(shown) if _folded(match.group()) in words]
    text, spans, end = "", [], 0
    for match in _MARKED.finditer(line):
        if {_folded(word) for word in _WORD.findall(match.group(1))} & words:  # else the brackets are of the text
            text += printable_line(line[end : match.start()])
            found = printable_line(match.group(1))
            spans.append((len(text), len(text) + len(found)))
            text, end = text + found, match.end()
    return text + printable_line(line[end:]), spans


def _folded(word: str) -> str:
    """Text as the search compares it: without case and accents."""
    letters = unicodedata.normalize("NFKD", word.casefold())
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def hits_for_terminal(hits: Sequence[Hit], term: str, now: float) -> Group:
    """Each thread once, with what was found in it."""
    from rich.console import Group  # rich takes 60 ms
    from rich.padding import Padding
    from rich.text import Text

    by_thread: dict[str, list[Hit]] = {}
    for hit in hits:
        by_thread.setdefault(hit.thread.id, []).append(hit)
    shown: list[Text | Padding] = []
    for some in by_thread.values():
        thread = some[0].thread
        title = printable_line(title_of(thread))
        shown.append(
            Text.assemble(
                (short_id(thread.id), "cyan"), "  ", (title, "bold"), "  ", (when(thread.updated_at, now), "dim")
            )
        )
        for hit in some:
            text, spans = plain_snippet(hit, term)
            line = Text(text)
            for start, end in spans:
                line.stylize("bold underline", start, end)
            shown.append(Padding(line, (0, 0, 0, 2)))
    return Group(*shown)


def hits_in_lines(hits: Sequence[Hit], term: str) -> str:
    """id, title, text: one line each, with tabs between them."""
    rows = [(hit.thread.id, title_of(hit.thread), plain_snippet(hit, term)[0]) for hit in hits]
    return "".join("\t".join(printable(cell).replace("\t", " ") for cell in row) + "\n" for row in rows)


def hits_as_json(hits: Sequence[Hit]) -> str:
    found = [
        {
            "threadId": hit.thread.id,
            "itemId": hit.item_id,
            "name": hit.thread.name,
            "preview": hit.thread.preview,
            "updatedAt": hit.thread.updated_at,
            "snippet": hit.snippet,
        }
        for hit in hits
    ]
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"
