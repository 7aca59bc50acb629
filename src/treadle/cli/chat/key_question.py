"""`KeyQuestion`: something that is answered with a key, and when a key counts. Pure: time is passed in.

A question comes up while somebody may be typing. A key that was meant for the message must not be a yes: keys count
only when the keyboard has rested, and while there is text in the input they go there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

# Longer than the pause between two keys of somebody who types, shorter than it takes to read a question.
REST_S: Final = 0.5


class Option(Struct, frozen=True):
    key: str
    """A letter or digit."""
    label: str


class KeyQuestion:
    """`title` is one line; what it is about was shown before it. `first_marked`: Enter takes the first option; else
    none is taken that was not gone to.
    """

    def __init__(self, title: str, options: Sequence[Option], *, now: float, first_marked: bool) -> None:
        self.title: str = title
        self.options: tuple[Option, ...] = tuple(options)
        self.selected: int | None = 0 if first_marked else None
        self._quiet_since = now

    def key_pressed(self, now: float) -> None:
        """A key that did not count."""
        self._quiet_since = now

    def counts(self, now: float, draft: str) -> bool:
        """Whether a key that is pressed now answers it."""
        return not draft and now - self._quiet_since >= REST_S

    def move(self, by: int) -> None:
        start = self.selected if self.selected is not None else -1 if by > 0 else 0
        self.selected = (start + by) % len(self.options)

    @property
    def marked(self) -> Option | None:
        return None if self.selected is None else self.options[self.selected]

    def option_of(self, key: str) -> Option | None:
        return next((option for option in self.options if option.key == key.lower()), None)
