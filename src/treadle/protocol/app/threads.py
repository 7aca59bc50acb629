"""`Thread`: what a conversation is and where it stands. The methods of threads are in `thread_methods`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from msgspec import UNSET, UnsetType, field

from treadle.protocol.app.base import Open, OrUnknown, UnionMember, Unknown, Variant, Wire, Word, union
from treadle.protocol.app.settings import ReasoningEffort
from treadle.protocol.app.turns import Turn


class ThreadHistoryMode(Word):
    legacy = "legacy"
    paginated = "paginated"


class ThreadSource(Word):
    """Why a thread was started; a client may use any word."""

    user = "user"
    subagent = "subagent"
    memory_consolidation = "memory_consolidation"


class ThreadActiveFlag(Word):
    waiting_on_approval = "waitingOnApproval"
    waiting_on_user_input = "waitingOnUserInput"


class ThreadGoalStatus(Word):
    active = "active"
    paused = "paused"
    blocked = "blocked"
    usage_limited = "usageLimited"
    budget_limited = "budgetLimited"
    complete = "complete"


class GitInfo(Wire, frozen=True, kw_only=True):
    branch: str | None = None
    origin_url: str | None = None
    sha: str | None = None


class ThreadSectionAppearance(Wire, frozen=True, kw_only=True):
    color: str | None = None
    icon: str | None = None


class ThreadSection(Wire, frozen=True, kw_only=True):
    id: str
    name: str
    appearance: ThreadSectionAppearance | None = None


class NotLoadedThreadStatus(Variant, frozen=True, kw_only=True, tag="notLoaded"):
    pass


class IdleThreadStatus(Variant, frozen=True, kw_only=True, tag="idle"):
    pass


class SystemErrorThreadStatus(Variant, frozen=True, kw_only=True, tag="systemError"):
    pass


class ActiveThreadStatus(Variant, frozen=True, kw_only=True, tag="active"):
    active_flags: tuple[Open[ThreadActiveFlag], ...]


ThreadStatus = NotLoadedThreadStatus | IdleThreadStatus | SystemErrorThreadStatus | ActiveThreadStatus


class SubAgentThreadSpawn(Wire, frozen=True, kw_only=True):
    depth: int
    parent_thread_id: str = field(name="parent_thread_id")
    agent_nickname: str | None = field(name="agent_nickname", default=None)
    agent_path: str | None = field(name="agent_path", default=None)
    agent_role: str | None = field(name="agent_role", default=None)


class ThreadSpawnSubAgentSource(UnionMember, frozen=True, kw_only=True):
    thread_spawn: SubAgentThreadSpawn = field(name="thread_spawn")


class OtherSubAgentSource(UnionMember, frozen=True, kw_only=True):
    other: str


SubAgentSource = Literal["review", "compact", "memory_consolidation"] | ThreadSpawnSubAgentSource | OtherSubAgentSource


class CustomSessionSource(UnionMember, frozen=True, kw_only=True):
    custom: str


class SubAgentSessionSource(UnionMember, frozen=True, kw_only=True):
    sub_agent: OrUnknown[SubAgentSource | str]


KnownSource = Literal["cli", "vscode", "exec", "appServer", "unknown"] | CustomSessionSource | SubAgentSessionSource

if TYPE_CHECKING:
    SessionSource = KnownSource | str | Unknown
else:
    SessionSource = union("SessionSource", get_args(KnownSource))


class ThreadEnvironment(Wire, frozen=True, kw_only=True):
    """A place where commands of a thread run, and the directories there."""

    environment_id: str
    cwd: str
    runtime_workspace_roots: tuple[str, ...]


class Thread(Wire, frozen=True, kw_only=True):
    """Times are Unix seconds. `turns` is filled where a method says so, else empty."""

    id: str
    cli_version: str
    created_at: int
    cwd: str
    ephemeral: bool
    model_provider: str
    preview: str
    session_id: str
    source: SessionSource
    status: OrUnknown[ThreadStatus]
    turns: tuple[Turn, ...]
    updated_at: int
    agent_nickname: str | None = None
    agent_role: str | None = None
    forked_from_id: str | None = None
    git_info: GitInfo | None = None
    history_mode: Open[ThreadHistoryMode] = ThreadHistoryMode.legacy
    model: str | None = None
    name: str | None = None
    originator: str | None = None
    parent_thread_id: str | None = None
    path: str | None = None
    project_id: str | None = None
    reasoning_effort: Open[ReasoningEffort] | None = None
    recency_at: int | None = None
    section: ThreadSection | None = None
    section_entered_at: int | None = None
    thread_source: Open[ThreadSource] | None = None
    environments: tuple[ThreadEnvironment, ...] | None = None
    """Experimental in Codex, which has null for a thread that is not in memory."""


class TokenUsageBreakdown(Wire, frozen=True, kw_only=True):
    cached_input_tokens: int
    input_tokens: int
    output_tokens: int
    reasoning_output_tokens: int
    total_tokens: int
    cache_write_input_tokens: int = 0


class UsageCost(Wire, frozen=True, kw_only=True):
    """In dollars; null is not known."""

    turn_usd: float | None = None
    thread_usd: float | None = None


class AgentsUsage(Wire, frozen=True, kw_only=True):
    """What sub-agents have used: ours. `usd` is null when it is not known."""

    total_tokens: int
    usd: float | None = None


class ThreadTokenUsage(Wire, frozen=True, kw_only=True):
    """`last` are the tokens of the last response, `total` those of the thread; `turn`, which is ours, are those of the
    turn so far."""

    last: TokenUsageBreakdown
    total: TokenUsageBreakdown
    model_context_window: int | None = None
    turn: TokenUsageBreakdown | UnsetType = UNSET
    cost: UsageCost | UnsetType = UNSET
    agents: AgentsUsage | UnsetType = UNSET

    @property
    def cost_usd(self) -> float | None:
        """What the turn has cost so far, in dollars; None when a price is not known."""
        return None if isinstance(self.cost, UnsetType) else self.cost.turn_usd

    @property
    def thread_cost_usd(self) -> float | None:
        """What the thread has cost so far, in dollars; None when a price is not known."""
        return None if isinstance(self.cost, UnsetType) else self.cost.thread_usd


class ThreadGoal(Wire, frozen=True, kw_only=True):
    thread_id: str
    created_at: int
    objective: str
    status: Open[ThreadGoalStatus]
    time_used_seconds: int
    tokens_used: int
    updated_at: int
    token_budget: int | None = None


class ThreadStartThreadUnreadPosition(Variant, frozen=True, kw_only=True, tag="threadStart"):
    pass


class TurnThreadUnreadPosition(Variant, frozen=True, kw_only=True, tag="turn"):
    turn_id: str


ThreadUnreadPosition = ThreadStartThreadUnreadPosition | TurnThreadUnreadPosition


class ThreadReadState(Wire, frozen=True, kw_only=True):
    revision: str
    first_unread: OrUnknown[ThreadUnreadPosition] | None = None
