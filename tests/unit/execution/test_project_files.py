"""What the server reads because a project has it: not what commands may not read, and not what somebody else wrote."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from treadle.config import SkillSettings, find_instructions
from treadle.errors import ExecError
from treadle.execution import ROOT, Confinement, ProfileRule, ProfileSandbox, ProjectFiles, read_git_info
from treadle.protocol.app import DangerFullAccessSandboxPolicy, ReadOnlySandboxPolicy, WorkspaceWriteSandboxPolicy
from treadle.skills import find_skills

MODES: list[Confinement] = [
    DangerFullAccessSandboxPolicy(),
    ReadOnlySandboxPolicy(),
    WorkspaceWriteSandboxPolicy(),
    ProfileSandbox(rules=(ProfileRule(ROOT, "read"),)),
]
SOMEBODY = 54321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "repo"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/trunk\n")
    (folder / "AGENTS.md").write_text("be kind")
    skill = folder / ".agents" / "skills" / "x"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: x\ndescription: y\n---\n")
    return folder


@pytest.fixture(autouse=True)
def git_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's, which says nothing yet."""
    path = tmp_path / "gitconfig"
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(path))
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    monkeypatch.delenv("SUDO_UID", raising=False)
    return path


def texts(project: ProjectFiles) -> list[str]:
    return [file.text for file in find_instructions(project)]


def test_a_link_must_stay_inside(tmp_path: Path) -> None:
    inside, outside = tmp_path.resolve() / "in", tmp_path.resolve() / "in-side"
    for folder in (inside, outside):
        (folder / ".git").mkdir(parents=True)
        (folder / "file").write_bytes(folder.name.encode())
    (inside / "near").symlink_to("file")
    (inside / "far").symlink_to(outside / "file")
    (inside / "folder").symlink_to(outside)
    project = ProjectFiles(str(inside), None)

    def content(name: str, *, must_stay: bool = True) -> bytes | None:
        found = project.read(str(inside / name), 100, inside=must_stay)
        return None if found is None else found[0]

    assert content("near") == b"in"
    assert not project.left_out
    assert content("far") is None
    assert content("folder/file") is None
    assert [f"{outside}/file" in reason for reason in project.left_out.values()] == [True, True]
    assert content("far", must_stay=False) == b"in-side"


# --- what commands may not read --------------------------------------------------------------------------------------


def test_a_link_to_what_the_profile_denies_is_left_out(repository: Path) -> None:
    secret = repository / "secret.env"
    secret.write_text("KEY=abc")
    (repository / "AGENTS.md").unlink()
    (repository / "AGENTS.md").symlink_to("secret.env")
    rules = (ProfileRule(ROOT, "read"), ProfileRule(f"{repository}/*.env", "deny", glob=True))
    allowed = ProfileSandbox(rules=rules[:1])
    assert texts(ProjectFiles(str(repository), None, allowed)) == ["KEY=abc"], "a link inside of the repository"
    project = ProjectFiles(str(repository), None, ProfileSandbox(rules=rules))
    assert texts(project) == []
    (warning,) = project.warnings
    assert warning == f"{repository}/AGENTS.md is left out: commands of this thread may not read {secret}"


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: type(mode).__name__)
def test_nothing_is_read_in_the_home(repository: Path, mode: Confinement) -> None:
    """Which may be in the repository: people have their settings in one."""
    home = repository / ".treadle"
    home.mkdir()
    (home / "auth.json").write_text('{"key": "---\\n"}')
    (home / "AGENTS.md").write_text("of the user")
    for path in ("AGENTS.md", ".agents/skills/x/SKILL.md", ".git/HEAD"):
        (repository / path).unlink()
        (repository / path).symlink_to(home / "auth.json")
    project = ProjectFiles(str(repository), str(home), mode)
    assert texts(project) == ["of the user"]
    assert find_skills(project, SkillSettings()).skills == ()
    assert read_git_info(project) is None
    assert len(project.left_out) == 3
    assert all("commands of this thread may not read" in reason for reason in project.left_out.values())


def test_a_workspace_in_the_home_has_its_instructions(repository: Path) -> None:
    """As commands can read it."""
    assert texts(ProjectFiles(str(repository), str(repository.parent))) == ["be kind"]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.symlink_to("/proc/self/environ"), "may not read"),
        (lambda path: path.symlink_to("/proc/thread-self/environ"), "may not read"),
        (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
        (lambda path: os.mkfifo(path), "not a regular file"),
        (lambda path: path.symlink_to(path.name), "cannot be read"),
    ],
    ids=["environment", "environment-of-the-thread", "device", "pipe", "circle"],
)
def test_files_that_are_none(tmp_path: Path, make: Callable[[Path], object], reason: str) -> None:
    make(tmp_path / "file")
    project = ProjectFiles(str(tmp_path), None, DangerFullAccessSandboxPolicy())
    assert project.read(str(tmp_path / "file"), 100) is None
    assert reason in project.left_out[str(tmp_path / "file")]


@pytest.mark.parametrize("is_put_back", [False, True])
def test_what_was_opened_counts_and_not_what_is_there_before_or_after(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_put_back: bool
) -> None:
    (tmp_path / "secret").write_text("secret")
    path, real_open = repository / "AGENTS.md", os.open

    def swapped(name: str, flags: int) -> int:
        path.unlink()
        path.symlink_to(tmp_path / "secret")
        descriptor = real_open(name, flags)
        if is_put_back:
            path.unlink()
            os.close(real_open(path, os.O_CREAT))
        return descriptor

    monkeypatch.setattr(os, "open", swapped)
    project = ProjectFiles(str(repository), None)
    assert project.read(str(path), 100, inside=True) is None
    assert "secret" in project.left_out[str(path)]


