"""What clients of codex make of our version: they take the first number that they find for codex's."""

from __future__ import annotations

import re

import pytest

from treadle import __version__
from treadle.cli import main
from treadle.server import user_agent

# hermes-agent 0.19 asks `--version` and wants 0.125.0 or later; ai-sdk-provider-codex-cli 2.2 reads the user agent of
# the handshake in the same way and wants 0.153.0.
FIRST = re.compile(r"(\d+)\.(\d+)\.(\d+)")


def first_number(text: str) -> tuple[int, ...]:
    found = FIRST.search(text)
    assert found is not None
    return tuple(int(part) for part in found.groups())


@pytest.fixture
def line(capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["--version"]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    return told.out


def test_it_is_one_line_that_says_what_it_is(line: str) -> None:
    assert line.count("\n") == 1
    assert line.endswith("\n")
    assert line.startswith("codex-cli ")
    assert f"treadle {__version__}" in line


def test_it_is_new_enough_for_clients(line: str) -> None:
    assert first_number(line) >= (0, 125, 0)
    assert first_number(line) == first_number(user_agent("somebody", "1.2.3")) >= (0, 153, 0)
