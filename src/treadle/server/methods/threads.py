"""`thread/*`: make, load, copy, rename, put away and remove threads."""

from __future__ import annotations

import asyncio
import os.path
from collections.abc import Sequence
from typing import Any, Final

from msgspec import UnsetType, structs

from treadle.agent.context import project_instructions
from treadle.agent.event import Event
from treadle.agent.git_info import read_git_info
from treadle.agent.ids import new_id, now_ms
from treadle.agent.state import Settings, State, read_state, read_usage
from treadle.agent.thread import Thread, wire_thread
from treadle.agent.turn import Turn, usage_notification
from treadle.config import Config
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.base import Empty
from treadle.protocol.app.settings import (
    DangerFullAccessSandboxPolicy,
    ReadOnlySandboxPolicy,
    SandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)
from treadle.protocol.app.thread_methods import (
    ThreadForkResponse,
    ThreadMetadataUpdateResponse,
    ThreadStartResponse,
    ThreadUnarchiveResponse,
    ThreadUnsubscribeResponse,
)
from treadle.protocol.app.thread_notifications import (
    ThreadArchivedNotification,
    ThreadDeletedNotification,
    ThreadGoalClearedNotification,
    ThreadGoalUpdatedNotification,
    ThreadNameUpdatedNotification,
    ThreadStartedNotification,
    ThreadStatusChangedNotification,
    ThreadUnarchivedNotification,
)
from treadle.protocol.app.threads import GitInfo, NotLoadedThreadStatus
from treadle.protocol.app.turns import Turn as WireTurn
from treadle.server import refusals
from treadle.server.app import AppServer
from treadle.server.client import Call, wire_error
from treadle.server.methods.turns import sandbox_mode, setting_changes
from treadle.server.pages import make_cursor, turns_with_items
from treadle.server.thread_events import OurResumeResponse
from treadle.store.model import (
    CopyTurns,
    Counters,
    DeleteThread,
    Loaded,
    Release,
    Store,
    StoreError,
    ThreadRecord,
)

SOURCE: Final = "vscode"
# A client that resumes gets the newest turns; the others are a page away.
RESUMED_TURNS: Final = 100


# --- settings --------------------------------------------------------------------------------------------------------


def _config(server: AppServer, params: Any) -> Config:
    return server.config if not params.config else server.config.with_thread_overrides(params.config)


def _new_settings(server: AppServer, params: Any) -> Settings:
    config = _config(server, params)
    provider = params.model_provider or config.model_provider
    if provider not in config.providers and provider != "offline":
        raise RpcError(INVALID_REQUEST, f"model provider `{provider}` not found; add it to config.toml")
    return Settings(
        model=params.model or config.model,
        model_provider=provider,
        cwd=_directory(params.cwd, server.cwd),
        approval_policy=params.approval_policy or config.approval_policy,
        approvals_reviewer=params.approvals_reviewer or config.approvals_reviewer,
        sandbox=_sandbox(params, config),
        effort=config.model_reasoning_effort,
        summary=config.model_reasoning_summary,
        personality=getattr(params, "personality", None) or config.personality,
        service_tier=config.service_tier if isinstance(params.service_tier, UnsetType) else params.service_tier,
        base_instructions=params.base_instructions,
        developer_instructions=params.developer_instructions,
        config=params.config,
        dynamic_tools=getattr(params, "dynamic_tools", None) or (),
    )


def _directory(cwd: str | None, base: str) -> str:
    return os.path.normpath(os.path.join(base, cwd)) if cwd else base


def _sandbox(params: Any, config: Config) -> SandboxPolicy:
    mode = params.sandbox if params.permissions is None else sandbox_mode(params.permissions)
    if mode is None or mode == config.sandbox_mode:
        return config.sandbox_policy()
    if mode == "read-only":
        return ReadOnlySandboxPolicy()
    if mode == "danger-full-access":
        return DangerFullAccessSandboxPolicy()
    policy = structs.replace(config, sandbox_mode="workspace-write").sandbox_policy()
    assert isinstance(policy, WorkspaceWriteSandboxPolicy)
    return policy


