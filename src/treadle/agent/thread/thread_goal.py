"""`Goal`: what a thread works for by itself, turn after turn, until the model says that it is reached.

It owns how a goal changes and whether it makes the next turn start. A goal is stored in the thread's state.

    active ─▶ complete, blocked    by the model (update_goal), or after turns that did nothing (see `turn_start`)
           ─▶ paused               by the user, or because a turn was interrupted
           ─▶ budgetLimited        because its tokens are used up
    and back to active by the user; a new objective begins a new account.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType, structs

from treadle.agent.event import now_ms
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.notifications import ThreadGoalClearedNotification, ThreadGoalUpdatedNotification
from treadle.protocol.app.threads import ThreadGoal

if TYPE_CHECKING:
    from treadle.agent.thread.thread import Thread


class Goal:
    """The goal of one thread, if it has one (`now`). `idle_turns` are its turns in a row that did nothing but talk."""

    __slots__ = ("_thread", "idle_turns")

    def __init__(self, thread: Thread) -> None:
        self._thread = thread
        self.idle_turns: int = 0

    @property
    def now(self) -> ThreadGoal | None:
        return self._thread.state.goal

    def set(
        self,
        *,
        objective: str | None = None,
        status: str | None = None,
        token_budget: int | UnsetType | None = UNSET,
    ) -> ThreadGoal:
        """Make or change the goal, without publishing it. A new objective begins a new account."""
        goal, now = self.now, now_ms() // 1000
        changes: dict[str, Any] = {} if isinstance(token_budget, UnsetType) else {"token_budget": token_budget}
        if objective is not None:
            if not objective.strip():
                raise RpcError(INVALID_REQUEST, "goal objective must not be empty")
            if goal is None or goal.objective != objective:
                goal = ThreadGoal(
                    thread_id=self._thread.id,
                    objective=objective,
                    status="active",
                    created_at=now,
                    updated_at=now,
                    time_used_seconds=0,
                    tokens_used=0,
                )
        if goal is None:
            raise RpcError(INVALID_REQUEST, f"no goal exists for thread {self._thread.id}: give an objective")
        if status is not None:
            changes["status"] = status
        goal = structs.replace(goal, updated_at=max(now, goal.created_at), **changes)
        self._thread.change_state(goal=goal)
        return goal

    def clear(self) -> bool:
        """Whether there was one."""
        cleared = self.now is not None
        self._thread.change_state(goal=None)
        return cleared

    def publish(self, turn_id: str | None = None) -> None:
        """The goal as it is now, or that there is none; `turn_id` is that of the turn that has changed it."""
        thread, goal = self._thread, self.now
        if goal is None:
            cleared = ThreadGoalClearedNotification(thread_id=thread.id)
            thread.journal.emit("thread/goal/cleared", cleared, thread.save())
        else:
            updated = ThreadGoalUpdatedNotification(thread_id=thread.id, goal=goal, turn_id=turn_id)
            thread.journal.emit("thread/goal/updated", updated, thread.save())

    def account(self, turn_id: str, tokens: int, seconds: int) -> None:
        """A turn has worked for the goal; a budget that is used up stops it."""
        goal = self.now
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
        self._thread.change_state(goal=goal)
        self.publish(turn_id)

    @property
    def is_pursued(self) -> bool:
        """Whether there is a goal to work for. A thread that plans waits for the user; goals can be switched off."""
        goal, settings = self.now, self._thread.settings
        if goal is None or goal.status != "active" or settings.mode == "plan":
            return False
        return self._thread.services.config_for(settings).features.goals

    @property
    def wants_turn(self) -> bool:
        """Whether the thread should go on by itself."""
        return self._thread.turn is None and self.is_pursued
