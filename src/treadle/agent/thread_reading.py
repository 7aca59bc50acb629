"""The contents of a thread by pages: turns, items, and the events that were published of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Raw

from treadle.agent import thread_refusals
from treadle.agent.thread_pages import NONE, make_cursor, read_cursor, turns_with_items, wire_item
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.ours import ThreadEventsListParams, ThreadEventsListResponse
from treadle.protocol.app.thread_history import (
    ItemThreadItemsListAnchor,
    ThreadItemEntry,
    ThreadItemsListParams,
    ThreadItemsListResponse,
    ThreadItemsReadParams,
    ThreadItemsReadResponse,
    ThreadTurnsListParams,
    ThreadTurnsListResponse,
)
from treadle.store.contract import EventPage, ItemRecord, Store, TurnRecord

if TYPE_CHECKING:
    from treadle.agent.thread_handle import ThreadHandle
    from treadle.agent.turn_items import OpenItems

DEFAULT_LIMIT: Final = 25
MAX_LIMIT: Final = 500
MAX_READ: Final = 100


def _limit(asked: int | None) -> int:
    return min(max(asked or DEFAULT_LIMIT, 1), MAX_LIMIT)


# --- pages -----------------------------------------------------------------------------------------------------------


async def list_turns(store: Store, params: ThreadTurnsListParams, running: OpenItems = NONE) -> ThreadTurnsListResponse:
    """Newest first unless asked otherwise. `running` are the items of commands that run now."""
    thread_id = params.thread_id
    limit = _limit(params.limit)
    descending = params.sort_direction != "asc"
    after = read_cursor(params.cursor, thread_id, "turns", descending=descending)
    records = await store.turns(thread_id, after=after, limit=limit + 1, descending=descending)
    page, more = records[:limit], len(records) > limit
    turns = await turns_with_items(store, thread_id, page, params.items_view or "summary", running=running)
    return ThreadTurnsListResponse(
        data=tuple(turns),
        next_cursor=make_cursor(thread_id, "turns", page[-1].number) if more else None,
        backwards_cursor=make_cursor(thread_id, "turns", _before(page[0].number, descending)) if page else None,
    )


def _before(number: int, descending: bool) -> int:
    """The cursor from which a page in the other direction begins with this entry."""
    return number - 1 if descending else number + 1


async def list_items(store: Store, params: ThreadItemsListParams, running: OpenItems = NONE) -> ThreadItemsListResponse:
    """Oldest first unless asked otherwise. `running` is that of `list_turns`."""
    thread_id = params.thread_id
    turns = None
    if params.turn_id is not None:
        turn = await _find_turn(store, thread_id, params.turn_id)
        turns = (turn.number, turn.number)
    descending = params.sort_direction == "desc"
    after = await _items_after(store, thread_id, params.cursor, descending)
    limit = _limit(params.limit)
    records = await store.items(thread_id, turns=turns, after=after, limit=limit + 1, descending=descending)
    page, more = records[:limit], len(records) > limit
    known = await _turns_of(store, thread_id, page)
    return ThreadItemsListResponse(
        data=tuple(_entry(record, known[record.turn], running) for record in page),
        next_cursor=make_cursor(thread_id, "items", page[-1].number) if more else None,
        backwards_cursor=make_cursor(thread_id, "items", _before(page[0].number, descending)) if page else None,
    )


async def read_items(store: Store, params: ThreadItemsReadParams, running: OpenItems = NONE) -> ThreadItemsReadResponse:
    """Those that the turn has, in its order. `running` is that of `list_turns`."""
    if not 1 <= len(params.item_ids) <= MAX_READ:
        raise RpcError(INVALID_REQUEST, f"itemIds must contain 1 to {MAX_READ} IDs")
    turn = await store.turn(params.thread_id, params.turn_id)
    if turn is None:
        return ThreadItemsReadResponse(data=())
    wanted = frozenset(params.item_ids)
    # Not one by one: an id is that of a model or a client, and need not be the only one of its thread.
    records = await store.items(params.thread_id, turns=(turn.number, turn.number))
    return ThreadItemsReadResponse(
        data=tuple(_entry(record, turn, running) for record in records if record.id in wanted)
    )


async def _items_after(
    store: Store, thread_id: str, cursor: str | ItemThreadItemsListAnchor | None, descending: bool
) -> int | None:
    if not isinstance(cursor, ItemThreadItemsListAnchor):
        return read_cursor(cursor, thread_id, "items", descending=descending)
    found = await store.item(thread_id, cursor.item_id)
    if found is None:
        raise RpcError(INVALID_REQUEST, f"item not found: {cursor.item_id}")
    return _before(found.number, not descending)


async def _turns_of(store: Store, thread_id: str, page: list[ItemRecord]) -> dict[int, TurnRecord]:
    if not page:
        return {}
    numbers = [record.turn for record in page]
    first, last = min(numbers), max(numbers)
    turns = await store.turns(thread_id, after=first - 1, limit=last - first + 1)
    return {turn.number: turn for turn in turns}


def _entry(record: ItemRecord, turn: TurnRecord, running: OpenItems) -> ThreadItemEntry:
    return ThreadItemEntry(
        turn_id=turn.id,
        item=wire_item(record, turn, running),  # type: ignore[arg-type]
        started_at_ms=record.started_at_ms,
        completed_at_ms=record.completed_at_ms,
    )


async def _find_turn(store: Store, thread_id: str, turn_id: str) -> TurnRecord:
    turn = await store.turn(thread_id, turn_id)
    if turn is None:
        raise thread_refusals.turn_not_found(turn_id)
    return turn


# --- events ----------------------------------------------------------------------------------------------------------


async def list_events(
    store: Store, params: ThreadEventsListParams, thread: ThreadHandle | None
) -> ThreadEventsListResponse:
    """Of a thread in memory (`thread`) answered at its place among the events: when there is no more, what is not in
    the response is published after it."""
    page = await store.events(params.thread_id, params.after_seq, params.limit)
    if not page.last_seq:
        page = await _all_gone(store, params.thread_id)
    if params.after_seq > page.last_seq:
        raise thread_refusals.cursor_ahead(params.after_seq, page.last_seq)
    reached = page.events[-1].seq if page.events else max(params.after_seq, page.first_seq - 1)
    # What was published since the page was read is not in it: the client asks again.
    last = page.last_seq if thread is None else max(page.last_seq, thread.last_seq)
    more = reached < last
    result = ThreadEventsListResponse(
        data=tuple(Raw(event.frame) for event in page.events),
        first_seq=page.first_seq,
        last_seq=last,
        has_more=more,
        open_items=() if thread is None or more else thread.open_items(),
    )
    if thread is not None and not thread.is_broken:  # else nothing more comes, and the page is all there is
        await thread.published()
    return result


async def _all_gone(store: Store, thread_id: str) -> EventPage:
    """No event is left, which is not the same as that there were none."""
    loaded = await store.load(thread_id)
    last = 0 if loaded is None else loaded.counters.seq
    return EventPage([], last + 1 if last else 0, last)
