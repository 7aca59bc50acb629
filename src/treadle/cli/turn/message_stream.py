"""`MessageStream`: a message of the agent while it is written. Whole paragraphs are given out as they are finished; the
rest is what is being written."""

from __future__ import annotations

from rich.console import RenderableType

from treadle.cli.turn.turn_blocks import finished_part, markdown


class MessageStream:
    """`whole`: nothing is given out before the end."""

    def __init__(self, *, whole: bool = False) -> None:
        self._whole = whole
        self._given = ""
        self._patience = 0  # how long the rest has to be before it is worth a look
        self.rest: str = ""
        """What has been said and is not finished."""

    @property
    def text(self) -> str:
        """All that has been said."""
        return self._given + self.rest

    def add(self, delta: str) -> list[RenderableType]:
        """The paragraphs that are finished by it."""
        self.rest += delta
        if self._whole or "\n" not in delta or len(self.rest) < self._patience or "\n\n" not in self.rest:
            return []
        blocks = self._give(finished_part(self.rest))
        # A long list or listing is one block. To look for its end at every line would take the longer the longer it is.
        self._patience = 0 if blocks else len(self.rest) * 3 // 2
        return blocks

    def end(self, text: str) -> list[RenderableType]:
        """The message as it was in the end; what of it was not given out yet."""
        self.rest = text.removeprefix(self._given)
        return self._give(len(self.rest))

    def _give(self, count: int) -> list[RenderableType]:
        said, self.rest = self.rest[:count], self.rest[count:]
        self._given += said
        return [markdown(said), ""] if said.strip() else []
