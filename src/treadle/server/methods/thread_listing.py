"""Finding threads and looking at them, without loading them: lists of threads, turns, items and events."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Final, cast

from msgspec import structs

from treadle.agent.thread import thread_reading
from treadle.agent.thread.stored_thread import StoredThread
from treadle.agent.thread.thread import wire_thread
from treadle.agent.thread.thread_making import CHILD_SOURCE
from treadle.agent.thread.thread_reading import turns_with_items
from treadle.agent.thread.thread_refusals import not_loaded
from treadle.agent.thread.thread_state import read_state
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.ours import (
    ThreadEventsListParams,
    ThreadEventsListResponse,
)
from treadle.protocol.app.thread_history import (
    ThreadItemsListParams,
    ThreadItemsListResponse,
    ThreadItemsReadParams,
    ThreadItemsReadResponse,
    ThreadTurnsListParams,
    ThreadTurnsListResponse,
)
from treadle.protocol.app.thread_methods import (
    ThreadListParams,
    ThreadListResponse,
    ThreadLoadedListParams,
    ThreadLoadedListResponse,
    ThreadReadParams,
    ThreadReadResponse,
)
from treadle.protocol.app.threads import NotLoadedThreadStatus
from treadle.protocol.app.threads import Thread as WireThread
from treadle.server.app import AppServer
from treadle.server.clients import ServerCall
from treadle.server.routes import check_thread_id
from treadle.store.contract import SortKey, Store, StoreError, ThreadCursor, ThreadQuery, ThreadRecord

logger: logging.Logger = logging.getLogger(__name__)

DEFAULT_LIMIT: Final = 25
MAX_LIMIT: Final = 100
INTERACTIVE: Final = ("cli", "vscode")


async def list_threads(call: ServerCall[ThreadListParams]) -> ThreadListResponse:
    params, server = call.params, call.server
    if params.section_id is not None:
        return ThreadListResponse(data=())  # no thread is in a section
    store = await server.store()
    cwds = (params.cwd,) if isinstance(params.cwd, str) else params.cwd
    key = params.sort_key or "created_at"
    if key == "section_position":
        raise RpcError(INVALID_REQUEST, "section-position sorting requires a section filter")
    query = ThreadQuery(
        limit=page_limit(params.limit),
        sort_key=cast("SortKey", key),  # params have no other
        descending=params.sort_direction != "asc",
        after=read_thread_cursor(params.cursor),
        archived=bool(params.archived),
        cwds=cwds or (),
        model_providers=params.model_providers or (),
        sources=sources_of(params.source_kinds, default=() if params.parent_thread_id else INTERACTIVE),
        originators=params.originators or (),
        parent=params.parent_thread_id,
        excluded_ids=params.excluded_thread_ids or (),
        search=params.search_term or None,
    )
    page = await store.threads(query)
    data = tuple(wire for record in page.threads if (wire := wire_if_sound(server, store, record)) is not None)
    last, first = (page.threads[-1], page.threads[0]) if page.threads else (None, None)
    return ThreadListResponse(
        data=data,
        next_cursor=thread_cursor(last, query.sort_key) if page.more and last is not None else None,
        backwards_cursor=thread_cursor(first, query.sort_key) if first is not None else None,
    )


def sources_of(kinds: tuple[str, ...] | None, default: tuple[str, ...] = INTERACTIVE) -> tuple[str, ...]:
    """The sources that kinds stand for, as they are stored. Sub-agents are left out unless they are asked for."""
    if not kinds:
        return default
    return (*kinds, CHILD_SOURCE) if "subAgent" in kinds else kinds


def page_limit(asked: int | None) -> int:
    return min(max(asked or DEFAULT_LIMIT, 1), MAX_LIMIT)


def thread_cursor(record: ThreadRecord, key: SortKey) -> str:
    """A time in the usual notation, and the id that breaks ties."""
    milliseconds: int = getattr(record, key)
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return f"{moment.strftime('%Y-%m-%dT%H:%M:%S')}.{milliseconds % 1000:03}Z|{record.id}"


def read_thread_cursor(text: str | None) -> ThreadCursor | None:
    if text is None:
        return None
    stamp, _, thread_id = text.partition("|")
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        raise RpcError(INVALID_REQUEST, f"invalid cursor: {text[:200]}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return ThreadCursor(round(moment.timestamp() * 1000), thread_id)


def wire_if_sound(server: AppServer, store: Store, record: ThreadRecord) -> WireThread | None:
    """The thread for a list. One that is damaged must not hide the others; whoever asks for it gets the error."""
    thread = server.threads.get(record.id)
    status = NotLoadedThreadStatus() if thread is None else thread.status
    try:
        return wire_thread(record, read_state(record.state, store.location), status, location=store.location)
    except StoreError as error:
        logger.warning("thread %s is left out of the list: %s", record.id, error)
        return None


def list_loaded(call: ServerCall[ThreadLoadedListParams]) -> ThreadLoadedListResponse:
    params = call.params
    ids = call.server.threads.ids()
    start = 0
    if params.cursor is not None:
        if params.cursor not in ids:
            raise RpcError(INVALID_REQUEST, f"invalid cursor: {params.cursor[:200]}")
        start = ids.index(params.cursor) + 1
    end = len(ids) if params.limit is None else start + max(params.limit, 1)
    page = tuple(ids[start:end])
    return ThreadLoadedListResponse(data=page, next_cursor=page[-1] if end < len(ids) else None)


async def read(call: ServerCall[ThreadReadParams]) -> ThreadReadResponse:
    thread_id = check_thread_id(call.params.thread_id)
    thread = await call.server.threads.find_or_stored(thread_id)
    if isinstance(thread, StoredThread):
        loaded = await thread.load()
        if loaded is None:
            raise not_loaded(thread_id)
        wire = thread.wire(loaded.record)
    else:
        wire = thread.wire()
        if thread.ephemeral and call.params.include_turns:
            raise RpcError(INVALID_REQUEST, "ephemeral threads do not support includeTurns")
    if call.params.include_turns:
        threads = call.server.threads
        store = await threads.store_of(wire.id)
        live = threads.get(wire.id)
        running = None if live is None else live.running_turn()
        records = [record for record in await store.turns(wire.id) if running is None or record.id != running.id]
        turns = await turns_with_items(store, wire.id, records, running=threads.running_items(wire.id))
        if running is not None:
            now = None if live is None else live.running_turn()
            turns.append(now if now is not None and now.id == running.id else running)
        wire = structs.replace(wire, turns=tuple(turns))
    return ThreadReadResponse(thread=wire)


# --- the contents of a thread ----------------------------------------------------------------------------------------


async def list_turns(call: ServerCall[ThreadTurnsListParams]) -> ThreadTurnsListResponse:
    params = structs.replace(call.params, thread_id=check_thread_id(call.params.thread_id))
    store = await call.server.threads.store_of(params.thread_id)
    return await thread_reading.list_turns(store, params, call.server.threads.running_items(params.thread_id))


async def list_items(call: ServerCall[ThreadItemsListParams]) -> ThreadItemsListResponse:
    params = structs.replace(call.params, thread_id=check_thread_id(call.params.thread_id))
    store = await call.server.threads.store_of(params.thread_id)
    return await thread_reading.list_items(store, params, call.server.threads.running_items(params.thread_id))


async def read_items(call: ServerCall[ThreadItemsReadParams]) -> ThreadItemsReadResponse:
    params = structs.replace(call.params, thread_id=check_thread_id(call.params.thread_id))
    store = await call.server.threads.store_of(params.thread_id)
    return await thread_reading.read_items(store, params, call.server.threads.running_items(params.thread_id))


async def list_events(call: ServerCall[ThreadEventsListParams]) -> ThreadEventsListResponse:
    threads = call.server.threads
    params = structs.replace(call.params, thread_id=check_thread_id(call.params.thread_id))
    store = await threads.store_of(params.thread_id)
    return await thread_reading.list_events(store, params, threads.get(params.thread_id))
