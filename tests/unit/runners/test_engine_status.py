"""What there is of an engine on this machine, and its last failure."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from treadle.runners import MAX_ERROR, LastError, LastErrors, engine_statuses, is_older, read_version


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path / "home"))
    return folder


def put(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_installed_missing_old_and_silent(programs: Path) -> None:
    put(programs, "codex", "echo codex-cli 0.99.1")
    put(programs, "claude", 'echo "9.1.0 (Claude Code)"')
    put(programs, "pi", "echo broken >&2; exit 3")
    codex, claude, opencode, pi, ours = asyncio.run(engine_statuses(["codex", "claude", "opencode", "pi", "treadle"]))
    assert (codex.path, codex.version, codex.outdated) == (str(programs / "codex"), "0.99.1", True)
    assert (claude.version, claude.outdated, claude.problem) == ("9.1.0", False, None)
    assert (opencode.installed, opencode.problem) == (False, None)
    assert opencode.install is not None
    assert pi.problem == "`pi --version` printed no version (exit 3)"
    assert (ours.installed, ours.version is None) == (True, False)


def test_a_program_that_does_not_answer_is_not_waited_for(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.runners.status.VERSION_S", 0.2)
    put(programs, "codex", "exec /bin/sleep 60")
    [codex] = asyncio.run(engine_statuses(["codex"]))
    assert codex.version is None
    assert "did not end within 0.2 s" in str(codex.problem)


def test_an_unknown_engine_is_a_problem_of_its_own(programs: Path) -> None:
    unknown, ours = asyncio.run(engine_statuses(["nix", "treadle"]))
    assert "there is no engine 'nix'" in str(unknown.problem)
    assert ours.problem is None


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("codex-cli 0.163.0\n", "0.163.0"),
        ("2.1.197 (Claude Code)", "2.1.197"),
        ("v1.0-beta.2", "1.0-beta.2"),
        ("x", None),
    ],
)
def test_versions_are_found(text: str, version: str | None) -> None:
    assert read_version(text) == version


def test_versions_are_compared_by_their_numbers() -> None:
    assert is_older("0.99.1", "0.163.0")
    assert is_older("0.162.9-alpha.1", "0.163.0")
    assert not is_older("0.163.0", "0.163.0")
    assert not is_older("1.0", "0.163.0")


def test_the_last_failure_is_kept_until_a_run_goes_well(tmp_path: Path) -> None:
    errors = LastErrors(tmp_path / "home")
    assert errors.find("codex") is None
    assert errors.keep("codex", LastError("x" * 9999, 5.0))
    assert errors.find("codex") == LastError("x" * MAX_ERROR, 5.0)
    [file] = (tmp_path / "home" / "runs" / "last_errors").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert errors.keep("codex", None)
    assert errors.find("codex") is None


def test_a_record_that_cannot_be_read_or_written_breaks_nothing(tmp_path: Path) -> None:
    errors = LastErrors(tmp_path)
    assert not errors.keep("../../evil", LastError("x", 1.0))
    assert errors.keep("codex", LastError("x", 1.0))
    (tmp_path / "runs" / "last_errors" / "codex.json").write_text("{nonsense")
    assert errors.find("codex") is None
    (tmp_path / "file").write_text("")
    assert not LastErrors(tmp_path / "file").keep("codex", LastError("x", 1.0))
