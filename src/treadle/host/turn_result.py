"""`TurnResult`: the outcome of one turn of a session, whichever runtime ran it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from treadle.host.faults import Fault
    from treadle.host.usage import Usage


@dataclass(slots=True)
class TurnResult:
    """What came of a turn.

    Args:
        final_text: The answer; empty when there was none.
        projected_messages: What the agent said and did, as chat messages, without the user's own.
        tool_iterations: How many tools were used.
        interrupted: Whether it was ended before it was done.
        error: What went wrong and what to do about it, for people; None when nothing did.
        turn_id: The runtime's id of the turn.
        thread_id: The runtime's id of the thread.
        usage: The tokens of this turn; None when the runtime did not tell.
        should_retire: Whether the session is not to be used again.
        fault: The same as `error` in parts; None when nothing went wrong.
        notices: What people should know besides: a thread that could not be resumed, a runtime that was quiet.
        compacted: Whether the runtime summed up its thread meanwhile.
    """

    final_text: str = ""
    projected_messages: list[dict[str, Any]] = field(default_factory=list)
    tool_iterations: int = 0
    interrupted: bool = False
    error: str | None = None
    turn_id: str | None = None
    thread_id: str | None = None
    usage: Usage | None = None
    should_retire: bool = False
    fault: Fault | None = None
    notices: list[str] = field(default_factory=list)
    compacted: bool = False
