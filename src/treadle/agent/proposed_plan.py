"""The plan in an answer: what stands between `<proposed_plan>` and `</proposed_plan>`, each alone on its line.

Owns where an answer is cut, piece by piece as it arrives. A plan that is not closed goes on to the end; of several
plans in an answer the last one counts.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_OPEN: Final = "<proposed_plan>"
_CLOSE: Final = "</proposed_plan>"
_LINES: Final = re.compile(r"[^\n]*\n|[^\n]+")


class Piece(NamedTuple):
    """A part of the answer. `plan` is the number of the plan that it belongs to, from 1; 0 for the message itself."""

    text: str
    plan: int


class PlanCutter:
    """Takes an answer as it arrives. The beginning of a line is held back as long as it may become a tag."""

    def __init__(self) -> None:
        self._held = ""
        self._in_line = False  # the line has begun and is no tag
        self._inside = False
        self._plans = 0
        self._pieces: list[Piece] = []

    def feed(self, text: str) -> list[Piece]:
        for line in _LINES.findall(text):
            self._take(line)
        return self._given()

    def finish(self) -> list[Piece]:
        """What was held back when the answer was over."""
        if self._held.strip() == self._tag:
            self._turn_over()
        self._release()
        return self._given()

    @property
    def _tag(self) -> str:
        return _CLOSE if self._inside else _OPEN

    def _take(self, line: str) -> None:
        self._held += line
        if not self._in_line and self._held.strip() == self._tag:
            if line.endswith("\n"):
                self._turn_over()
            return
        if self._in_line or line.endswith("\n") or not self._tag.startswith(self._held.lstrip()):
            self._in_line = not line.endswith("\n")
            self._release()

    def _turn_over(self) -> None:
        self._held = ""
        self._inside = not self._inside
        if self._inside:
            self._plans += 1
            self._pieces.append(Piece("", self._plans))  # it has begun, whatever is in it

    def _release(self) -> None:
        if not self._held:
            return
        plan = self._plans if self._inside else 0
        if self._pieces and self._pieces[-1].plan == plan:
            self._held = self._pieces.pop().text + self._held
        self._pieces.append(Piece(self._held, plan))
        self._held = ""

    def _given(self) -> list[Piece]:
        pieces, self._pieces = self._pieces, []
        return pieces


def cut(text: str) -> tuple[str, str | None]:
    """A whole answer: the message without plans, and the plan."""
    cutter = PlanCutter()
    pieces = [*cutter.feed(text), *cutter.finish()]
    last = max((piece.plan for piece in pieces), default=0)
    message = "".join(piece.text for piece in pieces if not piece.plan)
    return message, "".join(piece.text for piece in pieces if piece.plan == last) if last else None
