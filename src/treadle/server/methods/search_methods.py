"""Searching messages: in all threads, in one, or as a list of messages.

Cases of letters do not matter. A place in a text is given with as much around it as one needs to recognise it; clients
count in UTF-16 code units.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from itertools import islice
from typing import Final, cast

import msgspec
from msgspec import Struct

from treadle.agent.thread.thread_reading import make_cursor
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.ours import MessageSearchHit, MessageSearchParams, MessageSearchResponse
from treadle.protocol.app.thread_history import (
    ThreadSearchOccurrence,
    ThreadSearchOccurrencesParams,
    ThreadSearchOccurrencesResponse,
    ThreadSearchParams,
    ThreadSearchResponse,
    ThreadSearchResult,
    ThreadSearchTextRange,
)
from treadle.server.clients import ServerCall
from treadle.server.methods.thread_listing import (
    page_limit,
    read_thread_cursor,
    sources_of,
    thread_cursor,
    wire_if_sound,
)
from treadle.server.routes import check_thread_id
from treadle.store.contract import MessageText, SortKey, ThreadQuery

MAX_TERM: Final = 1_000
DEFAULT_OCCURRENCES: Final = 50
MAX_OCCURRENCES: Final = 100


def _checked(term: str, method: str) -> str:
    if not term.strip():
        raise RpcError(INVALID_REQUEST, f"{method} requires a non-empty searchTerm")
    if len(term) > MAX_TERM:
        raise RpcError(INVALID_REQUEST, f"the searchTerm of {method} may have {MAX_TERM} characters, not {len(term)}")
    return term


async def search_messages(call: ServerCall[MessageSearchParams]) -> MessageSearchResponse:
    store = await call.server.store()
    hits = await store.search(call.params.search_term, call.params.limit)
    return MessageSearchResponse(
        data=tuple(MessageSearchHit(thread_id=hit.thread_id, item_id=hit.item_id, snippet=hit.snippet) for hit in hits)
    )


async def search_threads(call: ServerCall[ThreadSearchParams]) -> ThreadSearchResponse:
    params, server = call.params, call.server
    term = _checked(params.search_term, "thread/search")
    key = cast("SortKey", params.sort_key or "created_at")  # params have no other
    query = ThreadQuery(
        phrase=term,
        limit=page_limit(params.limit),
        sort_key=key,
        descending=params.sort_direction != "asc",
        after=read_thread_cursor(params.cursor),
        archived=bool(params.archived),
        sources=sources_of(params.source_kinds),
    )
    store = await server.store()
    page = await store.threads(query)
    found = zip((wire_if_sound(server, store, record) for record in page.threads), page.texts, strict=True)
    return ThreadSearchResponse(
        data=tuple(
            ThreadSearchResult(thread=wire, snippet=snippet(text, term)) for wire, text in found if wire is not None
        ),
        next_cursor=thread_cursor(page.threads[-1], key) if page.more else None,
        backwards_cursor=thread_cursor(page.threads[0], key) if page.threads else None,
    )


# --- in one thread ----------------------------------------------------------------------------------------------------


class _Cursor(msgspec.Struct):
    """The first place of the page: the number of its item, and its index there."""

    thread: str
    term: str
    number: int
    index: int


_read_cursor = msgspec.json.Decoder(_Cursor).decode


async def search_occurrences(call: ServerCall[ThreadSearchOccurrencesParams]) -> ThreadSearchOccurrencesResponse:
    params = call.params
    term = _checked(params.search_term, "thread/searchOccurrences")
    thread_id = check_thread_id(params.thread_id)
    first = _first_place(params.cursor, thread_id, term)
    limit = max(1, min(DEFAULT_OCCURRENCES if params.limit is None else params.limit, MAX_OCCURRENCES))
    store = await call.server.threads.store_of(thread_id)
    messages = await store.messages(thread_id, term, first=first[0], limit=limit + 2)
    # Not on the event loop: a message may have a mebibyte.
    found = await asyncio.to_thread(places, messages, term, first, limit + 1)
    following = None
    if len(found) > limit:
        cursor = _Cursor(thread_id, term, found[limit].message.number, found[limit].index)
        following = msgspec.json.encode(cursor).decode()
    return ThreadSearchOccurrencesResponse(
        data=tuple(
            ThreadSearchOccurrence(
                item_id=place.message.id,
                snippet=place.snippet,
                snippet_match_range=place.range,
                turn_cursor=make_cursor(thread_id, "turns", place.message.turn, with_it=True),
                turn_id=place.message.turn_id,
            )
            for place in found[:limit]
        ),
        next_cursor=following,
    )


def _first_place(cursor: str | None, thread_id: str, term: str) -> tuple[int, int]:
    if cursor is None:
        return 0, 0
    try:
        found = _read_cursor(cursor)
    except (msgspec.DecodeError, UnicodeEncodeError):
        found = None
    if found is None or (found.thread, found.term) != (thread_id, term) or not 0 <= found.number < 2**63:
        raise RpcError(INVALID_REQUEST, f"invalid cursor: {cursor[:200]}")
    return found.number, found.index


# --- places in a text -------------------------------------------------------------------------------------------------


BEFORE: Final = 48
AFTER: Final = 96


class Place(Struct, frozen=True):
    """The `index`th place of the part in a message; `snippet` has it at `range`."""

    message: MessageText
    index: int
    snippet: str
    range: ThreadSearchTextRange


def places(messages: Iterable[MessageText], part: str, first: tuple[int, int], limit: int) -> list[Place]:
    """In their order, from the place `first` on: number of the item, and index in it."""
    pattern = re.compile(re.escape(part), re.IGNORECASE)
    found = (
        Place(message, index, *cut(message.text, match.start(), match.end()))
        for message in messages
        for index, match in enumerate(pattern.finditer(message.text))
        if (message.number, index) >= first
    )
    return list(islice(found, limit))


def cut(text: str, start: int, end: int) -> tuple[str, ThreadSearchTextRange]:
    """What is around a place in a text, and where the place is in that."""
    low, high = max(0, start - BEFORE), end + AFTER
    before = ("... " if low else "") + text[low:start]
    after = text[end:high] + (" ..." if high < len(text) else "")
    place = ThreadSearchTextRange(start=_units(before), end=_units(before) + _units(text[start:end]))
    return before + text[start:end] + after, place


def snippet(text: str, part: str) -> str:
    """The first place in one line; the beginning where the words are there in another way of writing."""
    line = " ".join(text.split())
    match = re.search(re.escape(" ".join(part.split())), line, re.IGNORECASE)
    return cut(line, *match.span())[0] if match else cut(line, 0, 0)[0]


def _units(text: str) -> int:
    return len(text) + sum(letter > "\uffff" for letter in text)
