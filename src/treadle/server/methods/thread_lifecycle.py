"""`thread/start`, `thread/resume` and `thread/fork`: how threads come into memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from msgspec import structs

from treadle.agent.context import project_instructions, read_instructions
from treadle.agent.event import Event
from treadle.agent.ids import new_id, now_ms
from treadle.agent.state import Settings, State, read_state, read_usage
from treadle.agent.thread import Thread
from treadle.agent.turn import Turn, usage_notification
from treadle.config import Config, InstructionFile
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.execution.bounded_reads import read_in_thread
from treadle.execution.git_info import read_git_info
from treadle.execution.sandbox.pinned_roots import Pins, pin
from treadle.protocol.app.thread_methods import (
    ThreadForkResponse,
    ThreadStartResponse,
)
from treadle.protocol.app.thread_notifications import (
    ThreadGoalClearedNotification,
    ThreadGoalUpdatedNotification,
    ThreadStartedNotification,
    ThreadStatusChangedNotification,
)
from treadle.protocol.app.threads import GitInfo
from treadle.protocol.app.turns import Turn as WireTurn
from treadle.server import refusals
from treadle.server.app import AppServer
from treadle.server.client_base import Call, wire_error
from treadle.server.loaded_threads import claim_stored
from treadle.server.thread_events import OurResumeResponse
from treadle.server.thread_pages import make_cursor, turns_with_items
from treadle.server.thread_settings import new_settings, overridden_settings
from treadle.store.contract import (
    CopyTurns,
    Counters,
    Loaded,
    Release,
    Store,
    ThreadRecord,
)

T = TypeVar("T")

SOURCE: Final = "vscode"
# A client that resumes gets the newest turns; the others are a page away.
RESUMED_TURNS: Final = 100


async def _common(server: AppServer, settings: Settings) -> dict[str, Any]:
    """What the responses of start, resume and fork share."""
    return _response(settings, await project_instructions(settings.cwd, server.config_for(settings)) or ())


def _response(settings: Settings, sources: Sequence[InstructionFile]) -> dict[str, Any]:
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
    settings = new_settings(server, params)
    store = server.memory if params.ephemeral else await server.store()
    git_info, sources, pins = await _look_around(settings, server.config_for(settings))
    state = State(settings=settings, git_info=git_info, thread_source=params.thread_source, roots=pins.on_record())
    record = _record(call, state)
    thread = server.threads.add(Loaded(record, Counters(), 0), store, ephemeral=bool(params.ephemeral))
    thread.adopt(pins)
    server.threads.subscribe(call.client, thread)
    thread.journal.write(record)
    _announce(call, thread, ThreadStartResponse(thread=thread.wire(), **_response(settings, sources)))


async def _look_around(settings: Settings, config: Config) -> tuple[GitInfo | None, list[InstructionFile], Pins]:
    """What is in the directory, and where its names lead. Refuses one whose file system does not answer."""
    cwd = settings.cwd
    return await _looked(
        cwd, lambda: (read_git_info(cwd), read_instructions(cwd, config), Pins(pin(settings.sandbox, cwd)))
    )


async def _looked(cwd: str, function: Callable[[], T]) -> T:
    try:
        return await read_in_thread(function)
    except TimeoutError:
        raise RpcError(INVALID_REQUEST, f"the file system of {cwd} does not answer; choose another cwd") from None


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
            await thread.catch_up()
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
    state = read_state(loaded.record.state, store.location)
    settings = overridden_settings(server, state.settings, call.params)
    pins = await _pins(state, settings)
    if settings != state.settings:
        loaded = await claim_stored(store, thread_id)
        state = read_state(loaded.record.state, store.location)
        settings = overridden_settings(server, state.settings, call.params)
        pins = await _pins(state, settings)
        state = structs.replace(state, settings=settings, roots=pins.on_record())
        record = structs.replace(
            loaded.record,
            state=state.encoded(),
            cwd=settings.cwd,
            model=settings.model,
            model_provider=settings.model_provider,
        )
        loaded = structs.replace(loaded, record=record)
        await store.commit(thread_id, loaded.fence, [record, Release(thread_id)])
    thread = server.threads.add(loaded, store)
    thread.adopt(pins)
    return thread


async def _pins(state: State, settings: Settings) -> Pins:
    """Of a stored thread that goes on with these settings: what it had keeps its meaning."""
    fresh = await _looked(settings.cwd, lambda: pin(settings.sandbox, settings.cwd))
    return Pins.known(state.roots).changed(settings.sandbox, settings.cwd, fresh)


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
    failed_before = thread.journal.failure

    def deliver() -> None:
        failure = thread.journal.failure
        if failure is not None and failed_before is None:  # the snapshot has things that are not kept
            call.fail(wire_error(failure, "thread/resume"))
            return
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
        news.append(Event("thread/tokenUsage/updated", params, None, now_ms()))
    return news


def _goal_news(thread: Thread) -> Event:
    goal = thread.state.goal
    if goal is None:
        params: Any = ThreadGoalClearedNotification(thread_id=thread.id)
        return Event("thread/goal/cleared", params, None, now_ms())
    params = ThreadGoalUpdatedNotification(thread_id=thread.id, goal=goal)
    return Event("thread/goal/updated", params, None, now_ms())


# --- fork ------------------------------------------------------------------------------------------------------------


async def fork(call: Call) -> None:
    params, server = call.params, call.server
    server.threads.check_open()
    source_id = refusals.check_thread_id(params.thread_id)
    source, store = await _source(server, source_id)
    state = read_state(source.state, store.location)
    last_turn, usage = None, state.usage
    if params.last_turn_id is not None:
        found = await store.turn(source_id, params.last_turn_id)
        if found is None:
            raise RpcError(INVALID_REQUEST, f"turn not found: {params.last_turn_id}")
        last_turn, usage = found.number, read_usage(found.usage, store.location)
    settings = overridden_settings(server, state.settings, params)
    pins = await _pins(state, settings)
    state = State(
        settings=settings,
        usage=usage,
        git_info=state.git_info,
        thread_source=params.thread_source,
        roots=pins.on_record(),
    )
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
    thread.adopt(pins)
    server.threads.subscribe(call.client, thread)
    turns = () if params.exclude_turns else await _recent_turns(thread)
    _announce(call, thread, ThreadForkResponse(thread=thread.wire(turns), **common), _news(thread))


async def _source(server: AppServer, thread_id: str) -> tuple[ThreadRecord, Store]:
    """A thread to copy from, in memory or not. What it has announced is in its store."""
    thread = server.threads.get(thread_id)
    if thread is not None:
        if thread.journal.is_stale:
            async with thread.lock:
                await thread.catch_up()
        await thread.journal.flush()
        return thread.save(), thread.store
    store = await server.store()
    loaded = await store.load(thread_id)
    if loaded is None:
        raise refusals.no_rollout(thread_id)
    return loaded.record, store


async def _copy(source: Store, target: Store, source_id: str, record: ThreadRecord, last_turn: int | None) -> None:
    if source is target:
        await target.commit(record.id, 0, [record, CopyTurns(source_id, record.id, last_turn)])
        return
    from treadle.server.copying import copied_rows

    await target.commit(record.id, 0, [record, *await copied_rows(source, source_id, record.id, last_turn)])
