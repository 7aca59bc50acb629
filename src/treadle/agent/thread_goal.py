"""A thread's goal: what it works for by itself, turn after turn, until the model says that it is reached.

It owns how a goal changes and when it makes the next turn start. A goal is kept in the thread's state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType, structs

from treadle.agent.ids import now_ms
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.thread_notifications import ThreadGoalClearedNotification, ThreadGoalUpdatedNotification
from treadle.protocol.app.threads import ThreadGoal

if TYPE_CHECKING:
    from treadle.agent.thread import Thread


def set_goal(
    thread: Thread,
    *,
    objective: str | None = None,
    status: str | None = None,
    token_budget: int | UnsetType | None = UNSET,
) -> ThreadGoal:
    """Make or change it, without telling. A new objective begins a new account."""
    goal = thread.state.goal
    changes: dict[str, Any] = {} if isinstance(token_budget, UnsetType) else {"token_budget": token_budget}
    if objective is not None:
        if not objective.strip():
            raise RpcError(INVALID_REQUEST, "goal objective must not be empty")
        if goal is None or goal.objective != objective:
            goal = _new_goal(thread, objective)
    if goal is None:
        raise RpcError(INVALID_REQUEST, f"no goal exists for thread {thread.id}: give an objective")
    if status is not None:
        changes["status"] = status
    goal = structs.replace(goal, updated_at=max(now_ms() // 1000, goal.created_at), **changes)
    thread.state = structs.replace(thread.state, goal=goal)
    return goal


def _new_goal(thread: Thread, objective: str) -> ThreadGoal:
    now = now_ms() // 1000
    return ThreadGoal(
        thread_id=thread.id,
        objective=objective,
        status="active",
        created_at=now,
        updated_at=now,
        time_used_seconds=0,
        tokens_used=0,
    )


def publish_goal(thread: Thread, turn_id: str | None = None) -> None:
    goal = thread.state.goal
    if goal is not None:
        params = ThreadGoalUpdatedNotification(thread_id=thread.id, goal=goal, turn_id=turn_id)
        thread.journal.emit("thread/goal/updated", params, thread.save())


def clear_goal(thread: Thread) -> bool:
    """Whether there was one."""
    cleared = thread.state.goal is not None
    thread.state = structs.replace(thread.state, goal=None)
    return cleared


def publish_cleared(thread: Thread) -> None:
    params = ThreadGoalClearedNotification(thread_id=thread.id)
    thread.journal.emit("thread/goal/cleared", params, thread.save())


def account(thread: Thread, turn_id: str, tokens: int, seconds: int) -> None:
    """A turn has worked for the goal; a budget that is used up stops it."""
    goal = thread.state.goal
    if goal is None or (goal.status != "active" and not tokens):
        return
    goal = structs.replace(
        goal,
        tokens_used=goal.tokens_used + tokens,
        time_used_seconds=goal.time_used_seconds + seconds,
        updated_at=max(now_ms() // 1000, goal.created_at),
    )
    if goal.status == "active" and goal.token_budget is not None and goal.tokens_used >= goal.token_budget:
        goal = structs.replace(goal, status="budgetLimited")
    thread.state = structs.replace(thread.state, goal=goal)
    publish_goal(thread, turn_id)


def wants_turn(thread: Thread) -> bool:
    """Whether the thread should go on by itself."""
    return thread.turn is None and is_pursued(thread)


def is_pursued(thread: Thread) -> bool:
    """Whether there is a goal to work for. A thread that plans waits for the user, and goals can be switched off."""
    goal, settings = thread.state.goal, thread.settings
    if goal is None or goal.status != "active" or settings.mode == "plan":
        return False
    return thread.services.config_for(settings).features.goals
