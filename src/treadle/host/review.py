"""`Reviewer`: looks back at a conversation in the background and keeps what was learned."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from treadle.host.clock import Clock
from treadle.host.memory.store import MemoryStore
from treadle.host.runtime import Message, Runtime
from treadle.host.skills.store import SkillStore
from treadle.host.timeouts import Timeouts


class Reviewer:
    def __init__(
        self,
        make_runtime: Callable[[], Runtime],
        *,
        memory: MemoryStore | None,
        skills: SkillStore | None,
        timeouts: Timeouts | None = None,
        clock: Clock | None = None,
    ) -> None:
        raise NotImplementedError

    async def run(self, messages: Sequence[Message], *, review_memory: bool, review_skills: bool) -> str | None:
        """Review a conversation; a line for the user about what was kept, or None when nothing was."""
        raise NotImplementedError
