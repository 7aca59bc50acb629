"""Methods that change a thread: its name, metadata, settings, and what has happened in it."""

from __future__ import annotations

from treadle.agent.event import Event
from treadle.agent.ids import now_ms
from treadle.agent.stored_thread import StoredThread
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.base import Empty
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
    ThreadSetNameParams,
)
from treadle.protocol.app.thread_notifications import ThreadNameUpdatedNotification
from treadle.server.client_base import Call
from treadle.server.refusals import check_thread_id


async def set_name(call: Call[ThreadSetNameParams]) -> Empty:
    threads = call.server.threads
    thread_id = check_thread_id(call.params.thread_id)
    name = call.params.name.strip()
    if not name:
        raise RpcError(INVALID_REQUEST, "thread name must not be empty")
    async with threads.alone(thread_id):
        thread = await threads.find_or_stored(thread_id)
        if isinstance(thread, StoredThread):
            await thread.set_name(name)
            told = ThreadNameUpdatedNotification(thread_id=thread_id, thread_name=name)
            event = Event("thread/name/updated", told, None, now_ms())
            call.afterwards(lambda: call.server.broadcast(event))
            return Empty()
    await thread.set_name(name)
    return Empty()


async def update_metadata(call: Call[ThreadMetadataUpdateParams]) -> ThreadMetadataUpdateResponse:
    threads = call.server.threads
    thread_id = check_thread_id(call.params.thread_id)
    async with threads.alone(thread_id):
        thread = await threads.find_or_stored(thread_id)
        if isinstance(thread, StoredThread):
            return ThreadMetadataUpdateResponse(thread=await thread.update_metadata(call.params.git_info))
    return ThreadMetadataUpdateResponse(thread=await thread.update_metadata(call.params.git_info))


async def update_settings(call: Call[ThreadSettingsUpdateParams]) -> Empty:
    await call.server.threads.find(call.params.thread_id).change_settings(call.params)
    return Empty()


async def revert(call: Call[ThreadRevertParams]) -> ThreadRevertResponse:
    return await call.server.threads.find(call.params.thread_id).revert(call.params)


async def rollback(call: Call[ThreadRollbackParams]) -> ThreadRollbackResponse:
    return await call.server.threads.find(call.params.thread_id).rollback(call.params)


async def inject_items(call: Call[ThreadInjectItemsParams]) -> Empty:
    await call.server.threads.find(call.params.thread_id).inject_items(call.params)
    return Empty()
