"""`Aside`: a conversation of a turn's own, beside that of its thread: with a reviewer, say.

Its model has a history, tools and settings of its own. Nothing of what is said in it is kept; the work shows and
remembers what is to stay. What it costs counts for the thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from treadle.agent.model_history import History
from treadle.config import model_facts

if TYPE_CHECKING:
    from treadle.agent.state import Settings
    from treadle.agent.thread import Thread
    from treadle.config import ModelFacts
    from treadle.store.contract import Write


class Aside:
    """`settings` makes its own from those of the thread, which may change while it goes on."""

    def __init__(self, settings: Callable[[Thread], Settings], tools: frozenset[str]) -> None:
        self.settings = settings
        self._tools = tools
        self.history: History = History()

    def has(self, tool: str) -> bool:
        return tool in self._tools

    def model_facts(self, thread: Thread) -> ModelFacts:
        settings = self.settings(thread)
        return model_facts(settings.model, thread.services.config_for(settings))

    def remember(self, items: Sequence[Any], turn: int, origin: str | None = None) -> list[Write]:
        """As a thread does; there is nothing to be kept."""
        for item in items:
            self.history.add(item if isinstance(item, Raw) else Raw(msgspec.json.encode(item)), origin)
        return []
