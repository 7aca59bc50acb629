"""File search: the best matches for some letters among the paths of some directories.

    `search` (server) ─▶ a program of its own, in the thread's environment: `main` ─▶ `find`
                           `_walk`: paths below the roots, without what version control ignores
                           `match`: how well a path fits the letters
    `search` ◀─ JSON on standard output
    `search_there` ─▶ git or find, and grep, on another machine; how well the paths fit is found out here

A program of its own, because the walk is plain Python that would hold up the event loop, and because a directory that
hangs takes only the program with it. It starts with every key that a person presses, so it imports the standard library
only, and little of that.

The walk ends at a number of entries or after some seconds, and then what was found is the answer: a client asks again
with the next key. The score is that of the usual fuzzy finders, so that clients can mix our results with their own:
letters in a row and letters at the start of a word are worth more, gaps cost.
"""

from __future__ import annotations

import heapq
import json
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from treadle.errors import ExecError, ExecTimeout
from treadle.execution.ignore_rules import IgnoreRules
from treadle.execution.user_files import read_regular

if TYPE_CHECKING:
    from treadle.execution import Environment

MAX_RESULTS: Final = 50
MAX_ENTRIES: Final = 200_000
MAX_DEPTH: Final = 64
MAX_IGNORE_BYTES: Final = 64 << 10
MAX_QUERY: Final = 256
WALK_S: Final = 5.0
# Beyond the walk's own limit there is the start of the program, which takes its time on a busy machine.
SEARCH_S: Final = 4 * WALK_S
SKIPPED: Final = frozenset({".git", ".hg", ".svn", ".jj", "node_modules", "__pycache__", ".venv", ".tox"})

_BOOT: Final = "import sys; sys.path.append(sys.argv.pop(1)); from treadle.execution.file_search import main; main()"


class Match(NamedTuple):
    score: int
    indices: tuple[int, ...]


class FoundFile(NamedTuple):
    root: str
    path: str
    is_directory: bool
    match: Match


# --- in the server ---------------------------------------------------------------------------------------------------


async def search(environment: Environment, query: str, roots: Sequence[tuple[str, str]]) -> list[FoundFile]:
    """The best matches, best first. `roots` are the client's names of directories, and where they are."""
    from treadle.own_python import PACKAGES, isolated_python  # the program does without

    command = isolated_python("-S", "-B", "-c", _BOOT, PACKAGES)
    request = json.dumps((query, roots))
    done = await environment.run(command, cwd="/", env={}, input=request, timeout=SEARCH_S)
    if done.exit_code != 0:
        raise ExecError(
            f"the file search ended with status {done.exit_code}: {done.stderr[-300:].decode(errors='replace')}"
        )
    answer = json.loads(done.stdout)
    return [FoundFile(root, path, is_dir, Match(score, tuple(at))) for root, path, is_dir, (score, at) in answer]


# Of paths from another machine. Whoever wants one of the others types more letters.
MAX_THERE: Final = 256 << 10
MAX_PATH: Final = 4096
RANK_S: Final = 2.0
# Links are listed and not followed. What fits is a little more than what fits the letters, never less.
_THERE: Final = rf"""
export LC_ALL=C GIT_OPTIONAL_LOCKS=0
{{ git -c core.fsmonitor=false -c core.quotePath=false ls-files --cached --others --exclude-standard --deduplicate ||
  find . \( {" -o ".join(f"-name {name}" for name in sorted(SKIPPED))} \) -prune -o ! -type d -print
}} 2>/dev/null | grep -i -e "$1" | head -c {MAX_THERE}
"""


async def search_there(environment: Environment, query: str, roots: Sequence[tuple[str, str]]) -> list[FoundFile]:
    """The same on another machine, which may have no Python: one command for each root. Directories with nothing in
    them are not found. Raises `ExecError`."""
    import asyncio  # the program does without

    words = split_query(query)
    if not words:
        return []
    # The rest of a letter's bytes is passed over, and so are those that mean something in a pattern.
    letters = (letter for letter in max(words, key=len) if letter.isascii() and (letter.isalnum() or letter in "_-/"))
    command = ["sh", "-c", _THERE, "sh", ".*".join(letters)]

    async def list_files(root: str, directory: str) -> tuple[str, bytes]:
        try:
            return root, (await environment.run(command, cwd=directory, timeout=WALK_S)).stdout
        except ExecTimeout as error:
            return root, error.output

    listed = await asyncio.gather(*(list_files(*root) for root in roots))

    return await asyncio.to_thread(_rank, words, listed)


