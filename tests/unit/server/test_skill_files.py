"""Skills on disk: their front matter, and where they are looked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from treadle.execution import ProjectFiles
from treadle.server import find_skills, front_matter, read_skill, skill_files


@pytest.mark.parametrize(
    ("text", "description"),
    [
        ("description: plain # note", "plain"),
        ('description: "with \\"quotes\\": and colon"', 'with "quotes": and colon'),
        ("description: 'it''s'", "it's"),
        ("description: >\n  two\n  lines", "two lines"),
        ("description: |\n  two\n  lines", "two\nlines"),
        ("description: goes\n  on here", "goes on here"),
    ],
)
def test_front_matter_is_read_as_people_write_it(text: str, description: str) -> None:
    assert front_matter(f"---\nname: x\n{text}\n---\nbody: no\n") == {"name": "x", "description": description}


def test_front_matter_has_members_of_members() -> None:
    text = "---\nmetadata:\n  short-description: short\n  list:\n    - a: b\n---\n"
    assert front_matter(text)["metadata.short-description"] == "short"


@pytest.mark.parametrize("text", ["", "name: x", "---\nname: x\n", "--- \nname: x\n--"])
def test_front_matter_has_two_lines_around_it(text: str) -> None:
    with pytest.raises(ValueError, match="frontmatter"):
        front_matter(text)


# --- files -----------------------------------------------------------------------------------------------------------


def skill(folder: Path, text: str = "---\nname: x\ndescription: y\n---\n") -> str:
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(text)
    return str(folder / "SKILL.md")


def test_a_skill_without_a_name_has_that_of_its_folder(tmp_path: Path) -> None:
    path = skill(tmp_path / "tidy", "---\ndescription: >\n  tidies\n  up\nmetadata:\n  short-description: tidy\n---\n")
    assert read_skill(path, "repo") == ("tidy", "tidies up", "tidy", path, "repo")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("---\nname: x\n---\n", "missing field `description`"),
        (f"---\nname: {'n' * 65}\ndescription: y\n---\n", "invalid name: exceeds maximum length of 64"),
        (f"---\ndescription: {'d' * 1025}\n---\n", "invalid description: exceeds maximum length of 1024"),
    ],
)
def test_what_is_wrong_with_a_skill_is_said(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_skill(skill(tmp_path / "x", text), "user")


def test_a_fifo_is_no_skill_and_hangs_nobody(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    os.mkfifo(tmp_path / "x" / "SKILL.md")
    with pytest.raises(ValueError, match="not a regular file"):
        read_skill(str(tmp_path / "x" / "SKILL.md"), "repo")


def test_the_folders_of_a_project_begin_at_its_repository(tmp_path: Path) -> None:
    deep = tmp_path / "repo" / "a" / "b"
    deep.mkdir(parents=True)
    (tmp_path / "repo" / ".git").touch()  # that of a worktree is a file
    assert ProjectFiles(str(deep), None).folders == [str(tmp_path / "repo" / part) for part in (".", "a", "a/b")]


def test_links_that_lead_in_a_circle_are_followed_once(tmp_path: Path) -> None:
    root = tmp_path / "skills"
    path = skill(root / "one")
    (root / "one" / "again").symlink_to(root)
    (root / ".hidden").mkdir()
    skill(root / ".hidden" / "two")
    found, broken = find_skills(ProjectFiles(str(tmp_path / "nowhere"), str(tmp_path)))
    assert ([entry.path for entry in found], broken) == ([path], [])


def test_the_search_ends_in_a_tree_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skill_files, "MAX_FOLDERS", 10)
    for number in range(20):
        skill(tmp_path / "skills" / f"s{number:02}")
    found, _ = find_skills(ProjectFiles(str(tmp_path / "nowhere"), str(tmp_path)))
    assert 0 < len(found) < 10
