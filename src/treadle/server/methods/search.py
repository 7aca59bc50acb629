"""`fuzzyFileSearch`: files by some letters of their path, one answer per request.

It owns which searches of a client go on: a newer one with the same token takes the place of the older, which is
answered with nothing, and all of them end with the client. The search itself is `treadle.server.fuzzy`.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final

from treadle.agent.ids import new_id
from treadle.errors import OVERLOAD_DATA, OVERLOADED, RpcError
from treadle.protocol.app.search import FuzzyFileSearchParams, FuzzyFileSearchResponse, FuzzyFileSearchResult
from treadle.server.client import Call
from treadle.server.fuzzy import Found, find

# Searches of one client at a time. Each is a worker thread, and files are read by the same threads.
MAX_SEARCHES: Final = 4


class Search:
    def __init__(self) -> None:
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True

    def cancelled(self) -> bool:
        return self._cancelled


async def search_files(call: Call) -> FuzzyFileSearchResponse:
    params: FuzzyFileSearchParams = call.params
    table = call.server.watches(call.client)
    token = params.cancellation_token
    name = f"search {new_id()}" if token is None else f"search for {token}"
    older = table.pop(name, None)
    if older is not None:
        older.cancel()
    if sum(isinstance(watch, Search) for watch in table.values()) >= MAX_SEARCHES:
        text = f"{MAX_SEARCHES} searches are under way; wait for one, or give them a cancellationToken"
        raise RpcError(OVERLOADED, text, OVERLOAD_DATA)
    search = table[name] = Search()
    roots = [(root, os.path.join(call.server.cwd, root)) for root in params.roots]
    try:
        found = await asyncio.to_thread(find, params.query, roots, search.cancelled)
    finally:
        search.cancel()  # the thread goes on when we are cancelled, but not for long
        if table.get(name) is search:
            del table[name]
    return FuzzyFileSearchResponse(files=tuple(map(_wire, found)))


def _wire(found: Found) -> FuzzyFileSearchResult:
    return FuzzyFileSearchResult(
        root=found.root,
        path=found.path,
        match_type="directory" if found.is_directory else "file",
        file_name=os.path.basename(found.path),
        score=found.match.score,
        indices=found.match.indices,
    )