def _overridden(server: AppServer, settings: Settings, params: Any) -> Settings:
    """A stored thread's settings with what the request gives instead."""
    config = _config(server, params)
    changes: dict[str, Any] = {
        name: getattr(params, name)
        for name in (
            "model",
            "model_provider",
            "approval_policy",
            "approvals_reviewer",
            "base_instructions",
            "developer_instructions",
            "personality",
            "config",
        )
        if getattr(params, name, None) is not None
    }
    if params.cwd is not None:
        changes["cwd"] = _directory(params.cwd, server.cwd)
    if params.sandbox is not None or params.permissions is not None:
        changes["sandbox"] = _sandbox(params, config)
    if not isinstance(params.service_tier, UnsetType):
        changes["service_tier"] = params.service_tier
    return structs.replace(settings, **changes)


async def _common(server: AppServer, settings: Settings) -> dict[str, Any]:
    """What the responses of start, resume and fork share."""
    sources = await project_instructions(settings.cwd, server.config_for(settings))
    return {
        "approval_policy": settings.approval_policy,
        "approvals_reviewer": settings.approvals_reviewer,
        "cwd": settings.cwd,
        "model": settings.model,
        "model_provider": settings.model_provider,
        "sandbox": settings.sandbox,
        "instruction_sources": tuple(file.path for file in sources),
        "reasoning_effort": settings.effort,
        "service_tier": settings.service_tier,
    }


# --- start -----------------------------------------------------------------------------------------------------------


async def start(call: Call) -> None:
    params, server = call.params, call.server
    server.threads.check_open()
    settings = _new_settings(server, params)
    git_info = await asyncio.to_thread(read_git_info, settings.cwd)
    state = State(settings=settings, git_info=git_info, thread_source=params.thread_source)
    store = server.memory if params.ephemeral else await server.store()
    common = await _common(server, settings)
    record = _record(call, state)
    thread = server.threads.add(Loaded(record, Counters(), 0), store, ephemeral=bool(params.ephemeral))
    server.threads.subscribe(call.client, thread)
    thread.journal.write(record)
    _announce(call, thread, ThreadStartResponse(thread=thread.wire(), **common))


def _record(call: Call, state: State, **more: Any) -> ThreadRecord:
    now = now_ms()
    return ThreadRecord(
        id=new_id(),
        created_at=now,
        updated_at=now,
        recency_at=now,
        cwd=state.settings.cwd,
        model=state.settings.model,
        model_provider=state.settings.model_provider,
        source=SOURCE,
        state=state.encoded(),
        originator=call.client.name,
        **more,
    )


def _announce(call: Call, thread: Thread, result: Any, news: Sequence[Event] = ()) -> None:
    """The answer, what the client should know, then `thread/started`, all in place. Nobody else knows the thread yet,
    so it need not be claimed. A thread that cannot be kept is none."""

    def deliver() -> None:
        failure = thread.journal.failure
        if failure is not None:
            call.server.threads.drop(thread)
            call.fail(wire_error(failure, "thread/start"))
            return
        call.reply(result)
        for event in news:
            call.client.tell(event)

    thread.journal.after(deliver)
    thread.journal.emit("thread/started", ThreadStartedNotification(thread=thread.wire()))


# --- resume ----------------------------------------------------------------------------------------------------------


async def resume(call: Call) -> None:
    params, server = call.params, call.server
    thread_id = refusals.check_thread_id(params.thread_id, "session")
    async with server.threads.alone(thread_id):  # to the end: who unloads it waits
        thread = server.threads.get(thread_id)
        fresh = thread is None
        if thread is None:
            thread = await _load(call, thread_id)
        common = await _common(server, thread.settings)
        async with thread.lock:
            while thread.journal.busy:  # a turn that has just ended is in the store then
                await thread.journal.flush()
            running = thread.turn
            turns = () if params.exclude_turns else await _recent_turns(thread)
            if fresh:
                thread.journal.announce(
                    "thread/status/changed", ThreadStatusChangedNotification(thread_id=thread.id, status=thread.status)
                )
            _reply_resumed(call, thread, common, turns, running)


async def _load(call: Call, thread_id: str) -> Thread:
    server = call.server
    store = await server.store()
    loaded = await store.load(thread_id)
    if loaded is None:
        raise refusals.no_rollout(thread_id)
    if loaded.record.archived:
        raise refusals.archived(thread_id)
    state = read_state(loaded.record.state)
    settings = _overridden(server, state.settings, call.params)
    if settings != state.settings:
        loaded = await _claim(store, thread_id)
        state = read_state(loaded.record.state)
        settings = _overridden(server, state.settings, call.params)
        state = structs.replace(state, settings=settings)
        record = structs.replace(
            loaded.record,
            state=state.encoded(),
            cwd=settings.cwd,
            model=settings.model,
            model_provider=settings.model_provider,
        )
        loaded = structs.replace(loaded, record=record)
        await store.commit([record, Release(thread_id)])
    return server.threads.add(loaded, store)


