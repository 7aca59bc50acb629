"""`Kind`: the kinds of turns of the soak, how often each comes, and how it may end. Pure."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Program: TypeAlias = Literal["app_server", "codex", "responses", "chat_completions", "anthropic"]
Moment: TypeAlias = Literal["before", "asked", "streaming", "tool ended"]
"""When the fault strikes: before the turn, when the model is asked, at its first words, when it is asked after a
tool."""
COMPLETED: Final = "completed"
INTERRUPTED: Final = "interrupted"


@dataclass(frozen=True, slots=True)
class Kind:
    """`ends` are the ends that are right: `completed`, `interrupted`, or the kind of the fault."""

    name: str
    weight: int
    ends: tuple[str, ...] = (COMPLETED,)
    moment: Moment | None = None
    needs_process: bool = False


_DEAD: Final = ("dead",)
KINDS: Final = (
    Kind("plain", 30),
    Kind("tool", 6),
    Kind("memory", 6),
    Kind("slow", 4),
    Kind("command", 12, needs_process=True),
    # The process of the runtime.
    Kind("kill", 5, _DEAD, "asked", needs_process=True),
    Kind("kill-in-words", 4, _DEAD, "streaming", needs_process=True),
    Kind("kill-after-tool", 3, _DEAD, "tool ended", needs_process=True),
    Kind("kill-between", 3, (COMPLETED, *_DEAD), "before", needs_process=True),
    Kind("stop", 2, ("deadline", "stuck"), "asked", needs_process=True),
    # Whether the tool's end was reported before the process was stopped is chance: quiet after a tool, or a deadline.
    Kind("stop-after-tool", 2, ("stuck", "deadline"), "tool ended", needs_process=True),
    Kind("stop-for-a-moment", 3, moment="asked", needs_process=True),
    # The provider: for ever, and once.
    Kind("hang-up", 3, ("network",)),
    Kind("hang-up-once", 3),
    Kind("cut", 3, ("network",)),
    Kind("cut-once", 3),
    Kind("401", 3, ("auth",)),
    # Without a word from the provider its pauses grow to more than the soak waits for a sign of life.
    Kind("429", 2, ("rate_limited", "deadline")),
    Kind("429-once", 3),
    # The real codex waits for as long as it is asked to: the host ends that.
    Kind("429-for-hours", 2, ("rate_limited", "deadline")),
    Kind("500", 2, ("overloaded",)),
    Kind("500-once", 3),
    # The user, and whoever restarts the program.
    Kind("interrupt", 4, (INTERRUPTED, COMPLETED), "streaming"),
    Kind("interrupt-early", 3, (INTERRUPTED, COMPLETED), "asked"),
    Kind("interrupt-after-tool", 3, (INTERRUPTED, COMPLETED), "tool ended"),
    Kind("steer", 5, moment="asked"),
    Kind("restart", 5, moment="before"),
)
BY_NAME: Final = {kind.name: kind for kind in KINDS}


def turns(program: Program, number: int, seed: int, only: Collection[str] = ()) -> Iterator[Kind]:
    """The kinds of so many turns; without a process of its own a runtime has none to be killed."""
    fitting = [kind for kind in KINDS if program in ("app_server", "codex") or not kind.needs_process]
    fitting = [kind for kind in fitting if not only or kind.name in only]
    yield from random.Random(seed).choices(fitting, [kind.weight for kind in fitting], k=number)
