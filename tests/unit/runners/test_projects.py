"""Folders under short names, in a file that people edit too."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from treadle.config import ConfigError
from treadle.errors import ArgumentValueError
from treadle.runners import Project, ProjectError, Projects


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "src" / "web"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def projects(tmp_path: Path) -> Projects:
    return Projects(tmp_path / "home")


def test_a_project_is_added_found_listed_and_removed(projects: Projects, folder: Path) -> None:
    assert projects.list() == ()
    web = projects.add("Web", folder, engine="claude", worktrees="../trees", base="develop")
    assert web == Project(alias="web", path=str(folder), engine="claude", worktrees="../trees", base="develop")
    api = projects.add("api", folder)
    assert api == Project(alias="api", path=str(folder), worktrees=".worktrees")
    assert projects.list() == (api, web)
    assert projects.engines() == {"api": None, "web": "claude"}
    assert projects.find("WEB") == web
    projects.remove("web")
    assert projects.list() == (api,)
    assert folder.is_dir()


def test_the_usual_home_is_used(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path / "usual"))
    Projects().add("web", folder)
    assert (tmp_path / "usual" / "projects.toml").is_file()
    assert not (tmp_path / "usual" / "config.toml").exists()


def test_the_file_is_private_and_comments_stay(projects: Projects, folder: Path) -> None:
    projects.add("web", folder)
    assert projects.file.stat().st_mode & 0o777 == 0o600
    projects.file.write_text(f'# mine\n[projects.a]  # first\npath = "{folder}"\n')
    projects.add("b", folder)
    projects.remove("b")
    assert projects.file.read_text().startswith(f'# mine\n[projects.a]  # first\npath = "{folder}"\n')
    assert [each.alias for each in projects.list()] == ["a"]


def test_a_name_is_not_taken_twice(projects: Projects, folder: Path, tmp_path: Path) -> None:
    projects.add("web", folder, engine="pi")
    with pytest.raises(ProjectError, match="another name") as caught:
        projects.add("web", tmp_path)
    assert (caught.value.kind, caught.value.alias) == ("exists", "web")
    assert projects.find("web").path == str(folder)
    assert projects.add("web", tmp_path, replace=True) == projects.find("web")
    assert projects.find("web") == Project(alias="web", path=str(tmp_path))


def test_an_unknown_one_is_told_with_the_known_ones(projects: Projects, folder: Path) -> None:
    with pytest.raises(ProjectError, match="no project yet"):
        projects.find("web")
    projects.add("api", folder)
    for call in (projects.find, projects.remove):
        with pytest.raises(
            ProjectError, match="`web`; the projects are api; to add it: treadle projects add web"
        ) as caught:
            call("web")
        assert caught.value.kind == "unknown"


@pytest.mark.parametrize("member", ["path", "worktrees", "base", "engine"])
def test_an_entry_with_a_nul_is_refused(projects: Projects, folder: Path, member: str) -> None:
    entry = {"path": str(folder), member: f"{folder}\0x"}
    projects.file.parent.mkdir(parents=True, exist_ok=True)
    lines = (f"{name} = {json.dumps(value)}" for name, value in entry.items())
    projects.file.write_text("[projects.web]\n" + "\n".join(lines))
    with pytest.raises(ProjectError, match=f"{member} has a NUL character") as caught:
        projects.find("web")
    assert caught.value.kind == "bad_entry"


@pytest.mark.parametrize("alias", ["", "a b", "-x", "_x", "a/b", "..", "x" * 33, "ü", "a.b", "a\n"])
def test_names_that_are_none(projects: Projects, folder: Path, alias: str) -> None:
    with pytest.raises(ProjectError) as caught:
        projects.add(alias, folder)
    assert caught.value.kind == "bad_alias"
    assert not projects.file.exists()


def test_the_folder_has_to_be_there(projects: Projects, tmp_path: Path) -> None:
    with pytest.raises(ArgumentValueError, match="does not exist"):
        projects.add("web", tmp_path / "no")


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("[projects.web]\npath = 1", "path"),
        ('[projects.web]\nengine = "pi"', "path"),
        ('[projects.web]\npath = "src"', "absolute"),
        ('[projects.web]\npath = "/x"\nworktrees = "."', "folder of its own"),
        ('[projects.web]\npath = "/x"\nbase = "--force"', "base"),
        ('[projects]\nweb = "/x"', "correct it there"),
        ("projects = 1", "no table"),
    ],
)
def test_an_entry_that_cannot_be_used_says_where_it_is(projects: Projects, entry: str, says: str) -> None:
    projects.file.parent.mkdir()
    projects.file.write_text(entry)
    for call in (projects.list, lambda: projects.find("web")):
        with pytest.raises(ProjectError, match=says) as caught:
            call()
        assert caught.value.kind == "bad_entry"
        assert str(projects.file) in str(caught.value)


def test_a_file_that_is_no_toml_is_left_alone(projects: Projects, folder: Path) -> None:
    projects.file.parent.mkdir()
    projects.file.write_text("[projects.web\n")
    with pytest.raises(ConfigError) as caught:
        projects.add("api", folder)
    assert caught.value.line == 1
    assert projects.file.read_text() == "[projects.web\n"


def test_many_at_once_lose_nothing(projects: Projects, folder: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: projects.add(f"p{number:02}", folder), range(24)))
    assert [each.alias for each in projects.list()] == [f"p{number:02}" for number in range(24)]