async def _claim(store: Store, thread_id: str) -> Loaded:
    """A thread that is not in memory, as it is, with the right to write it until `Release`: no other server works on
    it. Under `alone`."""
    try:
        loaded = await store.claim(thread_id, -1)
    except StoreError as error:
        if error.kind == "missing":
            raise refusals.no_rollout(thread_id) from None
        raise
    assert loaded is not None  # no thread has that fence
    return loaded


async def _recent_turns(thread: Thread) -> tuple[WireTurn, ...]:
    """The newest turns, oldest first, and the running one as it stands when the response is written."""
    running = thread.turn
    records = await thread.store.turns(thread.id, limit=RESUMED_TURNS, descending=True)
    records = [record for record in records[::-1] if running is None or record.id != running.id]
    return tuple(await turns_with_items(thread.store, thread.id, records))


def _reply_resumed(
    call: Call, thread: Thread, common: dict[str, Any], turns: tuple[WireTurn, ...], running: Turn | None
) -> None:
    """Nothing is awaited between the snapshot and the subscription, so that no event is missed or told twice.

    `running` was left out of the turns; it may have ended since.
    """
    server = call.server
    if running is not None and not call.params.exclude_turns:
        turns = (*turns, running.snapshot())
    last = thread.counters.turn
    result = OurResumeResponse(
        thread=thread.wire(turns),
        seq=thread.journal.seq,
        collaboration_mode=thread.settings.collaboration_mode,
        turns_backwards_cursor=make_cursor(thread.id, "turns", last + 1) if last else None,
        items_backwards_cursor=make_cursor(thread.id, "items", thread.counters.item + 1) if last else None,
        **common,
    )
    news = [*_news(thread), _goal_news(thread)]

    def deliver() -> None:
        call.reply(result)
        server.threads.subscribe(call.client, thread)
        for event in news:
            call.client.tell(event)
        for ask in tuple(thread.asks.values()):
            if ask.params is not None:
                call.client.send_ask(ask)

    thread.journal.after(deliver)


def _news(thread: Thread) -> list[Event]:
    """What a client that comes in should know. For it alone, so these events have no number of their own."""
    news: list[Event] = []
    usage = thread.state.usage
    if usage.turn_id is not None:
        params = usage_notification(thread, usage.turn_id)
        news.append(Event("thread/tokenUsage/updated", params, thread.journal.seq, now_ms()))
    return news


def _goal_news(thread: Thread) -> Event:
    goal = thread.state.goal
    if goal is None:
        params: Any = ThreadGoalClearedNotification(thread_id=thread.id)
        return Event("thread/goal/cleared", params, thread.journal.seq, now_ms())
    params = ThreadGoalUpdatedNotification(thread_id=thread.id, goal=goal)
    return Event("thread/goal/updated", params, thread.journal.seq, now_ms())


# --- fork ------------------------------------------------------------------------------------------------------------


async def fork(call: Call) -> None:
    params, server = call.params, call.server
    server.threads.check_open()
    source_id = refusals.check_thread_id(params.thread_id)
    source, store = await _source(server, source_id)
    state = read_state(source.state)
    last_turn, usage = None, state.usage
    if params.last_turn_id is not None:
        found = await store.turn(source_id, params.last_turn_id)
        if found is None:
            raise RpcError(INVALID_REQUEST, f"turn not found: {params.last_turn_id}")
        last_turn, usage = found.number, read_usage(found.usage)
    settings = _overridden(server, state.settings, params)
    state = State(settings=settings, usage=usage, git_info=state.git_info, thread_source=params.thread_source)
    record = _record(
        call, state, name=source.name, preview=source.preview, listed=source.listed, forked_from_id=source_id
    )
    target = store
    if params.ephemeral and store is not server.memory:
        target = server.memory
    await _copy(store, target, source_id, record, last_turn)
    loaded = await target.load(record.id)
    assert loaded is not None
    common = await _common(server, settings)
    thread = server.threads.add(loaded, target, ephemeral=target is server.memory)
    server.threads.subscribe(call.client, thread)
    turns = () if params.exclude_turns else await _recent_turns(thread)
    _announce(call, thread, ThreadForkResponse(thread=thread.wire(turns), **common), _news(thread))


