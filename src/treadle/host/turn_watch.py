"""`TurnWatch`: the time limits of a turn. Pure: it is told what happens and when, and has no clock.

Three limits: `idle`, since the last sign of life; `turn`, since the beginning; `quiet`, since the last sign of life
after a tool has ended. While a person is asked, all of them are suspended; while an item is open, `quiet` does not
apply.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, TypeAlias

from treadle.host.timeouts import Timeouts

Limit: TypeAlias = Literal["turn", "idle", "quiet"]


class NextCheck(NamedTuple):
    """When to check on a turn again, and which limit it will have reached if nothing happens until then."""

    at: float
    limit: Limit


class TurnWatch:
    """The watch over one turn. Times are seconds of one clock, and never go back.

    Args:
        timeouts: The limits.
        now: When the turn begins.
    """

    def __init__(self, timeouts: Timeouts, now: float) -> None:
        self._limits = timeouts
        self._began = now
        self._alive = now
        self._looked = now
        self._tool_ended = False
        self._open: set[str] = set()
        self._asked = 0
        self._asked_at = now

    def begin(self, now: float) -> None:
        """The turn begins only now. Who has been asked already still is."""
        self._began = self._alive = self._looked = self._asked_at = now
        self._tool_ended = False
        self._open.clear()

    @property
    def working(self) -> bool:
        """Whether an item is open or a person is asked: something is under way that takes its own time."""
        return bool(self._open) or self._asked > 0

    def activity(self, now: float) -> None:
        """The runtime has told something, whatever it was."""
        self._alive = self._looked = now

    def item_opened(self, item_id: str, now: float) -> None:
        self._open.add(item_id)
        self.activity(now)

    def item_closed(self, item_id: str, now: float, *, tool: bool) -> None:
        """An item has ended; it may not have been opened before."""
        self._open.discard(item_id)
        self._tool_ended = self._tool_ended or tool
        self.activity(now)

    def person_asked(self, now: float) -> None:
        if not self._asked:
            self._asked_at = now
        self._asked += 1
        self.activity(now)

    def person_answered(self, now: float) -> None:
        """One of those who were asked has answered, or need not any more."""
        self._asked -= 1
        if not self._asked:
            self._began += now - self._asked_at
        self.activity(now)

    def quiet_handled(self, now: float) -> None:
        """The silence was looked into: the next check is due after another such time. It is no sign of life."""
        self._looked = now

    def next_check(self) -> NextCheck | None:
        """When a limit is reached if nothing happens until then; None when none ever is."""
        if self._asked:
            return None
        limits = self._limits
        checks = [
            NextCheck(self._began + _span(limits.turn), "turn"),
            NextCheck(self._alive + _span(limits.idle), "idle"),
        ]
        if self._tool_ended and not self._open:
            checks.append(NextCheck(self._looked + _span(limits.quiet), "quiet"))
        # Of two at the same time the one that ends the turn.
        first = min(checks, key=lambda check: check.at)
        return first if math.isfinite(first.at) else None

    def due(self, now: float) -> Limit | None:
        """The limit that is reached."""
        check = self.next_check()
        return check.limit if check is not None and check.at <= now else None


def _span(limit: float | None) -> float:
    return math.inf if limit is None else limit
