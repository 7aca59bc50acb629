"""`ResumeLine`: how a session is written for people, and found again in what they send back. Pure.

The line is what a person would type to continue in the engine's own program, so that the chat text is all the memory a
bot needs. It stands alone on its line; the last one counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from treadle.runners.run_events import ResumeToken

UUID: Final = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"


@dataclass(frozen=True, slots=True)
class ResumeLine:
    """The line of one engine.

    Args:
        engine: Whose it is.
        written: The line, with `{}` for the id, such as `codex resume {}`.
        read: The words before the id, as a regular expression that also knows other ways to write them.
        shape: What an id looks like, as a regular expression. Nothing that begins with `-` is ever one.
    """

    engine: str
    written: str
    read: str
    shape: str = UUID
    _line: re.Pattern[str] = field(init=False, repr=False)
    _value: re.Pattern[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        line = rf"^[ \t]*`?(?:{self.read})[ \t]+(?P<quote>[\"']?)(?P<value>{self.shape})(?P=quote)`?[ \t]*\r?$"
        object.__setattr__(self, "_line", re.compile(line, re.IGNORECASE | re.MULTILINE))
        object.__setattr__(self, "_value", re.compile(self.shape))

    def fits(self, value: str) -> bool:
        """Whether this has the shape of an id."""
        return not value.startswith("-") and self._value.fullmatch(value) is not None

    def format(self, token: ResumeToken) -> str:
        """The line, in backticks. Raises `ValueError` for a token of another engine."""
        if token.engine != self.engine:
            raise ValueError(f"this is a session of {token.engine}, not of {self.engine}: {token.value}")
        return f"`{self.written.format(token.value)}`"

    def extract(self, text: str | None) -> ResumeToken | None:
        """The session of the last such line in a text."""
        lines = self.find(text or "")
        return lines[-1][2] if lines else None

    def find(self, text: str) -> list[tuple[int, int, ResumeToken]]:
        """All such lines: where each begins, where it ends (without its line end), and the session that it names."""
        return [
            (match.start(), match.end(), ResumeToken(self.engine, match["value"]))
            for match in self._line.finditer(text)
            if self.fits(match["value"])
        ]
