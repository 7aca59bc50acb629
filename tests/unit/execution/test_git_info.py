"""Where a repository stands, compared with what git itself says."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from treadle.execution import ProjectFiles, origin_url, read_git_info
from treadle.protocol.app import GitInfo

WHO = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}


def git(folder: Path, *words: str) -> str:
    environment = {**os.environ, **WHO, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(["git", *words], cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def git_info(cwd: str) -> GitInfo | None:
    return read_git_info(ProjectFiles(cwd, None))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "trunk")
    git(folder, "commit", "-q", "--allow-empty", "-m", "one")
    return folder


def test_commit_branch_and_origin(repository: Path) -> None:
    git(repository, "remote", "add", "origin", "https://user:secret@example.com/a.git")
    below = repository / "a" / "b"
    below.mkdir(parents=True)
    info = git_info(str(below))
    assert info is not None
    assert (info.sha, info.branch) == (git(repository, "rev-parse", "HEAD"), "trunk")
    assert info.origin_url == "https://example.com/a.git"  # not the password


def test_packed_references(repository: Path) -> None:
    git(repository, "pack-refs", "--all")
    info = git_info(str(repository))
    assert info is not None
    assert info.sha == git(repository, "rev-parse", "HEAD")


def test_a_detached_head_has_no_branch(repository: Path) -> None:
    git(repository, "checkout", "-q", "--detach")
    info = git_info(str(repository))
    assert info is not None
    assert (info.sha, info.branch) == (git(repository, "rev-parse", "HEAD"), None)


def test_a_worktree(repository: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    git(repository, "worktree", "add", "-q", "-b", "side", str(other))
    info = git_info(str(other))
    assert info is not None
    assert (info.sha, info.branch) == (git(other, "rev-parse", "HEAD"), "side")


def test_a_repository_without_commits(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "trunk")
    info = git_info(str(tmp_path))
    assert info is not None
    assert (info.sha, info.branch) == (None, "trunk")


def test_no_repository(tmp_path: Path) -> None:
    assert git_info(str(tmp_path / "nowhere")) is None


def test_a_reference_cannot_lead_out(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("0" * 40)
    (repository / ".git" / "HEAD").write_text("ref: refs/../../../outside\n")
    info = git_info(str(repository))
    assert info is not None
    assert info.sha is None


@pytest.mark.parametrize(
    ("config", "url"),
    [
        ('[remote "origin"]\n\turl = one\n\turl = two\n', "one"),
        ('[Remote "origin"]\nURL=one', "one"),
        ('[remote "origin"] url = one', "one"),
        ('[remote "Origin"]\nurl = one', None),
        ('[remote "origin"]\n[core]\nurl = one', None),
        ('[remote "origin"]\n# url = one\nurl = "a # b" # c\n', "a # b"),
        ('[remote "origin"]\nurl = two\\\nlines', "twolines"),
        ('[remote "origin"]\nurl =\n', None),
        ("[remote", None),
        ("", None),
    ],
)
def test_the_configuration_is_read_as_git_reads_it(config: str, url: str | None) -> None:
    assert origin_url(config) == url


@pytest.mark.parametrize(
    "filling", ["\n", '[remote "origin"]', '[remote "origin"]\n', "[", '"', "url", " ", "\\\n", "="]
)
def test_a_hostile_configuration_is_read_in_no_time(repository: Path, filling: str) -> None:
    """An expression that begins anew at every line took five seconds for 64 KiB of newlines, and four times that for
    twice as many."""
    (repository / ".git" / "config").write_text('[remote "origin"]\n' + filling * (250_000 // len(filling)))
    info = git_info(str(repository))
    assert info is not None
    assert info.branch == "trunk"


def test_only_regular_files_are_read(repository: Path) -> None:
    (repository / ".git" / "config").unlink()
    os.mkfifo(repository / ".git" / "config")
    info = git_info(str(repository))
    assert info is not None
    assert info.origin_url is None


@pytest.mark.parametrize("name", ["{outside}", "refs/../../{outside}", "refs/heads/../../../{name}", "--upload-pack=x"])
def test_a_reference_never_names_a_file_outside(repository: Path, tmp_path: Path, name: str) -> None:
    outside = repository.parent / "key"
    outside.write_text("a" * 40)
    head = "ref: " + name.format(outside=outside, name=outside.name)
    (repository / ".git" / "HEAD").write_text(head + "\n")
    info = git_info(str(repository))
    assert info is not None
    assert (info.sha, info.branch) == (None, None)


@pytest.mark.parametrize("name", ["a\0b", "a\nb", "a b", "a\x1b[2Jb", "a..b", "a:b", ""])
def test_what_is_no_branch_is_none(repository: Path, name: str) -> None:
    (repository / ".git" / "HEAD").write_text(f"ref: refs/heads/{name}\n")
    info = git_info(str(repository))
    assert info is not None
    assert info.branch is None


def test_a_branch_may_have_any_letters(repository: Path) -> None:
    (repository / ".git" / "HEAD").write_text("ref: refs/heads/fix/größe-日本-x\n")
    info = git_info(str(repository))
    assert info is not None
    assert info.branch == "fix/größe-日本-x"
