"""`treadle projects`: what is written, what is listed, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from treadle.cli import main
from treadle.runners import Projects


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("TREADLE_HOME", str(home))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site").mkdir()
    return home


def test_a_project_is_added_listed_and_removed(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "projects.toml").write_text("# mine\n")
    assert main(["projects", "list"]) == 0
    assert main(["projects", "add", "Web", "site", "--engine", "claude", "--base", "main"]) == 0
    assert main(["projects", "list"]) == 0
    assert main(["projects", "list", "--json"]) == 0
    empty, added, line, *listed = capsys.readouterr().out.splitlines()
    assert empty.startswith("There are no projects yet")
    assert added == f"Added web: {tmp_path}/site"
    assert line == f"web  {tmp_path}/site  claude  main"
    [found] = json.loads("".join(listed))
    assert found == {
        "alias": "web",
        "path": f"{tmp_path}/site",
        "engine": "claude",
        "worktrees": ".worktrees",
        "base": "main",
    }
    assert main(["projects", "remove", "web"]) == 0
    assert Projects().list() == ()
    assert (tmp_path / "site").is_dir()
    assert "# mine" in (home / "projects.toml").read_text()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["add", "web", "site"], 1, "there is already a project `web`"),
        (["add", "a b", "site"], 1, "`a b` cannot be the name of a project"),
        (["add", "new", "gone"], 2, "gone cannot be a project"),
        (["add", "new", "site", "--engine", "nobody"], 2, "there is no engine 'nobody'"),
        (["remove", "new"], 1, "the projects are web"),
    ],
)
def test_what_cannot_be_done_is_said(
    words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["projects", "add", "web", "site"]) == 0
    assert main(["projects", *words]) == code
    assert said in capsys.readouterr().err
    assert [project.alias for project in Projects().list()] == ["web"]
    if words[:3] == ["add", "web", "site"]:
        assert main(["projects", *words, "--replace"]) == 0


def test_an_entry_that_cannot_be_read_can_be_removed(home: Path) -> None:
    (home / "projects.toml").write_text("[projects.bad]\npath = 3\n")
    assert main(["projects", "list"]) == 2
    assert main(["projects", "remove", "bad"]) == 0
    assert main(["projects", "list"]) == 0
