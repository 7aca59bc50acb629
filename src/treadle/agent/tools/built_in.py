"""`BUILT_IN`: our own tools, in the order in which a model is told of them. A new tool gets a line here."""

from __future__ import annotations

from typing import Final

from treadle.agent.tools.command_tool import ExecCommand, WriteStdin
from treadle.agent.tools.goal_tools import CreateGoal, GetGoal, UpdateGoal
from treadle.agent.tools.image_tool import ViewImage
from treadle.agent.tools.patch_tool import ApplyPatch, ApplyPatchFreeform
from treadle.agent.tools.plan_tool import UpdatePlan
from treadle.agent.tools.tool import Tool
from treadle.agent.tools.user_input_tool import RequestUserInput

BUILT_IN: Final[tuple[Tool, ...]] = (
    ExecCommand(),
    WriteStdin(),
    ApplyPatchFreeform(),
    ApplyPatch(),
    UpdatePlan(),
    RequestUserInput(),
    ViewImage(),
    GetGoal(),
    CreateGoal(),
    UpdateGoal(),
)


def built_in_names() -> frozenset[str]:
    """What the model calls our own tools: a client's tool of the same name would take its place."""
    return frozenset(tool.name for tool in BUILT_IN)
