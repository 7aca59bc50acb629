"""Methods that change a thread: its name, metadata, settings, what has happened in it, and the messages that wait until
no turn runs (`thread/queue/*`).
"""

from __future__ import annotations

from functools import partial
from typing import Final, TypeVar

from treadle.agent.event import Event, now_ms
from treadle.agent.thread import thread_queue
from treadle.agent.thread.stored_thread import StoredThread
from treadle.agent.thread.thread_refusals import no_rollout
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.base import Empty
from treadle.protocol.app.notifications import ThreadNameUpdatedNotification
from treadle.protocol.app.settings import ThreadSettingsUpdateParams
from treadle.protocol.app.thread_history import (
    ThreadInjectItemsParams,
    ThreadRevertParams,
    ThreadRevertResponse,
    ThreadRollbackParams,
    ThreadRollbackResponse,
)
from treadle.protocol.app.thread_methods import (
    ThreadMetadataUpdateParams,
    ThreadMetadataUpdateResponse,
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
    ThreadSetNameParams,
)
from treadle.server.app import AppServer
from treadle.server.clients import ServerCall
from treadle.server.routes import check_thread_id


async def set_name(call: ServerCall[ThreadSetNameParams]) -> Empty:
    threads = call.server.threads
    thread_id = check_thread_id(call.params.thread_id)
    name = call.params.name.strip()
    if not name:
        raise RpcError(INVALID_REQUEST, "thread name must not be empty")
    async with threads.alone(thread_id):
        thread = await threads.find_or_stored(thread_id)
        if isinstance(thread, StoredThread):
            await thread.set_name(name)
            params = ThreadNameUpdatedNotification(thread_id=thread_id, thread_name=name)
            event = Event("thread/name/updated", params, None, now_ms())
            call.afterwards(lambda: call.server.broadcast(event))
            return Empty()
    await thread.set_name(name)
    return Empty()


async def update_metadata(call: ServerCall[ThreadMetadataUpdateParams]) -> ThreadMetadataUpdateResponse:
    threads = call.server.threads
    thread_id = check_thread_id(call.params.thread_id)
    async with threads.alone(thread_id):
        thread = await threads.find_or_stored(thread_id)
        if isinstance(thread, StoredThread):
            return ThreadMetadataUpdateResponse(thread=await thread.update_metadata(call.params.git_info))
    return ThreadMetadataUpdateResponse(thread=await thread.update_metadata(call.params.git_info))


async def update_settings(call: ServerCall[ThreadSettingsUpdateParams]) -> Empty:
    await call.server.threads.find(call.params.thread_id).change_settings(call.params)
    return Empty()


async def revert(call: ServerCall[ThreadRevertParams]) -> ThreadRevertResponse:
    return await call.server.threads.find(call.params.thread_id).revert(call.params)


async def rollback(call: ServerCall[ThreadRollbackParams]) -> ThreadRollbackResponse:
    return await call.server.threads.find(call.params.thread_id).rollback(call.params)


async def inject_items(call: ServerCall[ThreadInjectItemsParams]) -> Empty:
    await call.server.threads.find(call.params.thread_id).inject_items(call.params)
    return Empty()


# --- thread/queue/* ---------------------------------------------------------------------------------------------------


DEFAULT_LIMIT: Final = 25
T = TypeVar("T")


async def add_queued(call: ServerCall[ThreadQueueAddParams]) -> ThreadQueueAddResponse:
    thread_id = check_thread_id(call.params.thread_id)
    change = partial(thread_queue.added, call.params, thread_id)
    return ThreadQueueAddResponse(queued_submission=await _change_queue(call.server, thread_id, change))


async def update_queued(call: ServerCall[ThreadQueueUpdateParams]) -> ThreadQueueUpdateResponse:
    change = partial(thread_queue.updated, call.params)
    return ThreadQueueUpdateResponse(queued_submission=await _change_queue(call.server, call.params.thread_id, change))


async def delete_queued(call: ServerCall[ThreadQueueDeleteParams]) -> ThreadQueueDeleteResponse:
    change = partial(thread_queue.deleted, call.params)
    return ThreadQueueDeleteResponse(deleted=await _change_queue(call.server, call.params.thread_id, change))


async def reorder_queue(call: ServerCall[ThreadQueueReorderParams]) -> Empty:
    await _change_queue(call.server, call.params.thread_id, partial(thread_queue.reordered, call.params))
    return Empty()


async def _change_queue(server: AppServer, thread_id: str, change: thread_queue.QueueChange[T]) -> T:
    threads = server.threads
    thread_id = check_thread_id(thread_id)
    async with threads.alone(thread_id):  # nobody loads it between the look and the write
        thread = await threads.find_or_stored(thread_id)
        if isinstance(thread, StoredThread):
            return await thread.change_queue(change)
    return await thread.change_queue(change)


async def list_queued(call: ServerCall[ThreadQueueListParams]) -> ThreadQueueListResponse:
    params = call.params
    thread = await call.server.threads.find_or_stored(check_thread_id(params.thread_id))
    waiting = await thread.queued()
    cursor = "0" if params.cursor is None else params.cursor
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 20):
        raise RpcError(INVALID_REQUEST, f"invalid queue pagination cursor: {cursor[:200]}")
    start = int(cursor)
    end = start + max(1, DEFAULT_LIMIT if params.limit is None else params.limit)
    page = tuple(thread_queue.submission_of(record) for record in waiting[start:end])
    return ThreadQueueListResponse(data=page, next_cursor=str(end) if end < len(waiting) else None)


async def start_queued(call: ServerCall[ThreadQueueStartParams]) -> ThreadQueueStartResponse:
    threads = call.server.threads
    thread_id = check_thread_id(call.params.thread_id)
    thread = await threads.find_or_stored(thread_id)
    if isinstance(thread, StoredThread):
        if await thread.load() is None:
            raise no_rollout(thread_id)
        raise RpcError(INVALID_REQUEST, "resume the thread before starting a queued message")
    threads.check_open()
    return ThreadQueueStartResponse(turn=await thread.start_queued(call.params.queued_submission_id))
