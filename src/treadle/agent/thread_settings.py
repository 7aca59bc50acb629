"""The settings of a thread, as requests give and change them.

It owns what a request means for the settings that a thread runs with. It changes no thread itself.
"""

from __future__ import annotations

import os.path
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import UnsetType, structs

from treadle.agent.runtime import RUNTIMES
from treadle.agent.state import Settings
from treadle.config import Config
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.llm.known_providers import OFFLINE
from treadle.protocol.app.base import Closed
from treadle.protocol.app.settings import (
    CollaborationMode,
    DangerFullAccessSandboxPolicy,
    ReadOnlySandboxPolicy,
    SandboxMode,
    SandboxPolicy,
    ThreadSettingsUpdateParams,
    TurnEnvironmentParams,
    WorkspaceWriteSandboxPolicy,
)
from treadle.protocol.app.thread_methods import ThreadForkParams, ThreadResumeParams, ThreadStartParams
from treadle.protocol.app.turns import TurnStartParams

Opening: TypeAlias = ThreadStartParams | ThreadResumeParams | ThreadForkParams

# params of turn/start and thread/settings/update -> settings of a thread
_SETTINGS = {
    "approval_policy": "approval_policy",
    "approvals_reviewer": "approvals_reviewer",
    "cwd": "cwd",
    "effort": "effort",
    "model": "model",
    "personality": "personality",
    "sandbox_policy": "sandbox",
    "summary": "summary",
}


LOCAL = "local"  # the id of the only environment that a server without remote ones has

PROFILES: Mapping[str, Closed[SandboxMode]] = {
    ":read-only": "read-only",
    ":workspace": "workspace-write",
    ":danger-full-access": "danger-full-access",
}
_POLICIES: Mapping[Closed[SandboxMode], SandboxPolicy] = {
    "read-only": ReadOnlySandboxPolicy(),
    "workspace-write": WorkspaceWriteSandboxPolicy(),
    "danger-full-access": DangerFullAccessSandboxPolicy(),
}


def setting_changes(params: TurnStartParams | ThreadSettingsUpdateParams, cwd: str) -> dict[str, Any]:
    """What a request changes for good. A relative directory is relative to where the thread is."""
    changes = {
        name: getattr(params, member) for member, name in _SETTINGS.items() if getattr(params, member) is not None
    }
    if isinstance(params, TurnStartParams) and params.permissions is not None:
        changes["sandbox"] = _POLICIES[sandbox_mode(params.permissions)]
    if "approvals_reviewer" in changes:
        changes["approvals_reviewer"] = _reviewer(changes["approvals_reviewer"])
    if params.collaboration_mode is not None:
        changes |= _mode_changes(params.collaboration_mode)
    if isinstance(params, TurnStartParams) and params.environments is not None:
        changes |= _environment_changes(params.environments)
    if "cwd" in changes:
        changes["cwd"] = _directory(changes["cwd"], cwd)
    if not isinstance(params.service_tier, UnsetType):
        changes["service_tier"] = params.service_tier
    return changes


def _reviewer(name: str) -> str:
    """By the name that it has now."""
    return "auto_review" if name == "guardian_subagent" else name


def _mode_changes(given: CollaborationMode) -> dict[str, Any]:
    """A mode brings a model and an effort of its own, whatever else the request says of them."""
    return {
        "mode": given.mode,
        "mode_instructions": given.settings.developer_instructions,
        "model": given.settings.model,
        "effort": given.settings.reasoning_effort,
    }


def _environment_changes(given: Sequence[TurnEnvironmentParams]) -> dict[str, Any]:
    """Commands run on this machine, in the directory that is given for it, or nowhere."""
    for environment in given:
        if environment.environment_id != LOCAL:
            wanted = environment.environment_id
            raise RpcError(INVALID_REQUEST, f"unknown turn environment id `{wanted}`; the only one here is `{LOCAL}`")
    return {"has_environment": True, "cwd": given[0].cwd} if given else {"has_environment": False}


