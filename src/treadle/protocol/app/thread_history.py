"""Params and results of the methods that page through, cut or add to the history of a thread."""

from __future__ import annotations

from typing import Any

from treadle.protocol.app.base import Closed, Empty, Params, Unsigned32, Variant, Wire
from treadle.protocol.app.items import ThreadItem
from treadle.protocol.app.thread_methods import SortDirection
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


class ThreadRevertResponse(Wire, frozen=True, kw_only=True):
    thread: Thread
    items_backwards_cursor: str | None = None
    turns_backwards_cursor: str | None = None


class ThreadRollbackParams(Params, frozen=True, kw_only=True):
    """Of Codex up to 0.147; later ones have `thread/revert`."""

    thread_id: str
    num_turns: Unsigned32


class ThreadRollbackResponse(Wire, frozen=True, kw_only=True):
    thread: Thread


class ThreadInjectItemsParams(Params, frozen=True, kw_only=True):
    thread_id: str
    items: tuple[Any, ...]


ThreadInjectItemsResponse = Empty
