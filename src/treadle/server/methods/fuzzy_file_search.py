"""`fuzzyFileSearch`: files by some letters of their path, one answer per request.

It owns which searches of a client go on: a newer one with the same token takes the place of the older, which is
answered with nothing, and all of them end with the client. The search itself is `treadle.execution.file_search`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Final

from treadle.agent.ids import new_id
from treadle.errors import INTERNAL_ERROR, OVERLOAD_DATA, OVERLOADED, ExecError, RpcError
from treadle.execution.file_search.search_process import search
from treadle.execution.file_search.search_walk import Found
from treadle.protocol.app.search import FuzzyFileSearchParams, FuzzyFileSearchResponse, FuzzyFileSearchResult
from treadle.server.app import AppServer
from treadle.server.client_base import Call

# Searches of one client at a time.
MAX_SEARCHES: Final = 4


class Search:
    """One that goes on. `cancel` ends it, and its client is answered with nothing."""

    def __init__(self, running: asyncio.Task[tuple[FuzzyFileSearchResult, ...]]) -> None:
        self._running = running

    def cancel(self) -> None:
        self._running.cancel()

    def cancelled(self) -> bool:
        return self._running.cancelled() or self._running.cancelling() > 0


async def search_files(call: Call[FuzzyFileSearchParams]) -> FuzzyFileSearchResponse:
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
    roots = [(root, os.path.join(call.server.cwd, root)) for root in params.roots]
    running = asyncio.ensure_future(search_roots(call.server, params.query, roots))
    mine = table[name] = Search(running)
    try:
        await asyncio.wait({running})
    finally:
        running.cancel()
        await asyncio.wait({running})  # its process ends first
        if table.get(name) is mine:
            del table[name]
    return FuzzyFileSearchResponse(files=() if running.cancelled() else running.result())


async def search_roots(
    server: AppServer, query: str, roots: Sequence[tuple[str, str]]
) -> tuple[FuzzyFileSearchResult, ...]:
    """The best matches, best first. `roots` are the client's names of directories, and where they are."""
    try:
        async with server.searching:
            return tuple(map(_wire, await search(await server.environment(), query, roots)))
    except ExecError as error:
        raise RpcError(INTERNAL_ERROR, error.message) from None


def _wire(found: Found) -> FuzzyFileSearchResult:
    return FuzzyFileSearchResult(
        root=found.root,
        path=found.path,
        match_type="directory" if found.is_directory else "file",
        file_name=os.path.basename(found.path),
        score=found.match.score,
        indices=found.match.indices,
    )
