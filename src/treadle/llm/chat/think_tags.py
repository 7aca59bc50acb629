"""`<think>…</think>` at the beginning of an answer, from servers that do not separate reasoning from text.

Sans I/O. Input may be split anywhere. Such a tag later in an answer is text: the model may be writing about tags.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

Piece: TypeAlias = tuple[Literal["text", "thought"], str]

_TAGS: Final = {"<think>": "</think>", "<thinking>": "</thinking>", "<thought>": "</thought>"}


class ThinkTags:
    """Feed it the text of one answer. Once `settled`, everything that follows is text and need not be fed."""

    __slots__ = ("_close", "_held", "settled")

    def __init__(self) -> None:
        self.settled: bool = False
        self._close: str | None = None  # the tag that ends the thought we are in
        self._held = ""  # what may be the beginning of a tag

    @property
    def holds(self) -> bool:
        """Whether something is held back."""
        return bool(self._held)

    def receive(self, text: str) -> list[Piece]:
        text = self._held + text
        self._held = ""
        if self.settled:
            return [("text", text)]
        if self._close is None:
            return self._before(text)
        return self._inside(text, self._close)

    def end(self) -> list[Piece]:
        """What was held back."""
        held, self._held = self._held, ""
        if not held:
            return []
        return [("text" if self._close is None else "thought", held)]

    def _before(self, text: str) -> list[Piece]:
        begun = text.lstrip()
        for opening, closing in _TAGS.items():
            if begun.startswith(opening):
                self._close = closing
                return self._inside(begun.removeprefix(opening), closing)
            if opening.startswith(begun):
                self._held = text
        if self._held:
            return []
        self.settled = True
        return [("text", text)]

    def _inside(self, text: str, closing: str) -> list[Piece]:
        thought, found, rest = text.partition(closing)
        if found:
            self.settled = True
            return [("thought", thought), ("text", rest)]
        keep = next((size for size in range(len(closing) - 1, 0, -1) if text.endswith(closing[:size])), 0)
        if keep:
            self._held = text[-keep:]
            text = text[:-keep]
        return [("thought", text)]
