"""The history of threads: paging through it, cutting it, adding to it (thread/turns, thread/items, thread/revert, …),
and searching it (thread/search, thread/searchOccurrences)."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, UnsetType

from treadle.protocol.app.base import Closed, Empty, Open, Params, Unsigned32, Variant, Wire, Word
from treadle.protocol.app.items import ThreadItem
from treadle.protocol.app.thread_methods import SortDirection, ThreadSourceKind
from treadle.protocol.app.threads import Thread
from treadle.protocol.app.turns import Turn, TurnItemsView


class ThreadTurnsListParams(Params, frozen=True, kw_only=True):
    thread_id: str
    cursor: str | None = None
    items_view: Closed[TurnItemsView] | None = None
    limit: Unsigned32 | None = None
    sort_direction: Closed[SortDirection] | None = None


class ThreadTurnsListResponse(Wire, frozen=True, kw_only=True):
    data: tuple[Turn, ...]
    backwards_cursor: str | None = None
    next_cursor: str | None = None


class ItemThreadItemsListAnchor(Variant, frozen=True, kw_only=True, tag="item"):
    item_id: str


ThreadItemsListAnchor = ItemThreadItemsListAnchor


ThreadItemsListCursor = str | ThreadItemsListAnchor


class ThreadItemsListParams(Params, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str | None = None
    cursor: ThreadItemsListCursor | None = None
    limit: Unsigned32 | None = None
    sort_direction: Closed[SortDirection] | None = None


class ThreadItemEntry(Wire, frozen=True, kw_only=True):
    turn_id: str
    item: ThreadItem
    completed_at_ms: int | None = None
    started_at_ms: int | None = None


class ThreadItemsListResponse(Wire, frozen=True, kw_only=True):
    data: tuple[ThreadItemEntry, ...]
    backwards_cursor: str | None = None
    next_cursor: str | None = None


class ThreadItemsReadParams(Params, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    item_ids: tuple[str, ...]


class ThreadItemsReadResponse(Wire, frozen=True, kw_only=True):
    data: tuple[ThreadItemEntry, ...]


class ThreadRevertParams(Params, frozen=True, kw_only=True):
    thread_id: str
    before_turn_id: str
    files: bool = False
    """Whether what the turns have changed in files is taken back too. Ours alone, as the next."""
    preview: bool = False
    """Only say what would happen."""


class RevertedFile(Wire, frozen=True, kw_only=True):
    """`restore`: it gets back its content; `recreate`: it was deleted, and is there again; `delete`: it was made, and
    goes; `skip`: it stays as it is, and `reason` says why. Ours."""

    path: str
    action: Open[Literal["restore", "recreate", "delete", "skip"]]
    reason: str | None = None


class RevertedFiles(Wire, frozen=True, kw_only=True):
    """`unavailable` says why files cannot be put back. Ours."""

    changes: tuple[RevertedFile, ...]
    unavailable: str | None = None


class ThreadRevertResponse(Wire, frozen=True, kw_only=True):
    thread: Thread
    files: RevertedFiles | UnsetType = UNSET
    items_backwards_cursor: str | None = None
    turns_backwards_cursor: str | None = None


class ThreadRollbackParams(Params, frozen=True, kw_only=True):
    """`thread/rollback` of Codex up to 0.147; later versions have `thread/revert`."""

    thread_id: str
    num_turns: Unsigned32


class ThreadRollbackResponse(Wire, frozen=True, kw_only=True):
    thread: Thread


class ThreadInjectItemsParams(Params, frozen=True, kw_only=True):
    thread_id: str
    items: tuple[Any, ...]


ThreadInjectItemsResponse = Empty


# --- search ---


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
