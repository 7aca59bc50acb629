"""The walk of a file search: what it looks at, and where it ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from treadle.execution import file_search as walk
from treadle.execution import find


def paths(root: Path, query: str = "f") -> list[str]:
    return sorted(found.path for found in find(query, [("root", str(root))]))


def touch(*files: Path) -> None:
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


def test_the_rules_of_the_nearest_directory_count(tmp_path: Path) -> None:
    touch(tmp_path / "f1", tmp_path / "sub" / "f1", tmp_path / "sub" / "f2", tmp_path / "out" / "f3")
    (tmp_path / ".gitignore").write_text("f1\nout/\n")
    (tmp_path / "sub" / ".gitignore").write_text("!f1\n/f2\n")
    assert paths(tmp_path) == ["sub/f1"]


def test_a_pipe_for_rules_says_nothing(tmp_path: Path) -> None:
    touch(tmp_path / "f")
    os.mkfifo(tmp_path / ".gitignore")
    assert paths(tmp_path) == ["f"]


def test_a_link_to_rules_says_nothing(tmp_path: Path) -> None:
    """As in git."""
    touch(tmp_path / "project" / "f")
    (tmp_path / "secret").write_text("f\n")
    (tmp_path / "project" / ".gitignore").symlink_to(tmp_path / "secret")
    assert paths(tmp_path / "project") == ["f"]


def test_a_range_that_runs_backwards_does_no_harm(tmp_path: Path) -> None:
    touch(tmp_path / "f")
    (tmp_path / ".gitignore").write_text("[z-a]\n")
    assert paths(tmp_path) == ["f"]


def test_the_walk_ends_in_time_with_what_it_has(tmp_path: Path) -> None:
    touch(*(tmp_path / f"f{number}" for number in range(5)))
    assert find("f", [("root", str(tmp_path))], seconds=-1.0) == []


def test_the_walk_ends_after_a_number_of_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(*(tmp_path / f"f{number}" for number in range(30)))
    monkeypatch.setattr(walk, "MAX_ENTRIES", 10)
    assert len(paths(tmp_path)) == 10


def test_a_name_that_is_no_text_is_found(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/f\xff", "w"):
        pass
    assert paths(tmp_path) == ["f\ufffd"]
