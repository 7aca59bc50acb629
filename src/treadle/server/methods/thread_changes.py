"""What happens to threads as a whole: archived, removed, renamed, set differently."""

from __future__ import annotations

from typing import Any, Final

from msgspec import UnsetType, structs

from treadle.agent.event import Event
from treadle.agent.ids import now_ms
from treadle.agent.state import State, read_state
from treadle.agent.thread import wire_thread
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.base import Empty
from treadle.protocol.app.thread_methods import (
    ThreadMetadataUpdateResponse,
    ThreadUnarchiveResponse,
    ThreadUnsubscribeResponse,
)
from treadle.protocol.app.thread_notifications import (
    ThreadArchivedNotification,
    ThreadDeletedNotification,
    ThreadNameUpdatedNotification,
    ThreadStatusChangedNotification,
    ThreadUnarchivedNotification,
)
from treadle.protocol.app.threads import GitInfo, NotLoadedThreadStatus
from treadle.server import refusals
from treadle.server.app import AppServer
from treadle.server.client_base import Call
from treadle.server.loaded_threads import claim_stored
from treadle.server.thread_settings import setting_changes
from treadle.store.contract import (
    DeleteThread,
    Release,
    Store,
)

SOURCE: Final = "vscode"
# A client that resumes gets the newest turns; the others are a page away.
RESUMED_TURNS: Final = 100


# --- away and back ---------------------------------------------------------------------------------------------------


async def archive(call: Call) -> None:
    server = call.server
    thread_id = refusals.check_thread_id(call.params.thread_id)
    thread = server.threads.get(thread_id)
    if thread is not None and thread.ephemeral:  # it would be lost: only stored threads are found again
        raise refusals.no_rollout(thread_id)
    async with server.threads.alone(thread_id):
        store = await _put_away(server, thread_id)
        loaded = await claim_stored(store, thread_id)
        # Where else would it be found again?
        record = structs.replace(loaded.record, archived=True, listed=True)
        changes = [] if loaded.record.archived else [record]
        await store.commit(thread_id, loaded.fence, [*changes, Release(thread_id)])
    if loaded.record.archived:
        raise refusals.no_rollout(thread_id)
    if thread is not None:
        _tell_unloaded(server, thread_id)
    call.reply(Empty())
    server.broadcast(Event("thread/archived", ThreadArchivedNotification(thread_id=thread_id), None, now_ms()))


async def _put_away(server: AppServer, thread_id: str) -> Store:
    """Unload a thread if it is loaded; where it is kept. Under `alone`."""
    thread = server.threads.get(thread_id)
    if thread is None:
        return await server.store()
    async with thread.lock:
        if thread.turn is None:
            await thread.acquire()  # it stays as it is when another server works on it
            thread.release()
        await server.threads.unload(thread)
        if thread.journal.busy:
            await thread.journal.flush()
        return thread.store


def _tell_unloaded(server: AppServer, thread_id: str) -> None:
    params = ThreadStatusChangedNotification(thread_id=thread_id, status=NotLoadedThreadStatus())
    server.broadcast(Event("thread/status/changed", params, None, now_ms()))


async def unarchive(call: Call) -> None:
    server = call.server
    thread_id = refusals.check_thread_id(call.params.thread_id)
    store = await server.store()
    async with server.threads.alone(thread_id):
        found = await store.load(thread_id)
        if found is None or not found.record.archived:
            raise RpcError(INVALID_REQUEST, f"no archived rollout found for thread id {thread_id}")
        loaded = await claim_stored(store, thread_id)
        listed = loaded.record.name is not None or loaded.counters.turn > 0
        record = structs.replace(loaded.record, archived=False, listed=listed, updated_at=now_ms())
        await store.commit(thread_id, loaded.fence, [record, Release(thread_id)])
    state = read_state(record.state, store.location)
    wire = wire_thread(record, state, NotLoadedThreadStatus(), location=store.location)
    call.reply(ThreadUnarchiveResponse(thread=wire))
    params = ThreadUnarchivedNotification(thread_id=thread_id)
    server.broadcast(Event("thread/unarchived", params, None, now_ms()))


