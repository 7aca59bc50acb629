"""Methods that page through, cut or add to what has happened in a thread."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw, structs

from treadle.agent.state import read_usage
from treadle.agent.thread import Thread
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.base import Empty
from treadle.protocol.app.thread_history import (
    ItemThreadItemsListAnchor,
    ThreadItemEntry,
    ThreadItemsListResponse,
    ThreadRevertResponse,
    ThreadRollbackResponse,
    ThreadTurnsListResponse,
)
from treadle.protocol.app.thread_notifications import ThreadRevertedNotification
from treadle.server import refusals
from treadle.server.app import AppServer
from treadle.server.client_base import Call
from treadle.server.thread_events import (
    MessageSearchHit,
    MessageSearchResponse,
    ThreadEventsListResponse,
)
from treadle.server.thread_pages import make_cursor, read_cursor, turns_with_items
from treadle.store.contract import CutTurns, EventPage, ItemRecord, Store, TurnRecord

DEFAULT_LIMIT: Final = 25
MAX_LIMIT: Final = 500


async def _store_of(server: AppServer, thread_id: str) -> Store:
    """Where a thread is kept, loaded or not. What was announced of it is there."""
    thread = server.threads.get(thread_id)
    if thread is not None:
        if thread.journal.busy:
            await thread.journal.flush()
        return thread.store
    store = await server.store()
    if await store.load(thread_id) is None:
        raise RpcError(INVALID_REQUEST, f"thread not loaded: {thread_id}")
    return store


def _limit(asked: int | None) -> int:
    return min(max(asked or DEFAULT_LIMIT, 1), MAX_LIMIT)


# --- pages -----------------------------------------------------------------------------------------------------------


async def list_turns(call: Call) -> ThreadTurnsListResponse:
    """Newest first unless asked otherwise."""
    params = call.params
    thread_id = refusals.check_thread_id(params.thread_id)
    store = await _store_of(call.server, thread_id)
    after = read_cursor(params.cursor, thread_id, "turns")
    limit = _limit(params.limit)
    descending = params.sort_direction != "asc"
    records = await store.turns(thread_id, after=after, limit=limit + 1, descending=descending)
    page, more = records[:limit], len(records) > limit
    turns = await turns_with_items(store, thread_id, page, params.items_view or "summary")
    return ThreadTurnsListResponse(
        data=tuple(turns),
        next_cursor=make_cursor(thread_id, "turns", page[-1].number) if more else None,
        backwards_cursor=make_cursor(thread_id, "turns", _before(page[0].number, descending)) if page else None,
    )


def _before(number: int, descending: bool) -> int:
    """The cursor from which a page in the other direction begins with this entry."""
    return number - 1 if descending else number + 1


async def list_items(call: Call) -> ThreadItemsListResponse:
    """Oldest first unless asked otherwise."""
    params = call.params
    thread_id = refusals.check_thread_id(params.thread_id)
    store = await _store_of(call.server, thread_id)
    turns = None
    if params.turn_id is not None:
        turn = await _find_turn(store, thread_id, params.turn_id)
        turns = (turn.number, turn.number)
    descending = params.sort_direction == "desc"
    after = await _items_after(store, thread_id, params.cursor, descending)
    limit = _limit(params.limit)
    records = await store.items(thread_id, turns=turns, after=after, limit=limit + 1, descending=descending)
    page, more = records[:limit], len(records) > limit
    names = await _turn_ids(store, thread_id, page)
    return ThreadItemsListResponse(
        data=tuple(_entry(record, names) for record in page),
        next_cursor=make_cursor(thread_id, "items", page[-1].number) if more else None,
        backwards_cursor=make_cursor(thread_id, "items", _before(page[0].number, descending)) if page else None,
    )


async def _items_after(
    store: Store, thread_id: str, cursor: str | ItemThreadItemsListAnchor | None, descending: bool
) -> int | None:
    if not isinstance(cursor, ItemThreadItemsListAnchor):
        return read_cursor(cursor, thread_id, "items")
    found = await store.item(thread_id, cursor.item_id)
    if found is None:
        raise RpcError(INVALID_REQUEST, f"item not found: {cursor.item_id}")
    return _before(found.number, not descending)


async def _turn_ids(store: Store, thread_id: str, page: list[ItemRecord]) -> dict[int, str]:
    if not page:
        return {}
    numbers = [record.turn for record in page]
    first, last = min(numbers), max(numbers)
    turns = await store.turns(thread_id, after=first - 1, limit=last - first + 1)
    return {turn.number: turn.id for turn in turns}


def _entry(record: ItemRecord, names: dict[int, str]) -> ThreadItemEntry:
    return ThreadItemEntry(
        turn_id=names[record.turn],
        item=Raw(record.data),  # type: ignore[arg-type]
        started_at_ms=record.started_at_ms,
        completed_at_ms=record.completed_at_ms,
    )


async def _find_turn(store: Store, thread_id: str, turn_id: str) -> TurnRecord:
    turn = await store.turn(thread_id, turn_id)
    if turn is None:
        raise RpcError(INVALID_REQUEST, f"turn not found: {turn_id}")
    return turn


# --- what was told ---------------------------------------------------------------------------------------------------


async def list_events(call: Call) -> None:
    """Answered in its place among the events: when there is no more, what is not in the response is told after it."""
    params, server = call.params, call.server
    thread_id = refusals.check_thread_id(params.thread_id)
    store = await _store_of(server, thread_id)
    page = await store.events(thread_id, params.after_seq, params.limit)
    if not page.last_seq:
        page = await _all_gone(store, thread_id)
    if params.after_seq > page.last_seq:
        raise refusals.cursor_ahead(params.after_seq, page.last_seq)
    data = tuple(Raw(event.frame) for event in page.events)
    reached = page.events[-1].seq if page.events else max(params.after_seq, page.first_seq - 1)
    thread = server.threads.get(thread_id)
    turn = None if thread is None else thread.turn
    # What was told since the page was read is not in it: the client asks again.
    last = page.last_seq if thread is None else max(page.last_seq, thread.journal.seq)
    more = reached < last
    result = ThreadEventsListResponse(
        data=data,
        first_seq=page.first_seq,
        last_seq=last,
        has_more=more,
        open_items=() if turn is None or more else tuple(turn.open_items()),
    )
    if thread is None or thread.journal.failure is not None:  # then nothing more comes, and the page is all there is
        call.reply(result)
    else:
        call.reply_when_kept(thread.journal, result)


async def _all_gone(store: Store, thread_id: str) -> EventPage:
    """No event is left, which is not the same as that there were none."""
    loaded = await store.load(thread_id)
    last = 0 if loaded is None else loaded.counters.seq
    return EventPage([], last + 1 if last else 0, last)


async def search(call: Call) -> MessageSearchResponse:
    store = await call.server.store()
    hits = await store.search(call.params.search_term, call.params.limit)
    return MessageSearchResponse(
        data=tuple(MessageSearchHit(thread_id=hit.thread_id, item_id=hit.item_id, snippet=hit.snippet) for hit in hits)
    )


# --- cutting and adding ----------------------------------------------------------------------------------------------


async def revert(call: Call) -> None:
    """The thread is again as it was before a turn."""
    params, server = call.params, call.server
    thread = server.threads.find(params.thread_id)
    async with thread.lock:
        call.server.threads.check_loaded(thread)
        turn = await _find_turn(thread.store, thread.id, params.before_turn_id)
        await _cut(thread, turn.number, "Cannot revert while a turn is in progress.")
        last = thread.counters.turn
        call.reply(
            ThreadRevertResponse(
                thread=thread.wire(),
                turns_backwards_cursor=make_cursor(thread.id, "turns", last + 1) if last else None,
                items_backwards_cursor=make_cursor(thread.id, "items", thread.counters.item + 1) if last else None,
            )
        )
        await _tell_reverted(thread)


async def rollback(call: Call) -> None:
    """The last turns are dropped."""
    params, server = call.params, call.server
    thread = server.threads.find(params.thread_id)
    if params.num_turns < 1:
        raise RpcError(INVALID_REQUEST, "numTurns must be >= 1")
    async with thread.lock:
        call.server.threads.check_loaded(thread)
        first = max(1, thread.counters.turn - params.num_turns + 1)
        await _cut(thread, first, "Cannot rollback while a turn is in progress.")
        records = await thread.store.turns(thread.id)
        turns = await turns_with_items(thread.store, thread.id, records)
        call.reply(ThreadRollbackResponse(thread=thread.wire(turns)))
        await _tell_reverted(thread)


async def _cut(thread: Thread, first: int, refusal: str) -> None:
    if thread.turn is not None:
        raise RpcError(INVALID_REQUEST, refusal)
    await thread.acquire()
    try:
        before = await thread.store.turns(thread.id, after=first, limit=1, descending=True)
        usage = read_usage(before[0].usage if before else None, thread.store.location)
        thread.state = structs.replace(thread.state, usage=usage)
        thread.journal.write(CutTurns(thread.id, first), thread.save())
        await thread.journal.flush()
        loaded = await thread.store.load(thread.id)
        assert loaded is not None
        thread.counters = loaded.counters
        thread.history = None
    finally:
        thread.release()


async def _tell_reverted(thread: Thread) -> None:
    await thread.acquire()
    thread.journal.emit("thread/reverted", ThreadRevertedNotification(thread_id=thread.id))
    thread.release()


async def inject_items(call: Call) -> Empty:
    params, server = call.params, call.server
    thread = server.threads.find(params.thread_id)
    for item in params.items:
        if not isinstance(item, dict) or not isinstance(item.get("type"), str):
            raise RpcError(INVALID_REQUEST, "items must be objects of the Responses API, each with a `type`")
    async with thread.lock:
        call.server.threads.check_loaded(thread)
        await thread.acquire()
        try:
            await thread.load_history()
            raws = [Raw(msgspec.json.encode(item)) for item in params.items]
            number = thread.turn.number if thread.turn is not None else thread.counters.turn
            thread.journal.write(*thread.remember(raws, number))
            await thread.journal.flush()
        finally:
            thread.release()
    return Empty()
