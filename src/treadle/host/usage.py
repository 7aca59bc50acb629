"""`Usage`: the tokens of a turn, or of a thread so far. A turn's usage is the change of its thread's total."""

from __future__ import annotations

from msgspec import Struct


class Usage(Struct, frozen=True, kw_only=True):
    """Tokens and their price. Cached and written tokens are parts of `input_tokens`, thoughts of `output_tokens`.

    Args:
        input_tokens: All that was sent, with what came from the cache.
        cached_input_tokens: What of it came from the cache.
        cache_write_input_tokens: What of it was written to the cache.
        output_tokens: All that came, with the thoughts.
        reasoning_output_tokens: The thoughts.
        total_tokens: Both together.
        cost_usd: What it cost in dollars; None when a price is not known.
        context_tokens: How full the context was at the end; None when that is not known.
        context_window: How much fits in.
    """

    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_output_tokens: int = 0
    total_tokens: int = 0
    cost_usd: float | None = None
    context_tokens: int | None = None
    context_window: int | None = None

    @property
    def uncached_input_tokens(self) -> int:
        """What was sent and neither read from the cache nor written to it."""
        return max(0, self.input_tokens - self.cached_input_tokens - self.cache_write_input_tokens)

    def since(self, before: Usage | None) -> Usage:
        """What was used after `before`, a total of the same thread."""
        if before is None:
            return self
        cost = None if self.cost_usd is None else max(0.0, self.cost_usd - (before.cost_usd or 0.0))
        return Usage(
            input_tokens=max(0, self.input_tokens - before.input_tokens),
            cached_input_tokens=max(0, self.cached_input_tokens - before.cached_input_tokens),
            cache_write_input_tokens=max(0, self.cache_write_input_tokens - before.cache_write_input_tokens),
            output_tokens=max(0, self.output_tokens - before.output_tokens),
            reasoning_output_tokens=max(0, self.reasoning_output_tokens - before.reasoning_output_tokens),
            total_tokens=max(0, self.total_tokens - before.total_tokens),
            cost_usd=cost,
            context_tokens=self.context_tokens,
            context_window=self.context_window,
        )


class UsageMeter:
    """The tokens of a thread, turn by turn.

    The total at the beginning of a turn is the last one told. Of a resumed thread it may not be known: then a total
    told before the model has said or done anything counts as that, and otherwise the first turn has no usage. It is
    known from then on.
    """

    def __init__(self) -> None:
        self._total: Usage | None = None
        self._before: Usage | None = None
        self._told = False

    def open(self, total: Usage | None) -> None:
        """A thread is opened.

        Args:
            total: What it has used so far; None when that is not known.
        """
        self._total = total

    def begin(self) -> None:
        """A turn begins."""
        self._before, self._told = self._total, False

    def tell(self, total: Usage, *, before_work: bool) -> None:
        """A total was told.

        Args:
            total: Of the whole thread.
            before_work: Whether nothing has been said or done in this turn yet.
        """
        if self._before is None and before_work:
            self._before = total
        else:
            self._told = True
        self._total = total

    def spent(self) -> Usage | None:
        """What the turn has used; None when nothing was told of it, or nobody knows what was there before."""
        if not self._told or self._before is None or self._total is None:
            return None
        return self._total.since(self._before)
