"""What a turn has used: tokens, dollars, seconds. Pure."""

from __future__ import annotations

from treadle.protocol.app.threads import ThreadTokenUsage


class TurnUsage:
    """Counts from what the server says of the thread, of which the turn is the last part."""

    def __init__(self) -> None:
        self._before: tuple[int, int] | None = None
        self._now: ThreadTokenUsage | None = None

    def begin(self) -> None:
        """A turn begins. What was said of the thread before, as when it is resumed, does not count."""
        total = None if self._now is None else self._now.total
        self._before = None if total is None else (total.input_tokens, total.output_tokens)
        self._now = None

    def update(self, usage: ThreadTokenUsage) -> None:
        total, last = usage.total, usage.last
        if self._before is None:
            self._before = total.input_tokens - last.input_tokens, total.output_tokens - last.output_tokens
        self._now = usage

    def words(self, duration_ms: int | None) -> str:
        """`1,200 tokens in, 34 out · $0.0123 · 1.5 s`."""
        return " · ".join([*self._used(), f"{(duration_ms or 0) / 1000:.1f} s"])

    def _used(self) -> list[str]:
        if self._now is None or self._before is None:
            return []
        total = self._now.total
        given, made = total.input_tokens - self._before[0], total.output_tokens - self._before[1]
        tokens = f"{given:,} tokens in, {made:,} out"
        return [tokens, cost] if (cost := _cost(self._now)) else [tokens]


def _cost(usage: ThreadTokenUsage) -> str:
    """Of the turn, and of the thread where that is more."""
    turn, thread = usage.cost_usd, usage.thread_cost_usd
    if not turn:
        return ""
    more = f" (${thread:.4f} with the turns before)" if thread is not None and thread > turn else ""
    return f"${turn:.4f}{more}"
