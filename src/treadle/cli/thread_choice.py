"""Which thread is meant: the last one, an id, the beginning or the end of an id, or a name. For `exec`, `chat` and
`threads`. And how threads are called where people read: by a short id and a title."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final

from treadle.cli.problem import Problem
from treadle.cli.streams import REFUSED
from treadle.client import AsyncAppServerClient
from treadle.client.sdk_errors import InvalidRequestError
from treadle.pages.page import title_of
from treadle.protocol.app.thread_methods import ThreadListParams
from treadle.protocol.app.threads import Thread

SHORT: Final = 8
"""How many characters of an id are shown: the last ones, which are random. The first ones are the time, and threads
that were begun close together have them in common."""
_ID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_PIECE: Final = re.compile(r"[0-9a-fA-F-]{4,36}")
_PAGE: Final = 100
_CANDIDATES: Final = 10


def is_thread_id(word: str) -> bool:
    """Whether a word is a whole id."""
    return _ID.fullmatch(word) is not None


def short_id(thread_id: str) -> str:
    return thread_id[-SHORT:]


def label(thread: Thread) -> str:
    """Short id and title."""
    return f"{short_id(thread.id)}  {title_of(thread)}".rstrip()


async def newest_threads(
    client: AsyncAppServerClient, limit: int, *, archived: bool = False, cwd: str | None = None
) -> list[Thread]:
    """So many threads, the one used last first; of a directory, or of all."""
    found: list[Thread] = []
    async with aclosing(_pages(client, archived=archived, cwd=cwd, limit=limit)) as threads:
        async for thread in threads:
            found.append(thread)
            if len(found) == limit:
                break
    return found


async def all_threads(client: AsyncAppServerClient, cwd: str) -> AsyncGenerator[Thread, None]:
    """The threads that are not archived: first those of a directory, then the others; each the one used last first."""
    async with aclosing(_pages(client, cwd=cwd)) as threads:
        async for thread in threads:
            yield thread
    async with aclosing(_pages(client)) as threads:
        async for thread in threads:
            if thread.cwd != cwd:
                yield thread


async def find_threads(
    client: AsyncAppServerClient, word: str, *, archived: Sequence[bool] = (False,), id_anywhere: bool = True
) -> list[Thread]:
    """The threads that a word may mean, newest first: by id, else by name, else by the beginning or end of an id.

    Args:
        client: The client to ask.
        word: What was typed.
        archived: The lists to look through: False for the threads that are not archived, True for those that are.
        id_anywhere: Whether a whole id is found whatever list the thread is in: it need not be looked for.
    """
    if id_anywhere and is_thread_id(word):
        found = await read_thread(client, word)
        return [] if found is None else [found]
    named: list[Thread] = []
    for shelf in archived:
        async with aclosing(_pages(client, archived=shelf, term=word)) as threads:
            named += [thread async for thread in threads if thread.name == word]
    if named or not _PIECE.fullmatch(word):
        return named
    piece = word.lower()
    fitting: list[Thread] = []
    for shelf in archived:
        async with aclosing(_pages(client, archived=shelf)) as threads:
            fitting += [thread async for thread in threads if thread.id.startswith(piece) or thread.id.endswith(piece)]
    return fitting


async def thread_to_resume(client: AsyncAppServerClient, word: str) -> Thread | None:
    """The thread to go on with: of several with the same name, the newest; None when there is none. Raises `Problem`
    for a piece of an id that several have."""
    found = await find_threads(client, word)
    if len(found) > 1 and found[0].name != word:
        raise several_meant(word, found)
    return found[0] if found else None


def several_meant(word: str, found: Sequence[Thread]) -> Problem:
    """The problem of a word that is not enough."""
    lines = [f"\n    {label(thread)}" for thread in found[:_CANDIDATES]]
    more = "\n    …" if len(found) > _CANDIDATES else ""
    return Problem(f"{word!r} may be one of several threads:{''.join(lines)}{more}", do="more of the id", code=REFUSED)


async def read_thread(client: AsyncAppServerClient, thread_id: str) -> Thread | None:
    """The thread with this id; None when there is no such thread."""
    try:
        return (await client.thread_read(thread_id.lower())).thread
    except InvalidRequestError:
        return None


async def _pages(
    client: AsyncAppServerClient,
    *,
    archived: bool = False,
    cwd: str | None = None,
    term: str | None = None,
    limit: int | None = None,
) -> AsyncGenerator[Thread, None]:
    size = _PAGE if limit is None else min(limit, _PAGE)
    cursor = None
    while True:
        params = ThreadListParams(
            archived=archived, cwd=cwd, search_term=term, cursor=cursor, limit=size, sort_key="updated_at"
        )
        answer = await client.thread_list(params)
        for thread in answer.data:
            yield thread
        cursor = answer.next_cursor
        if cursor is None:
            return
