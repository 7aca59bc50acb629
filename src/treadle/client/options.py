"""`TurnOptions`: the options that `run`, `turn` and `events` have in common, for type checkers.

The signatures of `Thread` list them one by one; the overloads, which differ only in `output_type`, use this.
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
    permissions: str | None
    personality: Personality | str | None
    sandbox: Sandbox | None
    service_tier: str | None
    source: str | None
    summary: ReasoningSummary | str | None
    turn_service_tier: str | None
    timeout: float | None
