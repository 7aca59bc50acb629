"""What we take for the name of a branch is what git takes for one."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from treadle.execution import MAX_NAME, MAX_PART, branch_problem

ODD = st.text(st.sampled_from("ab/.-@{}~^:?*[\\ \t\x7flock"), min_size=1, max_size=8)


def git_takes(name: str) -> bool:
    # Where there is no repository, `@{-1}` is nobody's last branch.
    asked = subprocess.run(["git", "check-ref-format", "--branch", name], cwd="/", capture_output=True, timeout=100)
    return asked.returncode == 0


@pytest.mark.parametrize("name", ["main", "feature/login", "a.b", "ünï/çödé", "x@y", "-".join("abc"), "a{b}", "@x"])
def test_names(name: str) -> None:
    assert branch_problem(name) is None
    assert git_takes(name)


@pytest.mark.parametrize(
    "name",
    [
        *("", "HEAD", "-f", "--force", "/x", "x/", "x.", "a..b", "../x", "a//b", "a@{1}", "@{-1}"),
        *("a b", "a\tb", "a\nb", "a~b", "a^b", "a:b", "a?b", "a*b", "a[b", "a\\b", "a\x7fb", ".a", "a/.b", "a/b.lock"),
    ],
)
def test_no_names(name: str) -> None:
    assert branch_problem(name)
    assert not git_takes(name)


@pytest.mark.parametrize("name", ["@", "a\u202eb", "a\u200bb", "a\ud800", "x" * (MAX_PART + 1), "x/" * MAX_NAME + "x"])
def test_names_that_git_would_take_and_nobody_wants(name: str) -> None:
    assert branch_problem(name)


@settings(max_examples=40)
@given(ODD)
@example("a.lock/b")
def test_the_same_as_git(name: str) -> None:
    assert (branch_problem(name) is None) == (git_takes(name) and name != "@")
