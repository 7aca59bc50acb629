"""`Block`: what there is to show of an item, whatever the format. Seven kinds, so that a page need not know every item.

Pure. Texts are as they came: each page makes them harmless in its own way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Picture:
    """By one of the two: the path of a file, or an address."""

    path: str | None = None
    url: str | None = None

    @property
    def name(self) -> str:
        if self.path is not None:
            return self.path.rsplit("/", 1)[-1] or self.path
        url = self.url or ""
        return "picture" if url.startswith("data:") else url


@dataclass(frozen=True, slots=True)
class Said:
    """A message, in Markdown. `aside`: the agent says it while it works."""

    by: Literal["user", "agent"]
    text: str
    pictures: tuple[Picture, ...] = ()
    aside: bool = False


@dataclass(frozen=True, slots=True)
class Thought:
    text: str


@dataclass(frozen=True, slots=True)
class Ran:
    """`outcome` says how it ended, in words."""

    command: str
    cwd: str
    output: str
    outcome: str
    failed: bool
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Changed:
    """A file. `lines` are those of a diff. `outcome` is None where the change was made."""

    verb: str
    path: str
    lines: tuple[str, ...]
    outcome: str | None = None

    @property
    def added(self) -> int:
        return sum(line.startswith("+") for line in self.lines)

    @property
    def removed(self) -> int:
        return sum(line.startswith("-") for line in self.lines)


@dataclass(frozen=True, slots=True)
class Used:
    """A tool. `given` and `got` are its arguments and its result as text."""

    title: str
    outcome: str
    failed: bool
    given: str = ""
    got: str = ""
    pictures: tuple[Picture, ...] = ()
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Proposed:
    """A plan that the agent puts to the user, in Markdown."""

    text: str


@dataclass(frozen=True, slots=True)
class Noted:
    """Something that happened to the conversation, in a few words; `text` is more of it, in Markdown."""

    title: str
    text: str = ""


Block: TypeAlias = Said | Thought | Ran | Changed | Used | Proposed | Noted


def shortened(lines: list[str], head: int, tail: int) -> tuple[list[str], int, list[str]]:
    """The first and the last lines, and how many are left out between them."""
    hidden = len(lines) - head - tail
    if hidden <= 0:
        return lines, 0, []
    return lines[:head], hidden, lines[len(lines) - tail :] if tail else []
