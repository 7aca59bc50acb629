"""Where the home is, and what cannot be one."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.config import ConfigError, find_home


def test_our_own_variable_comes_first(tmp_path: Path) -> None:
    environ = {"TREADLE_HOME": str(tmp_path / "a"), "CODEX_HOME": str(tmp_path / "b"), "HOME": str(tmp_path)}
    assert find_home(environ) == tmp_path / "a"
    assert find_home({**environ, "TREADLE_HOME": ""}) == tmp_path / "b"
    assert find_home({"HOME": str(tmp_path)}) == tmp_path / ".treadle"


def test_it_is_absolute_and_need_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_home({"CODEX_HOME": "here/x/.."}) == tmp_path / "here"
    assert find_home({"CODEX_HOME": "~/x", "HOME": str(tmp_path)}) == tmp_path / "x"
    assert find_home({"CODEX_HOME": "~", "HOME": str(tmp_path)}) == tmp_path
    assert not (tmp_path / "here").exists()


def test_a_link_to_a_directory_is_one(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert find_home({"CODEX_HOME": str(tmp_path / "link")}) == tmp_path / "link"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("file", "is not a directory"),
        ("file/below", "cannot be used"),
        ("dangling", "is a symbolic link to nothing"),
        ("circle", "cannot be used"),
        ("nul\0", "has a NUL character"),
        ("half\udcff", "has half a character"),
    ],
)
def test_what_cannot_be_a_home_is_named(tmp_path: Path, name: str, problem: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(ConfigError, match=problem) as caught:
        find_home({"TREADLE_HOME": f"{tmp_path}/{name}"})
    assert caught.value.source == "the environment variable TREADLE_HOME"
    assert "set TREADLE_HOME to a directory" in str(caught.value)
