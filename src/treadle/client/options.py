"""`TurnOptions`: the options of a turn that `run`, `turn` and `events` take alike, for type checkers.

The signatures of `Thread` list them one by one; their overloads, which differ in `output_type` alone, name this.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypedDict

from treadle.client.modes import ApprovalMode, Sandbox

if TYPE_CHECKING:
    from treadle.protocol.app.base import JsonObject
    from treadle.protocol.app.settings import Personality, ReasoningEffort, ReasoningSummary


class TurnOptions(TypedDict, total=False):
    """The options of a turn. What each is for is said at `Thread.turn`."""

    approval_mode: ApprovalMode | None
    cwd: str | os.PathLike[str] | None
    effort: ReasoningEffort | str | None
    model: str | None
    output_schema: JsonObject | None
    personality: Personality | str | None
    sandbox: Sandbox | None
    service_tier: str | None
    source: str | None
    summary: ReasoningSummary | str | None
    turn_service_tier: str | None
    timeout: float | None
