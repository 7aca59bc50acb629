"""CONTRIBUTING and AGENTS name files and commands that are there."""

from __future__ import annotations

import re
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


def test_the_guide_for_agents_is_short() -> None:
    assert len(_text("AGENTS.md").splitlines()) <= 60


def test_a_token_is_made_for_its_user_alone() -> None:
    pages = [REPOSITORY / "README.md", *REPOSITORY.glob("docs/**/*.md")]
    lines = [line for page in pages for line in page.read_text(encoding="utf-8").splitlines() if "openssl rand" in line]
    assert len(lines) >= 2
    assert [line for line in lines if "umask 077" not in line] == []
