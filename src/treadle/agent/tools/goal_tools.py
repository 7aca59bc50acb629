"""get_goal, create_goal and update_goal: what the thread works for. A goal and its rules are in `thread_goal`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct

from treadle.agent.thread_goal import publish_goal, set_goal
from treadle.agent.tools.tool import Tool, ToolCall
from treadle.errors import RpcError
from treadle.protocol.app.base import encode
from treadle.tools.specs import function_spec, number, text


class GetGoalArguments(Struct, frozen=True, kw_only=True):
    pass


class CreateGoalArguments(Struct, frozen=True, kw_only=True):
    objective: Annotated[str, Meta(min_length=1)]
    token_budget: Annotated[int, Meta(gt=0)] | None = None


class UpdateGoalArguments(Struct, frozen=True, kw_only=True):
    status: Literal["complete", "blocked"]


class GetGoal(Tool):
    name = "get_goal"
    spec: Raw = function_spec(
        name, "Tells the goal of this thread: its objective, status, budget and what was used of it.", {}
    )

    async def run(self, call: ToolCall) -> str:
        """Whatever the arguments are: there is nothing to get wrong."""
        goal = call.turn.thread.state.goal
        return "no goal is set" if goal is None else encode(goal).decode()


class CreateGoal(Tool):
    name = "create_goal"
    spec: Raw = function_spec(
        name,
        "Sets the goal that this thread works for until it is reached. Only when the user asked for one.",
        {
            "objective": text("What is to be reached, so that one can tell whether it was."),
            "token_budget": number("Most tokens to use for it. Only when the user named a number."),
        },
        required=("objective",),
    )

    async def run(self, call: ToolCall) -> str:
        thread, given = call.turn.thread, call.arguments(CreateGoalArguments)
        try:
            set_goal(thread, objective=given.objective, status="active", token_budget=given.token_budget)
        except RpcError as error:
            return error.message
        publish_goal(thread, call.turn.id)
        return "goal set"


class UpdateGoal(Tool):
    name = "update_goal"
    spec: Raw = function_spec(
        name,
        "Ends the work for the goal: `complete` when it is reached and you have checked that, `blocked` when you "
        "cannot go on without the user.",
        {"status": text("How it ended.", words=("complete", "blocked"))},
        required=("status",),
    )

    async def run(self, call: ToolCall) -> str:
        thread, given = call.turn.thread, call.arguments(UpdateGoalArguments)
        if thread.state.goal is None:
            return "no goal is set"
        set_goal(thread, status=given.status)
        publish_goal(thread, call.turn.id)
        return f"goal is {given.status}"
