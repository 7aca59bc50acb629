"""Finding files by some letters of their path: how well a path fits, and a bounded walk. Pure but for the walk.

The score is that of the usual fuzzy finders, so that clients can mix our results with their own: letters in a row and
letters at the start of a word are worth more, gaps cost. What version control ignores is not looked at.
"""

from __future__ import annotations

import heapq
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

MAX_RESULTS: Final = 50
# A walk ends here and what was found is answered: a client asks again with every key that is pressed.
MAX_ENTRIES: Final = 200_000
MAX_DEPTH: Final = 64
MAX_QUERY: Final = 256
MAX_IGNORE_BYTES: Final = 64 << 10
SKIPPED: Final = frozenset({".git", ".hg", ".svn", ".jj", "node_modules", "__pycache__", ".venv", ".tox"})

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


class Found(NamedTuple):
    root: str
    path: str
    is_directory: bool
    match: Match


# --- how well a path fits --------------------------------------------------------------------------------------------


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


# --- the walk --------------------------------------------------------------------------------------------------------


def find(query: str, roots: Sequence[tuple[str, str]], stopped: Callable[[], bool]) -> list[Found]:
    """The best matches below the roots, best first. A root is its name for the client, and where it is.

    Nothing when it is `stopped`: whoever did that does not want the answer.
    """
    words = split_query(query)
    if not words:
        return []
    found: list[Found] = []
    for name, directory in roots:
        for path, is_directory in _walk(directory):
            if stopped():
                return []
            matched = match(words, path)
            if matched is not None:
                found.append(Found(name, path, is_directory, matched))
        found = heapq.nsmallest(MAX_RESULTS, found, key=_rank)
    return found


def _rank(found: Found) -> tuple[int, str]:
    return -found.match.score, found.path


def _walk(root: str) -> Iterator[tuple[str, bool]]:
    """Paths relative to the root, and whether each is a directory; links to directories are not followed."""
    pending: list[tuple[str, int, tuple[Ignore, ...]]] = [("", 0, (_ignored(root, ""),))]
    left = MAX_ENTRIES
    while pending:
        below, depth, ignores = pending.pop()
        for entry in _entries(os.path.join(root, below)):
            path = f"{below}/{entry.name}" if below else entry.name
            is_directory = _is_directory(entry)
            if entry.name in SKIPPED or any(ignore(path, is_directory) for ignore in ignores):
                continue
            left -= 1
            if left < 0:
                return
            yield path.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), is_directory
            if is_directory and depth < MAX_DEPTH:
                pending.append((path, depth + 1, (*ignores, _ignored(root, path))))


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:  # what may not be read is not found
        return []


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


# --- what version control ignores ------------------------------------------------------------------------------------

Ignore = Callable[[str, bool], bool]


def _ignored(root: str, below: str) -> Ignore:
    """The `.gitignore` of one directory; it speaks of what is below it."""
    try:
        with open(os.path.join(root, below, ".gitignore"), encoding="utf-8", errors="replace") as file:
            rules = ignore_rules(file.read(MAX_IGNORE_BYTES))
    except OSError:
        return _nothing
    start = len(below) + 1 if below else 0

    def ignored(path: str, is_directory: bool) -> bool:
        verdict = False
        for pattern, negated, only_directories in rules:
            if (is_directory or not only_directories) and pattern.fullmatch(path, start):
                verdict = not negated
        return verdict

    return ignored


def _nothing(path: str, is_directory: bool) -> bool:
    return False


def ignore_rules(text: str) -> list[tuple[re.Pattern[str], bool, bool]]:
    """Pattern, whether it takes back an earlier one, whether it is for directories only. The last that fits counts."""
    rules = []
    for line in text.splitlines():
        line = line.rstrip()
        if not line or line.startswith("#"):
            continue
        negated, line = line.startswith("!"), line.removeprefix("!")
        only_directories, line = line.endswith("/"), line.rstrip("/")
        anchored, line = "/" in line, line.lstrip("/")
        if line:
            pattern = re.compile(("" if anchored else "(?:.*/)?") + _regex(line), re.DOTALL)
            rules.append((pattern, negated, only_directories))
    return rules


_GLOB: Final = re.compile(r"(/\*\*$)|(\*\*/)|(\*+)|(\?)|\[(!?)([^\]/]+)\]|\\(.)|(.)", re.DOTALL)


def _regex(glob: str) -> str:
    return "".join(map(_piece, _GLOB.finditer(glob)))


def _piece(found: re.Match[str]) -> str:
    inside, folders, stars, one, negated, letters, escaped, plain = found.groups()
    if inside:
        return "/.+"
    if folders:
        return "(?:.*/)?"
    if stars:
        return "[^/]*"
    if one:
        return "[^/]"
    if letters:
        return f"[{'^/' if negated else ''}{re.escape(letters).replace(chr(92) + '-', '-')}]"
    return re.escape(escaped or plain or "")
