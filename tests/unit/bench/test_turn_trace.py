"""A turn passes through few modules, and those that CONTRIBUTING names are among them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[3]
# What is reached, with a little room. Each turn looks whether there are hooks, skills and roles now, which is one
# module and ten changes, and is counted for operators, which is as much. Lower it with the code.
MAX_MODULES = 51
MAX_CHANGES = 465
# An interface, whose calls are those of the store behind it.
OFF_THE_TRACE = {"store/contract.py"}


def named_modules() -> list[str]:
    """The modules of a turn in the order in which CONTRIBUTING says to read them: rows of the one numbered table."""
    text = (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return re.findall(r"^\| \d+ \| [^|]+ \| `([\w/]+\.py)`", text, re.MULTILINE)


def test_a_warm_turn_of_the_sdk_passes_through_few_modules() -> None:
    """In a process of its own: this one listens to what clients are sent."""
    command = [sys.executable, "-m", "bench", "turn-trace", "--wanted", str(MAX_CHANGES)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=120, check=True)
    *lines, summary = done.stdout.splitlines()
    modules, _, _, changes = (int(number) for number in re.findall(r"\d+", summary))
    passed = {line.split()[1].removeprefix("treadle.").replace(".", "/") + ".py" for line in lines}
    assert modules == len(passed) <= MAX_MODULES, sorted(passed)
    assert changes <= MAX_CHANGES
    assert set(named_modules()) - OFF_THE_TRACE <= passed


def test_the_named_modules_are_ten_and_there() -> None:
    assert len(named_modules()) == 10
    for module in named_modules():
        assert (PROJECT / "src/treadle" / module).is_file(), module
