"""What `[permissions.NAME]` in config.toml comes to, and what of it is refused."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from treadle.config import BUILT_IN, ConfigError, ProfileError, load_config, profile_permissions, user_profiles
from treadle.execution import ProfileSandbox
from treadle.protocol.app import ActivePermissionProfile, ReadOnlySandboxPolicy, WorkspaceWriteSandboxPolicy


def tables(text: str) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(text)["permissions"]
    return found


def sandbox(text: str, name: str = "x") -> ProfileSandbox:
    found = profile_permissions(name, tables(text)).sandbox
    assert isinstance(found, ProfileSandbox)
    return found


def rules(text: str, name: str = "x") -> dict[str, str]:
    return {rule.place: rule.access for rule in sandbox(text, name).rules}


# --- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_profile_is_a_sandbox_policy(name: str) -> None:
    found = profile_permissions(name, {})
    assert found.sandbox == BUILT_IN[name]
    assert found.profile == ActivePermissionProfile(id=name)


def test_places_are_read_as_they_are_written() -> None:
    text = """
    [permissions.x.workspace_roots]
    "/srv/other" = true
    "/srv/not" = false
    [permissions.x.network]
    enabled = true
    [permissions.x.filesystem]
    ":minimal" = "read"
    ":tmpdir" = "write"
    "/srv/a/../b" = "write"
    "/srv/tree/**" = "read"
    "~/notes" = "none"
    "/srv/c" = { "." = "read", "deep/er" = "deny" }
    glob_scan_max_depth = 3
    [permissions.x.filesystem.":project_roots"]
    "." = "write"
    "docs" = "read"
    "**/*.env" = "deny"
    """
    assert rules(text) == {
        ":minimal": "read",
        ":tmpdir": "write",
        "/srv/b": "write",
        "/srv/tree": "read",
        os.path.expanduser("~/notes"): "deny",
        "/srv/c": "read",
        "/srv/c/deep/er": "deny",
        ":workspace_roots": "write",
        ":workspace_roots/docs": "read",
        ":workspace_roots/**/*.env": "deny",
    }
    found = sandbox(text)
    assert [rule.place for rule in found.rules if rule.glob] == [":workspace_roots/**/*.env"]
    assert (found.network_access, found.workspace_roots, found.glob_scan_max_depth) == (True, ("/srv/other",), 3)


def test_what_is_extended_comes_first_and_is_overridden_by_place() -> None:
    text = """
    [permissions.base]
    extends = ":workspace"
    [permissions.base.network]
    enabled = true
    [permissions.base.filesystem]
    "/srv" = "write"
    [permissions.x]
    description = "narrower"
    extends = "base"
    [permissions.x.filesystem]
    "/srv" = "read"
    ":tmpdir" = "read"
    [permissions.x.filesystem.":workspace_roots"]
    "docs" = "read"
    """
    assert rules(text) == {
        ":root": "read",
        ":workspace_roots": "write",
        ":workspace_roots/docs": "read",
        ":slash_tmp": "write",
        ":tmpdir": "read",
        "/srv": "read",
    }
    assert sandbox(text).network_access
    assert profile_permissions("x", tables(text)).profile == ActivePermissionProfile(id="x", extends="base")
    assert profile_permissions("base", tables(text)).profile == ActivePermissionProfile(id="base", extends=":workspace")


REFUSED = {
    "[permissions.x]\nextends = ':danger-full-access'": "cannot extend `:danger-full-access`",
    "[permissions.x]\nextends = ':nothing'": "cannot extend `:nothing`",
    "[permissions.x]\nextends = 'gone'": "`x` extends `gone`, which is no permission profile",
    "[permissions.x]\nextends = 'y'\n[permissions.y]\nextends = 'x'": "x -> y -> x",
    "[permissions.x]\nextends = 3": "permissions.x.extends",
    "[permissions.x]\nsecret_limits = true": "`secret_limits`, which is not known here",
    "[permissions]\nx = 3": "permissions.x",
    "[permissions.x]\nfilesystem = 3": "permissions.x.filesystem",
    "[permissions.x.filesystem]\n'rel' = 'read'": "`rel`, which must be absolute",
    "[permissions.x.filesystem]\n':cwd' = 'deny'": "`:cwd`, which is none of",
    "[permissions.x.filesystem]\n'/srv' = 'exec'": "found `exec`",
    "[permissions.x.filesystem]\n':tmpdir' = { 'a' = 'read' }": "below `:tmpdir`",
    "[permissions.x.filesystem]\n':workspace_roots' = { '../a' = 'read' }": "`../a`",
    "[permissions.x.filesystem]\n':workspace_roots' = { '/a' = 'read' }": "`/a`",
    "[permissions.x.filesystem]\n'/srv/*.txt' = 'read'": "patterns can only be denied",
    "[permissions.x.filesystem]\n'/srv/[z-a]' = 'deny'": "means nothing",
    "[permissions.x.filesystem]\n':minimal' = 'write'": "can only be read",
    "[permissions.x.filesystem]\nglob_scan_max_depth = 0": "a whole number from 1",
    "[permissions.x.network]\nenabled = 'yes'": "permissions.x.network.enabled",
    "[permissions.x.network]\nenabled = true\nmode = 'limited'": "limits the network by `mode`",
    "[permissions.x.network]\nenabled = true\ndomains = { 'a.org' = 'allow' }": "limits the network by `domains`",
    "[permissions.x.workspace_roots]\n'rel' = true": "`rel`, which must be absolute",
    "[permissions.x.workspace_roots]\n'/srv' = 1": "permissions.x.workspace_roots",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_held_is_refused_and_marked_in_the_list(text: str) -> None:
    with pytest.raises(ProfileError) as caught:
        profile_permissions("x", tables(text))
    assert REFUSED[text] in str(caught.value)
    assert ("x", None, False) in list(user_profiles(tables(text)))


def test_limits_of_a_closed_network_need_no_enforcement() -> None:
    assert not sandbox("[permissions.x.network]\nenabled = false\nmode = 'limited'").network_access


@pytest.mark.parametrize("name", ["gone", ":gone", ""])
def test_an_unknown_name_is_told_with_those_that_there_are(name: str) -> None:
    with pytest.raises(ProfileError, match=":danger-full-access"):
        profile_permissions(name, {"mine": {}})


def test_the_list_has_names_and_descriptions() -> None:
    text = "[permissions.b]\ndescription = 'Both'\n[permissions.a]\n[permissions.':own']"
    assert list(user_profiles(tables(text))) == [(":own", None, False), ("a", None, True), ("b", "Both", True)]


# --- on the wire -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("':root' = 'read'", ReadOnlySandboxPolicy()),
        (
            "':workspace_roots' = 'write'",
            WorkspaceWriteSandboxPolicy(exclude_slash_tmp=True, exclude_tmpdir_env_var=True),
        ),
        (
            "'/srv' = 'write'\n':tmpdir' = 'write'\n':slash_tmp' = 'write'",
            WorkspaceWriteSandboxPolicy(writable_roots=("/srv",)),
        ),
        ("':root' = 'write'", WorkspaceWriteSandboxPolicy(writable_roots=("/",), exclude_tmpdir_env_var=True)),
    ],
)
def test_clients_see_the_nearest_policy_that_they_know(text: str, shown: object) -> None:
    assert sandbox(f"[permissions.x.filesystem]\n{text}").on_wire() == shown


def test_without_writing_nothing_gets_wider() -> None:
    text = "[permissions.x]\nextends = ':workspace'\nnetwork = { enabled = true }\nfilesystem = { '/srv' = 'deny' }"
    reduced = sandbox(text).without_writing()
    assert {rule.access for rule in reduced.rules} == {"read", "deny"}
    assert [rule.place for rule in reduced.rules] == [rule.place for rule in sandbox(text).rules]
    assert not reduced.network_access


# --- which one is in force -------------------------------------------------------------------------------------------

PROFILE = '[permissions.mine.filesystem]\n":root" = "read"\n'


def in_force(home: Path, text: str, *overrides: str, **thread: Any) -> str:
    """The id of the profile, or the sandbox mode that is in force without one."""
    (home / "config.toml").write_text(text)
    config = load_config(home, overrides=overrides, environ={}).config
    found = (config.with_thread_overrides(thread) if thread else config).permissions()
    return found.profile.id if found.profile is not None else f"mode {found.sandbox.type}"


def test_the_nearest_source_wins_and_in_one_source_the_profile(tmp_path: Path) -> None:
    profile, mode = 'default_permissions = "mine"\n', 'sandbox_mode = "danger-full-access"\n'
    other = 'sandbox_mode="read-only"'
    assert in_force(tmp_path, PROFILE) == ":read-only"
    assert in_force(tmp_path, mode + PROFILE) == "mode dangerFullAccess"
    assert in_force(tmp_path, profile + mode + PROFILE) == "mine"
    assert in_force(tmp_path, profile + PROFILE, other) == "mode readOnly"
    assert in_force(tmp_path, mode + PROFILE, 'default_permissions="mine"') == "mine"
    assert in_force(tmp_path, profile + PROFILE, sandbox_mode="read-only") == "mode readOnly"
    assert in_force(tmp_path, mode + PROFILE, default_permissions=":workspace") == ":workspace"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('default_permissions = "gone"\n', "`gone` is no permission profile"),
        ('default_permissions = "mine"\n[permissions.mine]\nextends = "gone"\n', "extends `gone`"),
        ("permissions = 3\n", "allowed is a table of profiles"),
    ],
)
def test_nothing_runs_with_a_default_that_cannot_be_used(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path, environ={})
    assert problem in str(caught.value)
    assert caught.value.line == 1
