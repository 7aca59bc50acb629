"""`Counters`: how much has happened since the agent last reviewed the conversation, and when the next review is due."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from treadle.host.runtime import Message

MEMORY_TOOL: Final = "memory"
SKILL_TOOL: Final = "skill_manage"


class Counters:
    """The counters of an agent. An interval of 0 is never over.

    Args:
        memory_nudge_interval: After how many turns without a use of the memory to review what is to be remembered.
        skill_nudge_interval: After how many uses of tools without a change of a skill to review what can be learned.
    """

    def __init__(self, memory_nudge_interval: int, skill_nudge_interval: int) -> None:
        self.memory_nudge_interval = memory_nudge_interval
        self.skill_nudge_interval = skill_nudge_interval
        self.user_turn_count: int = 0
        self.turns_since_memory: int = 0
        self.iterations_since_skill: int = 0

    def hydrate(self, earlier: Sequence[Message], *, remembers: bool) -> None:
        """Go on from a conversation that was stored, unless somebody has set the counters."""
        said = sum(message.get("role") == "user" for message in earlier)
        self.user_turn_count = self.user_turn_count or said
        if remembers and self.memory_nudge_interval:
            self.turns_since_memory = self.turns_since_memory or said % self.memory_nudge_interval

    def count_user_turn(self, *, remembers: bool) -> None:
        self.user_turn_count += 1
        if remembers and self.memory_nudge_interval:
            self.turns_since_memory += 1

    def count_tools(self, iterations: int, used: Iterable[str]) -> None:
        """What a turn did: an agent that keeps something by itself needs no nudge."""
        names = set(used)
        self.iterations_since_skill = 0 if SKILL_TOOL in names else self.iterations_since_skill + iterations
        if MEMORY_TOOL in names:
            self.turns_since_memory = 0

    def memory_is_due(self) -> bool:
        return 0 < self.memory_nudge_interval <= self.turns_since_memory

    def skills_are_due(self) -> bool:
        return 0 < self.skill_nudge_interval <= self.iterations_since_skill

    def reviewed(self, *, memory: bool, skills: bool) -> None:
        """A review of these has started."""
        if memory:
            self.turns_since_memory = 0
        if skills:
            self.iterations_since_skill = 0
