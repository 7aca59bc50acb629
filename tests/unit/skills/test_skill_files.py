"""Skills on disk: where they are looked for, and what is read of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from treadle.config import SkillRule, SkillSettings
from treadle.execution import ROOT, FileSnapshot, ProfileRule, ProfileSandbox, ProjectFiles, bounded_reads
from treadle.skills import (
    SkillPlace,
    SkillSet,
    find_skills,
    is_enabled,
    known_skills,
    look_for_skills,
    read_skill,
    skill_files,
)

DOCUMENT = "---\nname: {}\ndescription: what it is for\n---\nDo it.\n"


def skill(folder: Path, text: str | None = None) -> str:
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(DOCUMENT.format(folder.name) if text is None else text)
    return str(folder / "SKILL.md")


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home directory of the user."""
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setattr(skill_files, "ADMIN_ROOTS", (str(tmp_path / "etc"),))
    return tmp_path / "user"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    return tmp_path / "repo"


def found(cwd: Path, home: Path | None = None, extra: tuple[str, ...] = (), **settings: object) -> SkillSet:
    project = ProjectFiles(str(cwd), None if home is None else str(home))
    return find_skills(project, SkillSettings(**settings), extra)  # type: ignore[arg-type]


def names(skills: SkillSet) -> list[str]:
    return [each.name for each in skills.skills]


# --- where -----------------------------------------------------------------------------------------------------------


def test_the_nearest_ones_come_first(tmp_path: Path, repository: Path, user: Path) -> None:
    deep = repository / "a" / "b"
    deep.mkdir(parents=True)
    for place in (
        tmp_path / "etc/admin",
        tmp_path / "home/skills/of-home",
        user / ".agents/skills/of-user",
        repository / ".codex/skills/top-codex",
        repository / ".agents/skills/top",
        repository / "a/.agents/skills/group/inner/middle",
        deep / ".agents/skills/low",
        tmp_path / ".agents/skills/outside",
        tmp_path / "extra/of-client",
        tmp_path / "home/more/configured",
    ):
        skill(place)
    every = found(deep, tmp_path / "home", (str(tmp_path / "extra"),), roots=("more",))
    user_skills = ["configured", "of-client", "of-home", "of-user"]
    assert names(every) == ["low", "middle", "top", "top-codex", *user_skills, "admin"]
    assert [each.scope for each in every.skills] == ["repo"] * 4 + ["user"] * 4 + ["admin"]
    assert every.broken == ()


def test_the_folders_of_claude_count_when_they_are_switched_on(repository: Path, user: Path) -> None:
    skill(repository / ".claude/skills/one")
    skill(user / ".claude/skills/two")
    assert names(found(repository)) == []
    assert names(found(repository, claude_folders=True)) == ["one", "two"]


def test_in_the_home_directory_the_skills_are_the_users(user: Path) -> None:
    skill(user / ".agents/skills/mine")
    assert [each.scope for each in found(user).skills] == ["user"]


def test_two_of_one_name_are_both_there_and_a_rule_turns_off_both(repository: Path, user: Path) -> None:
    near, far = skill(repository / ".agents/skills/one"), skill(user / ".agents/skills/one")
    both = found(repository).skills
    assert [each.path for each in both] == [near, far]
    rules = (SkillRule(name="one", enabled=False), SkillRule(path=far, enabled=True))
    assert [is_enabled(each, rules) for each in both] == [False, True]


def test_a_skill_has_no_skills_inside(repository: Path) -> None:
    skill(repository / ".agents/skills/one")
    skill(repository / ".agents/skills/one/references/two")
    skill(repository / ".agents/skills/.hidden/three")
    (repository / ".agents/skills/SKILL.md").write_text(DOCUMENT.format("root"))
    assert names(found(repository)) == ["one", "root"]


# --- what is read ----------------------------------------------------------------------------------------------------