def test_a_file_that_is_replaced_while_it_is_read_is_still_in_its_place(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real_open = repository / "AGENTS.md", os.open

    def replaced_after(name: str, flags: int) -> int:
        descriptor = real_open(name, flags)
        path.with_suffix(".new").write_text("be kinder")
        path.with_suffix(".new").replace(path)
        return descriptor

    monkeypatch.setattr(os, "open", replaced_after)
    found = ProjectFiles(str(repository), None).read(str(path), 100, inside=True)
    assert found is not None
    assert found[0] == b"be kind"


def test_a_sandbox_that_cannot_be_made_lets_nothing_be_read(repository: Path) -> None:
    """Commands do not run either."""
    (repository / "link").symlink_to(".")
    writable = ProfileRule(f"{repository}/link", "write"), ProfileRule(str(repository), "write")
    project = ProjectFiles(str(repository), None, ProfileSandbox(rules=(ProfileRule(ROOT, "read"), *writable)))
    with pytest.raises(ExecError):
        assert project.policy
    assert texts(project) == []
    assert project.left_out


# --- what somebody else wrote ----------------------------------------------------------------------------------------


@as_root
@pytest.mark.parametrize("whose", [".", ".git"])
def test_the_repository_of_somebody_else_is_left_out(repository: Path, git_config: Path, whose: str) -> None:
    inner = repository / "inner"
    inner.mkdir()
    (inner / "AGENTS.md").write_text("my own")
    os.chown(repository / whose, SOMEBODY, -1)
    project = ProjectFiles(str(repository), None)
    assert texts(project) == []
    found = find_skills(project, SkillSettings())
    assert (found.skills, found.broken) == ((), ((str(repository), project.left_out[str(repository)]),))
    assert read_git_info(project) is None
    (warning,) = project.warnings
    assert f"user {SOMEBODY}" in warning
    assert warning.endswith(f"git config --global --add safe.directory {repository}")
    assert texts(ProjectFiles(str(inner), None)) == ["my own"], "as if there was no repository"
    git_config.write_text(f"[safe]\n\tdirectory = {repository}\n")
    project = ProjectFiles(str(inner), None)
    assert texts(project) == ["be kind", "my own"]
    assert len(find_skills(project, SkillSettings()).skills) == 1
    assert read_git_info(project) is not None


@as_root
@pytest.mark.parametrize("name", ["AGENTS.md", ".agents/skills/x/SKILL.md"])
def test_a_file_of_somebody_else_is_left_out_alone(repository: Path, git_config: Path, name: str) -> None:
    os.chown(repository / name, SOMEBODY, -1)
    project = ProjectFiles(str(repository), None)
    found = {"AGENTS.md": texts(project), ".agents/skills/x/SKILL.md": find_skills(project, SkillSettings()).skills}
    assert [path for path, content in found.items() if not content] == [name]
    assert list(project.left_out) == [f"{repository}/{name}"]
    git_config.write_text("[safe]\n\tdirectory = *\n")
    project = ProjectFiles(str(repository), None)
    assert texts(project)
    assert find_skills(project, SkillSettings()).skills


@as_root
@pytest.mark.parametrize(
    ("safe", "is_trusted"),
    [
        (["{repo}"], True),
        (["{parent}/*"], True),
        (["*"], True),
        (["{parent}"], False),
        (["{repo}/.git"], False),
        (["*", ""], False),
        (["", "{repo}"], True),
    ],
)
def test_safe_directories_are_those_of_git(
    repository: Path, git_config: Path, safe: list[str], is_trusted: bool
) -> None:
    os.chown(repository, SOMEBODY, -1)
    paths = (text.format(repo=repository, parent=repository.parent) for text in safe)
    git_config.write_text("[safe]\n" + "".join(f"\tdirectory = {path}\n" for path in paths))
    assert bool(texts(ProjectFiles(str(repository), None))) is is_trusted


@as_root
def test_a_repository_cannot_call_itself_safe(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(repository, SOMEBODY, -1)
    (repository / ".git" / "config").write_text("[safe]\n\tdirectory = *\n")
    (repository / ".git" / "objects").mkdir()
    (repository / ".git" / "refs").mkdir()
    monkeypatch.chdir(repository)
    monkeypatch.setenv("GIT_DIR", str(repository / ".git"))
    assert texts(ProjectFiles(str(repository), None)) == []


@as_root
def test_what_to_type_is_one_word_whatever_the_name(repository: Path) -> None:
    hostile = repository.rename(repository.parent / "x; rm -rf ~")
    os.chown(hostile, SOMEBODY, -1)
    project = ProjectFiles(str(hostile), None)
    assert project.folders == []
    typed = shlex.split(project.left_out[str(hostile)].partition("type: ")[2])
    assert typed == ["git", "config", "--global", "--add", "safe.directory", str(hostile)]


@as_root
def test_root_trusts_who_has_called_sudo(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(repository, SOMEBODY, -1)
    monkeypatch.setenv("SUDO_UID", str(SOMEBODY))
    assert texts(ProjectFiles(str(repository), None)) == ["be kind"]
    monkeypatch.setattr(os, "geteuid", lambda: SOMEBODY + 1)  # the variable is for root
    assert texts(ProjectFiles(str(repository), None)) == []


@as_root
def test_what_is_roots_is_trusted_by_all(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: SOMEBODY)
    assert texts(ProjectFiles(str(repository), None)) == ["be kind"]


@as_root
def test_without_git_nothing_is_safe(repository: Path, git_config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git_config.write_text("[safe]\n\tdirectory = *\n")
    os.chown(repository, SOMEBODY, -1)
    monkeypatch.setenv("PATH", str(repository))
    assert texts(ProjectFiles(str(repository), None)) == []