def _rank(words: Sequence[str], listed: Iterable[tuple[str, bytes]]) -> list[FoundFile]:
    """The best of what another machine says that there is, whatever that is."""
    deadline = time.monotonic() + RANK_S
    found: list[FoundFile] = []
    for root, output in listed:
        # The last line may have been cut, and is empty otherwise.
        lines = output[:MAX_THERE].decode("utf-8", "replace").split("\n")[:-1]
        sane = (line for line in lines if 0 < len(line) <= MAX_PATH and line.count("/") <= MAX_DEPTH)
        files = dict.fromkeys(map(os.path.normpath, sane))
        folders = dict.fromkeys(folder for path in files for folder in _above(path))
        for path in (*files, *folders):
            if time.monotonic() > deadline:
                break
            matched = match(words, path)
            if matched is not None:
                found.append(FoundFile(root, path, path in folders, matched))
    return _best_of(found)


def _above(path: str) -> Iterator[str]:
    while path := os.path.dirname(path):
        yield path


def _best_of(found: Iterable[FoundFile]) -> list[FoundFile]:
    return heapq.nsmallest(MAX_RESULTS, found, key=lambda one: (-one.match.score, one.path))


# --- in the program --------------------------------------------------------------------------------------------------


def main() -> None:
    """Read the query and the roots as JSON from standard input, write what was found to standard output."""
    signal.alarm(int(2 * WALK_S))  # a directory that hangs is nobody's to wait for
    query, roots = json.load(sys.stdin.buffer)
    json.dump(find(query, roots), sys.stdout)


def find(query: str, roots: Sequence[tuple[str, str]], seconds: float = WALK_S) -> list[FoundFile]:
    """The best matches below the roots, best first. A root is its name for the client, and where it is."""
    words = split_query(query)
    if not words:
        return []
    deadline = time.monotonic() + seconds
    found: list[FoundFile] = []
    for name, directory in roots:
        for path, is_directory in _walk(directory, deadline):
            matched = match(words, path)
            if matched is not None:
                found.append(FoundFile(name, path, is_directory, matched))
        found = _best_of(found)
    return found


def split_query(query: str) -> list[str]:
    return query[:MAX_QUERY].lower().split()


# --- the walk --------------------------------------------------------------------------------------------------------


def _walk(root: str, deadline: float) -> Iterator[tuple[str, bool]]:
    """Paths relative to the root, and whether each is a directory; links to directories are not followed.

    Each directory has the ignore rules of itself and of those above it, nearest first, each with the length of the path
    that they do not speak of.
    """
    pending: list[tuple[str, int, tuple[tuple[IgnoreRules, int], ...]]] = [("", 0, ())]
    left = MAX_ENTRIES
    while pending:
        below, depth, ignores = pending.pop()
        directory = os.path.join(root, below)
        file = os.path.join(directory, ".gitignore")
        # No link is followed, by git neither: it may lead to what the project must not have a say about.
        text = None if os.path.islink(file) else read_regular(file, MAX_IGNORE_BYTES)
        own = IgnoreRules(text[0].decode("utf-8", "surrogateescape")) if text else None
        if own:
            ignores = ((own, len(below) + 1 if below else 0), *ignores)
        try:
            with os.scandir(directory) as listed:
                entries = [entry for entry, _ in zip(listed, range(left + 1), strict=False)]
        except OSError:  # what may not be read is not found
            continue
        for entry in entries:
            path = f"{below}/{entry.name}" if below else entry.name
            try:
                is_directory = entry.is_dir(follow_symlinks=False)
            except OSError:
                is_directory = False
            left -= 1
            if left < 0 or time.monotonic() > deadline:
                return
            if entry.name in SKIPPED:
                continue
            # The rules of the nearest directory that has one for the path count.
            verdicts = (rules.verdict(path, is_directory, start) for rules, start in ignores)
            if next((verdict for verdict in verdicts if verdict is not None), False):
                continue
            yield path.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), is_directory
            if is_directory and depth < MAX_DEPTH:
                pending.append((path, depth + 1, ignores))


# --- the score -------------------------------------------------------------------------------------------------------

_MATCH: Final = 16
_GAP_START: Final = -3
_GAP_MORE: Final = -1
_AFTER_SLASH: Final = 9
_WORD_START: Final = 8
_CAMEL: Final = 7
_IN_A_ROW: Final = 4
_NEVER: Final = -(10**9)


def match(words: Sequence[str], path: str) -> Match | None:
    """All of the words, each as letters in this order, upper and lower case alike. None when one is not there."""
    lowered = path.lower()
    if len(lowered) != len(path):
        lowered = "".join(letter.lower() if len(letter.lower()) == 1 else letter for letter in path)
    if not all(_has(word, lowered) for word in words):
        return None
    # What a letter is worth for its place alone.
    bonuses: list[int] = []
    before = "/"
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
    parts = [_best(word, lowered, bonuses) for word in words]
    indices = sorted({index for part in parts for index in part.indices})
    return Match(sum(part.score for part in parts), tuple(indices))


def _has(word: str, path: str) -> bool:
    at = -1
    for letter in word:
        at = path.find(letter, at + 1)
        if at < 0:
            return False
    return True


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
    score, indices = ending[at], []
    for origin in reversed(came):  # back along the way that led to the best
        indices.append(at)
        at = origin[at]
    return Match(score, tuple(reversed(indices)))
