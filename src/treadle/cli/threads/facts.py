"""What the items of a thread do not tell: the plan of each turn, the tokens, the cost. Folded from its events. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from treadle.protocol.app.base import convert, decode
from treadle.protocol.app.thread_notifications import (
    ThreadTokenUsageUpdatedNotification,
    TurnPlanStep,
    TurnPlanUpdatedNotification,
)
from treadle.protocol.app.threads import ThreadTokenUsage, TokenUsageBreakdown

_USAGE: Final = "thread/tokenUsage/updated"
_PLAN: Final = "turn/plan/updated"


class _Frame(Struct):
    method: str
    params: Raw = Raw(b"null")
    seq: int = 0


_frame = msgspec.json.Decoder(_Frame)


@dataclass(frozen=True, slots=True)
class Tokens:
    """`input` contains `cached`, and `output` contains `reasoning`, as models count them."""

    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0

    @property
    def total(self) -> int:
        return self.input + self.output

    @property
    def fresh(self) -> int:
        """Input that was not cached."""
        return max(0, self.input - self.cached)

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            self.input + other.input,
            self.cached + other.cached,
            self.output + other.output,
            self.reasoning + other.reasoning,
        )

    def since(self, before: Tokens) -> Tokens:
        return Tokens(
            max(0, self.input - before.input),
            max(0, self.cached - before.cached),
            max(0, self.output - before.output),
            max(0, self.reasoning - before.reasoning),
        )


@dataclass(frozen=True, slots=True)
class TurnFacts:
    """None and () are: not known."""

    plan: tuple[TurnPlanStep, ...] = ()
    tokens: Tokens | None = None
    cost_usd: float | None = None


@dataclass(slots=True)
class ThreadFacts:
    """Of a thread: what `take` has seen so far."""

    turns: dict[str, TurnFacts] = field(default_factory=dict)
    tokens: Tokens | None = None
    cost_usd: float | None = None
    clean: Callable[[Raw], Any] = msgspec.json.decode
    """Reads what a plan says."""
    seq: int = 0
    """The number of the last event that was taken."""

    def take(self, frames: Iterable[Raw]) -> None:
        """Notifications in their order. Those of other kinds are passed over without being read."""
        for raw in frames:
            frame = _frame.decode(raw)
            self.seq = max(self.seq, frame.seq)
            if frame.method == _USAGE:
                told = decode(frame.params, ThreadTokenUsageUpdatedNotification)
                self._used(told.turn_id, told.token_usage)
            elif frame.method == _PLAN:
                planned = convert(self.clean(frame.params), TurnPlanUpdatedNotification)
                self.turns[planned.turn_id] = replace(self.of(planned.turn_id), plan=planned.plan)

    def of(self, turn_id: str) -> TurnFacts:
        return self.turns.get(turn_id, TurnFacts())

    def _used(self, turn_id: str, usage: ThreadTokenUsage) -> None:
        total = _tokens(usage.total)
        # What came before the first event that is left (those of a fork are with its source) is only in the sum.
        more = _tokens(usage.last) if self.tokens is None else total.since(self.tokens)
        before = self.of(turn_id)
        self.turns[turn_id] = replace(before, tokens=(before.tokens or Tokens()) + more, cost_usd=usage.cost_usd)
        self.tokens, self.cost_usd = total, usage.thread_cost_usd


def _tokens(usage: TokenUsageBreakdown) -> Tokens:
    return Tokens(usage.input_tokens, usage.cached_input_tokens, usage.output_tokens, usage.reasoning_output_tokens)
