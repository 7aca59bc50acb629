"""`fuzzyFileSearch/session*`: a search that follows what somebody types.

It owns the sessions of a client: each looks for the last query only, and what is found for it is told by
`sessionUpdated`, then `sessionCompleted`. They end with the client. The search itself is `fuzzy_file_search`'s.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Final

from msgspec import Struct

from treadle.agent.event import Event
from treadle.agent.ids import now_ms
from treadle.errors import INTERNAL_ERROR, INVALID_REQUEST, OVERLOAD_DATA, OVERLOADED, RpcError
from treadle.protocol.app.base import Empty
from treadle.protocol.app.search import (
    FuzzyFileSearchResult,
    FuzzyFileSearchSessionCompletedNotification,
    FuzzyFileSearchSessionStartParams,
    FuzzyFileSearchSessionStopParams,
    FuzzyFileSearchSessionUpdatedNotification,
    FuzzyFileSearchSessionUpdateParams,
)
from treadle.server.client_base import Call
from treadle.server.methods.fuzzy_file_search import search_roots

logger: logging.Logger = logging.getLogger(__name__)

# Sessions of one client at a time.
MAX_SESSIONS: Final = 8


class SearchSession:
    def __init__(self, call: Call[FuzzyFileSearchSessionStartParams]) -> None:
        self._id = call.params.session_id
        self._server = call.server
        self._client = call.client
        self._roots = [(root, os.path.join(call.server.cwd, root)) for root in call.params.roots]
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
            files = await search_roots(self._server, query, self._roots) if query else ()
        except RpcError as error:
            logger.warning("file search session %r: %s", self._id[:50], error.message)
        else:
            await self._tell(query, files)
        self._notify(
            "fuzzyFileSearch/sessionCompleted", FuzzyFileSearchSessionCompletedNotification(session_id=self._id)
        )

    async def _tell(self, query: str, files: tuple[FuzzyFileSearchResult, ...]) -> None:
        while self._client.congested:
            await self._server.relief()
        params = FuzzyFileSearchSessionUpdatedNotification(session_id=self._id, query=query, files=files)
        self._notify("fuzzyFileSearch/sessionUpdated", params)

    def _notify(self, method: str, params: Struct) -> None:
        self._client.notify(Event(method, params, None, now_ms()))


def start(call: Call[FuzzyFileSearchSessionStartParams]) -> Empty:
    """One of the same name takes the place of the older."""
    params, watches = call.params, call.server.watches(call.client)
    if not params.session_id:
        raise RpcError(INVALID_REQUEST, "sessionId must not be empty")
    if not params.roots:
        raise RpcError(INTERNAL_ERROR, "failed to start fuzzy file search session: give at least one root")
    name = _name(params.session_id)
    older = watches.pop(name, None)
    if older is not None:
        older.cancel()
    if sum(isinstance(watch, SearchSession) for watch in watches.values()) >= MAX_SESSIONS:
        raise RpcError(OVERLOADED, f"{MAX_SESSIONS} search sessions are open; stop one", OVERLOAD_DATA)
    session = watches[name] = SearchSession(call)
    call.afterwards(lambda: session.look_for(""))
    return Empty()


def update(call: Call[FuzzyFileSearchSessionUpdateParams]) -> Empty:
    session = call.server.watches(call.client).get(_name(call.params.session_id))
    if not isinstance(session, SearchSession):
        raise RpcError(INVALID_REQUEST, f"fuzzy file search session not found: {call.params.session_id[:200]}")
    call.afterwards(lambda: session.look_for(call.params.query))
    return Empty()


def stop(call: Call[FuzzyFileSearchSessionStopParams]) -> Empty:
    session = call.server.watches(call.client).pop(_name(call.params.session_id), None)
    if session is not None:
        session.cancel()
    return Empty()


def _name(session_id: str) -> str:
    return f"search session {session_id}"
