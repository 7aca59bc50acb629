"""The state of a thread beside its items: settings, usage, goal; stored as JSON in the thread's record.

This module also owns what a request means for the settings that a thread runs with. It changes no thread itself.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from treadle.agent.thread.thread_refusals import engine_cannot
from treadle.arguments import text_problem
from treadle.config import Config
from treadle.config.file_settings import Budget
from treadle.config.layers import split_key
from treadle.config.model_settings import ModelChoice
from treadle.config.permission_profiles import ProfileError, ThreadPermissions
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.execution.sandbox.profile_sandbox import (
    Confinement,
    ProfileSandbox,
    as_policy,
    with_roots,
    without_writing,
)
from treadle.llm import TokenUsage
from treadle.llm.known_providers import OFFLINE
from treadle.protocol.app.base import Closed, decode
from treadle.protocol.app.item_parts import DynamicToolSpec
from treadle.protocol.app.settings import (
    ActivePermissionProfile,
    AskForApproval,
    CollaborationMode,
    ModeKind,
    ThreadSettings,
    ThreadSettingsUpdateParams,
    TurnEnvironmentParams,
)
from treadle.protocol.app.settings import Settings as ModeSettings
from treadle.protocol.app.thread_methods import ThreadForkParams, ThreadResumeParams, ThreadStartParams
from treadle.protocol.app.threads import (
    AgentsUsage,
    GitInfo,
    ThreadEnvironment,
    ThreadGoal,
    ThreadTokenUsage,
    TokenUsageBreakdown,
    UsageCost,
)
from treadle.protocol.app.turns import TurnStartParams
from treadle.skills.skill_files import SkillPlace
from treadle.store.contract import damaged

T = TypeVar("T")


ENGINE: Final = "engine:"
"""How the provider of a thread begins that another agent program answers."""
DEFAULT_MODEL: Final = "default"
"""The model of an engine that it chooses itself."""


LOCAL: Final = "local"
"""The id of the environment that this machine is."""


class Workplace(Struct, frozen=True, kw_only=True):
    """An environment of a thread, and where in it the thread works. `roots` says where its directories led on that
    machine when the thread got them; those of this machine are the pins of the thread."""

    environment: str = LOCAL
    cwd: str
    workspace_roots: tuple[str, ...] | None = None
    roots: Mapping[str, str] = {}

    @property
    def is_local(self) -> bool:
        return self.environment == LOCAL

    @property
    def workspace(self) -> tuple[str, ...]:
        return (self.cwd,) if self.workspace_roots is None else self.workspace_roots

    def on_wire(self) -> ThreadEnvironment:
        return ThreadEnvironment(environment_id=self.environment, cwd=self.cwd, runtime_workspace_roots=self.workspace)


class Settings(Struct, frozen=True, kw_only=True):
    """How a thread runs. A change stays for later turns. `config` are the overrides that the thread was given.

    `sandbox` is what was asked for, `confinement` what was given: the same with the workspace roots; `in_force` is what
    commands and patches are held to. `profile` says which permission profile it came from, None when it was given
    otherwise. `mode_instructions` are those of whoever set the mode, instead of our own for it. Without an environment
    there are no commands, and no files to read or change.
    """

    model: str
    model_provider: str
    cwd: str
    approval_policy: AskForApproval
    sandbox: Confinement
    workspace_roots: tuple[str, ...] | None = None
    """Those that a client has named; without, the working directory."""
    profile: ActivePermissionProfile | None = None
    approvals_reviewer: str = "user"
    effort: str | None = None
    summary: str | None = None
    personality: str | None = None
    service_tier: str | None = None
    base_instructions: str | None = None
    developer_instructions: str | None = None
    config: Mapping[str, Any] | None = None
    dynamic_tools: tuple[DynamicToolSpec, ...] = ()
    mode: Closed[ModeKind] = "default"
    mode_instructions: str | None = None
    has_environment: bool = True
    """Whether commands run on this machine. Not so with `remote`: a server that does not know of it runs none then."""
    remote: str | None = None
    """The id of the environment of `cwd` that is another machine."""
    remote_roots: Mapping[str, str] = {}
    """Where the directories led there when the thread got them."""
    others: tuple[Workplace, ...] = ()
    """Further environments, beside the one of `cwd`."""
    client_cwd: str | None = None
    """What clients see as the directory of a thread whose commands run on another machine: where it was started."""
    budget: Budget = Budget()
    """What this thread may use; the configuration has the limits that are not here."""

    @property
    def environment(self) -> str | None:
        """The id of the environment of `cwd`; None when the thread has none."""
        return self.remote or (LOCAL if self.has_environment else None)

    @property
    def is_local(self) -> bool:
        """Whether the thread works on this machine."""
        return self.has_environment

    @property
    def workplaces(self) -> tuple[Workplace, ...]:
        """The environments, that of `cwd` first."""
        if self.environment is None:
            return ()
        return (self.workplace, *self.others)

    @property
    def workplace(self) -> Workplace:
        """The environment of `cwd`."""
        return Workplace(
            environment=self.environment or LOCAL,
            cwd=self.cwd,
            workspace_roots=self.workspace_roots,
            roots=self.remote_roots,
        )

    def at(self, place: Workplace) -> Settings:
        """The settings of what is done in one of the environments."""
        if not self.others and place == self.workplace:
            return self
        return structs.replace(
            self,
            cwd=place.cwd,
            workspace_roots=place.workspace_roots,
            has_environment=place.is_local,
            remote=None if place.is_local else place.environment,
            remote_roots=place.roots,
            others=(),
        )

    @property
    def shown_cwd(self) -> str:
        """The directory of the thread, for clients."""
        return self.client_cwd or self.cwd

    @property
    def engine(self) -> str | None:
        """The agent program that answers instead of a model."""
        return self.model_provider.removeprefix(ENGINE) if self.model_provider.startswith(ENGINE) else None

    @property
    def workspace(self) -> tuple[str, ...]:
        return (self.cwd,) if self.workspace_roots is None else self.workspace_roots

    @property
    def confinement(self) -> Confinement:
        if self.workspace_roots is None:
            return self.sandbox
        return with_roots(self.sandbox, self.cwd, self.workspace_roots)

    def skill_place(self, config: Config, extra: tuple[str, ...]) -> SkillPlace:
        """What decides which skills there are; `extra` are the roots that a client has named."""
        return SkillPlace(self.cwd, self.confinement, str(config.home), config.skills, extra)

    @property
    def in_force(self) -> Confinement:
        """A thread that plans writes nothing, whatever its model was talked into."""
        return without_writing(self.confinement) if self.mode == "plan" else self.confinement

    @property
    def collaboration_mode(self) -> CollaborationMode:
        given = self.instructions_of_mode
        return CollaborationMode(
            mode=self.mode,
            settings=ModeSettings(model=self.model, reasoning_effort=self.effort, developer_instructions=given),
        )

    @property
    def instructions_of_mode(self) -> str | None:
        """The instructions that the model gets because of the mode."""
        if self.mode_instructions is not None or self.mode != "plan":
            return self.mode_instructions
        from treadle.config.prompts import PLAN_MODE  # few threads plan

        return PLAN_MODE

    def on_wire(self) -> ThreadSettings:
        return ThreadSettings(
            approval_policy=self.approval_policy,
            approvals_reviewer=self.approvals_reviewer,
            collaboration_mode=self.collaboration_mode,
            cwd=self.shown_cwd,
            model=self.model,
            model_provider=self.model_provider,
            sandbox_policy=as_policy(self.confinement),
            active_permission_profile=self.profile,
            effort=self.effort,
            personality=self.personality,
            service_tier=self.service_tier,
            summary=self.summary,
        )


class Usage(Struct, frozen=True, kw_only=True):
    """Tokens of the thread so far, and of its last response, which says how full the context is.

    `turn` are those of the turn `turn_id`, `cost_usd` is what it has cost, `thread_cost_usd` the thread, at the prices
    of the time. None is not known: a model without a price costs something all the same, so from there on neither is
    the sum.
    """

    total: TokenUsage = TokenUsage()
    last: TokenUsage = TokenUsage()
    turn: TokenUsage = TokenUsage()
    turn_id: str | None = None
    cost_usd: float | None = None
    thread_cost_usd: float | None = None
    agents_tokens: int = 0
    agents_cost_usd: float | None = 0.0
    """What the sub-agents of the thread have used, and theirs, as far as the thread has heard of it."""

    @property
    def tokens_with_agents(self) -> int:
        return self.total.total_tokens + self.agents_tokens

    @property
    def cost_with_agents(self) -> float | None:
        return _sum(0.0 if self.total == TokenUsage() else self.thread_cost_usd, self.agents_cost_usd)

    def add_agents(self, tokens: int, cost: float | None) -> Usage:
        return structs.replace(
            self, agents_tokens=self.agents_tokens + tokens, agents_cost_usd=_sum(self.agents_cost_usd, cost)
        )

    def add(self, response: TokenUsage, turn_id: str, cost: float | None) -> Usage:
        spent = self.spend(turn_id, cost)
        return structs.replace(
            spent, total=_plus(spent.total, response), turn=_plus(spent.turn, response), last=response
        )

    def spend(self, turn_id: str, cost: float | None) -> Usage:
        """Something was paid for that is not part of the conversation."""
        before_thread = 0.0 if self.turn_id is None and self.total == TokenUsage() else self.thread_cost_usd
        before_turn = self.cost_usd if self.turn_id == turn_id else 0.0
        return structs.replace(
            self,
            turn=self.turn if self.turn_id == turn_id else TokenUsage(),
            turn_id=turn_id,
            cost_usd=_sum(before_turn, cost),
            thread_cost_usd=_sum(before_thread, cost),
        )

    def resized(self, tokens: int, turn_id: str) -> Usage:
        """The context has another size now. In a turn without a count so far, the provider does not count."""
        last = TokenUsage(total_tokens=tokens)
        if self.turn_id == turn_id:
            return structs.replace(self, last=last)
        return structs.replace(self, last=last, turn=TokenUsage(), turn_id=turn_id, cost_usd=None, thread_cost_usd=None)

    def on_wire(self, context_window: int | None) -> ThreadTokenUsage:
        cost: UsageCost | UnsetType = UNSET  # left out when nothing is known, as the real server has it
        if self.cost_usd is not None or self.thread_cost_usd is not None:
            cost = UsageCost(turn_usd=self.cost_usd, thread_usd=self.thread_cost_usd)
        agents: AgentsUsage | UnsetType = UNSET
        if self.agents_tokens:
            agents = AgentsUsage(total_tokens=self.agents_tokens, usd=self.agents_cost_usd)
        return ThreadTokenUsage(
            last=_breakdown(self.last),
            total=_breakdown(self.total),
            model_context_window=context_window,
            turn=_breakdown(self.turn),
            cost=cost,
            agents=agents,
        )


def _plus(one: TokenUsage, other: TokenUsage) -> TokenUsage:
    return TokenUsage(
        input_tokens=one.input_tokens + other.input_tokens,
        cached_input_tokens=one.cached_input_tokens + other.cached_input_tokens,
        cache_write_input_tokens=one.cache_write_input_tokens + other.cache_write_input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        reasoning_output_tokens=one.reasoning_output_tokens + other.reasoning_output_tokens,
        total_tokens=one.total_tokens + other.total_tokens,
    )


def _sum(before: float | None, more: float | None) -> float | None:
    return None if before is None or more is None else before + more


def _breakdown(usage: TokenUsage) -> TokenUsageBreakdown:
    return TokenUsageBreakdown(
        cached_input_tokens=usage.cached_input_tokens,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        reasoning_output_tokens=usage.reasoning_output_tokens,
        total_tokens=usage.total_tokens,
        cache_write_input_tokens=usage.cache_write_input_tokens,
    )


class AgentPlace(Struct, frozen=True, kw_only=True):
    """Where the thread of a sub-agent belongs: below which thread, and in the session of which. `branch` is that of the
    git worktree that it has for itself."""

    parent_id: str
    root_id: str
    depth: int
    nickname: str
    role: str
    branch: str | None = None

    @property
    def name(self) -> str:
        """What people are shown when it asks them something."""
        return self.nickname if self.role == "default" else f"{self.nickname} [{self.role}]"


class Child(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a thread knows of a sub-agent that it has open. `seen` is the id of the child's last turn whose end the
    model was told of: ids grow with time, numbers of turns are used again after a revert. `made` and `told` are the
    numbers of the thread's own turns in which it was started and in which `seen` was told. `tokens` and `cost_usd` of
    it are counted already."""

    nickname: str
    seen: str = ""
    made: int = 0
    told: int = 0
    wake: bool = False
    tokens: int = 0
    cost_usd: float | None = 0.0


