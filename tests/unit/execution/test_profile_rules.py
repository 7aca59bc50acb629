"""What a permission profile allows at the paths of this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.errors import SandboxRefused
from treadle.execution import (
    Access,
    HiddenHome,
    Policy,
    ProfileAccess,
    ProfileRule,
    ProfileSandbox,
    contains,
    matching_paths,
    policy_from_wire,
    sandbox_for,
    split_pattern,
)

RANK: dict[Access, int] = {"none": 0, "read": 1, "write": 2}


def meaning(sandbox: ProfileSandbox, cwd: Path, home: Path | None = None, *, protect: bool = True) -> Policy:
    found = sandbox_for(sandbox, str(cwd), home=str(home) if home else None, protect=protect)
    policy = policy_from_wire(found)
    assert policy is not None
    return policy


def profile(*rules: tuple[str, ProfileAccess], **more: object) -> ProfileSandbox:
    return ProfileSandbox(rules=tuple(ProfileRule(place, access) for place, access in rules), **more)  # type: ignore[arg-type]


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    here = tmp_path / "ws"
    for name in ("docs/open", "secret", "src/deep"):
        (here / name).mkdir(parents=True)
    for name in ("a.env", "src/b.env", "src/deep/c.env", "src/kept.txt"):
        (here / name).write_text("x")
    return here


def test_the_longest_rule_decides(cwd: Path) -> None:
    found = meaning(
        profile(
            (":root", "read"),
            (":workspace_roots", "write"),
            (":workspace_roots/docs", "read"),
            (":workspace_roots/docs/open", "write"),
            (":workspace_roots/secret", "deny"),
        ),
        cwd,
    )
    assert [found.access(str(cwd / name)) for name in ("new", "docs/a", "docs/open/a", "secret/a")] == [
        "write",
        "read",
        "write",
        "none",
    ]
    assert found.access("/usr") == "read"
    assert not found.network


def test_what_no_rule_is_about_cannot_be_read(cwd: Path) -> None:
    found = meaning(profile((":minimal", "read"), (":workspace_roots", "read")), cwd)
    assert found.access(str(cwd / "src")) == "read"
    assert found.access(str(cwd.parent)) == "none"
    assert found.access(os.path.realpath("/usr/bin")) == "read"


def test_of_two_rules_for_one_path_the_narrower_counts(cwd: Path) -> None:
    for rules in ((("/tmp", "read"), (":slash_tmp", "write")), ((":slash_tmp", "write"), ("/tmp", "read"))):
        assert meaning(profile((":root", "read"), *rules), cwd).access("/tmp") == "read"
    both = profile((":workspace_roots", "deny"), (str(cwd), "write"), (":root", "read"))
    assert meaning(both, cwd).access(str(cwd)) == "none"


def test_what_git_takes_orders_from_stays_unless_it_is_named(cwd: Path) -> None:
    other = cwd.parent / "other"
    other.mkdir()
    plain = profile((":root", "read"), (":workspace_roots", "write"), workspace_roots=(str(other),))
    for root in (cwd, other):
        assert meaning(plain, root).access(str(root / ".git")) == "read"
        assert meaning(plain, cwd).access(str(root / ".treadle")) == "read"
    (cwd / ".git").mkdir()
    named = profile((":root", "read"), (":workspace_roots", "write"), (":workspace_roots/.git", "write"))
    assert meaning(named, cwd).access(str(cwd / ".git")) == "write"
    assert meaning(named, cwd).access(str(cwd / ".codex")) == "read"
    everything = profile((":root", "write"))
    assert meaning(everything, cwd).access(str(cwd / ".git")) == "read"


def test_the_home_is_hidden_whatever_the_profile_says(tmp_path: Path, cwd: Path) -> None:
    home = tmp_path / "home"
    (home / "skills").mkdir(parents=True)
    found = meaning(profile((":root", "write")), cwd, home)
    assert found.access(str(home / "auth.json")) == "none"
    assert found.access(str(home / "skills/a")) == "read"
    closed = meaning(profile((":minimal", "read"), (":workspace_roots", "write")), cwd, home)
    assert closed.access(str(home / "skills/a")) == "none"
    for access in ("read", "write"):
        with pytest.raises(SandboxRefused, match="in the home of Treadle"):
            meaning(profile((":root", "read"), (str(home / "auth.json"), access)), cwd, home)


@pytest.mark.parametrize("name", ["auth.json", "keys.json", "mcp_tokens", "config.toml", "skills"])
def test_what_carries_authority_is_never_a_root(tmp_path: Path, name: str) -> None:
    home = HiddenHome(str(tmp_path / "home"))
    assert home.reserves(str(tmp_path / "home" / name))
    assert not home.reserves(str(tmp_path / "home" / "worktrees"))


def test_a_workspace_in_the_home_is_what_the_profile_says(tmp_path: Path) -> None:
    here = tmp_path / "home/worktrees/a"
    here.mkdir(parents=True)
    home = tmp_path / "home"
    writes = profile((":root", "read"), (":workspace_roots", "write"))
    assert meaning(writes, here, home).access(str(here / "x")) == "write"
    assert meaning(profile((":root", "read")), here, home).access(str(here / "x")) == "read"
    assert meaning(profile((":minimal", "read")), here, home).access(str(here / "x")) == "none"
    assert meaning(writes, here, home).access(str(home / "worktrees")) == "none"


def test_a_rule_that_a_command_could_move_is_refused(cwd: Path) -> None:
    (cwd / "link").symlink_to(cwd / "secret")
    with pytest.raises(SandboxRefused, match="symbolic link"):
        meaning(profile((":root", "read"), (":workspace_roots", "write"), (":workspace_roots/link", "deny")), cwd)
    found = meaning(profile((":root", "read"), (":workspace_roots/link", "deny")), cwd)  # nothing can move it here
    assert found.access(str(cwd / "secret")) == "none"


# --- patterns --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("**/*.env", ["a.env", "src/b.env", "src/deep/c.env"]),
        ("*.env", ["a.env"]),
        ("src/**", ["src/b.env", "src/deep", "src/kept.txt"]),
        ("**/deep", ["src/deep"]),
        ("src/*/?.env", ["src/deep/c.env"]),
        ("**/[ab].env", ["a.env", "src/b.env"]),
        ("**/[!a].env", ["src/b.env", "src/deep/c.env"]),
        ("**/kept.*", ["src/kept.txt"]),
        ("**/*.none", []),
    ],
)
def test_patterns_match_as_the_shell_would(cwd: Path, pattern: str, matches: list[str]) -> None:
    assert sorted(matching_paths(str(cwd), pattern)) == [str(cwd / name) for name in matches]


def test_a_pattern_denies_what_matches_and_nothing_else(cwd: Path) -> None:
    rules = (ProfileRule(":root", "read"), ProfileRule(":workspace_roots", "write"))
    deny = ProfileRule(":workspace_roots/**/*.env", "deny", glob=True)
    found = meaning(ProfileSandbox(rules=(*rules, deny)), cwd)
    assert [found.access(str(cwd / name)) for name in ("a.env", "src/deep/c.env", "src/kept.txt")] == [
        "none",
        "none",
        "write",
    ]
    shallow = meaning(ProfileSandbox(rules=(*rules, deny), glob_scan_max_depth=2), cwd)
    assert [shallow.access(str(cwd / name)) for name in ("src/b.env", "src/deep/c.env")] == ["none", "write"]


def test_a_directory_whose_name_looks_like_a_pattern_is_taken_literally(tmp_path: Path) -> None:
    here = tmp_path / "[id]"
    here.mkdir()
    (here / "a.env").write_text("x")
    deny = ProfileRule(":workspace_roots/*.env", "deny", glob=True)
    found = meaning(ProfileSandbox(rules=(ProfileRule(":root", "read"), deny)), here)
    assert found.access(str(here / "a.env")) == "none"


def test_too_many_matches_are_refused(cwd: Path) -> None:
    for number in range(600):
        (cwd / f"{number}.many").touch()
    with pytest.raises(SandboxRefused, match=r"\*\.many"):
        matching_paths(str(cwd), "*.many")


def test_a_pattern_begins_with_a_place() -> None:
    assert split_pattern("/srv/a/*/b") == ("/srv/a", "*/b")
    assert split_pattern(":workspace_roots/**/*.env") == (":workspace_roots", "**/*.env")
    assert split_pattern("/*.env") == ("/", "*.env")


# --- all profiles ----------------------------------------------------------------------------------------------------

PLACES = ("/", "/srv", "/srv/a", "/srv/a/b", "/srv/c", "/opt")
some_rules = st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(["read", "write", "deny"])), max_size=8)


@given(some_rules)
def test_nothing_is_ever_wider_than_its_longest_rule(rules: list[tuple[str, ProfileAccess]]) -> None:
    policy = meaning(profile(*rules), Path("/nowhere/at/all"))
    said: dict[ProfileAccess, Access] = {"read": "read", "write": "write", "deny": "none"}
    for path in (*PLACES, "/srv/a/b/c", "/etc"):
        above = [(place, said[access]) for place, access in rules if contains(place, path)]
        longest = max((len(place) for place, _ in above), default=0)
        allowed = min((RANK[access] for place, access in above if len(place) == longest), default=0)
        found = RANK[policy.access(path)]
        # A path that is not there cannot be opened for writing: then what is around it counts, if it is no more.
        assert found <= allowed
        assert found == allowed or not os.path.exists(path)
