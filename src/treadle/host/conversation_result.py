"""`ConversationResult`: the outcome of one call of `run_conversation`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from treadle.host.faults import Fault
    from treadle.host.runtime import Message
    from treadle.host.turn_result import TurnResult
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
        notices: What people should know besides, such as what a review has learned.
        fault: The same as `error` in parts, for programs (`kind`, `exit_code`, `resets_at`, …); None when nothing went
            wrong, and for an error of the program itself.
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
    notices: list[str] = field(default_factory=list)
    fault: Fault | None = None


def conversation_result(
    turn: TurnResult, messages: list[Message], notices: list[str], *, runtime: str, failed: bool
) -> ConversationResult:
    """What came of a turn, for whoever asked for it.

    Args:
        turn: The turn.
        messages: The whole conversation.
        notices: What is to be told besides what the turn tells.
        runtime: What it ran on.
        failed: Whether the turn could not be run at all.
    """
    completed = not turn.interrupted and turn.error is None
    return ConversationResult(
        final_response=_way_back(turn.error or "", runtime) if failed else turn.final_text,
        messages=list(messages),
        api_calls=0 if failed else 1,
        completed=completed,
        partial=not completed,
        interrupted=turn.interrupted,
        error=turn.error,
        thread_id=turn.thread_id,
        turn_id=turn.turn_id,
        usage=turn.usage,
        notices=[*turn.notices, *notices],
        fault=turn.fault,
    )


def _way_back(error: str, runtime: str) -> str:
    other = "" if runtime == "auto" else ' (agent.use_runtime("auto"))'
    return (
        f"The turn could not be run: {error}\nThe next message starts a new session, which is told what was said "
        f"before. If that fails too, go on without {runtime}: `runtime auto`{other}."
    )
