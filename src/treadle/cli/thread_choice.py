"""Which thread is meant: the last one, an id, the beginning of an id, or a name. For `exec`, `chat` and `threads`."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final

from treadle.cli.problem import Problem
from treadle.cli.streams import REFUSED
from treadle.client import AsyncAppServerClient
from treadle.client.sdk_errors import InvalidRequestError
from treadle.protocol.app.thread_methods import ThreadListParams
from treadle.protocol.app.threads import Thread

SHORT: Final = 13
"""As much of an id as is shown: the milliseconds in which the thread was begun."""
_ID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_PREFIX: Final = re.compile(r"[0-9a-fA-F][0-9a-fA-F-]{3,35}")
_PAGE: Final = 100
_CANDIDATES: Final = 10
_TITLE: Final = 80


def is_thread_id(word: str) -> bool:
    """Whether a word is a whole id."""
    return _ID.fullmatch(word) is not None


def title_of(thread: Thread) -> str:
    """The name of a thread, else how it begins."""
    words = " ".join((thread.name or thread.preview).split())
    return words if len(words) <= _TITLE else f"{words[: _TITLE - 1]}…"


def label(thread: Thread) -> str:
    """Short id and title."""
    return f"{thread.id[:SHORT]}  {title_of(thread)}".rstrip()


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


async def find_threads(
    client: AsyncAppServerClient, word: str, *, archived: Sequence[bool] = (False,), id_anywhere: bool = True
) -> list[Thread]:
    """The threads that a word may mean, newest first: by id, else by name, else by the beginning of an id.

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
    if named or not _PREFIX.fullmatch(word):
        return named
    begun: list[Thread] = []
    for shelf in archived:
        async with aclosing(_pages(client, archived=shelf)) as threads:
            begun += [thread async for thread in threads if thread.id.startswith(word.lower())]
    return begun


def several_meant(word: str, found: Sequence[Thread]) -> Problem:
    """The problem of a word that is not enough."""
    lines = [f"\n    {label(thread)}" for thread in found[:_CANDIDATES]]
    more = "\n    …" if len(found) > _CANDIDATES else ""
    return Problem(f"{word!r} may be one of several threads:{''.join(lines)}{more}", do="more of the id", code=REFUSED)


async def read_thread(client: AsyncAppServerClient, thread_id: str) -> Thread | None:
    """None when there is no such thread."""
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
