"""`ThreadLibrary`: the threads of a home, asked of an app-server in this process, without secrets.

It owns the requests and their paging. Threads of other servers that share the home are in the same database, so they
are here too.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, TypeVar

from msgspec import structs

from treadle.cli.threads.facts import ThreadFacts
from treadle.cli.threads.page import Heading
from treadle.cli.threads.redaction import Redaction, redaction_for
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.base import convert, encode
from treadle.protocol.app.handshake import ClientInfo, InitializeCapabilities, InitializeParams
from treadle.protocol.app.items import ThreadItem
from treadle.protocol.app.ours import MessageSearchHit, MessageSearchParams, ThreadEventsListParams
from treadle.protocol.app.thread_history import ThreadItemsListParams, ThreadTurnsListParams
from treadle.protocol.app.thread_methods import (
    ThreadArchiveParams,
    ThreadDeleteParams,
    ThreadListParams,
    ThreadReadParams,
    ThreadUnarchiveParams,
)
from treadle.protocol.app.thread_search import ThreadSearchParams, ThreadSearchResult
from treadle.protocol.app.threads import Thread
from treadle.protocol.app.turns import Turn
from treadle.server.app import AppServer
from treadle.server.local_client import LocalClient

T = TypeVar("T")

_PAGE = 100
_ITEMS = _EVENTS = 50  # one may have a mebibyte
_TURNS = 500
# Usage is told after every response of the model: it is among the last events.
_LAST_EVENTS: Final = 60


@asynccontextmanager
async def open_library(overrides: Sequence[str] = ()) -> AsyncIterator[ThreadLibrary]:
    async with AppServer(overrides=overrides) as server:
        client = server.connect(lambda event: None, lambda request: None)
        info = ClientInfo(name="treadle_threads", version="1")
        capabilities = InitializeCapabilities(experimental_api=True)  # for thread/search
        await client.request("initialize", InitializeParams(client_info=info, capabilities=capabilities))
        yield ThreadLibrary(client, redaction_for(server.config, os.environ))


def run_with_library(work: Callable[[ThreadLibrary], Coroutine[Any, Any, T]], overrides: Sequence[str]) -> T:
    """For a command: all that it does with threads."""

    async def run() -> T:
        async with open_library(overrides) as library:
            return await work(library)

    return asyncio.run(run())


class ThreadLibrary:
    def __init__(self, client: LocalClient, redaction: Redaction) -> None:
        self._client = client
        self._redaction = redaction

    # --- finding ---

    async def newest(self, *, archived: bool = False, cwd: str | None = None) -> AsyncGenerator[Thread, None]:
        """The one used last comes first."""
        cursor = None
        while True:
            params = ThreadListParams(archived=archived, cwd=cwd, cursor=cursor, limit=_PAGE, sort_key="updated_at")
            page = await self._client.request("thread/list", params)
            for thread in page.data:
                yield self._thread(thread)
            cursor = page.next_cursor
            if cursor is None:
                return

    async def newest_few(self, limit: int, *, archived: bool = False, cwd: str | None = None) -> list[Thread]:
        found: list[Thread] = []
        async with aclosing(self.newest(archived=archived, cwd=cwd)) as threads:
            async for thread in threads:
                found.append(thread)
                if len(found) == limit:
                    break
        return found

    async def read(self, thread_id: str) -> Thread | None:
        """None when there is no such thread."""
        try:
            found = await self._client.request("thread/read", ThreadReadParams(thread_id=thread_id))
        except RpcError as error:
            if error.code == INVALID_REQUEST:
                return None
            raise
        return self._thread(found.thread)

    async def search(self, words: str, limit: int) -> list[MessageSearchHit]:
        """Messages that hold all the words, best first. Those of archived threads are left out."""
        params = MessageSearchParams(search_term=words, limit=limit)
        hits = (await self._client.request("thread/messages/search", params)).data
        return [structs.replace(hit, snippet=self._redaction.clean(hit.snippet)) for hit in hits]

    async def search_archived(self, phrase: str, limit: int) -> list[ThreadSearchResult]:
        """Archived threads with a message that holds these words in their order, newest first."""
        params = ThreadSearchParams(search_term=phrase, archived=True, limit=limit, sort_key="updated_at")
        found = (await self._client.request("thread/search", params)).data
        return [
            ThreadSearchResult(thread=self._thread(one.thread), snippet=self._redaction.clean(one.snippet))
            for one in found
        ]

    # --- reading ---

    async def usage(self, thread_id: str) -> ThreadFacts:
        """The sums of a thread: from its last events alone."""
        facts = ThreadFacts()
        first = await self._events(thread_id, 0, 1)
        if first.last_seq:
            after = max(0, first.last_seq - _LAST_EVENTS)
            facts.take((await self._events(thread_id, after, _LAST_EVENTS)).data)
        return facts

    async def heading(self, thread: Thread) -> Heading:
        """All that is known before the items are read."""
        return Heading(thread, tuple([turn async for turn in self._turns(thread.id)]), await self._facts(thread.id))

    async def items(self, thread_id: str) -> AsyncIterator[tuple[str, ThreadItem]]:
        """All items in their order, each with the id of its turn. A page of them is in memory at a time."""
        cursor = None
        while True:
            params = ThreadItemsListParams(thread_id=thread_id, cursor=cursor, limit=_ITEMS)
            page = await self._client.request("thread/items/list", params)
            for entry in page.data:
                yield entry.turn_id, convert(self._redaction.json(encode(entry.item)), ThreadItem)
            cursor = page.next_cursor
            if cursor is None:
                return

    async def _turns(self, thread_id: str) -> AsyncIterator[Turn]:
        cursor = None
        while True:
            params = ThreadTurnsListParams(
                thread_id=thread_id, cursor=cursor, limit=_TURNS, items_view="notLoaded", sort_direction="asc"
            )
            page = await self._client.request("thread/turns/list", params)
            for turn in page.data:
                yield convert(self._redaction.json(encode(turn)), Turn)
            cursor = page.next_cursor
            if cursor is None:
                return

    async def _facts(self, thread_id: str) -> ThreadFacts:
        facts = ThreadFacts(clean=self._redaction.json)
        more = True
        while more:
            page = await self._events(thread_id, facts.seq, _EVENTS)
            facts.take(page.data)
            more = page.has_more and bool(page.data)
        return facts

    async def _events(self, thread_id: str, after: int, limit: int) -> Any:
        params = ThreadEventsListParams(thread_id=thread_id, after_seq=after, limit=limit)
        return await self._client.request("thread/events/list", params)

    def _thread(self, thread: Thread) -> Thread:
        return convert(self._redaction.json(encode(thread)), Thread)

    # --- changing ---

    async def archive(self, thread_id: str) -> None:
        await self._client.request("thread/archive", ThreadArchiveParams(thread_id=thread_id))

    async def unarchive(self, thread_id: str) -> None:
        await self._client.request("thread/unarchive", ThreadUnarchiveParams(thread_id=thread_id))

    async def delete(self, thread_id: str) -> None:
        await self._client.request("thread/delete", ThreadDeleteParams(thread_id=thread_id))
