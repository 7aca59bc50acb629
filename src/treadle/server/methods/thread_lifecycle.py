"""How threads come into memory and leave it: `thread/start`, `resume`, `fork`, `archive`, `unarchive`, `delete`."""

from __future__ import annotations

import asyncio

from msgspec import Struct, structs

from treadle.agent.event import Event, now_ms
from treadle.agent.thread import thread_refusals
from treadle.agent.thread.stored_thread import StoredThread
from treadle.agent.thread.thread_handle import ThreadHandle
from treadle.agent.thread.thread_making import fork_thread, load_thread, make_thread, settings_in_use
from treadle.agent.thread.thread_reading import ThreadView
from treadle.protocol.app.base import Empty
from treadle.protocol.app.notifications import (
    ThreadArchivedNotification,
    ThreadDeletedNotification,
    ThreadStatusChangedNotification,
    ThreadUnarchivedNotification,
)
from treadle.protocol.app.ours import OurResumeResponse
from treadle.protocol.app.thread_methods import (
    ThreadArchiveParams,
    ThreadDeleteParams,
    ThreadForkParams,
    ThreadForkResponse,
    ThreadResumeParams,
    ThreadStartParams,
    ThreadStartResponse,
    ThreadUnarchiveParams,
    ThreadUnarchiveResponse,
    ThreadUnsubscribeParams,
    ThreadUnsubscribeResponse,
)
from treadle.protocol.app.threads import NotLoadedThreadStatus
from treadle.protocol.app.turns import ReviewStartParams
from treadle.server.app import AppServer
from treadle.server.child_threads import stored_below
from treadle.server.clients import Client, ServerCall
from treadle.server.loaded_threads import ThreadSubscribers
from treadle.server.methods.initialize import config_warning
from treadle.server.routes import check_thread_id
from treadle.store.contract import ThreadRecord


async def start(call: ServerCall[ThreadStartParams]) -> ThreadStartResponse:
    server = call.server
    server.threads.check_open()
    subscribers = ThreadSubscribers(server)
    thread, settings = await make_thread(server, call.params, call.client.name, subscribers)
    await _start_required_mcp(thread)
    result = ThreadStartResponse(thread=thread.wire(), **settings)
    await _publish_started(call.client, thread, subscribers)
    call.afterwards(thread.publish_mcp)
    _warn_of_unknown(call)
    return result


async def _start_required_mcp(thread: ThreadHandle) -> None:
    """A thread that cannot have what it requires is none. Raises `RpcError`."""
    try:
        await thread.start_required_mcp()
    except BaseException:
        await thread.close()
        raise


def _warn_of_unknown(
    call: ServerCall[ThreadStartParams] | ServerCall[ThreadResumeParams] | ServerCall[ThreadForkParams],
) -> None:
    """Settings of the request that nobody knows have no effect."""
    if call.params.config:
        for warning in call.server.latest_config.unknown_in_thread(call.params.config):
            call.client.notify(config_warning(warning))


async def _publish_started(client: Client, thread: ThreadHandle, subscribers: ThreadSubscribers) -> None:
    """A new thread becomes known to clients. One that cannot be stored is none."""
    threads = client.server.threads
    threads.add(thread, subscribers)
    threads.subscribe(client, thread)
    try:
        await thread.publish_started()
    except BaseException:
        threads.drop(thread)
        raise


async def resume(call: ServerCall[ThreadResumeParams]) -> OurResumeResponse:
    server, threads = call.server, call.server.threads
    thread_id = check_thread_id(call.params.thread_id, "session")
    params = structs.replace(call.params, thread_id=thread_id)
    async with threads.alone(thread_id):  # to the end: who unloads it waits
        thread = threads.get(thread_id)
        is_fresh = thread is None
        if thread is not None:
            if params != ThreadResumeParams(thread_id=thread_id, exclude_turns=params.exclude_turns):
                await thread.override_settings(params)
        else:
            subscribers = ThreadSubscribers(server)
            thread = await load_thread(server, params, subscribers)
            await _start_required_mcp(thread)
            threads.add(thread, subscribers)
        settings = await settings_in_use(server, thread.settings)
        view = await thread.view(with_turns=not params.exclude_turns, is_fresh=is_fresh)
        _warn_of_unknown(call)
        call.afterwards(lambda: _join(call.client, thread, view, is_fresh=is_fresh))
        return OurResumeResponse(
            thread=view.thread,
            seq=view.seq,
            epoch=view.epoch,
            collaboration_mode=view.settings.collaboration_mode,
            turns_backwards_cursor=view.turns_cursor,
            items_backwards_cursor=view.items_cursor,
            **settings,
        )


def _join(client: Client, thread: ThreadHandle, view: ThreadView, *, is_fresh: bool) -> None:
    client.server.threads.subscribe(client, thread)
    _notify_all(client, view.news)
    if is_fresh:
        thread.publish_mcp()
    below = (child for each in client.server.threads.below(thread.id) if (child := client.server.threads.get(each)))
    for request in (*view.requests, *(request for child in below for request in child.open_requests())):
        if client.may_answer(request):
            client.send_request(request)
    thread.send_queued()
    thread.wake()


