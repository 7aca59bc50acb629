"""What a turn and a thread may use: what was used so far, and the error that ends a turn at a limit.

A limit is looked at before a model is asked, so a turn that has its answer completes, and the response that reaches the
limit is the last one. What sub-agents use counts at once for those that they work for, whose limits are theirs too.
What nobody can count is at its limit: a response without usage, a model without a price.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from treadle.agent.turn.turn import LimitReached, Turn
from treadle.protocol.app.turns import TurnLimit

if TYPE_CHECKING:
    from treadle.agent.thread.thread import Thread
    from treadle.config.file_settings import Budget

# By the kind of a limit: the option of a request, the key of the configuration.
_NAMES: Final = {
    "turnTokens": ("maxTurnTokens", "budget.turn_tokens"),
    "turnCostUsd": ("maxTurnCostUsd", "budget.turn_cost_usd"),
    "threadTokens": ("maxThreadTokens", "budget.thread_tokens"),
    "threadCostUsd": ("maxThreadCostUsd", "budget.thread_cost_usd"),
}


class Spent(NamedTuple):
    """What a thread has used, and its sub-agents, as far as they have come; a cost of None is not known."""

    tokens: int
    cost: float | None
    agents_cost: float | None

    @property
    def whole_cost(self) -> float | None:
        return None if self.cost is None or self.agents_cost is None else self.cost + self.agents_cost


def spent_by(thread: Thread) -> Spent:
    usage = thread.state.usage if thread.turn is None else thread.turn.report.usage_so_far
    tokens, agents_cost = usage.tokens_with_agents, usage.agents_cost_usd
    for child_id, child in thread.state.children.items():
        found = thread.services.agents.find(child_id)
        if found is not None:
            now = found.spent()  # the thread has counted what it was told of
            tokens += now.tokens - child.tokens
            agents_cost = _sum(agents_cost, _difference(now.whole_cost, child.cost_usd))
    return Spent(tokens, usage.thread_cost_usd if usage.total.total_tokens else 0.0, agents_cost)


def check_turn(turn: Turn) -> None:
    """Raise `LimitReached` when the turn may ask no model any more."""
    thread, budget, usage = turn.thread, turn.budget, turn.report.usage_so_far
    spent = spent_by(thread)
    before = turn.spent_before = turn.spent_before or spent
    own = usage.cost_usd if usage.turn_id == turn.id else 0.0
    facts = thread.model_facts if turn.side is None else turn.side.model_facts(thread)
    is_priced = facts.price is not None or thread.settings.engine is not None
    cost = _sum(own, _difference(spent.agents_cost, before.agents_cost))
    _check(thread, "turnTokens", budget.turn_tokens, spent.tokens - before.tokens if turn.is_counted else None)
    _check(thread, "turnCostUsd", budget.turn_cost_usd, cost if is_priced else None)
    _check(thread, "threadTokens", budget.thread_tokens, spent.tokens if turn.is_counted else None)
    _check(thread, "threadCostUsd", budget.thread_cost_usd, spent.whole_cost if is_priced else None)
    agent = thread.state.agent
    parent = None if agent is None else thread.services.agents.find(agent.parent_id)
    if parent is not None:
        try:
            parent.check_budget()
        except LimitReached as error:
            raise LimitReached(f"This thread works for {parent.id}. {error}", error.limit) from None


def check_thread(thread: Thread) -> None:
    """The same for those who work for a thread, whether it has a turn or waits for them."""
    if thread.turn is not None and thread.turn.state.begun:
        check_turn(thread.turn)
        return
    budget: Budget = thread.settings.budget.over(thread.services.config_for(thread.settings).budget)
    spent = spent_by(thread)
    _check(thread, "threadTokens", budget.thread_tokens, spent.tokens)
    _check(thread, "threadCostUsd", budget.thread_cost_usd, spent.whole_cost)


def _check(thread: Thread, kind: str, limit: float | None, used: float | None) -> None:
    if limit is None or (used is not None and used < limit):
        return
    option, key = _NAMES[kind]
    what = "turn" if kind.startswith("turn") else "thread"
    if used is None and kind.endswith("Usd"):
        text = (
            f"Nobody knows what this {what} costs, so {option} cannot be held: a model has no price (here "
            f"`{thread.settings.model}`). Give it price_input and price_output in [models.NAME] of config.toml, or "
            "limit tokens instead."
        )
    elif used is None:
        text = (
            f"Nobody knows what this {what} uses, so {option} cannot be held: the provider "
            f"`{thread.settings.model_provider}` does not count tokens. Take the limit away, or use maxIterations."
        )
    else:
        most, now = (f"${n:,.4f}" if kind.endswith("Usd") else f"{n:,.0f} tokens" for n in (limit, used))
        text = f"The {what} is at its limit: it has used {now}, and may use {most} ({option}, or {key})."
        text += " Go on with another turn, or with a higher limit." if what == "turn" else " Raise it to go on."
    raise LimitReached(text, TurnLimit(kind=kind, limit=limit, used=used, thread_id=thread.id))


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def _difference(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other
