"""What a sub-agent may do: never more than its parent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from treadle.agent import (
    BUILT_IN_ROLES,
    AgentRole,
    RoleTable,
    Settings,
    SpawnArguments,
    child_settings,
    limits_of_parent,
    moved,
)
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


def test_a_role_of_a_project_switches_no_server_on(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[mcp_servers.x]\ncommand = "true"\nenabled = false\n')
    config = load_config(tmp_path, environ={}).config
    for own in (True, False):
        role = AgentRole(name="r", table=RoleTable(mcp_servers=("x",)), own=own)
        child = child_settings(having(tmp_path, READ), role, SpawnArguments(), config)
        assert (child.config or {}).get("mcp_servers.x.enabled") is (True if own else None)


@pytest.mark.parametrize(
    ("provider", "model", "toml", "asked", "chosen"),
    [
        ("openai", "gpt-6.1-sol", "", {}, "gpt-6-luna"),
        ("anthropic", "claude-opus-5-5", "", {}, "claude-haiku-5-5"),
        ("anthropic", "claude-haiku-5-5", "", {}, "claude-haiku-5-5"),
        ("openai", "gpt-6.1-sol", "", {"model": "gpt-6-sol"}, "gpt-6-sol"),
        ("openai", "gpt-6.1-sol", '[agents]\ndefault_subagent_model = "gpt-6-sol"', {}, "gpt-6-sol"),
        # Nobody knows what it costs, or whether this server has the other.
        ("openai", "mine", "", {}, "mine"),
        ("openai", "gpt-6.1-sol", 'openai_base_url = "http://127.0.0.1:9/v1"', {}, "gpt-6.1-sol"),
        ("offline", "offline", "", {}, "offline"),
    ],
)
def test_an_explorer_has_a_cheap_model_where_one_is_known(
    tmp_path: Path, provider: str, model: str, toml: str, asked: Any, chosen: str
) -> None:
    (tmp_path / "config.toml").write_text(toml)
    config = load_config(tmp_path, environ={}).config
    parent = structs.replace(having(tmp_path, READ), model=model, model_provider=provider)
    explorer = child_settings(parent, BUILT_IN_ROLES["explorer"], SpawnArguments(message="x", **asked), config)
    assert explorer.model == chosen
    worker = child_settings(parent, BUILT_IN_ROLES["worker"], SpawnArguments(message="x"), config)
    assert worker.model == (config.agents.default_subagent_model or model)
