"""Where something was said: the places of a part in a text, each with as much around it as one needs to recognise it.

Pure. Cases of letters do not matter. Clients count in UTF-16 code units.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from msgspec import Struct

from treadle.protocol.app.thread_search import ThreadSearchTextRange
from treadle.store.contract import MessageText

BEFORE: Final = 48
AFTER: Final = 96


class Place(Struct, frozen=True):
    """The `index`th place of the part in a message; `snippet` has it at `range`."""

    message: MessageText
    index: int
    snippet: str
    range: ThreadSearchTextRange


def places(messages: Iterable[MessageText], part: str, first: tuple[int, int], limit: int) -> list[Place]:
    """In their order, from the place `first` on: number of the item, and index in it."""
    return list(islice(_places(messages, part, first), limit))


def _places(messages: Iterable[MessageText], part: str, first: tuple[int, int]) -> Iterator[Place]:
    pattern = re.compile(re.escape(part), re.IGNORECASE)
    for message in messages:
        for index, match in enumerate(pattern.finditer(message.text)):
            if (message.number, index) >= first:
                yield Place(message, index, *cut(message.text, match.start(), match.end()))


def cut(text: str, start: int, end: int) -> tuple[str, ThreadSearchTextRange]:
    """What is around a place in a text, and where the place is in that."""
    low, high = max(0, start - BEFORE), end + AFTER
    before = ("... " if low else "") + text[low:start]
    after = text[end:high] + (" ..." if high < len(text) else "")
    place = ThreadSearchTextRange(start=_units(before), end=_units(before) + _units(text[start:end]))
    return before + text[start:end] + after, place


def snippet(text: str, part: str) -> str:
    """The first place in one line; the beginning where the words are there in another way of writing."""
    line = " ".join(text.split())
    match = re.search(re.escape(" ".join(part.split())), line, re.IGNORECASE)
    return cut(line, *match.span())[0] if match else cut(line, 0, 0)[0]


def _units(text: str) -> int:
    return len(text) + sum(letter > "\uffff" for letter in text)
