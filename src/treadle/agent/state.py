"""What a thread remembers beside its items: settings, usage, goal. Kept as JSON in the thread's record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from treadle.execution.sandbox.profile_sandbox import Confinement, as_policy, with_roots
from treadle.llm import TokenUsage
from treadle.protocol.app.base import Closed, decode, encode
from treadle.protocol.app.dynamic_tools import DynamicToolSpec
from treadle.protocol.app.settings import (
    ActivePermissionProfile,
    AskForApproval,
    CollaborationMode,
    ModeKind,
    ThreadSettings,
)
from treadle.protocol.app.settings import Settings as ModeSettings
from treadle.protocol.app.threads import GitInfo, ThreadGoal, ThreadTokenUsage, TokenUsageBreakdown, UsageCost
from treadle.store.contract import damaged

T = TypeVar("T")


class Settings(Struct, frozen=True, kw_only=True):
    """How a thread runs. A change stays for later turns. `config` are the overrides that the thread was given.

    `sandbox` is what was asked for, `confinement` what holds: the same with the workspace roots. `profile` says which
    permission profile it came from, None when it was given otherwise. `mode_instructions` are those of whoever set the
    mode, instead of our own for it. Without an environment there are no commands, and no files to read or change.
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

    @property
    def confinement(self) -> Confinement:
        if self.workspace_roots is None:
            return self.sandbox
        return with_roots(self.sandbox, self.cwd, self.workspace_roots)

    @property
    def collaboration_mode(self) -> CollaborationMode:
        told = self.instructions_of_mode
        return CollaborationMode(
            mode=self.mode,
            settings=ModeSettings(model=self.model, reasoning_effort=self.effort, developer_instructions=told),
        )

    @property
    def instructions_of_mode(self) -> str | None:
        """What the model is told because of the mode."""
        if self.mode_instructions is not None or self.mode != "plan":
            return self.mode_instructions
        from treadle.config.plan_mode import PLAN_MODE  # loaded with the first thread that plans

        return PLAN_MODE

    def on_wire(self) -> ThreadSettings:
        return ThreadSettings(
            approval_policy=self.approval_policy,
            approvals_reviewer=self.approvals_reviewer,
            collaboration_mode=self.collaboration_mode,
            cwd=self.cwd,
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
    """Tokens of the thread so far, and of its last response, which tells how full the context is.

    `cost_usd` is what the turn `turn_id` has cost, `thread_cost_usd` the thread, at the prices of the time. None is not
    known: a model without a price costs something all the same, so from there on neither is the sum.
    """

    total: TokenUsage = TokenUsage()
    last: TokenUsage = TokenUsage()
    turn_id: str | None = None
    cost_usd: float | None = None
    thread_cost_usd: float | None = None

    def add(self, response: TokenUsage, turn_id: str, cost: float | None) -> Usage:
        spent = self.spend(turn_id, cost)
        return structs.replace(spent, total=_added(self.total, response), last=response)

    def spend(self, turn_id: str, cost: float | None) -> Usage:
        """Something was paid for that is not part of the conversation."""
        before_thread = 0.0 if self == Usage() else self.thread_cost_usd
        before_turn = self.cost_usd if self.turn_id == turn_id else 0.0
        return structs.replace(
            self,
            turn_id=turn_id,
            cost_usd=_sum(before_turn, cost),
            thread_cost_usd=_sum(before_thread, cost),
        )

    def resized(self, tokens: int, turn_id: str) -> Usage:
        """The context has another size now. In a turn without a count so far, the provider does not count."""
        last = TokenUsage(total_tokens=tokens)
        if self.turn_id == turn_id:
            return structs.replace(self, last=last)
        return structs.replace(self, last=last, turn_id=turn_id, cost_usd=None, thread_cost_usd=None)

    def on_wire(self, context_window: int | None) -> ThreadTokenUsage:
        return ThreadTokenUsage(
            last=_breakdown(self.last),
            total=_breakdown(self.total),
            model_context_window=context_window,
            cost=self._cost(),
        )

    def _cost(self) -> UsageCost | UnsetType:
        """Left out when nothing is known, as the real server has it."""
        if self.cost_usd is None and self.thread_cost_usd is None:
            return UNSET
        return UsageCost(turn_usd=self.cost_usd, thread_usd=self.thread_cost_usd)


def _added(one: TokenUsage, other: TokenUsage) -> TokenUsage:
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


class State(Struct, frozen=True, kw_only=True):
    """`roots` says where the paths of the sandbox led when the thread got them, see `pins`. `queue_held` says that the
    last turn was interrupted: messages in the queue wait until somebody goes on."""

    settings: Settings
    usage: Usage = Usage()
    goal: ThreadGoal | None = None
    git_info: GitInfo | None = None
    thread_source: str | None = None
    roots: Mapping[str, str] | None = None
    queue_held: bool = False

    def encoded(self) -> bytes:
        return encode(self)


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
