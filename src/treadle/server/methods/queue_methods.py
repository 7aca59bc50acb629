"""`thread/queue/*`: messages that wait for a thread to have no turn running."""

from __future__ import annotations

from functools import partial
from typing import Final, TypeVar

from treadle.agent import thread_queue
from treadle.agent.stored_thread import StoredThread
from treadle.agent.thread_refusals import no_rollout
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.base import Empty
from treadle.protocol.app.queue import (
    ThreadQueueAddParams,
    ThreadQueueAddResponse,
    ThreadQueueDeleteParams,
    ThreadQueueDeleteResponse,
    ThreadQueueListParams,
    ThreadQueueListResponse,
    ThreadQueueReorderParams,
    ThreadQueueStartParams,
    ThreadQueueStartResponse,
    ThreadQueueUpdateParams,
    ThreadQueueUpdateResponse,
)
from treadle.server.app import AppServer
from treadle.server.client_base import Call
from treadle.server.refusals import check_thread_id

DEFAULT_LIMIT: Final = 25

T = TypeVar("T")


async def add(call: Call[ThreadQueueAddParams]) -> ThreadQueueAddResponse:
    thread_id = check_thread_id(call.params.thread_id)
    change = partial(thread_queue.added, call.params, thread_id)
    return ThreadQueueAddResponse(queued_submission=await _change(call.server, thread_id, change))


async def update(call: Call[ThreadQueueUpdateParams]) -> ThreadQueueUpdateResponse:
    change = partial(thread_queue.updated, call.params)
    return ThreadQueueUpdateResponse(queued_submission=await _change(call.server, call.params.thread_id, change))


async def delete(call: Call[ThreadQueueDeleteParams]) -> ThreadQueueDeleteResponse:
    change = partial(thread_queue.deleted, call.params)
    return ThreadQueueDeleteResponse(deleted=await _change(call.server, call.params.thread_id, change))


async def reorder(call: Call[ThreadQueueReorderParams]) -> Empty:
    await _change(call.server, call.params.thread_id, partial(thread_queue.reordered, call.params))
    return Empty()


async def _change(server: AppServer, thread_id: str, change: thread_queue.QueueChange[T]) -> T:
    threads = server.threads
    thread_id = check_thread_id(thread_id)
    async with threads.alone(thread_id):  # nobody loads it between the look and the write
        thread = await threads.find_or_stored(thread_id)
        if isinstance(thread, StoredThread):
            return await thread.change_queue(change)
    return await thread.change_queue(change)


async def list_queued(call: Call[ThreadQueueListParams]) -> ThreadQueueListResponse:
    params = call.params
    thread = await call.server.threads.find_or_stored(check_thread_id(params.thread_id))
    waiting = await thread.queued()
    start = _offset(params.cursor)
    end = start + max(1, DEFAULT_LIMIT if params.limit is None else params.limit)
    page = tuple(thread_queue.submission_of(record) for record in waiting[start:end])
    return ThreadQueueListResponse(data=page, next_cursor=str(end) if end < len(waiting) else None)


def _offset(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 20):
        raise RpcError(INVALID_REQUEST, f"invalid queue pagination cursor: {cursor[:200]}")
    return int(cursor)


async def start(call: Call[ThreadQueueStartParams]) -> ThreadQueueStartResponse:
    threads = call.server.threads
    thread_id = check_thread_id(call.params.thread_id)
    thread = await threads.find_or_stored(thread_id)
    if isinstance(thread, StoredThread):
        if await thread.load() is None:
            raise no_rollout(thread_id)
        raise RpcError(INVALID_REQUEST, "resume the thread before starting a queued message")
    threads.check_open()
    return ThreadQueueStartResponse(turn=await thread.start_queued(call.params.queued_submission_id))
