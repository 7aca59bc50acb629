"""Params and results of thread/goal/*."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from treadle.protocol.app.base import Closed, Params, Wire, Word
from treadle.protocol.app.threads import ThreadGoal, ThreadGoalStatus


class ThreadGoalMutationOrigin(Word):
    user = "user"
    automatic = "automatic"


class ThreadGoalSetParams(Params, frozen=True, kw_only=True):
    """What is left out stays; null takes the budget away."""

    thread_id: str
    objective: str | None = None
    origin: Closed[ThreadGoalMutationOrigin] | None = None
    status: Closed[ThreadGoalStatus] | None = None
    token_budget: int | UnsetType | None = UNSET


class ThreadGoalSetResponse(Wire, frozen=True, kw_only=True):
    goal: ThreadGoal


class ThreadGoalGetParams(Params, frozen=True, kw_only=True):
    thread_id: str


class ThreadGoalGetResponse(Wire, frozen=True, kw_only=True):
    goal: ThreadGoal | None = None


class ThreadGoalClearParams(Params, frozen=True, kw_only=True):
    thread_id: str
    origin: Closed[ThreadGoalMutationOrigin] | None = None


class ThreadGoalClearResponse(Wire, frozen=True, kw_only=True):
    cleared: bool
