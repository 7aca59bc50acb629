"""`Reviewer`: reviews a conversation in the background and keeps what was learned.

It owns one turn on a runtime of its own, with only the tools of memory and skills, nobody to ask, and a deadline. What
it says is ignored; what it did is counted where it happened.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from treadle.client.tools import Tool, ToolCallError
from treadle.errors import ArgumentValueError
from treadle.host.clock import Clock
from treadle.host.conversation_digest import digest
from treadle.host.faults import Fault, RuntimeFault
from treadle.host.memory.entries import MemoryChange
from treadle.host.memory.memory_files import MemoryStore
from treadle.host.review_prompts import INSTRUCTIONS, review_prompt
from treadle.host.runtime import ItemCompleted, ItemStarted, Message, Opening, Runtime, RuntimeEvent
from treadle.host.session import Session
from treadle.host.skills.skill import SkillChange
from treadle.host.skills.skill_store import SkillStore
from treadle.host.skills.skill_tools import told
from treadle.host.timeouts import Timeouts

MAX_ITERATIONS: Final = 16
"""How many rounds of tool calls the runtime of a review should allow."""

# Talk, thoughts and the host's own tools. Whatever else an item is, something was done that a review must not do.
_HARMLESS: Final = frozenset(
    {"userMessage", "agentMessage", "reasoning", "dynamicToolCall", "contextCompaction", "plan"}
)


class ReviewFailed(RuntimeFault):
    """A review did not come to its end. What it had kept by then is kept: `summary` has it, or is None."""

    def __init__(self, fault: Fault, summary: str | None) -> None:
        super().__init__(fault)
        self.summary = summary

    def __str__(self) -> str:
        return f"{self.fault} Before that: {self.summary}" if self.summary else str(self.fault)


class Reviewer:
    """Reviews conversations, each on a runtime of its own.

    Args:
        make_runtime: Makes the runtime of a review: one that runs no tools but those it is given, and not too often.
        memory: Where to keep what is to be remembered.
        skills: Where to keep how things are done.
        timeouts: How long to wait for what; `review` is for all of it.
        clock: Where the session looks for the time.
    """

    def __init__(
        self,
        make_runtime: Callable[[], Runtime],
        *,
        memory: MemoryStore | None,
        skills: SkillStore | None,
        timeouts: Timeouts | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._make_runtime = make_runtime
        self._memory = memory
        self._skills = skills
        self._timeouts = timeouts or Timeouts()
        self._clock = clock

    async def run(self, messages: Sequence[Message], *, review_memory: bool, review_skills: bool) -> str | None:
        """Review a conversation; a line for the user about what was kept, or None when nothing was.

        Raises `ReviewFailed` when the runtime fails or time is up.
        """
        memory = self._memory if review_memory else None
        skills = self._skills if review_skills else None
        if memory is None and skills is None:
            problem = "there is nothing to review for: give a memory or skills, and ask for a review of them"
            raise ArgumentValueError("review_memory", problem)
        learned = _Learned()
        try:
            await self._review(messages, memory, skills, learned)
        except RuntimeFault as error:
            raise ReviewFailed(error.fault, learned.summary()) from error
        finally:
            learned.over = True
        return learned.summary()

    async def _review(
        self, messages: Sequence[Message], memory: MemoryStore | None, skills: SkillStore | None, learned: _Learned
    ) -> None:
        limit = self._timeouts.review
        # The files are read in a thread: the loop may have other things to do, and a disk may be slow.
        opening = await asyncio.to_thread(_opening, messages, memory, skills, learned)
        session = Session(
            self._make_runtime(),
            opening=opening,
            timeouts=_within(self._timeouts),
            clock=self._clock,
            sink=lambda event: _watch(event, learned),
        )
        try:
            async with asyncio.timeout(limit):
                await _turn(session, review_prompt(memory=memory is not None, skills=skills is not None), learned)
        except TimeoutError:
            raise RuntimeFault(Fault(kind="deadline", message=f"The review took more than {limit:g} s.")) from None
        finally:
            await session.close()


async def _turn(session: Session, prompt: str, learned: _Learned) -> None:
    turn = learned.turn = asyncio.create_task(session.run_turn(prompt), name="review")
    try:
        result = await turn
    except asyncio.CancelledError:
        here = asyncio.current_task()
        if learned.strayed is None or (here is not None and here.cancelling()):
            raise
    if learned.strayed is not None:
        message = f"The review did something that it must not do ({learned.strayed}), and was ended."
        raise RuntimeFault(Fault(kind="policy", message=message, retire=True))
    if result.fault is not None:
        raise RuntimeFault(result.fault)
    if result.interrupted or result.error is not None:
        raise RuntimeFault(Fault(kind="aborted", message=result.error or "The review was interrupted."))


def _watch(event: RuntimeEvent, learned: _Learned) -> None:
    if isinstance(event, ItemStarted | ItemCompleted) and event.item.type not in _HARMLESS and not learned.strayed:
        learned.strayed = str(event.item.type)
        learned.over = True
        if learned.turn is not None:
            learned.turn.cancel()


def _opening(
    messages: Sequence[Message], memory: MemoryStore | None, skills: SkillStore | None, learned: _Learned
) -> Opening:
    tools: list[Tool] = []
    prompts = [INSTRUCTIONS]
    if memory is not None:
        tools.append(memory.tool(on_change=learned.heard_memory))
        prompts.append(memory.prompt())
    if skills is not None:
        tools += skills.tools(on_change=learned.heard_skill, must_read=True)
        prompts.append(skills.prompt())
    return Opening(
        history=digest(messages),
        instructions="\n\n".join(prompt for prompt in prompts if prompt),
        tools=tuple(_while_it_lasts(tool, learned) for tool in tools),
        sandbox="read-only",
    )


def _within(timeouts: Timeouts) -> Timeouts:
    """A turn of a review takes no longer than the review, also by the session's clock."""
    limits = [limit for limit in (timeouts.turn, timeouts.review) if limit is not None]
    return replace(timeouts, turn=min(limits, default=None))


def _while_it_lasts(tool: Tool, learned: _Learned) -> Tool:
    """The tool, until the review is over: a call that waits in a thread is not made any more after a cancel."""

    @functools.wraps(tool.function)
    def call(**arguments: Any) -> Any:
        if learned.over:
            raise ToolCallError("the review is over; nothing is kept any more")
        return tool.function(**arguments)

    return Tool(call, name=tool.name, description=tool.description)


class _Learned:
    """What the tools of a review did."""

    def __init__(self) -> None:
        self.over = False
        self.strayed: str | None = None
        self.turn: asyncio.Task[Any] | None = None
        self._kept = 0
        self._removed = 0
        self._skills: dict[str, None] = {}

    def heard_memory(self, change: MemoryChange) -> None:
        self._kept += change.added + change.replaced
        self._removed += change.removed

    def heard_skill(self, change: SkillChange) -> None:
        self._skills[told(change)] = None

    def summary(self) -> str | None:
        """`Learned: 2 memory entries, patched skill deploy-checks`; None when nothing was changed."""
        parts = [f"{self._kept} memory {_entries(self._kept)}"] if self._kept else []
        parts += [f"removed {self._removed} memory {_entries(self._removed)}"] if self._removed else []
        parts += list(self._skills)
        return f"Learned: {', '.join(parts)}" if parts else None


def _entries(number: int) -> str:
    return "entry" if number == 1 else "entries"
