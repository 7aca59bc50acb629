"""`OutputLines`: the output of a command, which comes in pieces, as lines. Pure."""

from __future__ import annotations

import re
from typing import Final

# A line without an end is taken for one when it is this long, and a line is shown up to here.
MAX_LINE: Final = 2000

# A carriage return at the very end may be the first half of a line end.
_LINE_END: Final = re.compile(r"\r\n|\n|\r(?=.)", re.DOTALL)


class OutputLines:
    def __init__(self) -> None:
        self.count: int = 0
        """How many have come."""
        self.rest: str = ""
        """A line that has not ended."""

    def add(self, delta: str) -> list[str]:
        """The lines that have ended with this."""
        *lines, self.rest = _LINE_END.split(self.rest + delta)
        while len(self.rest) > MAX_LINE:
            lines.append(self.rest[:MAX_LINE])
            self.rest = self.rest[MAX_LINE:]
        self.count += len(lines)
        return lines

    def end(self, whole: str | None) -> list[str]:
        """The last lines: `whole` is all of the output, which is used when nothing has come before."""
        lines = self.add(whole) if whole and not self.count and not self.rest else []
        if self.rest:
            lines.append(self.rest)
            self.rest = ""
            self.count += 1
        return lines