def test_a_skill_without_a_name_has_that_of_its_folder(tmp_path: Path) -> None:
    path = skill(tmp_path / "tidy", "---\ndescription: >\n  tidies\n  up\nmetadata:\n  short-description: tidy\n---\n")
    made, problem = read_skill(path, "repo")
    assert (made.name, made.description, made.short_description, problem) == ("tidy", "tidies up", "tidy", None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("no front matter", "missing YAML frontmatter delimited by ---"),
        ("---\nname: x\n---\n", "missing field `description`"),
        (f"---\nname: {'n' * 65}\ndescription: y\n---\n", "invalid name: exceeds maximum length of 64"),
        ("---\nname: [unclosed\ndescription: y\n---\n", "line 2 opens `\\[` that is never closed"),
        ("---\nname: [x]\ndescription: y\n---\n", "`name` is not a text"),
    ],
)
def test_what_is_wrong_with_one_skill_is_said_and_concerns_no_other(repository: Path, text: str, problem: str) -> None:
    bad = skill(repository / ".agents/skills/bad", text)
    skill(repository / ".agents/skills/good")
    with pytest.raises(ValueError, match=problem):
        read_skill(bad, "repo")
    both = found(repository)
    assert names(both) == ["good"]
    assert [broken.path for broken in both.broken] == [bad]


def test_metadata_says_how_it_is_shown_what_it_needs_and_who_may_choose_it(tmp_path: Path) -> None:
    path = skill(tmp_path / "one")
    (tmp_path / "one/agents").mkdir()
    metadata = tmp_path / "one/agents/openai.yaml"
    metadata.write_text(
        'interface:\n  display_name: "One"\n  icon_small: ./assets/one.svg\n  unknown: x\n'
        "dependencies:\n  tools:\n    - type: mcp\n      value: docs\n      url: https://docs.example/mcp\n"
        "policy:\n  allow_implicit_invocation: false\n"
    )
    made, problem = read_skill(path, "user")
    assert problem is None
    assert made.interface is not None
    assert (made.interface.display_name, made.interface.icon_small) == ("One", str(tmp_path / "one/assets/one.svg"))
    assert [(tool.type, tool.value, tool.url) for tool in made.tools] == [("mcp", "docs", "https://docs.example/mcp")]
    assert not made.implicit
    metadata.write_text("policy: {allow_implicit_invocation: perhaps}\n")
    made, problem = read_skill(path, "user")
    assert problem is not None
    assert problem.path == str(metadata)
    assert not made.implicit, "nobody knows whether the model may choose it"


# --- hostile projects ------------------------------------------------------------------------------------------------


def test_a_fifo_is_no_skill_and_hangs_nobody(repository: Path) -> None:
    for name in ("SKILL.md", "agents/openai.yaml"):
        fifo = repository / ".agents/skills" / name.replace("/", "-") / name
        fifo.parent.mkdir(parents=True)
        os.mkfifo(fifo)
    (repository / ".agents/skills/agents-openai.yaml/SKILL.md").write_text(DOCUMENT.format("two"))
    both = found(repository)
    assert names(both) == ["two"]
    assert [broken.message for broken in both.broken] == ["it cannot be read, or is not a regular file"] * 2


def test_a_link_out_of_the_project_is_left_out(tmp_path: Path, repository: Path) -> None:
    outside = skill(tmp_path / "outside/secret")
    (repository / ".agents/skills/file").mkdir(parents=True)
    (repository / ".agents/skills/file/SKILL.md").symlink_to(outside)
    (repository / ".agents/skills/folder").symlink_to(tmp_path / "outside")
    (repository / ".codex").mkdir()
    (repository / ".codex/skills").symlink_to(tmp_path / "outside")
    every = found(repository)
    assert names(every) == []
    links = (".agents/skills/file/SKILL.md", ".agents/skills/folder", ".codex/skills")
    assert [broken.path for broken in every.broken] == [str(repository / link) for link in links]  # no way beyond them
    assert all("which is not in" in broken.message for broken in every.broken)


