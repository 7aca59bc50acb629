"""What a sub-agent may do: never more than its parent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from treadle.agent import AgentRole, RoleTable, Settings, SpawnArguments, child_settings, limits_of_parent, moved
from treadle.config import load_config
from treadle.execution import ProfileRule, ProfileSandbox
from treadle.protocol.app import DangerFullAccessSandboxPolicy, ReadOnlySandboxPolicy, WorkspaceWriteSandboxPolicy

FULL, READ, WORK = DangerFullAccessSandboxPolicy(), ReadOnlySandboxPolicy(), WorkspaceWriteSandboxPolicy()
ONLINE = WorkspaceWriteSandboxPolicy(network_access=True)


def having(cwd: Path, sandbox: Any, policy: Any = "never", **more: Any) -> Settings:
    return Settings(model="m", model_provider="offline", cwd=str(cwd), approval_policy=policy, sandbox=sandbox, **more)


@pytest.mark.parametrize(
    ("child", "parent", "limited"),
    [
        (WORK, FULL, None),
        (READ, WORK, None),
        (WORK, WORK, None),
        (FULL, WORK, WORK),
        (FULL, READ, READ),
        (WORK, READ, READ),
        (ONLINE, WORK, WORK),
        (ONLINE, ReadOnlySandboxPolicy(network_access=True), ReadOnlySandboxPolicy(network_access=True)),
        (ReadOnlySandboxPolicy(network_access=True), WORK, READ),
    ],
)
def test_a_sandbox_never_exceeds_that_of_the_parent(tmp_path: Path, child: Any, parent: Any, limited: Any) -> None:
    changes = limits_of_parent(having(tmp_path, child), having(tmp_path, parent))
    assert changes.get("sandbox") == limited


@pytest.mark.parametrize(
    ("child", "parent", "limited"),
    [
        ("never", "untrusted", "untrusted"),
        ("never", "on-request", "on-request"),
        ("untrusted", "never", None),
        ("on-request", "on-request", None),
    ],
)
def test_who_is_asked(tmp_path: Path, child: str, parent: str, limited: str | None) -> None:
    changes = limits_of_parent(having(tmp_path, READ, child), having(tmp_path, READ, parent))
    assert changes.get("approval_policy") == limited


def test_a_parent_that_plans_has_children_that_write_nothing(tmp_path: Path) -> None:
    changes = limits_of_parent(having(tmp_path, WORK), having(tmp_path, WORK, mode="plan"))
    assert changes["sandbox"] == READ


def test_what_a_profile_denies_in_the_workspace_it_denies_beside_a_worktree(tmp_path: Path) -> None:
    rules = (ProfileRule(":root", "read"), ProfileRule(":workspace_roots", "write"))
    secret = ProfileRule(":workspace_roots/secret", "deny")
    before = having(tmp_path, ProfileSandbox(rules=(*rules, secret)))
    after = moved(before, str(tmp_path / ".worktrees" / "w"))
    assert isinstance(after.sandbox, ProfileSandbox)
    assert after.sandbox.rules == (*rules, secret, ProfileRule(str(tmp_path / "secret"), "deny"))
    plain = having(tmp_path, ProfileSandbox(rules=rules))
    assert moved(plain, str(tmp_path / "w")).sandbox is plain.sandbox


@pytest.mark.parametrize("taken", [{}, {"mcp_servers.x.enabled": False}, {"mcp_servers": {"x": {"enabled": False}}}])
def test_a_role_gives_no_server_back_that_its_parent_was_refused(tmp_path: Path, taken: dict[str, Any]) -> None:
    (tmp_path / "config.toml").write_text(
        'model_provider = "offline"\n[mcp_servers.x]\ncommand = "true"\nenabled = false\n'
    )
    config = load_config(tmp_path, environ={}).config
    role = AgentRole(name="r", table=RoleTable(mcp_servers=("x",)))
    child = child_settings(having(tmp_path, READ, config=taken or None), role, SpawnArguments(), config)
    assert (child.config or {}).get("mcp_servers.x.enabled") is (None if taken.get("mcp_servers") else not taken)
