"""Which thread is meant: by id, by the beginning of an id, by name, or the last one. Raises `Problem`s that help."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

from treadle.cli.exit_codes import REFUSED
from treadle.cli.problem import Problem
from treadle.cli.threads.page import title_of
from treadle.cli.threads.thread_library import ThreadLibrary
from treadle.protocol.app.threads import Thread

Among = Literal["all", "kept", "archived"]

SHORT: Final = 13
"""As much of an id as is shown: the milliseconds in which the thread was begun."""
_ID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_PREFIX: Final = re.compile(r"[0-9a-fA-F][0-9a-fA-F-]{3,35}")
_CANDIDATES: Final = 10


async def choose(library: ThreadLibrary, words: Sequence[str], *, last: bool, among: Among = "all") -> list[Thread]:
    """The threads that the words mean, each once."""
    if last and words:
        raise Problem("--last is a thread already", do="give ids, or --last", code=REFUSED)
    if not last and not words:
        raise Problem("which thread?", do="give an id of `treadle threads list`, a name, or --last", code=REFUSED)
    found = [await _last(library, among)] if last else [await _find(library, word, among) for word in words]
    return list({thread.id: thread for thread in found}.values())


def label(thread: Thread) -> str:
    """Short id and title."""
    return f"{thread.id[:SHORT]}  {title_of(thread)}".rstrip()


def _shelves(among: Among) -> tuple[bool, ...]:
    """Which lists are looked through: the threads that are not archived, and those that are."""
    return {"all": (False, True), "kept": (False,), "archived": (True,)}[among]


async def _last(library: ThreadLibrary, among: Among) -> Thread:
    found = await library.newest_few(1, archived=among == "archived")
    if found:
        return found[0]
    raise Problem(f"there is no {'archived ' if among == 'archived' else ''}thread yet", do='treadle exec "…"')


async def _find(library: ThreadLibrary, word: str, among: Among) -> Thread:
    if among == "all" and _ID.fullmatch(word):  # the only one that need not be looked for
        thread = await library.read(word.lower())
        if thread is None:
            raise Problem(f"there is no thread {word}", do="treadle threads list")
        return thread
    found = await _matching(library, word, among)
    if len(found) == 1:
        return found[0]
    if found:
        lines = [f"\n    {label(thread)}" for thread in found[:_CANDIDATES]]
        more = "\n    …" if len(found) > _CANDIDATES else ""
        raise Problem(
            f"{word!r} may be one of several threads:{''.join(lines)}{more}", do="more of the id", code=REFUSED
        )
    raise _missing(word, among)


async def _matching(library: ThreadLibrary, word: str, among: Among) -> list[Thread]:
    """A name counts before the beginning of an id."""
    prefix = word.lower() if _PREFIX.fullmatch(word) else None
    named: list[Thread] = []
    begun: list[Thread] = []
    for archived in _shelves(among):
        async for thread in library.newest(archived=archived):
            if thread.name == word:
                named.append(thread)
            elif prefix is not None and thread.id.startswith(prefix):
                begun.append(thread)
    return named or begun


def _missing(word: str, among: Among) -> Problem:
    which = {"all": "", "kept": " that is not archived", "archived": " that is archived"}[among]
    why = None
    if len(word) < 4 and re.fullmatch(r"[0-9a-fA-F-]+", word):
        why = "of an id at least 4 characters are needed"
    do = "treadle threads list --archived" if among == "archived" else "treadle threads list"
    return Problem(f"there is no thread{which} that is called {word!r}, or whose id begins so", why=why, do=do)
