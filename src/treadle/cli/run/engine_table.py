"""The status of engines for people: rows, as plain aligned text or as a table on a terminal. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from treadle.cli.visible import visible_line
from treadle.runners.status import EngineStatus

if TYPE_CHECKING:
    from rich.console import RenderableType

Mark: TypeAlias = Literal["✓", "!", "✗", "–"]
STYLES: Final[dict[str, str]] = {"✓": "green", "!": "yellow", "✗": "red", "–": "dim"}
_MAX_ERROR: Final = 200
_DAY_S: Final = 86400


@dataclass(frozen=True, slots=True)
class EngineRow:
    """An engine in words: its state, its facts, and what to do or to know, a line each."""

    mark: Mark
    name: str
    version: str
    login: str
    program: str
    notes: tuple[str, ...] = ()


def engine_row(status: EngineStatus, now: float) -> EngineRow:
    """How an engine stands, in words.

    Args:
        status: What is known about it.
        now: The time, in seconds since 1970.
    """
    if not status.installed:
        mark: Mark = "✗" if status.problem else "–"
        what = "cannot be loaded" if status.problem else "not installed"
        notes = [status.problem] if status.problem else [f"to get it: {status.install}"]
        return EngineRow(mark, status.name, "", what, "", _shown(notes))
    notes = [*_version_notes(status), *_login_notes(status), *_error_notes(status, now)]
    mark = "!" if notes else "✓"
    if status.login is None and status.login_at:
        notes.append(f"to use a real model: {status.log_in}")
    program = "" if status.name == "treadle" else str(status.path)
    return EngineRow(mark, status.name, status.version or "?", _login(status), visible_line(program), _shown(notes))


def ago(seconds: float) -> str:
    """How long ago, roughly."""
    for unit, size in (("day", _DAY_S), ("hour", 3600), ("minute", 60)):
        number = int(seconds // size)
        if number:
            return f"{number} {unit}{'s' if number > 1 else ''} ago"
    return "just now"


def plain(rows: Iterable[EngineRow]) -> str:
    """Aligned text for a pipe, one line for an engine and one for each note."""
    table = list(rows)
    widths = _widths(table)
    lines: list[str] = []
    for row in table:
        lines.append(f"{row.mark} {_cells(row, widths)}")
        lines += [f"{' ' * (widths[0] + 4)}{note}" for note in row.notes]
    return "".join(f"{line}\n" for line in lines)


def rich_lines(rows: Iterable[EngineRow]) -> list[RenderableType]:
    """The same for a terminal: notes keep their indent when they are wrapped."""
    # Rich takes 60 ms: loaded when something is drawn.
    from rich.padding import Padding
    from rich.text import Text

    table = list(rows)
    widths = _widths(table)
    lines: list[RenderableType] = []
    for row in table:
        line = Text.assemble((row.mark, STYLES[row.mark]), " ", _cells(row, widths), overflow="fold")
        line.stylize("bold" if row.mark in "✓!" else "", 2, 2 + len(row.name))
        lines.append(line)
        style = "yellow" if row.mark in "!✗" else "dim"
        lines += [Padding(Text(note, style=style), (0, 0, 0, widths[0] + 4)) for note in row.notes]
    return lines


def _widths(rows: list[EngineRow]) -> tuple[int, int, int]:
    return (
        max((len(row.name) for row in rows), default=0),
        max((len(row.version) for row in rows), default=0),
        max((len(row.login) for row in rows), default=0),
    )


def _cells(row: EngineRow, widths: tuple[int, int, int]) -> str:
    names, versions, logins = widths
    return f"{row.name:{names}}  {row.version:{versions}}  {row.login:{logins}}  {row.program}".rstrip()


def _login(status: EngineStatus) -> str:
    match status.login:
        case True:
            return visible_line(status.login_at)
        case False:
            return "not logged in"
    return visible_line(status.login_at) or "unknown"


def _version_notes(status: EngineStatus) -> list[str]:
    if status.problem:
        return [status.problem]
    if status.outdated:
        return [f"older than {status.tested}, which Treadle is tested with; to update: {status.install}"]
    return []


def _login_notes(status: EngineStatus) -> list[str]:
    if status.login is not False:
        return []
    return [f"{status.login_at}; to log in: {status.log_in}" if status.log_in else status.login_at]


def _error_notes(status: EngineStatus, now: float) -> list[str]:
    failure = status.last_error
    if failure is None:
        return []
    error = re.sub(r"\s+", " ", failure.error).strip()
    short = error if len(error) <= _MAX_ERROR else f"{error[: _MAX_ERROR - 1]}…"
    return [f"last run failed {ago(max(0.0, now - failure.at))}: {short}"]


def _shown(notes: Iterable[str]) -> tuple[str, ...]:
    return tuple(visible_line(note) for note in notes)
