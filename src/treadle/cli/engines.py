"""`treadle engines`: which agent programs are here, and what keeps those that are from working."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

import msgspec

from treadle.cli.engine_table import EngineRow, engine_row, plain, rich_table
from treadle.cli.output import write
from treadle.cli.process import start_logging
from treadle.cli.terminal import console, is_terminal
from treadle.runners.status import EngineStatus, engine_statuses

_MORE = """\
Nothing is sent anywhere: a login is a file or a variable that is there, and may have expired. `treadle doctor` tries
the engines out.

  ✓ ready   ! something to know   ✗ does not work   – not installed

examples:
  treadle engines
  treadle engines --json | jq -r '.[] | select(.path) | .name'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _MORE
    parser.add_argument("--json", action="store_true", help="all that is known, as one JSON array")


def run(arguments: argparse.Namespace) -> int:
    start_logging("error")
    statuses = asyncio.run(engine_statuses())
    if arguments.json:
        write(sys.stdout, msgspec.json.format(msgspec.json.encode(statuses), indent=2).decode() + "\n")
    else:
        _show(statuses)
    return 0


def _show(statuses: list[EngineStatus]) -> None:
    now = time.time()
    rows: list[EngineRow] = [engine_row(status, now) for status in statuses]
    if is_terminal(sys.stdout):
        with console(sys.stdout) as screen:
            screen.print(rich_table(rows))
    else:
        write(sys.stdout, plain(rows))
