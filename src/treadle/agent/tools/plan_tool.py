"""update_plan: the steps of the task, for people to see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Raw, Struct

from treadle.agent.tools.tool import Tool, ToolCall
from treadle.protocol.app.thread_notifications import TurnPlanStep, TurnPlanStepStatus, TurnPlanUpdatedNotification
from treadle.tools.specs import function_spec, text
from treadle.tools.tool_arguments import ToolInputError

PlanStatus: TypeAlias = Literal["pending", "in_progress", "completed"]

MAX_STEPS: Final = 200
_STATUS: Final[Mapping[PlanStatus, TurnPlanStepStatus]] = {
    "pending": TurnPlanStepStatus.pending,
    "in_progress": TurnPlanStepStatus.in_progress,
    "completed": TurnPlanStepStatus.completed,
}


class PlanStepArguments(Struct, frozen=True, kw_only=True):
    step: str
    status: PlanStatus


class UpdatePlanArguments(Struct, frozen=True, kw_only=True):
    plan: tuple[PlanStepArguments, ...]
    explanation: str | None = None


class UpdatePlan(Tool):
    name = "update_plan"
    spec: Raw = function_spec(
        name,
        "Shows the user the steps of your task and how far you are. Give the whole plan each time, with at most one "
        "step in progress.",
        {
            "explanation": text("Why the plan is as it is, or why it changed."),
            "plan": {
                "type": "array",
                "description": "All steps in order.",
                "items": {
                    "type": "object",
                    "properties": {
                        "step": text("What is to be done, in a few words."),
                        "status": text("How far it is.", words=("pending", "in_progress", "completed")),
                    },
                    "required": ["step", "status"],
                    "additionalProperties": False,
                },
            },
        },
        required=("plan",),
    )

    async def run(self, call: ToolCall) -> str:
        turn, given = call.turn, call.arguments(UpdatePlanArguments)
        params = TurnPlanUpdatedNotification(
            thread_id=turn.thread.id, turn_id=turn.id, plan=plan_steps(given), explanation=given.explanation
        )
        turn.thread.journal.emit("turn/plan/updated", params)
        return "Plan updated"


def plan_steps(given: UpdatePlanArguments) -> tuple[TurnPlanStep, ...]:
    """The plan as the protocol shows it. Raises `ToolInputError`."""
    if len(given.plan) > MAX_STEPS:
        raise ToolInputError(f"the plan has {len(given.plan)} steps; give at most {MAX_STEPS}")
    return tuple(TurnPlanStep(step=step.step, status=_STATUS[step.status]) for step in given.plan)
