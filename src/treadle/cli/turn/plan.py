"""`PlanStory`: the plan of a turn. It is shown whole when it is made or remade; later only what has been done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import RenderableType
from rich.text import Text

from treadle.cli.turn.turn_blocks import Hanging
from treadle.cli.visible import visible_line
from treadle.protocol.app.thread_notifications import TurnPlanStep

_SIGNS: Final = {"completed": ("✔", "green"), "inProgress": ("▶", "cyan"), "pending": ("□", "dim")}
_STYLES: Final = {"completed": "dim", "inProgress": "bold"}


class PlanStory:
    def __init__(self) -> None:
        self._steps: tuple[TurnPlanStep, ...] = ()

    def update(self, steps: Sequence[TurnPlanStep]) -> list[RenderableType]:
        before, self._steps = self._steps, tuple(steps)
        if [step.step for step in before] != [step.step for step in steps]:
            return [Text("plan", "bold cyan"), *map(_block, steps), ""] if steps else []
        done = {step.step for step in before if step.status == "completed"}
        ticked = [_block(step) for step in steps if step.status == "completed" and step.step not in done]
        return [*ticked, ""] if ticked else []

    def live(self, room: int) -> list[Text]:
        """The whole plan; where that does not fit, what comes around the step of now; nothing when all is done."""
        if room < 1 or all(step.status == "completed" for step in self._steps):
            return []
        steps = [_line(step) for step in self._steps]
        if len(steps) <= room:
            return steps
        now = next((n for n, step in enumerate(self._steps) if step.status != "completed"), 0)
        first = min(max(0, now - room // 2), len(steps) - room)
        return steps[first : first + room]


def _sign(step: TurnPlanStep) -> Text:
    sign, style = _SIGNS.get(str(step.status), _SIGNS["pending"])
    return Text(f"  {sign} ", style)


def _words(step: TurnPlanStep) -> Text:
    return Text(visible_line(step.step), _STYLES.get(str(step.status), ""))


def _line(step: TurnPlanStep) -> Text:
    return Text.assemble(_sign(step), _words(step))


def _block(step: TurnPlanStep) -> RenderableType:
    return Hanging(_sign(step), _words(step))
