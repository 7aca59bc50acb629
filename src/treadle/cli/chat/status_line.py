"""The line at the bottom: model, sandbox, thread, tokens, cost. What does not fit is left out, the least
needed first.
"""

from __future__ import annotations

from treadle.cli.chat.thread_facts import ThreadFacts, cost_words, tokens_words
from treadle.cli.visible import visible_line

_BETWEEN = " · "


def status_line(facts: ThreadFacts, width: int) -> str:
    """At most `width` characters."""
    usage = facts.usage
    left = facts.context_left
    # The first is kept longest.
    ranked = [
        (0, visible_line(facts.model)),
        (1, visible_line(facts.sandbox)),
        (4, visible_line(facts.name) if facts.name else f"thread {facts.id[-8:]}"),
        (2, f"{tokens_words(usage.total.total_tokens)} tokens" if usage is not None else ""),
        (3, cost_words(usage.thread_cost_usd or usage.cost_usd) if usage is not None else ""),
        (5, f"{left}% context left" if left is not None else ""),
    ]
    parts = [part for part in ranked if part[1]]
    while len(parts) > 1 and len(_joined(parts)) > width:
        parts.remove(max(parts))
    return _joined(parts)[:width]


def _joined(parts: list[tuple[int, str]]) -> str:
    return _BETWEEN.join(text for _, text in parts)
