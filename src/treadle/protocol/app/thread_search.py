"""Finding what was said: thread/search over all threads, thread/searchOccurrences in one."""

from __future__ import annotations

from treadle.protocol.app.base import Closed, Params, Unsigned32, Wire, Word
from treadle.protocol.app.thread_methods import SortDirection, ThreadSourceKind
from treadle.protocol.app.threads import Thread


class ThreadSearchSortKey(Word):
    created_at = "created_at"
    updated_at = "updated_at"
    recency_at = "recency_at"


class ThreadSearchParams(Params, frozen=True, kw_only=True):
    search_term: str
    archived: bool | None = None
    cursor: str | None = None
    limit: Unsigned32 | None = None
    sort_direction: Closed[SortDirection] | None = None
    sort_key: Closed[ThreadSearchSortKey] | None = None
    source_kinds: tuple[Closed[ThreadSourceKind], ...] | None = None


class ThreadSearchResult(Wire, frozen=True, kw_only=True):
    """`snippet` is a part of a message of the thread."""

    thread: Thread
    snippet: str


class ThreadSearchResponse(Wire, frozen=True, kw_only=True):
    data: tuple[ThreadSearchResult, ...]
    backwards_cursor: str | None = None
    next_cursor: str | None = None


class ThreadSearchOccurrencesParams(Params, frozen=True, kw_only=True):
    thread_id: str
    search_term: str
    cursor: str | None = None
    limit: Unsigned32 | None = None


class ThreadSearchTextRange(Wire, frozen=True, kw_only=True):
    """In UTF-16 code units; `end` is behind the last."""

    start: int
    end: int


class ThreadSearchOccurrence(Wire, frozen=True, kw_only=True):
    """`turn_cursor` is for thread/turns/list: a page from it begins with the turn."""

    item_id: str
    snippet: str
    snippet_match_range: ThreadSearchTextRange
    turn_cursor: str
    turn_id: str


class ThreadSearchOccurrencesResponse(Wire, frozen=True, kw_only=True):
    data: tuple[ThreadSearchOccurrence, ...]
    next_cursor: str | None = None
