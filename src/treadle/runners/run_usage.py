"""What a run used, in the same terms for every engine. Pure.

`input_tokens` is all input, including cache reads and writes; `output_tokens` is all output, including reasoning.
Engines that count those separately are added up here.
"""

from __future__ import annotations

from typing import Any


def add_usage(
    used: dict[str, Any],
    *,
    fresh: object,
    cached: object,
    cache_write: object,
    output: object,
    reasoning: object = None,
    cost: object = None,
) -> None:
    """Add one answer of a model to `used`; what is no number counts as nothing.

    Args:
        used: The sum so far.
        fresh: Tokens of the input that have nothing to do with the cache.
        cached: Tokens of the input that came from the cache.
        cache_write: Tokens of the input that were written to the cache.
        output: Tokens of the output without thoughts, or with them when they are not counted apart.
        reasoning: Tokens of the thoughts; None from an engine that does not tell.
        cost: What it cost in dollars.
    """
    more = {
        "input_tokens": number(fresh) + number(cached) + number(cache_write),
        "cached_input_tokens": number(cached),
        "cache_write_input_tokens": number(cache_write),
        "output_tokens": number(output) + number(reasoning),
    }
    if reasoning is not None:
        more["reasoning_output_tokens"] = number(reasoning)
    more["cost_usd"] = number(cost)
    for name, value in more.items():
        used[name] = used.get(name, 0) + value


def number(value: object) -> Any:
    """The value, if it is a number; else 0."""
    return value if isinstance(value, int | float) else 0
