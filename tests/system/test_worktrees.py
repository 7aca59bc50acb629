"""Branches in folders of their own, with real repositories: made, found again, removed only when nothing is lost."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from treadle.execution import Environment, Git, GitError, alone
from treadle.execution import worktrees as checkouts
from treadle.runners import Project, WorktreeError, Worktrees

pytestmark = pytest.mark.anyio
DEADLINE_S = 100


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """git with settings of its own: nobody's name, templates or hooks."""
    settings = tmp_path / "gitconfig"
    settings.write_text("[user]\nname = T\nemail = t@example.invalid\n[init]\ndefaultBranch = main\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("HOME", str(tmp_path))


def git(folder: Path | str, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def commit(folder: Path | str, name: str = "file") -> str:
    (Path(folder) / name).write_text(name)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", name)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    path = tmp_path / "web"
    path.mkdir()
    git(path, "init", "-q")
    commit(path)
    return path


@pytest.fixture(scope="module")
async def environment() -> AsyncIterator[Environment]:
    async with await Environment.connect() as environment:
        yield environment


@pytest.fixture
def worktrees(repository: Path, environment: Environment) -> Worktrees:
    return Worktrees(Project(alias="web", path=str(repository)), environment)


async def problem_of(doing: object) -> WorktreeError:
    with pytest.raises(WorktreeError) as caught:
        await doing  # type: ignore[misc]
    return caught.value


# --- made and found again --------------------------------------------------------------------------------------------


async def test_a_new_branch_gets_a_folder_and_keeps_it(worktrees: Worktrees, repository: Path) -> None:
    made = await worktrees.open("feature/login")
    assert made.path == str(repository / ".worktrees/feature/login")
    assert (made.branch, made.head, made.main, made.managed) == (
        "feature/login",
        git(repository, "rev-parse", "HEAD"),
        False,
        True,
    )
    assert (Path(made.path) / "file").read_text() == "file"
    commit(made.path, "more")
    again = await worktrees.open("feature/login")
    assert (again.path, again.head) == (made.path, git(made.path, "rev-parse", "HEAD"))
    assert [each.branch for each in await worktrees.list()] == ["main", "feature/login"]
    assert git(repository, "status", "--porcelain") == ""


async def test_the_branch_of_the_main_checkout_is_used_there(worktrees: Worktrees, repository: Path) -> None:
    found = await worktrees.open("main")
    assert (found.path, found.main, found.managed) == (str(repository), True, False)
    assert not (repository / ".worktrees").exists()


async def test_a_worktree_that_somebody_made_elsewhere_is_used(
    worktrees: Worktrees, repository: Path, tmp_path: Path
) -> None:
    git(repository, "worktree", "add", "-q", "-b", "hers", str(tmp_path / "elsewhere"))
    found = await worktrees.open("hers")
    assert (found.path, found.managed) == (str(tmp_path / "elsewhere"), False)


async def test_a_local_branch_is_before_that_of_origin_and_that_before_a_new_one(
    environment: Environment, repository: Path, tmp_path: Path
) -> None:
    git(repository, "checkout", "-q", "-b", "both")
    both = commit(repository, "both")
    git(repository, "checkout", "-q", "-b", "theirs", "main")
    theirs = commit(repository, "theirs")
    git(tmp_path, "clone", "-q", str(repository), "clone")
    clone = tmp_path / "clone"
    git(clone, "checkout", "-q", "-b", "both", "origin/both")
    ours = commit(clone, "ours")
    git(clone, "checkout", "-q", "-b", "here", "origin/main")
    git(clone, "branch", "-q", "-D", "theirs")
    git(clone, "tag", "theirs", "HEAD")  # the name of a tag is not the name of a branch
    worktrees = Worktrees(Project(alias="clone", path=str(clone)), environment)

    assert (await worktrees.open("both")).head == ours != both
    assert (await worktrees.open("theirs")).head == theirs
    assert git(clone, "rev-parse", "--abbrev-ref", "theirs@{upstream}") == "origin/theirs"
    # origin's HEAD is `theirs`, which was checked out there.
    assert (await worktrees.open("new")).head == theirs
    assert git(clone, "for-each-ref", "--format=%(upstream)", "refs/heads/new") == ""


async def test_a_new_branch_begins_from_what_the_project_says(environment: Environment, repository: Path) -> None:
    first = git(repository, "rev-parse", "HEAD")
    git(repository, "branch", "stable")
    second = commit(repository, "second")
    project = Project(alias="web", path=str(repository))
    assert (await Worktrees(project, environment).open("a")).head == second
    project = Project(alias="web", path=str(repository), base="stable")
    assert (await Worktrees(project, environment).open("b")).head == first
    project = Project(alias="web", path=str(repository), base="gone")
    problem = await problem_of(Worktrees(project, environment).open("c"))
    assert (problem.kind, "`gone`" in str(problem)) == ("no_base", True)


async def test_a_repository_without_a_commit(environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    git(tmp_path / "empty", "init", "-q")
    problem = await problem_of(Worktrees(Project(alias="e", path=str(tmp_path / "empty")), environment).open("x"))
    assert problem.kind == "no_base"


async def test_a_folder_that_is_no_repository(environment: Environment, tmp_path: Path) -> None:
    worktrees = Worktrees(Project(alias="x", path=str(tmp_path)), environment)
    problem = await problem_of(worktrees.open("x"))
    assert (problem.kind, "git init" in str(problem)) == ("not_a_repository", True)
    assert await worktrees.folder() == str(tmp_path)
    with pytest.raises(GitError, match="is the folder there"):
        await Worktrees(Project(alias="x", path=str(tmp_path / "no")), environment).open("x")


async def test_a_project_inside_a_repository_is_the_same_folder_in_the_worktree(
    environment: Environment, repository: Path
) -> None:
    git(repository, "branch", "without")
    (repository / "app").mkdir()
    commit(repository, "app/code")
    worktrees = Worktrees(Project(alias="app", path=str(repository / "app")), environment)
    assert await worktrees.folder("x") == str(repository / ".worktrees/x/app")
    problem = await problem_of(worktrees.folder("without"))
    assert (problem.kind, problem.branch) == ("missing", "without")


async def test_one_whose_folder_is_gone_is_made_anew(worktrees: Worktrees, repository: Path) -> None:
    made = await worktrees.open("x")
    os.rename(made.path, repository.parent / "moved")
    assert [each.vanished for each in await worktrees.list()] == [False, True]
    assert (await worktrees.open("x")).path == made.path
    assert (Path(made.path) / "file").exists()


@pytest.mark.parametrize("branch", ["../x", "-b", "/etc", "a/../../b", "HEAD", "x y", ".git"])
async def test_no_name_of_a_branch_reaches_git(worktrees: Worktrees, repository: Path, branch: str) -> None:
    for doing in (worktrees.open(branch), worktrees.remove(branch, force=True)):
        assert (await problem_of(doing)).kind == "bad_branch"
    assert not (repository / ".worktrees").exists()


async def test_what_is_in_the_way_is_left_alone(worktrees: Worktrees, repository: Path, tmp_path: Path) -> None:
    (repository / ".worktrees/x").mkdir(parents=True)
    (repository / ".worktrees/x/precious").write_text("")
    assert (await problem_of(worktrees.open("x"))).kind == "occupied"
    (repository / ".worktrees/y").write_text("a file")
    assert (await problem_of(worktrees.open("y"))).kind == "occupied"
    (tmp_path / "victim").mkdir()
    (repository / ".worktrees/link").symlink_to(tmp_path / "victim")
    assert (await problem_of(worktrees.open("link/x"))).kind == "outside"
    assert list((tmp_path / "victim").iterdir()) == []
    await worktrees.open("a")
    git(repository / ".worktrees/a", "checkout", "-q", "--detach")
    git(repository, "branch", "-q", "-D", "a")
    assert (await problem_of(worktrees.open("a/b"))).kind == "occupied"
    assert (await problem_of(worktrees.open("a"))).kind == "occupied"
    assert (repository / ".worktrees/x/precious").exists()


@pytest.mark.parametrize("place", [".", "..", ".git/trees"])
async def test_the_folder_for_worktrees_cannot_hold_the_repository(
    environment: Environment, repository: Path, place: str
) -> None:
    project = Project(alias="web", path=str(repository), worktrees=place)
    assert (await problem_of(Worktrees(project, environment).open("x"))).kind == "outside"


async def test_hooks_and_a_foreign_repository_in_the_environment_have_no_say(
    worktrees: Worktrees, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = repository / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
    hook.chmod(0o755)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path))
    assert (await worktrees.open("x")).path == str(repository / ".worktrees/x")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["evil", "a=b"])
async def test_a_filter_of_the_repository_does_not_run_and_one_of_the_user_does(
    worktrees: Worktrees, repository: Path, tmp_path: Path, name: str
) -> None:
    git(tmp_path, "config", "--global", "filter.users.smudge", "sed s/^/user-/")
    git(tmp_path, "config", "--global", "filter.users.clean", "sed s/^user-//")
    commit(repository, "theirs")
    runs = f"touch {tmp_path}/ran; cat"
    for key, value in (("smudge", runs), ("clean", runs), ("process", f"touch {tmp_path}/ran"), ("required", "true")):
        git(repository, "config", f"filter.{name}.{key}", value)
    git(repository, "config", "filter.users.smudge", runs)
    info = repository / ".git/info"
    info.mkdir(exist_ok=True)
    (info / "attributes").write_text(f"file filter={name}\ntheirs filter=users\n")
    found = Path((await worktrees.open("x")).path)
    assert (found / "file").read_text() == "file"
    assert (found / "theirs").read_text() == "user-theirs"
    os.utime(found / "file", (1, 1))  # so that git reads it again, to see whether it has changed
    await worktrees.remove("x")
    assert not (tmp_path / "ran").exists()


async def test_git_asks_nobody_and_ends_in_time(environment: Environment, repository: Path) -> None:
    asked = Git(environment, str(repository))
    with pytest.raises(GitError, match=r"longer than 0\.5 s") as caught:
        await asked.run("-c", "alias.wait=!sleep 60", "wait", timeout=0.5)
    assert caught.value.exit_code is None
    with pytest.raises(GitError) as caught:
        await asked.run("-c", "alias.leak=!echo https://me:secret@host/x >&2; exit 3", "leak")
    assert (caught.value.exit_code, caught.value.said) == (3, "https://host/x")


# --- at the same time ------------------------------------------------------------------------------------------------


async def test_many_who_want_the_same_branch_get_the_same_worktree(worktrees: Worktrees, repository: Path) -> None:
    found = await asyncio.gather(*(worktrees.open(branch) for branch in ["x"] * 4 + ["y"] * 2))
    assert {each.path for each in found} == {str(repository / ".worktrees" / name) for name in "xy"}
    assert len(await worktrees.list()) == 3


OPEN = """
import asyncio, sys
from treadle.execution import Environment
from treadle.runners.projects import Project
from treadle.execution.worktrees import Worktrees

async def main():
    async with await Environment.connect() as environment:
        worktrees = Worktrees(Project(alias="web", path=sys.argv[1]), environment)
        print("ready", flush=True)
        sys.stdin.readline()
        print((await worktrees.open("x")).path)

asyncio.run(main())
"""


async def test_two_processes_who_want_the_same_branch(worktrees: Worktrees, repository: Path) -> None:
    command = [sys.executable, "-c", OPEN, str(repository)]
    others = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for other in others:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
    answers = await asyncio.gather(*(asyncio.to_thread(each.communicate, "\n", DEADLINE_S) for each in others))
    assert [out for out, _ in answers] == [str(repository / ".worktrees/x") + "\n"] * 2
    assert [each.returncode for each in others] == [0, 0]
    assert len(await worktrees.list()) == 2


async def test_whoever_waits_too_long_is_told(
    worktrees: Worktrees, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkouts, "LOCK_S", 0.1)
    async with alone(str(repository / ".git")):
        problem = await problem_of(worktrees.open("x"))
    assert problem.kind == "busy"
    assert (await worktrees.open("x")).branch == "x"


async def test_one_that_was_left_half_made_is_told_and_not_used(worktrees: Worktrees, repository: Path) -> None:
    made = await worktrees.open("x")
    (repository / ".git/worktrees/x/locked").write_text("initializing")
    problem = await problem_of(worktrees.open("x"))
    assert (problem.kind, problem.path) == ("half_made", made.path)
    git(repository, *str(problem).rpartition(": git ")[2].split())  # what it says to type helps
    assert (await worktrees.open("x")).path == made.path


async def test_whoever_is_cancelled_leaves_nothing_half_made(
    worktrees: Worktrees, repository: Path, tmp_path: Path
) -> None:
    """A filter that waits stands for a checkout that takes long."""
    (repository / ".gitattributes").write_text("file filter=slow\n")
    commit(repository, "second")
    began = tmp_path / "began"
    os.mkfifo(began)
    git(repository, "config", "--global", "filter.slow.smudge", f"echo > {began}; sleep 60; cat")
    opening = asyncio.create_task(worktrees.open("x"))
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.to_thread(began.read_text)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    git(repository, "config", "--global", "--unset", "filter.slow.smudge")
    assert (await worktrees.open("x")).path == str(repository / ".worktrees/x")
    assert git(repository / ".worktrees/x", "status", "--porcelain") == ""


# --- removed ---------------------------------------------------------------------------------------------------------


async def test_one_with_nothing_of_its_own_is_removed_and_its_branch_stays(
    worktrees: Worktrees, repository: Path
) -> None:
    await worktrees.open("feature/a")
    await worktrees.open("feature/b")
    removed = await worktrees.remove("feature/a")
    assert removed.path == str(repository / ".worktrees/feature/a")
    assert not os.path.exists(removed.path)
    assert git(repository, "rev-parse", "feature/a")
    await worktrees.remove("feature/b")
    assert not (repository / ".worktrees/feature").exists()
    assert (repository / ".worktrees").is_dir()
    assert [each.branch for each in await worktrees.list()] == ["main"]


async def test_changes_that_are_not_committed_are_kept_unless_forced(worktrees: Worktrees) -> None:
    for name in ("file", "new"):
        made = await worktrees.open("x")
        (Path(made.path) / name).write_text("changed")
        problem = await problem_of(worktrees.remove("x"))
        assert (problem.kind, problem.path) == ("dirty", made.path)
        assert (Path(made.path) / name).read_text() == "changed"
        await worktrees.remove("x", force=True)
        assert not os.path.exists(made.path)


async def test_commits_that_are_nowhere_else_are_kept_unless_forced(worktrees: Worktrees, repository: Path) -> None:
    made = await worktrees.open("x")
    commit(made.path, "one")
    last = commit(made.path, "two")
    problem = await problem_of(worktrees.remove("x"))
    assert (problem.kind, str(problem).startswith("2 commit")) == ("unpushed", True)
    git(repository, "merge", "-q", "x")
    await worktrees.remove("x")
    made = await worktrees.open("x")
    last = commit(made.path, "three")
    await worktrees.remove("x", force=True)
    assert git(repository, "rev-parse", "x") == last


async def test_commits_that_were_pushed_are_somewhere_else(environment: Environment, repository: Path) -> None:
    clone = repository.parent / "clone"
    git(repository, "clone", "-q", "--no-tags", str(repository), str(clone))
    worktrees = Worktrees(Project(alias="clone", path=str(clone)), environment)
    made = await worktrees.open("x")
    commit(made.path, "one")
    assert (await problem_of(worktrees.remove("x"))).kind == "unpushed"
    git(made.path, "push", "-q", "-u", "origin", "HEAD")
    assert (await worktrees.remove("x")).branch == "x"


async def test_commits_without_a_branch_are_kept(worktrees: Worktrees) -> None:
    made = await worktrees.open("x")
    git(made.path, "checkout", "-q", "--detach")
    commit(made.path, "lost")
    assert (await problem_of(worktrees.remove("x"))).kind == "unpushed"
    await worktrees.remove("x", force=True)
    assert not os.path.exists(made.path)


async def test_what_is_never_removed(worktrees: Worktrees, repository: Path, tmp_path: Path) -> None:
    git(repository, "worktree", "add", "-q", "-b", "hers", str(tmp_path / "elsewhere"))
    await worktrees.open("kept")
    git(repository, "worktree", "lock", "--reason", "on a disk", ".worktrees/kept")
    await worktrees.open("moved")
    os.rename(repository / ".worktrees/moved", tmp_path / "moved")
    (repository / ".worktrees/moved").symlink_to(tmp_path / "moved")
    kinds = {"main": "main", "hers": "outside", "kept": "locked", "moved": "outside", "no": "missing"}
    for branch, kind in kinds.items():
        assert (await problem_of(worktrees.remove(branch, force=True))).kind == kind
    for place in (repository, tmp_path / "elsewhere", repository / ".worktrees/kept", tmp_path / "moved"):
        assert (place / "file").exists()


async def test_those_that_are_gone_are_forgotten(worktrees: Worktrees, repository: Path, tmp_path: Path) -> None:
    git(repository, "worktree", "add", "-q", "-b", "hers", str(tmp_path / "elsewhere"))
    for branch in ("x", "y"):
        await worktrees.open(branch)
    os.rename(repository / ".worktrees/x", tmp_path / "x")
    os.rename(tmp_path / "elsewhere", tmp_path / "unplugged")
    assert [each.branch for each in await worktrees.prune()] == ["x"]
    assert {each.branch for each in await worktrees.list()} == {"main", "hers", "y"}
    problem = await problem_of(worktrees.open("hers"))
    assert (problem.kind, "worktree prune" in str(problem)) == ("missing", True)
