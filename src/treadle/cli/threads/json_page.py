"""`JsonPage`: the `Thread` of the protocol with all turns and items, as one JSON object.

What the protocol keeps elsewhere is added under names that its readers ignore: `plan` and `usage` of a turn, `usage` of
the thread. Pure.
"""

from __future__ import annotations

from typing import Any

import msgspec

from treadle.cli.threads.facts import Tokens
from treadle.cli.threads.page import Heading
from treadle.protocol.app.base import encode
from treadle.protocol.app.items import ThreadItem
from treadle.protocol.app.turns import Turn


class JsonPage:
    def __init__(self) -> None:
        self._heading: Heading | None = None
        self._turns = 0
        self._items = 0

    def head(self, heading: Heading) -> str:
        self._heading = heading
        usage = usage_members(heading.facts.tokens, heading.facts.cost_usd)
        return f"{_opened(heading.thread, 'turns', usage=usage)}\n"

    def turn_begun(self, number: int, turn: Turn) -> str:
        assert self._heading is not None
        facts = self._heading.facts.of(turn.id)
        comma = ",\n" if self._turns else ""
        self._turns += 1
        self._items = 0
        usage = usage_members(facts.tokens, facts.cost_usd)
        whole = msgspec.structs.replace(turn, items_view="full")
        return f"{comma}{_opened(whole, 'items', plan=facts.plan, usage=usage)}\n"

    def item(self, item: ThreadItem) -> str:
        comma = ",\n" if self._items else ""
        self._items += 1
        return comma + encode(item).decode()

    def turn_ended(self, turn: Turn) -> str:
        return "\n]}"

    def foot(self) -> str:
        return "\n]}\n"


def _opened(value: Any, last: str, **more: Any) -> str:
    """The object with its list `last` at the end, begun."""
    members = msgspec.json.decode(encode(value))
    members.pop(last, None)
    text = msgspec.json.encode({**members, **more}).decode()
    return f'{text[:-1]},"{last}":['


def usage_members(tokens: Tokens | None, cost_usd: float | None) -> dict[str, Any] | None:
    if tokens is None:
        return None
    return {
        "inputTokens": tokens.input,
        "cachedInputTokens": tokens.cached,
        "outputTokens": tokens.output,
        "reasoningOutputTokens": tokens.reasoning,
        "totalTokens": tokens.total,
        "costUsd": cost_usd,
    }
