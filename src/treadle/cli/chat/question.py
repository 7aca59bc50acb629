"""`Question`: something that is answered with a key, and when a key counts. Pure: time is passed in.

A question comes up while somebody may be typing. A key that was meant for the message must not be a yes: keys count
only when the keyboard has rested, and while there is text in the input they go there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

# Longer than the pause between two keys of somebody who types, shorter than it takes to read a question.
REST_S: Final = 0.5


class Choice(Struct, frozen=True):
    key: str
    """A letter or digit."""
    label: str


class Question:
    """`title` is one line; what it is about was shown before it."""

    def __init__(self, title: str, choices: Sequence[Choice], *, now: float) -> None:
        self.title = title
        self.choices = tuple(choices)
        self.selected = 0
        self._quiet_since = now

    def key_pressed(self, now: float) -> None:
        """A key that did not count."""
        self._quiet_since = now

    def counts(self, now: float, draft: str) -> bool:
        """Whether a key that is pressed now answers it."""
        return not draft and now - self._quiet_since >= REST_S

    def move(self, by: int) -> None:
        self.selected = (self.selected + by) % len(self.choices)

    def choice_of(self, key: str) -> Choice | None:
        return next((choice for choice in self.choices if choice.key == key.lower()), None)