def sandbox_mode(profile: str) -> Closed[SandboxMode]:
    """What a permission profile of ours stands for."""
    mode = PROFILES.get(profile)
    if mode is None:
        raise RpcError(INVALID_REQUEST, f"permission profile `{profile}` not found; known are {', '.join(PROFILES)}")
    return mode


def _with_overrides(config: Config, params: Opening) -> Config:
    return config.with_thread_overrides(params.config) if params.config else config


def new_settings(params: ThreadStartParams, config: Config, cwd: str) -> Settings:
    """Of a new thread; `cwd` is where the server is."""
    config = _with_overrides(config, params)
    choice = config.model_choice(params.model, params.model_provider)
    _check_provider(config, choice.provider)
    environment = {} if params.environments is None else _environment_changes(params.environments)
    return Settings(
        model=choice.model,
        model_provider=choice.provider,
        cwd=_directory(environment.get("cwd", params.cwd), cwd),
        approval_policy=params.approval_policy or config.approval_policy,
        approvals_reviewer=_reviewer(params.approvals_reviewer or config.approvals_reviewer),
        sandbox=_sandbox(params, config),
        effort=config.model_reasoning_effort,
        summary=config.model_reasoning_summary,
        personality=params.personality or config.personality,
        service_tier=config.service_tier if isinstance(params.service_tier, UnsetType) else params.service_tier,
        base_instructions=params.base_instructions,
        developer_instructions=params.developer_instructions,
        config=params.config,
        dynamic_tools=params.dynamic_tools or (),
        has_environment=environment.get("has_environment", True),
    )


def _check_provider(config: Config, provider: str) -> None:
    if provider not in config.providers and provider not in RUNTIMES and provider != OFFLINE:
        raise RpcError(INVALID_REQUEST, f"model provider `{provider}` not found; add it to config.toml")


def _directory(cwd: str | None, base: str) -> str:
    return os.path.normpath(os.path.join(base, cwd)) if cwd else base


def _sandbox(params: Opening, config: Config) -> SandboxPolicy:
    mode = params.sandbox if params.permissions is None else sandbox_mode(params.permissions)
    if mode is None or mode == config.sandbox_mode:
        return config.sandbox_policy()
    if mode == "read-only":
        return ReadOnlySandboxPolicy()
    if mode == "danger-full-access":
        return DangerFullAccessSandboxPolicy()
    policy = structs.replace(config, sandbox_mode="workspace-write").sandbox_policy()
    assert isinstance(policy, WorkspaceWriteSandboxPolicy)
    return policy


def overridden_settings(
    settings: Settings, params: ThreadResumeParams | ThreadForkParams, config: Config, cwd: str
) -> Settings:
    """A stored thread's settings with what the request gives instead."""
    config = _with_overrides(config, params)
    changes: dict[str, Any] = {
        name: getattr(params, name)
        for name in (
            "model",
            "model_provider",
            "approval_policy",
            "approvals_reviewer",
            "base_instructions",
            "developer_instructions",
            "personality",
            "config",
        )
        if getattr(params, name, None) is not None
    }
    if changes.get("model_provider", settings.model_provider) != settings.model_provider:
        assert params.model_provider is not None
        _check_provider(config, params.model_provider)
        # The model that the thread had is one of the other provider.
        changes["model"] = config.model_choice(params.model, params.model_provider).model or settings.model
    if "approvals_reviewer" in changes:
        changes["approvals_reviewer"] = _reviewer(changes["approvals_reviewer"])
    if params.cwd is not None:
        changes["cwd"] = _directory(params.cwd, cwd)
    if params.sandbox is not None or params.permissions is not None:
        changes["sandbox"] = _sandbox(params, config)
    if not isinstance(params.service_tier, UnsetType):
        changes["service_tier"] = params.service_tier
    return structs.replace(settings, **changes)