class RemoteCommand(Struct, frozen=True, kw_only=True):
    """A command that runs on another machine: in which session of its executor, as which process there, and for which
    turn of the thread. `number` is its own for the model and for clients; `settings` are those that allowed it, in
    their sandbox unless it is `unconfined`."""

    environment: str
    session: str
    process: str
    turn: int
    turn_id: str
    number: int
    command: str
    cwd: str
    tty: bool = False
    settings: Settings
    unconfined: bool


class EngineSession(Struct, frozen=True, kw_only=True):
    """The conversation of an engine that a thread goes on with. `told` is how many items of the thread's history it has
    heard of."""

    engine: str
    id: str
    told: int


class State(Struct, frozen=True, kw_only=True):
    """`roots` says where the paths of the sandbox led when the thread got them, see `pins`. `queue_held` says that the
    last turn was interrupted: messages in the queue wait until somebody goes on. `agent` is for the thread of a
    sub-agent, `children` are those that this thread has open, by the ids of their threads."""

    settings: Settings
    usage: Usage = Usage()
    goal: ThreadGoal | None = None
    git_info: GitInfo | None = None
    thread_source: str | None = None
    roots: Mapping[str, str] | None = None
    queue_held: bool = False
    agent: AgentPlace | None = None
    children: Mapping[str, Child] = {}
    engine: EngineSession | None = None
    commands: Mapping[str, RemoteCommand] = {}
    """Those that run on other machines, by the ids of their items."""


