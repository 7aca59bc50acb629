"""Words of messages, and the query that finds them: cut here and not in the database, whose rules differ by version and
by language. Letters count without case and marks, as in the index of SQLite."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

_WORD: Final = re.compile(r"[^\W_]+")
# Limits of a tsvector: positions, those of one word, bytes of a word and of all of them.
_POSITIONS: Final = 16_383
_POSITIONS_OF_ONE: Final = 255
_WORD_CHARS: Final = 500
_CHARS: Final = 200_000
# Long enough to recognise the place, short enough for a list.
_SNIPPET_WORDS: Final = 16


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFKD", text)
    return "".join(letter for letter in plain if not unicodedata.combining(letter)).casefold()


def words_of(text: str) -> list[str]:
    """The words of a text in their order; one that is too long for an index by its beginning."""
    return [word[:_WORD_CHARS] for word in _WORD.findall(_folded(text))]


def vector(text: str) -> str:
    """A text for the index: its words with their places. Of a text of more words than an index can hold the rest is
    found by nobody."""
    places: dict[str, list[int]] = {}
    size = 0
    for place, word in enumerate(words_of(text), 1):
        found = places.get(word)
        if found is None:
            size += len(word)
            if size > _CHARS:
                break
            places[word] = [min(place, _POSITIONS)]
        elif place <= _POSITIONS and len(found) < _POSITIONS_OF_ONE:
            found.append(place)
    return " ".join(f"'{word}':{','.join(map(str, found))}" for word, found in places.items())


def all_words(words: str) -> str:
    """The query for messages that have all of these; empty when there is no word in it. What has no space in it has to
    be together."""
    phrases = [" <-> ".join(f"'{word}'" for word in words_of(part)) for part in words.split()]
    return " & ".join(f"({phrase})" for phrase in phrases if phrase)


def phrase(words: str) -> str:
    """The query for words that follow each other, the last of which may be unfinished. One letter alone would begin
    almost every word."""
    found = words_of(words)
    unfinished = ":*" if len(words.strip()) > 1 else ""
    return " <-> ".join(f"'{word}'" for word in found) + unfinished if found else ""


def snippet(text: str, words: str) -> str:
    """A part of the text around the first of the words, each of which is between `[` and `]`."""
    wanted = {word for part in words.split() for word in words_of(part)}
    spots = list(_spots(text))
    hits = [number for number, (_, _, word) in enumerate(spots) if word in wanted]
    if not hits:
        return text[:0]
    first = max(0, min(hits[0] - _SNIPPET_WORDS // 4, len(spots) - _SNIPPET_WORDS))
    shown = spots[first : first + _SNIPPET_WORDS]
    last = first + len(shown)
    parts = ["…"] if first else []
    at = shown[0][0] if first else 0
    for begin, end, word in shown:
        parts += (text[at:begin], f"[{text[begin:end]}]" if word in wanted else text[begin:end])
        at = end
    parts.append("…" if last < len(spots) else text[at:])
    return "".join(parts)


def _spots(text: str) -> Iterator[tuple[int, int, str]]:
    """Where each word begins and ends, and how it is found. A letter may become several when it is folded."""
    for found in _WORD.finditer(text):
        for word in words_of(found[0])[:1]:
            yield found.start(), found.end(), word
