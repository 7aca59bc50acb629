"""The environment of a child, rule by rule in the order of the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.execution import child_environment
from treadle.protocol.exec import EnvPolicy

SERVER = {
    "PATH": "/bin",
    "HOME": "/home/me",
    "LANG": "C",
    "EDITOR": "vi",
    "API_KEY": "k",
    "my_secret_thing": "s",
    "GitHubToken": "t",
    "MONKEY": "m",
}


def _child(
    env: Mapping[str, str] | None = None,
    *,
    inherit: Literal["all", "core", "none"] = "all",
    ignore: bool = True,
    exclude: tuple[str, ...] = (),
    added: Mapping[str, str] | None = None,
    only: tuple[str, ...] = (),
    server: Mapping[str, str] = SERVER,
) -> dict[str, str]:
    policy = EnvPolicy(
        inherit=inherit, ignore_default_excludes=ignore, exclude=exclude, set=added or {}, include_only=only
    )
    return child_environment(env or {}, policy, server)


def test_without_a_policy_exactly_env() -> None:
    assert child_environment({"A": "1"}, None, SERVER) == {"A": "1"}
    assert child_environment({}, None, SERVER) == {}


def test_inherit_all() -> None:
    assert _child() == SERVER


def test_inherit_none() -> None:
    assert _child(inherit="none") == {}


def test_inherit_core() -> None:
    core = ["PATH", "SHELL", "TMPDIR", "TEMP", "TMP", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "USER"]
    server = {name: name.lower() for name in (*core, "EDITOR", "LC_TIME", "path", "PWD")}
    assert _child(inherit="core", server=server) == {name: name.lower() for name in core}
    assert _child(inherit="core") == {"PATH": "/bin", "HOME": "/home/me", "LANG": "C"}


def test_what_looks_like_a_secret_is_left_out_unless_told_otherwise() -> None:
    assert _child(ignore=False) == {"PATH": "/bin", "HOME": "/home/me", "LANG": "C", "EDITOR": "vi"}
    assert _child(ignore=True) == SERVER


def test_exclude_takes_out_what_is_inherited_but_not_what_is_set() -> None:
    kept = _child(exclude=("p*", "EDITOR", "?ANG"), added={"PATH": "/mine"}, server={**SERVER, "SLANG": "x"})
    assert "EDITOR" not in kept
    assert "LANG" not in kept
    assert kept["SLANG"] == "x"
    assert kept["PATH"] == "/mine"


def test_set_adds_and_replaces_also_secrets() -> None:
    assert _child(inherit="none", ignore=False, added={"MY_TOKEN": "t"}) == {"MY_TOKEN": "t"}
    assert _child(added={"PATH": "/x"})["PATH"] == "/x"


def test_include_only_filters_what_is_set_too() -> None:
    assert _child(added={"HOMER": "d", "OTHER": "o"}, only=("home*", "path")) == {
        "PATH": "/bin",
        "HOME": "/home/me",
        "HOMER": "d",
    }


def test_env_is_laid_on_top_unfiltered() -> None:
    env = {"PATH": "/top", "A_TOKEN": "t", "OTHER": "o"}
    assert _child(env, ignore=False, exclude=("*",), added={"PATH": "/set"}, only=("nothing",)) == env


@pytest.mark.parametrize(
    "name",
    [
        "CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE",
        "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN",
        "NODE_REPL_AUTH_TOKEN",
        "OPENAI_FEDERATION_RULE_ID",
        "OPENAI_IDENTITY_TOKEN_FILE",
        "OPENAI_WORKLOAD_IDENTITY_CONTEXT",
    ],
)
def test_credentials_of_the_server_are_never_inherited(name: str) -> None:
    assert _child(server={name: "x", "A": "1"}) == {"A": "1"}
    assert _child(server={name: "x", "A": "1"}, only=("*",)) == {"A": "1"}


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("*", "ANY", True),
        ("A*", "abc", True),
        ("A*", "BA", False),
        ("*B", "ab", True),
        ("*B", "ba", False),
        ("A*C*E", "abcde", True),
        ("A*C*E", "aecc", False),
        ("*AB*AB", "abab", True),
        ("*AB*AB", "ab", False),
        ("*AB*AB", "abb", False),
        ("A**B", "ab", True),
        ("A?C", "abc", True),
        ("A?C", "ac", False),
        ("", "", True),
        ("", "A", False),
        ("A.C", "ABC", False),
        ("[AB]", "A", False),
        ("[AB]", "[ab]", True),
        ("A|B", "A", False),
        ("(A)", "(a)", True),
    ],
)
def test_globs(pattern: str, name: str, matches: bool) -> None:
    assert (_child(exclude=(pattern,), server={name: "x"}) == {}) is matches
    assert (_child(only=(pattern,), server={name: "x"}) == {name: "x"}) is matches
    assert (_child(exclude=("never", pattern, "ever"), server={name: "x"}) == {}) is matches


def _glob(pattern: str, name: str) -> bool:
    """The meaning of a glob, said as slowly as possible."""
    if not pattern:
        return not name
    if pattern[0] == "*":
        return any(_glob(pattern[1:], name[start:]) for start in range(len(name) + 1))
    return bool(name) and pattern[0] in ("?", name[0]) and _glob(pattern[1:], name[1:])


@given(st.text("AB*?", max_size=7), st.text("AB", max_size=7))
def test_globs_mean_what_they_say(pattern: str, name: str) -> None:
    assert (_child(exclude=(pattern,), server={name: "x"}) == {}) is _glob(pattern, name)


def test_many_stars_cost_no_more_than_one() -> None:
    """With backtracking this would not end in a lifetime."""
    name = "A" * 60
    for pattern in ("*" * 40 + "B", "*A" * 40 + "B"):
        assert _child(exclude=(pattern,), server={name: "x"}) == {name: "x"}
