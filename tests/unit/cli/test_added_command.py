"""The command of CONTRIBUTING, added the way the recipe says: a module, and a line in the table."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from textwrap import dedent

import pytest

import treadle
from treadle.cli import COMMANDS, USE, CommandEntry, main

RECIPES = (Path(treadle.__file__).parents[2] / "CONTRIBUTING.md").read_text()


@pytest.fixture(autouse=True)
def recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    section = RECIPES[RECIPES.index("### Add a command") :]
    code = re.search(r"^   ```python\n(.*?)^   ```", section, re.DOTALL | re.MULTILINE)
    line = re.search(r'`"(\w+)": CommandEntry\("([\w.]+)", "(.*?)"\),`', section)
    assert code is not None
    assert line is not None
    for table in (COMMANDS, USE):
        monkeypatch.setitem(table, line[1], CommandEntry(line[2], line[3]))
    module = types.ModuleType(line[2])
    exec(dedent(code[1]), module.__dict__)
    monkeypatch.setitem(sys.modules, line[2], module)


def test_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["greet", "Ada\x1b[2J"]) == 0
    assert capsys.readouterr().out == "Hello, Ada\\x1b[2J.\n"


def test_it_is_listed_and_has_a_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "say hello to somebody" in capsys.readouterr().out
    assert main(["greet", "--help"]) == 0
    told = capsys.readouterr().out
    assert "nobody is there" in told
    assert "treadle greet Ada" in told


def test_what_goes_wrong_is_three_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["greet", "nobody"]) == 1
    told = capsys.readouterr().err
    assert told == "treadle greet: nobody was greeted\n  why: nobody is there\n  try: treadle greet Ada\n"
