"""The search itself: a bounded walk below some directories, and the best of what fits.

What version control ignores is not looked at. The walk ends at a number of entries or after some seconds, and then what
was found is the answer: a client asks again with every key that is pressed.
"""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from treadle.execution.file_search.fuzzy import Match, match, split_query
from treadle.execution.file_search.ignore import IgnoreRules
from treadle.execution.user_files import read_regular

MAX_RESULTS: Final = 50
MAX_ENTRIES: Final = 200_000
MAX_DEPTH: Final = 64
MAX_IGNORE_BYTES: Final = 64 << 10
WALK_S: Final = 5.0
SKIPPED: Final = frozenset({".git", ".hg", ".svn", ".jj", "node_modules", "__pycache__", ".venv", ".tox"})


class Found(NamedTuple):
    root: str
    path: str
    is_directory: bool
    match: Match


def find(query: str, roots: Sequence[tuple[str, str]], seconds: float = WALK_S) -> list[Found]:
    """The best matches below the roots, best first. A root is its name for the client, and where it is."""
    words = split_query(query)
    if not words:
        return []
    deadline = time.monotonic() + seconds
    found: list[Found] = []
    for name, directory in roots:
        for path, is_directory in _walk(directory, deadline):
            matched = match(words, path)
            if matched is not None:
                found.append(Found(name, path, is_directory, matched))
        found = heapq.nsmallest(MAX_RESULTS, found, key=_rank)
    return found


def _rank(found: Found) -> tuple[int, str]:
    return -found.match.score, found.path


class _Ignores(NamedTuple):
    """The rules of one directory, for paths that begin at the root of the walk."""

    rules: IgnoreRules
    start: int


def _walk(root: str, deadline: float) -> Iterator[tuple[str, bool]]:
    """Paths relative to the root, and whether each is a directory; links to directories are not followed."""
    pending: list[tuple[str, int, tuple[_Ignores, ...]]] = [("", 0, ())]
    left = MAX_ENTRIES
    while pending:
        below, depth, ignores = pending.pop()
        ignores = (*_rules(root, below), *ignores)
        for entry in _entries(os.path.join(root, below), left):
            path = f"{below}/{entry.name}" if below else entry.name
            is_directory = _is_directory(entry)
            left -= 1
            if left < 0 or time.monotonic() > deadline:
                return
            if entry.name in SKIPPED or _is_ignored(ignores, path, is_directory):
                continue
            yield path.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), is_directory
            if is_directory and depth < MAX_DEPTH:
                pending.append((path, depth + 1, ignores))


def _entries(directory: str, most: int) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return [entry for entry, _ in zip(entries, range(most + 1), strict=False)]
    except OSError:  # what may not be read is not found
        return []


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _rules(root: str, below: str) -> tuple[_Ignores, ...]:
    found = read_regular(os.path.join(root, below, ".gitignore"), MAX_IGNORE_BYTES)
    if found is None:
        return ()
    rules = IgnoreRules(found[0].decode("utf-8", "surrogateescape"))
    return (_Ignores(rules, len(below) + 1 if below else 0),) if rules else ()


def _is_ignored(ignores: Sequence[_Ignores], path: str, is_directory: bool) -> bool:
    """The rules of the nearest directory that has one for the path count."""
    for rules, start in ignores:
        verdict = rules.verdict(path, is_directory, start)
        if verdict is not None:
            return verdict
    return False