async def fork(call: ServerCall[ThreadForkParams]) -> ThreadForkResponse:
    server = call.server
    server.threads.check_open()
    params = structs.replace(call.params, thread_id=check_thread_id(call.params.thread_id))
    subscribers = ThreadSubscribers(server)
    source = server.threads.get(params.thread_id)
    thread = await fork_thread(server, params, call.client.name, subscribers, source)
    try:
        await _start_required_mcp(thread)
    except BaseException:
        await StoredThread(await thread.unload(), thread.id).delete()  # it is stored already, and nobody knows it
        raise
    settings = await settings_in_use(server, thread.settings)
    turns = () if params.exclude_turns else await thread.recent_turns()
    result = ThreadForkResponse(thread=thread.wire(turns), **settings)
    news = thread.news()
    await _publish_started(call.client, thread, subscribers)
    _warn_of_unknown(call)

    def publish() -> None:
        _notify_all(call.client, news)
        thread.publish_mcp()

    call.afterwards(publish)
    return result


async def fork_for_review(call: ServerCall[ReviewStartParams], source: ThreadHandle) -> ThreadHandle:
    """A copy of a thread to review in, while the thread itself goes on."""
    from treadle.agent.turn.code_review import review_of  # loaded with the first review

    review_of(call.params.target)  # nothing is copied for one that is refused
    params = ThreadForkParams(thread_id=source.id)
    subscribers = ThreadSubscribers(call.server)
    thread = await fork_thread(call.server, params, call.client.name, subscribers, source)
    await _publish_started(call.client, thread, subscribers)
    return thread


def _notify_all(client: Client, events: tuple[Event, ...]) -> None:
    for event in events:
        client.notify(event)


# --- going -----------------------------------------------------------------------------------------------------------


async def archive(call: ServerCall[ThreadArchiveParams]) -> Empty:
    server, threads = call.server, call.server.threads
    thread_id = check_thread_id(call.params.thread_id)
    thread = threads.get(thread_id)
    if thread is not None and thread.ephemeral:  # it would be lost: only stored threads are found again
        raise thread_refusals.no_rollout(thread_id)
    going = [thread_id]
    with threads.leaving(going):
        below = await _unload_with_agents(server, thread_id, going)
        archived = {record.id for record in below if record.archived}
        # From below: when one cannot be archived, those above it are still listed, and it can be tried again.
        for each in reversed([each for each in going if each not in archived]):
            async with threads.alone(each):
                stored = StoredThread(await threads.unload(each), each)
                if each == thread_id or await stored.load() is not None:  # one that could not begin removes itself
                    await stored.archive()

    def publish() -> None:
        for each in (each for each in going if each not in archived):
            _broadcast(server, "thread/archived", ThreadArchivedNotification(thread_id=each))

    call.afterwards(publish)
    return Empty()


async def _unload_with_agents(server: AppServer, thread_id: str, going: list[str]) -> list[ThreadRecord]:
    """The sub-agents below a thread, which are added to those that go: none of them, nor the thread itself, runs or is
    in memory any more. A thread that is about to go starts no others."""
    threads = server.threads
    was_loaded = threads.get(thread_id) is not None
    async with threads.alone(thread_id):
        store = await threads.unload(thread_id)
    if was_loaded:
        status = ThreadStatusChangedNotification(thread_id=thread_id, status=NotLoadedThreadStatus())
        _broadcast(server, "thread/status/changed", status)
    below = await stored_below(store, thread_id)
    going += [record.id for record in below]
    for record in below:
        await server.agents.close(record.id)
    return below


async def unarchive(call: ServerCall[ThreadUnarchiveParams]) -> ThreadUnarchiveResponse:
    server = call.server
    thread_id = check_thread_id(call.params.thread_id)
    stored = StoredThread(await server.store(), thread_id)
    async with server.threads.alone(thread_id):
        wire = await stored.unarchive()
    unarchived = ThreadUnarchivedNotification(thread_id=thread_id)
    call.afterwards(lambda: _broadcast(server, "thread/unarchived", unarchived))
    return ThreadUnarchiveResponse(thread=wire)


async def delete(call: ServerCall[ThreadDeleteParams]) -> Empty:
    from treadle.agent.thread.file_undo import forget_threads  # few threads are deleted

    server, threads = call.server, call.server.threads
    thread_id = check_thread_id(call.params.thread_id)
    going = [thread_id]
    with threads.leaving(going):
        await _unload_with_agents(server, thread_id, going)
        for each in reversed(going):
            async with threads.alone(each):
                stored = StoredThread(await threads.unload(each), each)
                if each == thread_id or await stored.load() is not None:
                    await stored.delete()
    await asyncio.to_thread(forget_threads, server.home, going)
    server.spawn((await server.store()).shrink(), "giving back the space of deleted threads")

    def publish() -> None:
        for each in going:
            _broadcast(server, "thread/deleted", ThreadDeletedNotification(thread_id=each))

    call.afterwards(publish)
    return Empty()


def _broadcast(server: AppServer, method: str, params: Struct) -> None:
    server.broadcast(Event(method, params, None, now_ms()))


def unsubscribe(call: ServerCall[ThreadUnsubscribeParams]) -> ThreadUnsubscribeResponse:
    threads = call.server.threads
    thread = threads.get(check_thread_id(call.params.thread_id))
    if thread is None:
        return ThreadUnsubscribeResponse(status="notLoaded")
    found = threads.unsubscribe(call.client, thread)
    return ThreadUnsubscribeResponse(status="unsubscribed" if found else "notSubscribed")
