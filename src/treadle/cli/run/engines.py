"""`treadle engines`: which agent programs are installed, and what keeps them from working."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING

import click
import msgspec

from treadle.cli.live_area import LiveArea, spinner
from treadle.cli.people import command as people_command
from treadle.cli.run.engine_table import EngineRow, engine_row, plain, rich_lines
from treadle.cli.server_process import start_logging
from treadle.cli.streams import write
from treadle.cli.terminal import console, is_terminal
from treadle.runners.progress import elapsed
from treadle.runners.status import EngineStatus, engine_statuses

if TYPE_CHECKING:
    from rich.text import Text

_MORE = """\
Nothing is sent anywhere: a login is a file or a variable that is there, and may have expired. `treadle doctor` tries
the engines out.

✓ ready   ! something to know   ✗ does not work   – not installed"""


@people_command(
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
    else:
        _show(statuses)
    return 0


async def _look(*, drawn: bool) -> list[EngineStatus]:
    """Some programs take seconds to tell their version; who waits sees that something happens."""
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


def _show(statuses: list[EngineStatus]) -> None:
    now = time.time()
    rows: list[EngineRow] = [engine_row(status, now) for status in statuses]
    if is_terminal(sys.stdout):
        with console(sys.stdout) as screen:
            for line in rich_lines(rows):
                screen.print(line)
    else:
        write(sys.stdout, plain(rows))
