"""CONTRIBUTING and AGENTS name files, commands and layers that are there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import treadle

PACKAGE = Path(treadle.__file__).parent
REPOSITORY = PACKAGE.parents[1]
GUIDES = ("CONTRIBUTING.md", "AGENTS.md")
# Where a path may begin: guides say `agent/turn.py` for what is in the package.
ROOTS = (REPOSITORY, PACKAGE, PACKAGE.parent)


def _text(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", GUIDES)
def test_the_files_are_there(name: str) -> None:
    named = set(re.findall(r"(?<![\w/.])(?:[\w.-]+/)+[\w.-]+\.(?:py|md|toml)\b", _text(name)))
    assert len(named) > 5
    assert [path for path in sorted(named) if not any((root / path).exists() for root in ROOTS)] == []


@pytest.mark.parametrize("name", GUIDES)
def test_the_commands_are_there(name: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", _text("Makefile"), re.MULTILINE))
    named = {word for line in re.findall(r"(?:^|`)make ([a-z ]+)", _text(name), re.MULTILINE) for word in line.split()}
    assert len(named) > 3
    assert named - targets == set()


def test_agents_are_told_the_layers_as_they_are_checked() -> None:
    contract = tomllib.loads(_text("pyproject.toml"))["tool"]["importlinter"]["contracts"][0]
    checked = [set(re.findall(r"treadle\.(\w+)", layer)) for layer in reversed(contract["layers"])]
    (sentence,) = re.findall(r"from those below it: (.*?)\.\n", _text("AGENTS.md"), re.DOTALL)
    told = [{name.strip() for name in layer.split(",")} for layer in sentence.replace("\n", " ").split("<")]
    assert told == checked


def test_agents_are_told_it_briefly() -> None:
    assert len(_text("AGENTS.md").splitlines()) <= 60