def read_usage(data: bytes | None, location: str | None) -> Usage:
    return Usage() if data is None else _read(data, Usage, location)


def read_state(data: bytes, location: str | None) -> State:
    return _read(data, State, location)


def _read(data: bytes, kind: type[T], location: str | None) -> T:
    """What we have written ourselves, in the store at `location`. Raises `StoreError` when it is something else now."""
    try:
        return decode(data, kind)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError):
        raise damaged("the settings of a thread cannot be read", location) from None


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
# params of thread/resume -> settings that a turn has from its beginning to its end
FIXED_IN_TURN = {
    "modelProvider": "model_provider",
    "baseInstructions": "base_instructions",
    "developerInstructions": "developer_instructions",
    "config": "config",
}


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
        changes |= structs.asdict(ThreadPermissions(params.sandbox_policy))
    if "approvals_reviewer" in changes:
        changes["approvals_reviewer"] = _reviewer(changes["approvals_reviewer"])
    if params.collaboration_mode is not None:
        # A mode brings a model and an effort of its own, whatever else the request says of them.
        mode = params.collaboration_mode
        changes |= {
            "mode": mode.mode,
            "mode_instructions": mode.settings.developer_instructions,
            "model": mode.settings.model,
            "effort": mode.settings.reasoning_effort,
        }
    if isinstance(params, TurnStartParams) and params.runtime_workspace_roots is not None:
        changes["workspace_roots"] = _roots(params.runtime_workspace_roots)
    if params.environments is not None:
        changes |= _environment_changes(params.environments)
    if "cwd" in changes:
        changes["cwd"] = _directory(changes["cwd"], settings.shown_cwd)
        changes |= _moved(settings, changes)
        changes |= _moved_roots(settings, changes)
    if not isinstance(params.service_tier, UnsetType):
        changes["service_tier"] = params.service_tier
    if isinstance(params, ThreadSettingsUpdateParams):
        changes |= _budget_changes(settings.budget, params)
    return changes


