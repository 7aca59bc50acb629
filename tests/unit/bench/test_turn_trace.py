"""The way of a turn stays short, and the stations that CONTRIBUTING names are on it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[3]
MAX_MODULES = 40
MAX_CHANGES = 350
# What another transport, a tool call or another store would show; the trace is of a client in this process.
OFF_THE_TRACE = {"transport/channel.py", "server/channel_client.py", "store/contract.py"}


def stations() -> list[str]:
    text = (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text[text.index("## The way of a turn") : text.index("## Recipes")]
    return re.findall(r"^\| \d+ \| [^|]+ \| `([\w/]+\.py)`", section, re.MULTILINE)


def test_a_warm_turn_passes_through_few_modules() -> None:
    """In a process of its own: this one listens to what clients are told."""
    command = [sys.executable, "-m", "bench", "turn-trace"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=120, check=True)
    *lines, summary = done.stdout.splitlines()
    modules, _, changes = (int(number) for number in re.findall(r"\d+", summary))
    passed = {line.split()[1].removeprefix("treadle.").replace(".", "/") + ".py" for line in lines}
    assert modules == len(passed) <= MAX_MODULES, sorted(passed)
    assert changes <= MAX_CHANGES
    assert set(stations()) - OFF_THE_TRACE <= passed


def test_the_stations_are_ten_and_there() -> None:
    assert len(stations()) == 10
    for station in stations():
        assert (PROJECT / "src/treadle" / station).is_file(), station
