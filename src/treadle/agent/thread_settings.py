"""The settings of a thread, as requests give and change them.

It owns what a request means for the settings that a thread runs with. It changes no thread itself.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import UnsetType, structs

from treadle.agent.state import Settings
from treadle.agent.turn_runtime import RUNTIMES
from treadle.config import Config
from treadle.config.permission_profiles import Permissions, ProfileError
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.execution.sandbox.profile_sandbox import ProfileSandbox
from treadle.llm.known_providers import OFFLINE
from treadle.protocol.app.settings import CollaborationMode, ThreadSettingsUpdateParams, TurnEnvironmentParams
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
    "summary": "summary",
}


LOCAL = "local"  # the id of the only environment that a server without remote ones has


def setting_changes(
    params: TurnStartParams | ThreadSettingsUpdateParams, settings: Settings, config: Callable[[], Config]
) -> dict[str, Any]:
    """What a request changes for good in a thread with these settings. A relative directory is relative to where the
    thread is.

    Raises `ProfileError` for a permission profile that cannot be had; `config` is asked only for one.
    """
    changes = {
        name: getattr(params, member) for member, name in _SETTINGS.items() if getattr(params, member) is not None
    }
    if params.permissions is not None:
        _check_single(params.sandbox_policy, "sandboxPolicy")
        changes |= structs.asdict(config().profile_permissions(params.permissions))
    elif params.sandbox_policy is not None:
        changes |= structs.asdict(Permissions(params.sandbox_policy))
    if "approvals_reviewer" in changes:
        changes["approvals_reviewer"] = _reviewer(changes["approvals_reviewer"])
    if params.collaboration_mode is not None:
        changes |= _mode_changes(params.collaboration_mode)
    if isinstance(params, TurnStartParams):
        if params.runtime_workspace_roots is not None:
            changes["workspace_roots"] = _roots(params.runtime_workspace_roots)
        if params.environments is not None:
            changes |= _environment_changes(params.environments)
    if "cwd" in changes:
        changes["cwd"] = _directory(changes["cwd"], settings.cwd)
        changes |= _moved_roots(settings, changes)
    if not isinstance(params.service_tier, UnsetType):
        changes["service_tier"] = params.service_tier
    return changes


def _check_single(other: object, name: str) -> None:
    if other is not None:
        raise RpcError(INVALID_REQUEST, f"`permissions` cannot be combined with `{name}`")


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
    if not given:
        return {"has_environment": False}
    roots = given[0].runtime_workspace_roots
    return {"has_environment": True, "cwd": given[0].cwd} | (
        {} if roots is None else {"workspace_roots": _roots(roots)}
    )


def _roots(given: Sequence[str]) -> tuple[str, ...]:
    for root in given:
        if not os.path.isabs(root):
            raise RpcError(
                INVALID_REQUEST, f"runtimeWorkspaceRoots must be absolute paths, which {root[:200]!r} is not"
            )
    return tuple(dict.fromkeys(map(os.path.normpath, given)))


def _moved_roots(settings: Settings, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Where the working directory was one of the roots, the new one is, unless the request names the roots itself."""
    roots = settings.workspace_roots
    if roots is None or "workspace_roots" in changes:
        return {}
    moved = (changes["cwd"] if root == settings.cwd else root for root in roots)
    return {"workspace_roots": tuple(dict.fromkeys(moved))}


def _with_overrides(config: Config, params: Opening) -> Config:
    return config.with_thread_overrides(params.config) if params.config else config


def new_settings(params: ThreadStartParams, config: Config, cwd: str) -> Settings:
    """Of a new thread; `cwd` is where the server is."""
    config = _with_overrides(config, params)
    choice = config.model_choice(params.model, params.model_provider)
    _check_provider(config, choice.provider)
    environment = {} if params.environments is None else _environment_changes(params.environments)
    roots = None if params.runtime_workspace_roots is None else _roots(params.runtime_workspace_roots)
    permissions = _permissions(params, config) or config.permissions()
    return Settings(
        model=choice.model,
        model_provider=choice.provider,
        cwd=_directory(environment.get("cwd", params.cwd), cwd),
        approval_policy=params.approval_policy or config.approval_policy,
        approvals_reviewer=_reviewer(params.approvals_reviewer or config.approvals_reviewer),
        sandbox=permissions.sandbox,
        workspace_roots=environment.get("workspace_roots", roots),
        profile=permissions.profile,
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


def check_permissions(params: Opening) -> None:
    """Raises `RpcError` for a request that says two things of them."""
    if params.permissions is not None:
        _check_single(params.sandbox, "sandbox")


def _permissions(params: Opening, config: Config) -> Permissions | None:
    """What the request says of them; None if nothing."""
    check_permissions(params)
    if params.permissions is not None:
        return config.profile_permissions(params.permissions)
    return None if params.sandbox is None else Permissions(config.sandbox_policy(params.sandbox))


def renewed_settings(settings: Settings, config: Config) -> tuple[Settings, str | None]:
    """A stored thread's settings with its profile as it is defined now, and a warning if it cannot be had any more.

    Then the thread goes on with what it was allowed to read before: nothing else would surely be no more than it had.
    """
    if settings.profile is None or not isinstance(settings.sandbox, ProfileSandbox):
        return settings, None
    try:
        permissions = config.profile_permissions(settings.profile.id)
    except ProfileError as error:
        return without_profile(settings, str(error))
    return structs.replace(settings, **structs.asdict(permissions)), None


def without_profile(settings: Settings, reason: str) -> tuple[Settings, str]:
    assert settings.profile is not None
    assert isinstance(settings.sandbox, ProfileSandbox)
    warning = (
        f"The permission profile `{settings.profile.id}` of this thread cannot be used any more ({reason}). Commands "
        "can read what it let them read, write nothing and use no network, until you choose another one."
    )
    return structs.replace(settings, sandbox=settings.sandbox.without_writing(), profile=None), warning


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
    if params.runtime_workspace_roots is not None:
        changes["workspace_roots"] = _roots(params.runtime_workspace_roots)
    if params.cwd is not None:
        changes["cwd"] = _directory(params.cwd, cwd)
        changes |= _moved_roots(settings, changes)
    permissions = _permissions(params, config)
    if permissions is not None:
        changes |= structs.asdict(permissions)
    if not isinstance(params.service_tier, UnsetType):
        changes["service_tier"] = params.service_tier
    return structs.replace(settings, **changes)
