"""`read_plan`: the arguments of update_plan, as the protocol shows a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from treadle.protocol.app.thread_notifications import TurnPlanStep, TurnPlanStepStatus
from treadle.tools.tool_arguments import PlanStatus, UpdatePlanArguments, parse
from treadle.tools.tool_errors import ToolInputError

MAX_STEPS: Final = 200
_STATUS: Final[Mapping[PlanStatus, TurnPlanStepStatus]] = {
    "pending": TurnPlanStepStatus.pending,
    "in_progress": TurnPlanStepStatus.in_progress,
    "completed": TurnPlanStepStatus.completed,
}


class Plan(Struct, frozen=True):
    explanation: str | None
    steps: tuple[TurnPlanStep, ...]


def read_plan(arguments: str) -> Plan:
    """The plan in the JSON that a model wrote; raises `ToolInputError`."""
    given = parse(arguments, UpdatePlanArguments)
    if len(given.plan) > MAX_STEPS:
        raise ToolInputError(f"the plan has {len(given.plan)} steps; give at most {MAX_STEPS}")
    steps = tuple(TurnPlanStep(step=step.step, status=_STATUS[step.status]) for step in given.plan)
    return Plan(given.explanation, steps)
