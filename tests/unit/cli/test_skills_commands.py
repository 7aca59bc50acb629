"""`treadle skills …`, in this process."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from treadle.cli import main


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "TREADLE_MODEL", "TREADLE_MODEL_PROVIDER", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "project/.git").mkdir(parents=True)
    (tmp_path / "project/inner").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "project/inner")
    return tmp_path / "home"


def rules(home: Path) -> Any:
    return tomllib.loads((home / "config.toml").read_text()).get("skills", {}).get("config", [])


def as_json(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    main([*words, "--json"])
    return json.loads(capsys.readouterr().out)


def test_a_new_skill_is_listed_and_nothing_is_wrong_with_it(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skills", "list"]) == 0
    assert capsys.readouterr().out.startswith("There are no skills here yet.")
    assert main(["skills", "new", "release", "--project", "--description", 'When: "now" # {x}']) == 0
    assert main(["skills", "new", "notes"]) == 0
    assert (home.parent / "project/.agents/skills/release/SKILL.md").is_file()
    capsys.readouterr()
    assert main(["skills", "check"]) == 0
    assert capsys.readouterr().out == "Nothing is wrong with 2 skills.\n"
    assert main(["skills", "list"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == 'release  repo  enabled  When: "now" # {x}'
    assert second.startswith("notes    user  enabled  ")
    found = as_json(capsys, "skills", "list")
    assert [(skill["name"], skill["enabled"]) for skill in found["skills"]] == [("release", True), ("notes", True)]


@pytest.mark.parametrize("name", ["A", "a b", "../a", "", ".a", "x" * 65])
def test_a_name_that_nobody_can_mention_is_refused(home: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skills", "new", name]) == 2
    assert "lower-case letters" in capsys.readouterr().err
    assert not home.exists()


def test_nothing_is_overwritten_and_no_link_is_followed_out_of_a_project(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["skills", "new", "notes"]) == 0
    (home / "skills/notes/SKILL.md").write_text("mine")
    assert main(["skills", "new", "notes"]) == 1
    assert (home / "skills/notes/SKILL.md").read_text() == "mine"
    (home.parent / "elsewhere").mkdir()
    (home.parent / "project/.agents").symlink_to(home.parent / "elsewhere")
    assert main(["skills", "new", "notes", "--project"]) == 1
    assert "leads out of the project" in capsys.readouterr().err
    assert list((home.parent / "elsewhere").iterdir()) == []


def test_a_skill_is_turned_off_and_on(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["skills", "new", "notes"])
    path = str(home / "skills/notes/SKILL.md")
    assert main(["skills", "disable", "notes"]) == 0
    assert rules(home) == [{"name": "notes", "enabled": False}]
    assert main(["skills", "enable", str(home / "skills/notes")]) == 0
    assert rules(home) == [{"name": "notes", "enabled": False}, {"path": path, "enabled": True}]
    capsys.readouterr()
    assert as_json(capsys, "skills", "list")["skills"][0]["enabled"] is True
    assert main(["skills", "disable", "note"]) == 1
    assert "treadle skills disable notes" in capsys.readouterr().err


def test_what_is_wrong_is_said_and_is_an_exit_code(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = {
        "broken": "---\nname: [x\n---\n",
        "other": "---\nname: another\ndescription: y\n---\nDo it.\n",
        "Odd": "---\ndescription: y\n---\nDo it.\n",
        "long": f"---\ndescription: {'d' * 1025}\n---\nDo it.\n",
        "empty": "---\ndescription: y\n---\n\n",
        "fine": "---\ndescription: y\n---\nDo it.\n",
    }
    for name, text in folders.items():
        (home / "skills" / name).mkdir(parents=True)
        (home / "skills" / name / "SKILL.md").write_text(text)
    assert main(["skills", "check"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    problems = {line.split("/skills/")[1].split("/")[0]: line.partition(": ")[2] for line in lines}
    assert problems == {
        "broken": "invalid YAML: line 2 opens `[` that is never closed",
        "other": "it is called another, and its folder other; give both one name",
        "Odd": "it is called 'Odd'; take lower-case letters, digits, `.`, `_` and `-`",
        "long": "its description has 1,025 characters, and models get 1,024",
        "empty": "there is nothing below its front matter; say how it is done",
    }
    answer = as_json(capsys, "skills", "check")
    assert (answer["checked"], len(answer["problems"])) == (5, 5)
    assert main(["skills", "check", str(home / "skills/fine")]) == 0
    assert main(["skills", "check", str(home / "skills/broken/SKILL.md")]) == 1
