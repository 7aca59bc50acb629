"""`fuzzyFileSearch`: files by some letters of their path, one answer per request; `fuzzyFileSearch/session*`: a search
that follows what somebody types.

It owns which searches of a client go on: a newer one with the same token replaces the older, which is answered with
nothing; a session looks for its last query only, and what is found is sent as `sessionUpdated`, then
`sessionCompleted`. All of them end with the client. The search itself is `treadle.execution.file_search`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from typing import Final

from treadle.agent.event import Event, new_id, now_ms
from treadle.config.environment_settings import LOCAL
from treadle.errors import INTERNAL_ERROR, INVALID_REQUEST, OVERLOAD_DATA, OVERLOADED, ExecError, RpcError
from treadle.execution.file_search import search, search_there
from treadle.protocol.app.base import Empty
from treadle.protocol.app.machine_methods import (
    FuzzyFileSearchParams,
    FuzzyFileSearchResponse,
    FuzzyFileSearchResult,
    FuzzyFileSearchSessionCompletedNotification,
    FuzzyFileSearchSessionStartParams,
    FuzzyFileSearchSessionStopParams,
    FuzzyFileSearchSessionUpdatedNotification,
    FuzzyFileSearchSessionUpdateParams,
)
from treadle.server.app import AppServer
from treadle.server.clients import ServerCall

# Searches of one client at a time.
MAX_SEARCHES: Final = 4


class Search:
    """A search under way. `cancel` ends it, and its client is answered with nothing."""

    def __init__(self, running: asyncio.Task[tuple[FuzzyFileSearchResult, ...]]) -> None:
        self._running = running

    def cancel(self) -> None:
        self._running.cancel()

    def cancelled(self) -> bool:
        return self._running.cancelled() or self._running.cancelling() > 0


async def search_files(call: ServerCall[FuzzyFileSearchParams]) -> FuzzyFileSearchResponse:
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
    running = asyncio.ensure_future(search_roots(call.server, params.query, params.roots, params.environment_id))
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
    server: AppServer, query: str, roots: Sequence[str], environment_id: str | None
) -> tuple[FuzzyFileSearchResult, ...]:
    """The best matches, best first. `roots` are the client's names of directories."""
    try:
        async with server.searching:
            if environment_id in (None, LOCAL):
                base, searched = server.cwd, search
                environment = await server.environment()
            else:
                base, searched = await server.machine(environment_id).directory(), search_there
                environment = await server.environment(environment_id)
            matches = await searched(environment, query, [(root, os.path.join(base, root)) for root in roots])
    except ExecError as error:
        raise RpcError(INTERNAL_ERROR, error.message) from None
    return tuple(
        FuzzyFileSearchResult(
            root=found.root,
            path=found.path,
            match_type="directory" if found.is_directory else "file",
            file_name=os.path.basename(found.path),
            score=found.match.score,
            indices=found.match.indices,
        )
        for found in matches
    )


# --- searches that follow what somebody types -------------------------------------------------------------------------


logger: logging.Logger = logging.getLogger(__name__)
# Sessions of one client at a time.
MAX_SESSIONS: Final = 8


class SearchSession:
    def __init__(self, call: ServerCall[FuzzyFileSearchSessionStartParams]) -> None:
        self._id = call.params.session_id
        self._server = call.server
        self._client = call.client
        self._roots = call.params.roots
        self._environment_id = call.params.environment_id
        self._looking: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        """The search that is under way, if any, ends with its process."""
        if self._looking is not None:
            self._looking.cancel()

    def look_for(self, query: str) -> None:
        """In place of whatever it looked for before."""
        self.cancel()
        if not self._client.closed:
            self._looking = self._server.spawn(self._look_for(query), f"file search session {self._id[:50]!r}")

    async def _look_for(self, query: str) -> None:
        try:
            files = await search_roots(self._server, query, self._roots, self._environment_id) if query else ()
        except RpcError as error:
            logger.warning("file search session %r: %s", self._id[:50], error.message)
        else:
            while self._client.congested:
                await self._server.wait_until_writable()
            found = FuzzyFileSearchSessionUpdatedNotification(session_id=self._id, query=query, files=files)
            self._client.notify(Event("fuzzyFileSearch/sessionUpdated", found, None, now_ms()))
        done = FuzzyFileSearchSessionCompletedNotification(session_id=self._id)
        self._client.notify(Event("fuzzyFileSearch/sessionCompleted", done, None, now_ms()))


def start_session(call: ServerCall[FuzzyFileSearchSessionStartParams]) -> Empty:
    """One of the same name takes the place of the older."""
    params, watches = call.params, call.server.watches(call.client)
    if not params.session_id:
        raise RpcError(INVALID_REQUEST, "sessionId must not be empty")
    if not params.roots:
        raise RpcError(INTERNAL_ERROR, "failed to start fuzzy file search session: give at least one root")
    name = _session_name(params.session_id)
    older = watches.pop(name, None)
    if older is not None:
        older.cancel()
    if sum(isinstance(watch, SearchSession) for watch in watches.values()) >= MAX_SESSIONS:
        raise RpcError(OVERLOADED, f"{MAX_SESSIONS} search sessions are open; stop one", OVERLOAD_DATA)
    session = watches[name] = SearchSession(call)
    call.afterwards(lambda: session.look_for(""))
    return Empty()


def update_session(call: ServerCall[FuzzyFileSearchSessionUpdateParams]) -> Empty:
    session = call.server.watches(call.client).get(_session_name(call.params.session_id))
    if not isinstance(session, SearchSession):
        raise RpcError(INVALID_REQUEST, f"fuzzy file search session not found: {call.params.session_id[:200]}")
    call.afterwards(lambda: session.look_for(call.params.query))
    return Empty()


def stop_session(call: ServerCall[FuzzyFileSearchSessionStopParams]) -> Empty:
    session = call.server.watches(call.client).pop(_session_name(call.params.session_id), None)
    if session is not None:
        session.cancel()
    return Empty()


def _session_name(session_id: str) -> str:
    return f"search session {session_id}"