def _budget_changes(budget: Budget, params: Opening | ThreadSettingsUpdateParams) -> dict[str, Any]:
    """The limits that a request gives a thread, or takes from it."""
    given = {"thread_tokens": params.max_thread_tokens, "thread_cost_usd": params.max_thread_cost_usd}
    given = {name: value for name, value in given.items() if not isinstance(value, UnsetType)}
    return {"budget": structs.replace(budget, **given)} if given else {}


def _check_single(other: object, name: str) -> None:
    if other is not None:
        raise RpcError(INVALID_REQUEST, f"`permissions` cannot be combined with `{name}`")


def _reviewer(name: str) -> str:
    """By the name that it has now."""
    return "auto_review" if name == "guardian_subagent" else name


def _environment_changes(given: Sequence[TurnEnvironmentParams]) -> dict[str, Any]:
    """The environments of a request, the first of which is that of the thread's directory; without any, there are no
    commands. Whether there are such is found out where their directories are looked at."""
    if not given:
        return {"has_environment": False, "remote": None, "remote_roots": {}, "others": ()}
    places = [
        Workplace(
            environment=each.environment_id,
            cwd=_directory(each.cwd, "/"),  # `with_directories` has found those that were not named
            workspace_roots=None if each.runtime_workspace_roots is None else _roots(each.runtime_workspace_roots),
        )
        for each in given
    ]
    if len({place.environment for place in places}) < len(places):
        raise RpcError(INVALID_REQUEST, "an environment is named twice")
    first = places[0]
    return {
        "has_environment": first.is_local,
        "remote": None if first.is_local else first.environment,
        "remote_roots": {},
        "others": tuple(places[1:]),
        "cwd": first.cwd,
    } | ({} if first.workspace_roots is None else {"workspace_roots": first.workspace_roots})