async def _source(server: AppServer, thread_id: str) -> tuple[ThreadRecord, Store]:
    """A thread to copy from, in memory or not. What it has announced is in its store."""
    thread = server.threads.get(thread_id)
    if thread is not None:
        await thread.journal.flush()
        return thread.save(), thread.store
    store = await server.store()
    loaded = await store.load(thread_id)
    if loaded is None:
        raise refusals.no_rollout(thread_id)
    return loaded.record, store


async def _copy(source: Store, target: Store, source_id: str, record: ThreadRecord, last_turn: int | None) -> None:
    if source is target:
        await target.commit([record, CopyTurns(source_id, record.id, last_turn)])
        return
    from treadle.server.copying import copied_rows

    await target.commit([record, *await copied_rows(source, source_id, record.id, last_turn)])


# --- away and back ---------------------------------------------------------------------------------------------------


async def archive(call: Call) -> None:
    server = call.server
    thread_id = refusals.check_thread_id(call.params.thread_id)
    thread = server.threads.get(thread_id)
    if thread is not None and thread.ephemeral:  # it would be lost: only stored threads are found again
        raise refusals.no_rollout(thread_id)
    async with server.threads.alone(thread_id):
        store = await _put_away(server, thread_id)
        loaded = await _claim(store, thread_id)
        # Where else would it be found again?
        record = structs.replace(loaded.record, archived=True, listed=True)
        await store.commit([Release(thread_id)] if loaded.record.archived else [record, Release(thread_id)])
    if loaded.record.archived:
        raise refusals.no_rollout(thread_id)
    seq = loaded.counters.seq
    if thread is not None:
        _tell_unloaded(server, seq, thread_id)
    call.reply(Empty())
    server.broadcast(Event("thread/archived", ThreadArchivedNotification(thread_id=thread_id), seq, now_ms()))


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


def _tell_unloaded(server: AppServer, seq: int, thread_id: str) -> None:
    params = ThreadStatusChangedNotification(thread_id=thread_id, status=NotLoadedThreadStatus())
    server.broadcast(Event("thread/status/changed", params, seq, now_ms()))


async def unarchive(call: Call) -> None:
    server = call.server
    thread_id = refusals.check_thread_id(call.params.thread_id)
    store = await server.store()
    async with server.threads.alone(thread_id):
        found = await store.load(thread_id)
        if found is None or not found.record.archived:
            raise RpcError(INVALID_REQUEST, f"no archived rollout found for thread id {thread_id}")
        loaded = await _claim(store, thread_id)
        listed = loaded.record.name is not None or loaded.counters.turn > 0
        record = structs.replace(loaded.record, archived=False, listed=listed, updated_at=now_ms())
        await store.commit([record, Release(thread_id)])
    wire = wire_thread(record, read_state(record.state), NotLoadedThreadStatus(), home=server.home)
    call.reply(ThreadUnarchiveResponse(thread=wire))
    params = ThreadUnarchivedNotification(thread_id=thread_id)
    server.broadcast(Event("thread/unarchived", params, loaded.counters.seq, now_ms()))


async def delete(call: Call) -> None:
    server = call.server
    thread_id = refusals.check_thread_id(call.params.thread_id)
    async with server.threads.alone(thread_id):
        was_loaded = server.threads.get(thread_id) is not None
        store = await _put_away(server, thread_id)
        loaded = await _claim(store, thread_id)
        await store.commit([Release(thread_id), DeleteThread(thread_id)])
    seq = loaded.counters.seq
    if was_loaded:
        _tell_unloaded(server, seq, thread_id)
    call.reply(Empty())
    server.broadcast(Event("thread/deleted", ThreadDeletedNotification(thread_id=thread_id), seq, now_ms()))


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
            loaded = await _claim(store, thread_id)
            record = structs.replace(loaded.record, name=name, listed=True)
            await store.commit([record, Release(thread_id)])
            call.reply(Empty())
            server.broadcast(Event("thread/name/updated", told, loaded.counters.seq, now_ms()))
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
            loaded = await _claim(store, thread_id)
            try:
                state = _with_git_info(read_state(loaded.record.state), params.git_info)
            except RpcError:
                await store.commit([Release(thread_id)])
                raise
            record = structs.replace(loaded.record, state=state.encoded())
            await store.commit([record, Release(thread_id)])
            wire = wire_thread(record, state, NotLoadedThreadStatus(), home=server.home)
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
            thread.journal.write(thread.save())
            call.reply_when_kept(thread.journal, Empty())
            thread.change_settings(changes)
        finally:
            thread.release()
