"""Project instructions: which files, in which order, how much, and that odd ones do no harm."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.config import find_instructions
from treadle.execution import FileSnapshot, LocalDisks, ProjectFiles, bounded_reads, project_files


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def found(cwd: Path, home: Path | None = None, **options: Any) -> list[tuple[str, str]]:
    project = ProjectFiles(str(cwd), None if home is None else str(home))
    return [(file.path, file.text) for file in find_instructions(project, **options)]


def texts(cwd: Path, home: Path | None = None, **options: Any) -> list[str]:
    return [text for _, text in found(cwd, home, **options)]


def test_from_the_home_and_the_root_down(tmp_path: Path) -> None:
    repository = tmp_path / "repo"
    (repository / ".git").mkdir(parents=True)
    cwd = repository / "a" / "b"
    cwd.mkdir(parents=True)
    write(tmp_path / "AGENTS.md", "outside")
    home = write(tmp_path / "home" / "AGENTS.md", "home").parent
    root = write(repository / "AGENTS.md", "root")
    deep = write(cwd / "AGENTS.md", "deep")
    assert found(cwd, home) == [(f"{home}/AGENTS.md", "home"), (str(root), "root"), (str(deep), "deep")]
    assert texts(repository, None) == ["root"]


def test_outside_of_a_repository_only_the_directory_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project_files, "_ROOT_MARK", f".mark-of-{tmp_path.name}")  # somebody's `/tmp` is a repository
    write(tmp_path / "AGENTS.md", "above")
    write(tmp_path / "x" / "AGENTS.md", "here")
    assert texts(tmp_path / "x") == ["here"]


def test_a_work_tree_has_a_file_for_git(tmp_path: Path) -> None:
    write(tmp_path / ".git", "gitdir: elsewhere")
    write(tmp_path / "AGENTS.md", "root")
    (tmp_path / "x").mkdir()
    assert texts(tmp_path / "x") == ["root"]


def test_the_nearest_repository_counts(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    write(tmp_path / "AGENTS.md", "outer")
    (tmp_path / "inner" / ".git").mkdir(parents=True)
    write(tmp_path / "inner" / "AGENTS.md", "inner")
    assert texts(tmp_path / "inner") == ["inner"]


def test_one_file_per_directory_by_rank(tmp_path: Path) -> None:
    names = ["OTHER.md", "CLAUDE.md"]
    write(tmp_path / "CLAUDE.md", "third")
    assert texts(tmp_path) == []
    assert texts(tmp_path, fallback_names=names) == ["third"]
    write(tmp_path / "AGENTS.md", "second")
    assert texts(tmp_path, fallback_names=names) == ["second"]
    write(tmp_path / "AGENTS.override.md", "first")
    assert texts(tmp_path, fallback_names=names) == ["first"]
    write(tmp_path / "AGENTS.override.md", " \n")
    assert texts(tmp_path, fallback_names=names) == ["second"]


def test_names_lead_nowhere_else(tmp_path: Path) -> None:
    write(tmp_path / "secret", "secret")
    (tmp_path / "x").mkdir()
    names = ["../secret", "", ".", "..", "a\0b", str(tmp_path / "secret"), "x" * 5000]
    assert texts(tmp_path / "x", fallback_names=names) == []


def test_the_limit_is_for_all_together(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    write(tmp_path / "AGENTS.md", "12345")
    write(tmp_path / "x" / "AGENTS.md", "67é90")
    write(tmp_path / "x" / "y" / "AGENTS.md", "late")
    assert texts(tmp_path / "x" / "y", max_bytes=8) == ["12345", "67"]
    assert texts(tmp_path / "x" / "y", max_bytes=9) == ["12345", "67é"]
    assert texts(tmp_path / "x" / "y", max_bytes=5) == ["12345"]
    assert texts(tmp_path / "x" / "y", max_bytes=0) == []


def test_a_huge_file_is_cut(tmp_path: Path) -> None:
    with open(tmp_path / "AGENTS.md", "wb") as file:
        file.write(b"x" * 100_000)
        file.truncate(2**40)
    assert texts(tmp_path) == ["x" * 32 * 1024]


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.write_bytes(b"\x7fELF\0\0"),
        lambda path: path.symlink_to("AGENTS.md"),
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to("nowhere"),
        lambda path: path.mkdir(),
        lambda path: os.mkfifo(path),
    ],
    ids=["binary", "circle", "device", "dangling", "directory", "pipe"],
)
def test_odd_files_are_as_none(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "AGENTS.md")
    write(tmp_path / "OTHER.md", "other")
    assert texts(tmp_path, fallback_names=["OTHER.md"]) == ["other"]


def test_text_that_is_not_utf8_is_still_text(tmp_path: Path) -> None:
    write(tmp_path / "AGENTS.md", b"caf\xe9 au lait")
    assert texts(tmp_path) == ["caf\ufffd au lait"]


def test_a_link_to_a_file_is_that_file_and_counts_once(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    write(tmp_path / "CLAUDE.md", "shared")
    (tmp_path / "AGENTS.md").symlink_to("CLAUDE.md")
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "AGENTS.md").symlink_to("../CLAUDE.md")
    assert texts(tmp_path / "x", tmp_path) == ["shared"]


def test_places_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "elsewhere" / ".git", "")
    monkeypatch.chdir(tmp_path / "elsewhere")  # not in a repository that has instructions
    write(tmp_path / ".git", "")
    write(tmp_path / "AGENTS.md", "root")
    assert texts(tmp_path / "no" / "such", tmp_path / "no-home") == ["root"]
    assert find_instructions(ProjectFiles("nul\0", None)) == []
    assert find_instructions(ProjectFiles("/" + "x/" * 5000, None)) == []


@given(st.binary(min_size=1, max_size=40), st.integers(1, 40))
def test_any_bytes_and_any_limit(data: bytes, limit: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        write(Path(directory) / "AGENTS.md", data)
        read = texts(Path(directory), max_bytes=limit)
    kept = data[:limit]
    if b"\0" in kept or not kept.strip():
        assert read == []
    else:
        # Up to three bytes of half a character may be missing at the end.
        assert read[0] in {kept[: len(kept) - cut].decode("utf-8", "replace") for cut in range(4)}


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=40), st.integers(1, 40))
def test_a_text_is_cut_between_characters(text: str, limit: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        write(Path(directory) / "AGENTS.md", text)
        for read in texts(Path(directory), max_bytes=limit):
            assert text.startswith(read)
            assert len(read.encode()) > min(limit, len(text.encode())) - 4


def test_a_link_out_of_the_repository_is_not_followed(tmp_path: Path) -> None:
    repository = tmp_path / "repo"
    (repository / ".git").mkdir(parents=True)
    write(tmp_path / "secret", "secret")
    write(repository / "docs" / "agents.md", "inside")
    (repository / "AGENTS.md").symlink_to(tmp_path / "secret")
    assert texts(repository) == []
    (repository / "AGENTS.md").unlink()
    (repository / "AGENTS.md").symlink_to("docs/agents.md")
    assert texts(repository) == ["inside"]


def test_whatever_would_be_found_otherwise_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a snapshot that is filled on the way."""
    monkeypatch.setattr(bounded_reads, "SETTLED_NS", 0)
    tmp_path = tmp_path.resolve()
    table = write(tmp_path / "mounts", "1 0 8:1 / / rw - ext4 /dev/sda rw\n")
    monkeypatch.setattr(bounded_reads, "disks", LocalDisks(str(table)))
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    home = write(tmp_path / "home" / "AGENTS.md", "home").parent
    cwd = write(tmp_path / "repo" / "a" / "b" / "RULES.md", "deep").parent

    def look() -> FileSnapshot:
        snapshot = FileSnapshot(str(cwd), str(home))
        find_instructions(ProjectFiles(str(cwd), str(home), snapshot=snapshot), fallback_names=["RULES.md"])
        assert snapshot.is_current()
        return snapshot

    changes: list[Callable[[], object]] = [
        lambda: write(cwd / "AGENTS.md", "before the other name"),
        lambda: write(cwd / "AGENTS.md", "another text"),
        lambda: write(tmp_path / "repo" / "a" / "AGENTS.md", "in between"),
        lambda: write(tmp_path / "repo" / "AGENTS.md", "at the root"),
        lambda: write(home / "AGENTS.override.md", "instead"),
        lambda: (tmp_path / "repo" / "a" / ".git").mkdir(),
    ]
    for change in changes:
        snapshot, before = look(), texts(cwd, home, fallback_names=["RULES.md"])
        change()
        assert texts(cwd, home, fallback_names=["RULES.md"]) != before
        assert not snapshot.is_current()


def test_the_user_may_link_their_own_file(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    write(tmp_path / "dotfiles", "mine")
    (home / "AGENTS.md").symlink_to(tmp_path / "dotfiles")
    (tmp_path / "work").mkdir()
    assert texts(tmp_path / "work", home) == ["mine"]