def test_a_link_inside_of_the_project_and_any_of_the_users_is_followed(
    tmp_path: Path, repository: Path, user: Path
) -> None:
    skill(repository / "shared/one")
    skill(tmp_path / "elsewhere/two")
    (repository / ".agents").mkdir()
    (repository / ".agents/skills").symlink_to("../shared")
    (user / ".agents/skills").mkdir(parents=True)
    (user / ".agents/skills/two").symlink_to(tmp_path / "elsewhere/two")
    assert names(found(repository)) == ["one", "two"]


def test_links_that_lead_in_a_circle_are_followed_once(repository: Path) -> None:
    root = repository / ".agents/skills"
    path = skill(root / "group/one")
    (root / "group/again").symlink_to(root)
    every = found(repository)
    assert ([each.path for each in every.skills], every.broken) == ([path], ())


def test_a_tree_without_end_takes_nothing_from_the_user(
    repository: Path, user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skill_files, "MAX_FOLDERS", 10)
    for number in range(20):
        skill(repository / f".agents/skills/s{number:02}")
    skill(user / ".agents/skills/mine")
    every = found(repository)
    assert 0 < len(every.skills) <= 10
    assert names(every)[-1] == "mine"
    assert [broken.message for broken in every.broken] == ["only the first 10 folders were looked at"]


def test_a_folder_of_many_names_is_cut(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skill_files, "MAX_ENTRIES", 3)
    root = repository / ".agents/skills"
    root.mkdir(parents=True)
    for number in range(5):
        (root / f"f{number}").touch()
    assert [broken.path for broken in found(repository).broken] == [str(root)]


def test_a_huge_file_is_read_to_a_limit(repository: Path) -> None:
    path = skill(repository / ".agents/skills/big")
    with open(path, "ab") as file:
        file.truncate(1 << 40)  # a terabyte of holes
    assert names(found(repository)) == ["big"]


def test_what_commands_may_not_read_is_not_for_the_model_to_choose(repository: Path, user: Path) -> None:
    path = skill(user / ".agents/skills/mine")
    rules = (ProfileRule(ROOT, "read"), ProfileRule(str(user), "deny"))
    project = ProjectFiles(str(repository), str(user / "home"), ProfileSandbox(rules=rules))
    (hidden,) = find_skills(project, SkillSettings()).skills
    assert (hidden.path, hidden.implicit) == (path, False)
    assert found(repository).skills[0].implicit


# --- what is known ---------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_nothing_is_read_again_until_something_looks_different(
    repository: Path, user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_reads, "SETTLED_NS", 0)
    monkeypatch.setattr(FileSnapshot, "_cover", lambda *_: None)  # wherever the tests run
    place = SkillPlace(str(repository), None, str(user / "home"), SkillSettings())
    path = skill(repository / ".agents/skills/group/one")
    linked = skill(repository / "shared/two")
    (repository / ".agents/skills/two").symlink_to(repository / "shared/two")
    metadata = Path(path).parent / "agents/openai.yaml"

    async def is_known() -> bool:
        import asyncio

        await asyncio.sleep(0)  # each step of the loop looks once
        return known_skills.current(place) is not None

    def change(what: str) -> None:
        match what:
            case "text":
                Path(path).write_text(DOCUMENT.format("other"))
            case "linked text":
                Path(linked).write_text(DOCUMENT.format("other"))
            case "link":
                (repository / ".agents/skills/two").unlink()
            case "new":
                skill(repository / ".agents/skills/group/new")
            case "new root":
                skill(user / ".agents/skills/mine")
            case "metadata":
                metadata.parent.mkdir()
                metadata.touch()
            case "more metadata":
                metadata.write_text("policy: {}")
            case "gone":
                Path(path).unlink()

    for what in ("text", "linked text", "link", "new", "new root", "metadata", "more metadata", "gone"):
        look_for_skills(place)
        assert await is_known(), what
        change(what)
        assert not await is_known(), what
