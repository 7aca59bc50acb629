"""How well a path fits some letters. Pure.

The score is that of the usual fuzzy finders, so that clients can mix our results with their own: letters in a row and
letters at the start of a word are worth more, gaps cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

MAX_QUERY: Final = 256

_MATCH: Final = 16
_GAP_START: Final = -3
_GAP_MORE: Final = -1
_AFTER_SLASH: Final = 9
_WORD_START: Final = 8
_CAMEL: Final = 7
_IN_A_ROW: Final = 4
_NEVER: Final = -(10**9)


class Match(NamedTuple):
    score: int
    indices: tuple[int, ...]


def match(words: Sequence[str], path: str) -> Match | None:
    """All of the words, each as letters in this order, upper and lower case alike. None when one is not there."""
    lowered = path.lower()
    if len(lowered) != len(path):
        lowered = "".join(letter.lower() if len(letter.lower()) == 1 else letter for letter in path)
    if not all(_has(word, lowered) for word in words):
        return None
    bonuses = _bonuses(path)
    parts = [_best(word, lowered, bonuses) for word in words]
    indices = sorted({index for part in parts for index in part.indices})
    return Match(sum(part.score for part in parts), tuple(indices))


def split_query(query: str) -> list[str]:
    return query[:MAX_QUERY].lower().split()


def _has(word: str, path: str) -> bool:
    at = -1
    for letter in word:
        at = path.find(letter, at + 1)
        if at < 0:
            return False
    return True


def _bonuses(path: str) -> list[int]:
    """What a letter is worth for its place alone."""
    bonuses, before = [], "/"
    for letter in path:
        if before == "/":
            bonuses.append(_AFTER_SLASH)
        elif letter.isalnum() and not before.isalnum():
            bonuses.append(_WORD_START)
        elif (letter.isupper() and before.islower()) or (letter.isdigit() and not before.isdigit()):
            bonuses.append(_CAMEL)
        else:
            bonuses.append(0 if letter.isalnum() or letter == "/" else _WORD_START)
        before = letter
    return bonuses


def _best(word: str, path: str, bonuses: Sequence[int]) -> Match:
    """The best place for the letters. Row by row: `ending[j]` is the best score with this letter at `j`."""
    width = len(path)
    ending, runs = [_NEVER] * width, [0] * width
    came: list[list[int]] = []
    for row, letter in enumerate(word):
        last, last_runs, origin = ending, runs, [-1] * width
        ending, runs = [_NEVER] * width, [0] * width
        gapped, gapped_from = _NEVER, -1
        for at in range(row, width):
            if row and at >= 2:
                opened = last[at - 2] + _GAP_START
                gapped += _GAP_MORE
                if opened >= gapped:
                    gapped, gapped_from = opened, at - 2
            if path[at] != letter:
                continue
            bonus = bonuses[at]
            if row == 0:
                ending[at], runs[at] = _MATCH + 2 * bonus, bonus
                continue
            run = max(last_runs[at - 1], bonus, _IN_A_ROW)
            joined = last[at - 1] + _MATCH + run
            apart = gapped + _MATCH + bonus
            if max(joined, apart) <= _NEVER // 2:
                continue
            if joined >= apart:
                ending[at], runs[at], origin[at] = joined, run, at - 1
            else:
                ending[at], runs[at], origin[at] = apart, bonus, gapped_from
        came.append(origin)
    at = max(range(width), key=ending.__getitem__)
    return Match(ending[at], _trace(came, at))


def _trace(came: Sequence[Sequence[int]], at: int) -> tuple[int, ...]:
    indices = []
    for origin in reversed(came):
        indices.append(at)
        at = origin[at]
    return tuple(reversed(indices))