def _moved(settings: Settings, changes: dict[str, Any]) -> dict[str, Any]:
    """What a new directory means for a thread on another machine: it is the client's, and the one there moves along
    only if it was the same. A thread that goes to another machine leaves the client's where it is."""
    if "remote" in changes:
        return {"client_cwd": None if changes["remote"] is None else settings.shown_cwd}
    if settings.remote is None or "cwd" not in changes:
        return {}
    together = settings.cwd == settings.shown_cwd
    return {"client_cwd": changes["cwd"], "cwd": changes["cwd"] if together else settings.cwd}


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


def new_settings(
    params: ThreadStartParams, config: Config, cwd: str, environments: Sequence[str] = (LOCAL,)
) -> Settings:
    """The settings of a new thread; `cwd` is where the server is, `environments` those of threads that name none."""
    config = _with_overrides(config, params)
    choice = _model_choice(config, params.model, params.model_provider)
    check_provider(config, choice.provider)
    if choice.provider.startswith(ENGINE) and params.dynamic_tools:
        raise engine_cannot(choice.provider.removeprefix(ENGINE), "use `dynamicTools`")
    own_cwd = _directory(params.cwd, cwd)
    given = params.environments
    # Other agent programs work on this machine.
    if given is None and tuple(environments) != (LOCAL,) and not choice.provider.startswith(ENGINE):
        given = tuple(TurnEnvironmentParams(environment_id=each, cwd=own_cwd) for each in environments)
    environment = {} if given is None else _environment_changes(given)
    if environment.get("remote") is not None:
        environment["client_cwd"] = own_cwd
    roots = None if params.runtime_workspace_roots is None else _roots(params.runtime_workspace_roots)
    permissions = _permissions(params, config) or config.permissions()
    return Settings(
        model=choice.model,
        model_provider=choice.provider,
        cwd=_directory(environment.pop("cwd", own_cwd), cwd),
        approval_policy=params.approval_policy or config.approval_policy,
        approvals_reviewer=_reviewer(params.approvals_reviewer or config.approvals_reviewer),
        sandbox=permissions.sandbox,
        workspace_roots=environment.pop("workspace_roots", roots),
        profile=permissions.profile,
        effort=config.model_reasoning_effort,
        summary=config.model_reasoning_summary,
        personality=params.personality or config.personality,
        service_tier=config.service_tier if isinstance(params.service_tier, UnsetType) else params.service_tier,
        base_instructions=params.base_instructions,
        developer_instructions=params.developer_instructions,
        config=params.config,
        dynamic_tools=params.dynamic_tools or (),
        **environment,
        **_budget_changes(Budget(), params),
    )


