"""`ConversationResult`: what came of one call of `run_conversation`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from treadle.host.faults import Fault
    from treadle.host.runtime import Message
    from treadle.host.usage import Usage


@dataclass(slots=True, kw_only=True)
class ConversationResult:
    """What came of a turn, for whoever shows it.

    Args:
        final_response: The answer. When the turn could not be run at all: what happened, and the way back.
        messages: The whole conversation, this turn included.
        api_calls: How many turns the runtime was asked for: 1, or 0 when that failed.
        completed: Whether the turn came to its end, without an interrupt or an error.
        partial: The opposite.
        interrupted: Whether it was ended before it was done.
        error: What went wrong and what to do about it; None when nothing did.
        thread_id: The runtime's id of the thread.
        turn_id: The runtime's id of the turn.
        usage: The tokens of this turn; None when the runtime did not tell.
        fault: The same as `error` in parts, for programs: `kind`, `exit_code`, `resets_at`, …
        notices: What people should know besides, such as what a review has learned.
    """

    final_response: str
    messages: list[Message]
    api_calls: int = 1
    completed: bool = True
    partial: bool = False
    interrupted: bool = False
    error: str | None = None
    thread_id: str | None = None
    turn_id: str | None = None
    usage: Usage | None = None
    fault: Fault | None = None
    notices: list[str] = field(default_factory=list)
