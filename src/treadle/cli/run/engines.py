"""`treadle engines`: which agent programs are installed, and what keeps them from working.

The command, and the status of engines for people: `EngineRow`s, as plain aligned text or as lines on a terminal.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import click
import msgspec

from treadle.cli.own_process import start_logging
from treadle.cli.streams import write
from treadle.cli.terminal import LiveArea, console, is_terminal, spinner
from treadle.cli.user_commands import user_command
from treadle.pages.figures import ago
from treadle.pages.safe_text import printable_line
from treadle.runners.progress import elapsed
from treadle.runners.status import EngineStatus, engine_statuses

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

Mark: TypeAlias = Literal["✓", "!", "✗", "–"]
STYLES: Final[dict[str, str]] = {"✓": "green", "!": "yellow", "✗": "red", "–": "dim"}
_MAX_ERROR: Final = 200
_MORE: Final = """\
Nothing is sent anywhere: a login is a file or a variable that is there, and may have expired. `treadle doctor` tries
the engines out.

✓ ready   ! something to know   ✗ does not work   – not installed"""


@user_command(
    "engines",
    config=False,
    more=_MORE,
    examples=("treadle engines", "treadle engines --json | jq -r '.[] | select(.path) | .name'"),
)
@click.option("--json", "as_json", is_flag=True, help="all that is known, as one JSON array")
def command(as_json: bool) -> int:
    start_logging("error")
    statuses = asyncio.run(_look(drawn=is_terminal(sys.stdout) and not as_json))
    if as_json:
        write(sys.stdout, msgspec.json.format(msgspec.json.encode(statuses), indent=2).decode() + "\n")
        return 0
    now = time.time()
    rows = [engine_row(status, now) for status in statuses]
    if is_terminal(sys.stdout):
        with console(sys.stdout) as screen:
            for line in rich_lines(rows):
                screen.print(line)
    else:
        write(sys.stdout, plain(rows))
    return 0


async def _look(*, drawn: bool) -> list[EngineStatus]:
    """The status of all engines. Some programs take seconds to give their version: with `drawn`, the wait is shown."""
    if not drawn:
        return await engine_statuses()
    began = time.monotonic()

    def waiting(width: int, height: int) -> list[Text]:
        from rich.text import Text  # rich takes 60 ms: loaded when something is drawn

        return [Text(f"{spinner(time.monotonic())} asking for versions · {elapsed(time.monotonic() - began)}", "dim")]

    area = LiveArea(sys.stdout, waiting)
    try:
        return await engine_statuses()
    finally:
        area.close()


# --- rows ---


@dataclass(frozen=True, slots=True)
class EngineRow:
    """An engine as a row of text: its state, its facts, and notes about what to do or to know."""

    mark: Mark
    name: str
    version: str
    login: str
    program: str
    notes: tuple[str, ...] = ()


def engine_row(status: EngineStatus, now: float) -> EngineRow:
    """The row of an engine.

    Args:
        status: What is known about the engine.
        now: The time, in seconds since 1970.
    """
    if not status.installed:
        mark: Mark = "✗" if status.problem else "–"
        what = "cannot be loaded" if status.problem else "not installed"
        note = status.problem or f"to get it: {status.install}"
        return EngineRow(mark, status.name, "", what, "", (printable_line(note),))
    notes: list[str] = []
    if status.problem:
        notes.append(status.problem)
    elif status.outdated:
        notes.append(f"older than {status.tested}, which Treadle is tested with; to update: {status.install}")
    if status.login is False:
        notes.append(f"{status.login_at}; to log in: {status.log_in}" if status.log_in else status.login_at)
    if (failure := status.last_error) is not None:
        error = re.sub(r"\s+", " ", failure.error).strip()
        short = error if len(error) <= _MAX_ERROR else f"{error[: _MAX_ERROR - 1]}…"
        notes.append(f"last run failed {ago(max(0.0, now - failure.at))}: {short}")
    mark = "!" if notes else "✓"
    if status.login is None and status.login_at and status.log_in:
        notes.append(f"to use a real model: {status.log_in}")
    login = "not logged in" if status.login is False else printable_line(status.login_at)
    return EngineRow(
        mark,
        status.name,
        status.version or "?",
        login or ("" if status.login else "unknown"),
        "" if status.name == "treadle" else printable_line(str(status.path)),
        tuple(map(printable_line, notes)),
    )


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