def _model_choice(config: Config, model: str | None, provider: str | None) -> ModelChoice:
    if provider is not None and provider.startswith(ENGINE):
        return ModelChoice(model or DEFAULT_MODEL, provider)
    return config.model_choice(model, provider)


def check_provider(config: Config, provider: str) -> None:
    if provider.startswith(ENGINE):
        from treadle.runners.engine import UnknownEngine  # few threads have one
        from treadle.runners.engine_registry import find_engine

        try:
            name = find_engine(provider.removeprefix(ENGINE)).name
        except UnknownEngine as error:
            raise RpcError(INVALID_REQUEST, f"model provider `{provider}` not found: {error.reason}") from None
        if name == "treadle":
            raise RpcError(INVALID_REQUEST, f"`{provider}` is this program itself; name the provider of a model")
        return
    if provider == OFFLINE and config.offline is False:
        raise RpcError(INVALID_REQUEST, "the offline model is forbidden (`offline` is false); name another provider")
    if provider not in config.providers and provider != OFFLINE:
        raise RpcError(INVALID_REQUEST, f"model provider `{provider}` not found; add it to config.toml")


def _directory(cwd: str | None, base: str) -> str:
    found = os.path.normpath(os.path.join(base, cwd)) if cwd else base
    if text_problem(found) is not None:  # it was not in the request, but is where the server was started
        raise RpcError(INVALID_REQUEST, f"cwd is no text in UTF-8: {found!a}; rename the folder, or choose another cwd")
    return found


def _permissions(params: Opening, config: Config) -> ThreadPermissions | None:
    """What the request says of them; None if nothing."""
    if params.permissions is not None:
        _check_single(params.sandbox, "sandbox")
        return config.profile_permissions(params.permissions)
    return None if params.sandbox is None else ThreadPermissions(config.sandbox_policy(params.sandbox))


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
        check_provider(config, params.model_provider)
        # The model that the thread had is one of the other provider.
        changes["model"] = _model_choice(config, params.model, params.model_provider).model or settings.model
    if "config" in changes:
        changes["config"] = _with_servers(changes["config"], settings.config or {})
    if "approvals_reviewer" in changes:
        changes["approvals_reviewer"] = _reviewer(changes["approvals_reviewer"])
    if params.runtime_workspace_roots is not None:
        changes["workspace_roots"] = _roots(params.runtime_workspace_roots)
    if params.cwd is not None:
        changes["cwd"] = _directory(params.cwd, cwd)
        changes |= _moved(settings, changes)
        changes |= _moved_roots(settings, changes)
    permissions = _permissions(params, config)
    if permissions is not None:
        changes |= structs.asdict(permissions)
    if not isinstance(params.service_tier, UnsetType):
        changes["service_tier"] = params.service_tier
    return structs.replace(settings, **changes, **_budget_changes(settings.budget, params))


def _with_servers(given: Mapping[str, Any], stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """The `config` object of a request in place of the stored one; the MCP servers of that stay unless it names any."""

    def servers(config: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in config.items() if split_key(key)[0] == "mcp_servers"}

    return given if servers(given) else {**servers(stored), **given}


def override_changes(settings: Settings, params: ThreadResumeParams, config: Config, cwd: str) -> dict[str, Any]:
    """What is different then, by its name."""
    wanted = structs.asdict(overridden_settings(settings, params, config, cwd))
    return {name: value for name, value in wanted.items() if value != getattr(settings, name)}
