"""`ThreadLibrary`: the threads of a home, asked of an app-server in this process, without secrets.

It owns the requests and their paging, and `Redaction`: no key that this machine knows, or that looks like one, leaves
the library. Threads of other servers that share the home are in the same database, so they are here too.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import structs

from treadle.agent.turn.pending_input import IMAGE_OPENING
from treadle.cli.in_process import open_client, server_of
from treadle.cli.problem import Problem
from treadle.cli.streams import REFUSED
from treadle.cli.thread_choice import (
    all_threads,
    find_threads,
    is_thread_id,
    newest_threads,
    read_thread,
    several_meant,
)
from treadle.client import AsyncAppServerClient
from treadle.config import Config, find_home, load_config
from treadle.config.configuration import secret_values, secret_variables
from treadle.config.login import Login, StoredKeys
from treadle.pages.page import Heading, ThreadExtras
from treadle.pages.view_blocks import sent_key
from treadle.protocol.app.base import convert, encode
from treadle.protocol.app.items import ThreadItem
from treadle.protocol.app.ours import (
    MessageSearchHit,
    MessageSearchParams,
    MessageSearchResponse,
    ThreadEventsListParams,
    ThreadEventsListResponse,
)
from treadle.protocol.app.thread_history import (
    ThreadItemsListParams,
    ThreadSearchParams,
    ThreadSearchResult,
    ThreadTurnsListParams,
)
from treadle.protocol.app.thread_methods import ThreadDeleteParams
from treadle.protocol.app.threads import Thread
from treadle.protocol.app.turns import Turn
from treadle.secrets import LEAST, redact, secrets_in
from treadle.server.child_threads import stored_below

T = TypeVar("T")
Among: TypeAlias = Literal["all", "listed", "archived"]

_ITEMS = _EVENTS = 50  # one may have a mebibyte
_TURNS = 500
# Usage is reported after every response of the model: it is among the last events.
_LAST_EVENTS: Final = 60
_RECENT_EVENTS: Final = 2000


@asynccontextmanager
async def open_library(overrides: Sequence[str] = ()) -> AsyncIterator[ThreadLibrary]:
    config = load_config(find_home(os.environ), overrides=overrides).config
    async with open_client("treadle_threads", overrides) as client:
        yield ThreadLibrary(client, redaction_for(config, os.environ))


def run_with_library(work: Callable[[ThreadLibrary], Coroutine[Any, Any, T]], overrides: Sequence[str]) -> T:
    """Run all that a command does with threads."""

    async def run() -> T:
        async with open_library(overrides) as library:
            return await work(library)

    return asyncio.run(run())


class ThreadLibrary:
    def __init__(self, client: AsyncAppServerClient, redaction: Redaction) -> None:
        self._client = client
        self._redaction = redaction

    # --- finding ---

    async def choose(self, words: Sequence[str], *, last: bool, among: Among = "all") -> list[Thread]:
        """The threads that the words mean, each once. Raises `Problem`."""
        if last and words:
            raise Problem("--last is a thread already", do="give ids, or --last", code=REFUSED)
        if not last and not words:
            raise Problem("which thread?", do="give an id of `treadle threads list`, a name, or --last", code=REFUSED)
        if last:
            found = await self.newest(1, archived=among == "archived")
            if not found:
                missing = f"there is no {'archived ' if among == 'archived' else ''}thread yet"
                raise Problem(missing, do='treadle exec "…"')
        else:
            found = [await self._find(word, among) for word in words]
        return list({thread.id: thread for thread in found}.values())

    async def _find(self, word: str, among: Among) -> Thread:
        archived = {"all": (False, True), "listed": (False,), "archived": (True,)}[among]
        matches = await find_threads(self._client, word, archived=archived, id_anywhere=among == "all")
        found = [self._thread(thread) for thread in matches]
        if len(found) == 1:
            return found[0]
        if found:
            raise several_meant(word, found)
        if among == "all" and is_thread_id(word):
            raise Problem(f"there is no thread {word}", do="treadle threads list")
        which = {"all": "", "listed": " that is not archived", "archived": " that is archived"}[among]
        short = len(word) < 4 and re.fullmatch(r"[0-9a-fA-F-]+", word)
        raise Problem(
            f"there is no thread{which} that is called {word!r}, or whose id begins or ends so",
            why="of an id at least 4 characters are needed" if short else None,
            do="treadle threads list --archived" if among == "archived" else "treadle threads list",
        )

    async def newest(self, limit: int, *, archived: bool = False, cwd: str | None = None) -> list[Thread]:
        """So many threads, the one used last first."""
        return [self._thread(found) for found in await newest_threads(self._client, limit, archived=archived, cwd=cwd)]

    async def all(self, cwd: str) -> AsyncGenerator[Thread, None]:
        """The threads that are not archived, those of a directory first."""
        async with aclosing(all_threads(self._client, cwd)) as threads:
            async for thread in threads:
                yield self._thread(thread)

    async def read(self, thread_id: str) -> Thread | None:
        """The thread with this id; None when there is no such thread."""
        found = await read_thread(self._client, thread_id)
        return None if found is None else self._thread(found)

    async def search(self, words: str, limit: int) -> list[MessageSearchHit]:
        """Messages that hold all the words, best first. Those of archived threads are left out."""
        params = MessageSearchParams(search_term=words, limit=limit)
        found = await self._client.request("thread/messages/search", params, response_model=MessageSearchResponse)
        return [structs.replace(hit, snippet=self._redaction.clean(hit.snippet)) for hit in found.data]

    async def search_archived(self, phrase: str, limit: int) -> list[ThreadSearchResult]:
        """Archived threads with a message that holds these words in their order, newest first."""
        params = ThreadSearchParams(search_term=phrase, archived=True, limit=limit, sort_key="updated_at")
        return [
            ThreadSearchResult(thread=self._thread(one.thread), snippet=self._redaction.clean(one.snippet))
            for one in (await self._client.thread_search(params)).data
        ]

    # --- reading ---

    async def usage(self, thread_id: str) -> ThreadExtras:
        """The sums of a thread: from its last events alone."""
        facts = ThreadExtras()
        first = await self._events(thread_id, 0, 1)
        if first.last_seq:
            after = max(0, first.last_seq - _LAST_EVENTS)
            facts.take((await self._events(thread_id, after, _LAST_EVENTS)).data)
        return facts

    async def heading(self, thread: Thread, *, recent: bool = False) -> Heading:
        """What is known of a thread before its items are read. `recent`: of a long thread, the plans and figures of its
        last turns alone, which takes no time."""
        turns: list[Turn] = []
        cursor = None
        while True:
            params = ThreadTurnsListParams(
                thread_id=thread.id, cursor=cursor, limit=_TURNS, items_view="notLoaded", sort_direction="asc"
            )
            answer = await self._client.thread_turns_list(params)
            turns += [convert(self._redaction.json(encode(turn)), Turn) for turn in answer.data]
            cursor = answer.next_cursor
            if cursor is None:
                break
        facts = ThreadExtras(clean=self._redaction.json)
        if recent:
            facts.seq = max(0, (await self._events(thread.id, 0, 1)).last_seq - _RECENT_EVENTS)
        more = True
        while more:
            page = await self._events(thread.id, facts.seq, _EVENTS)
            facts.take(page.data)
            more = page.has_more and bool(page.data)
        return Heading(thread, tuple(turns), facts)

    async def sub_agents(self, thread_id: str) -> int:
        """How many threads work for this one, and go with it."""
        return len(await stored_below(await server_of(self._client).store(), thread_id))

    async def items(
        self, thread_id: str, turn_ids: Sequence[str | None] = (None,)
    ) -> AsyncIterator[tuple[str, ThreadItem]]:
        """All items in their order, or those of some turns; each with the id of its turn. A page of them is in memory
        at a time."""
        for turn_id in turn_ids:
            cursor, more = None, True
            while more:
                params = ThreadItemsListParams(thread_id=thread_id, turn_id=turn_id, cursor=cursor, limit=_ITEMS)
                page = await self._client.thread_items_list(params)
                for entry in page.data:
                    yield entry.turn_id, convert(self._redaction.json(encode(entry.item)), ThreadItem)
                cursor = page.next_cursor
                more = cursor is not None

    async def last_items(self, thread_id: str) -> list[ThreadItem]:
        """The items of the last turn."""
        params = {"threadId": thread_id, "limit": 1, "sortDirection": "desc", "itemsView": "full"}
        turns = (await self._client.thread_turns_list(params)).data
        return [convert(self._redaction.json(encode(item)), ThreadItem) for turn in turns for item in turn.items]

    async def seen_pictures(self, thread_id: str) -> dict[str, list[str]]:
        """The pictures of files that the model got, as `data:` addresses: by the id of the call that looked at one, or
        by `sent_key`. Those from before a compaction are not known any more."""
        seen: dict[str, list[str]] = {}
        for record in await (await server_of(self._client).store()).history(thread_id):
            if b"input_image" not in record.data:
                continue
            item = msgspec.json.decode(record.data)
            parts = item.get("output") if item.get("type") == "function_call_output" else item.get("content")
            key = item.get("call_id")
            for part in parts if isinstance(parts, list) else ():
                if part.get("type") == "input_text" and (found := IMAGE_OPENING.fullmatch(part["text"])):
                    key = sent_key(record.turn, found[1])
                elif part.get("type") == "input_image" and key is not None and part.get("image_url"):
                    seen.setdefault(key, []).append(part["image_url"])
        return seen

    async def _events(self, thread_id: str, after: int, limit: int) -> ThreadEventsListResponse:
        params = ThreadEventsListParams(thread_id=thread_id, after_seq=after, limit=limit)
        return await self._client.request("thread/events/list", params, response_model=ThreadEventsListResponse)

    def _thread(self, thread: Thread) -> Thread:
        return convert(self._redaction.json(encode(thread)), Thread)

    # --- changing ---

    async def archive(self, thread_id: str) -> None:
        await self._client.thread_archive(thread_id)

    async def unarchive(self, thread_id: str) -> None:
        await self._client.thread_unarchive(thread_id)

    async def delete(self, thread_id: str) -> None:
        await self._client.thread_delete(ThreadDeleteParams(thread_id=thread_id))


class Redaction:
    """Takes secrets out of texts and of JSON."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = tuple(secret for secret in secrets if len(secret) >= LEAST)

    def json(self, data: bytes | msgspec.Raw) -> Any:
        """The plain values of a JSON text, without secrets. They are looked for in the values, where nothing is
        escaped."""
        return self.clean(msgspec.json.decode(data))

    def clean(self, value: Any) -> Any:
        match value:
            case str():
                return redact(value, self._secrets) if len(value) >= LEAST else value
            case dict():
                return {self.clean(name): self.clean(member) for name, member in value.items()}
            case list():
                return [self.clean(member) for member in value]
        return value


def redaction_for(config: Config, environ: Mapping[str, str]) -> Redaction:
    """The redaction of all keys that this machine knows: of the environment, the settings and the logins."""
    stored = (Login(config.home).api_key(), *StoredKeys(config.home).secrets())
    named = (environ.get(name) for name in secret_variables(config.document))
    known = {key for key in (*stored, *named, *secret_values(config.document), *secrets_in(environ)) if key}
    return Redaction(sorted(known, key=len, reverse=True))  # one may be the beginning of another