async def delete(call: Call) -> None:
    server = call.server
    thread_id = refusals.check_thread_id(call.params.thread_id)
    async with server.threads.alone(thread_id):
        was_loaded = server.threads.get(thread_id) is not None
        store = await _put_away(server, thread_id)
        loaded = await claim_stored(store, thread_id)
        await store.commit(thread_id, loaded.fence, [DeleteThread(thread_id)])
    if was_loaded:
        _tell_unloaded(server, thread_id)
    call.reply(Empty())
    server.broadcast(Event("thread/deleted", ThreadDeletedNotification(thread_id=thread_id), None, now_ms()))


async def unsubscribe(call: Call) -> ThreadUnsubscribeResponse:
    server = call.server
    thread = server.threads.get(refusals.check_thread_id(call.params.thread_id))
    if thread is None:
        return ThreadUnsubscribeResponse(status="notLoaded")
    found = server.threads.unsubscribe(call.client, thread)
    return ThreadUnsubscribeResponse(status="unsubscribed" if found else "notSubscribed")


# --- changes ---------------------------------------------------------------------------------------------------------


async def set_name(call: Call) -> None:
    params, server = call.params, call.server
    thread_id = refusals.check_thread_id(params.thread_id)
    name = params.name.strip()
    if not name:
        raise RpcError(INVALID_REQUEST, "thread name must not be empty")
    told = ThreadNameUpdatedNotification(thread_id=thread_id, thread_name=name)
    async with server.threads.alone(thread_id):
        thread = server.threads.get(thread_id)
        if thread is None:
            store = await server.store()
            loaded = await claim_stored(store, thread_id)
            record = structs.replace(loaded.record, name=name, listed=True)
            await store.commit(thread_id, loaded.fence, [record, Release(thread_id)])
            call.reply(Empty())
            server.broadcast(Event("thread/name/updated", told, None, now_ms()))
            return
    if thread.ephemeral:
        raise refusals.no_metadata(thread_id)
    async with thread.lock:
        call.server.threads.check_loaded(thread)
        await thread.acquire()
        try:
            thread.journal.write(thread.save(name=name, listed=True))
            call.reply_when_kept(thread.journal, Empty())
            thread.journal.emit("thread/name/updated", told)
        finally:
            thread.release()


async def update_metadata(call: Call) -> ThreadMetadataUpdateResponse:
    params, server = call.params, call.server
    thread_id = refusals.check_thread_id(params.thread_id)
    async with server.threads.alone(thread_id):
        thread = server.threads.get(thread_id)
        if thread is None:
            store = await server.store()
            loaded = await claim_stored(store, thread_id)
            try:
                state = _with_git_info(read_state(loaded.record.state, store.location), params.git_info)
            except RpcError:
                await store.commit(thread_id, loaded.fence, [Release(thread_id)])
                raise
            record = structs.replace(loaded.record, state=state.encoded())
            await store.commit(thread_id, loaded.fence, [record, Release(thread_id)])
            wire = wire_thread(record, state, NotLoadedThreadStatus(), location=store.location)
            return ThreadMetadataUpdateResponse(thread=wire)
    if thread.ephemeral:
        raise refusals.no_metadata(thread_id)
    async with thread.lock:
        call.server.threads.check_loaded(thread)
        await thread.acquire()
        try:
            thread.state = _with_git_info(thread.state, params.git_info)
            thread.journal.write(thread.save())
            await thread.journal.flush()
        finally:
            thread.release()
    return ThreadMetadataUpdateResponse(thread=thread.wire())


def _with_git_info(state: State, changes: Any) -> State:
    if changes is None:
        raise RpcError(INVALID_REQUEST, "gitInfo must include at least one field")
    given = {name: getattr(changes, name) for name in ("branch", "origin_url", "sha")}
    given = {name: value for name, value in given.items() if not isinstance(value, UnsetType)}
    if not given:
        raise RpcError(INVALID_REQUEST, "gitInfo must include at least one field")
    return structs.replace(state, git_info=structs.replace(state.git_info or GitInfo(), **given))


async def update_settings(call: Call) -> None:
    params, server = call.params, call.server
    thread = server.threads.find(params.thread_id)
    async with thread.lock:
        call.server.threads.check_loaded(thread)
        await thread.acquire()
        try:
            changes = setting_changes(params, thread.settings.cwd)
            pins = await thread.look_at_roots(changes)
            thread.journal.write(thread.save())
            call.reply_when_kept(thread.journal, Empty())
            thread.change_settings(changes, pins)
        finally:
            thread.release()
