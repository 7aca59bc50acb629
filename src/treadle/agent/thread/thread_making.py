"""How threads come into memory: made anew, loaded from the store, or forked from another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any, Final, NamedTuple, TypedDict, TypeVar

from msgspec import structs

from treadle.agent.event import new_id, now_ms
from treadle.agent.services import Services, Subscribers
from treadle.agent.thread import thread_refusals
from treadle.agent.thread.stored_thread import StoredThread
from treadle.agent.thread.thread import Thread, remote_places, with_directories
from treadle.agent.thread.thread_children import NewChild
from treadle.agent.thread.thread_handle import ThreadHandle
from treadle.agent.thread.thread_state import (
    Settings,
    State,
    Workplace,
    new_settings,
    overridden_settings,
    read_state,
    read_usage,
    renewed_settings,
    without_profile,
)
from treadle.agent.turn.model_context import known_instructions, project_instructions, read_instructions
from treadle.config import Config, InstructionFile
from treadle.errors import INVALID_REQUEST, ExecError, RpcError
from treadle.execution.bounded_reads import read_in_thread
from treadle.execution.project_files import ProjectFiles, read_git_info
from treadle.execution.sandbox.profile_sandbox import ProfileSandbox, as_policy
from treadle.execution.sandbox.sandbox_modes import check_enforceable
from treadle.execution.sandbox.sandbox_roots import Pins, pin
from treadle.protocol.app.base import encode
from treadle.protocol.app.settings import ActivePermissionProfile, AskForApproval, SandboxPolicy
from treadle.protocol.app.thread_methods import ThreadForkParams, ThreadResumeParams, ThreadStartParams
from treadle.protocol.app.threads import GitInfo
from treadle.store.contract import CopyTurns, Counters, Loaded, Store, ThreadRecord, Write

T = TypeVar("T")

SOURCE: Final = "vscode"
# Of the threads of sub-agents, as `thread/list` is asked for them.
CHILD_SOURCE: Final = "subAgentThreadSpawn"


class SettingsInUse(TypedDict):
    """What the responses to start, resume and fork share."""

    approval_policy: AskForApproval
    approvals_reviewer: str
    cwd: str
    model: str
    model_provider: str
    sandbox: SandboxPolicy
    active_permission_profile: ActivePermissionProfile | None
    instruction_sources: tuple[str, ...]
    reasoning_effort: str | None
    runtime_workspace_roots: tuple[str, ...]
    service_tier: str | None


async def settings_in_use(services: Services, settings: Settings) -> SettingsInUse:
    found = await project_instructions(services, settings, services.config_for(settings))
    return _in_use(settings, found.files)


async def _placed(services: Services, settings: Settings, before: Settings | None = None) -> Settings:
    """The settings with what is known of the machines that they name, which has to allow what they say."""
    if settings.is_local:
        await check_enforceable(settings.confinement, settings.cwd, services.home)
    return structs.replace(settings, **await remote_places(services, settings, before))


async def _in_own_directories(services: Services, settings: Settings) -> Settings:
    """The settings of a thread that has named neither environments nor a directory: it works where each environment
    does. One of the ways of Codex (`environments.toml`) without a `workdir` has the thread's directory, as there."""
    configured = services.config.environments
    known = {} if configured is None else configured.known

    async def moved(place: Workplace) -> Workplace:
        config = known.get(place.environment)
        if config is None or not (config.default or config.workdir):
            return place
        return structs.replace(place, cwd=await services.machine(place.environment).directory())

    first, *others = [await moved(place) for place in settings.workplaces]
    return structs.replace(settings, cwd=first.cwd, others=tuple(others))


def _in_use(settings: Settings, sources: Sequence[InstructionFile]) -> SettingsInUse:
    return {
        "approval_policy": settings.approval_policy,
        "approvals_reviewer": settings.approvals_reviewer,
        "cwd": settings.shown_cwd,
        "model": settings.model,
        "model_provider": settings.model_provider,
        "sandbox": as_policy(settings.confinement),
        "active_permission_profile": settings.profile,
        "instruction_sources": tuple(file.path for file in sources),
        "reasoning_effort": settings.effort,
        "runtime_workspace_roots": () if settings.environment is None else settings.workspace,
        "service_tier": settings.service_tier,
    }


async def make_thread(
    services: Services, params: ThreadStartParams, originator: str, subscribers: Subscribers
) -> tuple[ThreadHandle, SettingsInUse]:
    """A new thread. It is none before `ThreadHandle.publish_started`."""
    params = structs.replace(params, environments=await with_directories(services, params.environments))
    settings = new_settings(params, services.config, services.cwd, services.default_environments)
    if params.cwd is None and params.environments is None and (settings.remote or settings.others):
        settings = await _in_own_directories(services, settings)
    settings = await _placed(services, settings)
    store = services.ephemeral_store if params.ephemeral else await services.store()
    git_info, sources, pins = await _look_around(services, settings, services.config_for(settings))
    state = State(settings=settings, git_info=git_info, thread_source=params.thread_source, roots=pins.on_record())
    loaded = Loaded(_new_record(originator, state), Counters(), 0)
    thread = Thread(services, store, subscribers, loaded, ephemeral=bool(params.ephemeral), pins=pins)
    if params.session_start_source == "clear":
        thread.note_session_source("clear")
    thread.journal.write(loaded.record)
    return ThreadHandle(thread), _in_use(settings, sources)


async def make_child(services: Services, parent: Thread, new: NewChild, subscribers: Subscribers) -> ThreadHandle:
    """The thread of a sub-agent, in the store of its parent. It is none before `ThreadHandle.publish_started`.

    Its directories are where they were when the parent got them: a command may have put something else in their place.
    """
    if new.settings.is_local:
        await check_enforceable(new.settings.confinement, new.settings.cwd, services.home)
    pins = await _pins_for(parent.state, new.settings)
    git_info = parent.state.git_info
    if git_info is not None and new.place.branch is not None:
        git_info = structs.replace(git_info, branch=new.place.branch)
    state = State(
        settings=new.settings, git_info=git_info, thread_source="subagent", roots=pins.on_record(), agent=new.place
    )
    record = _new_record(
        parent.record.originator,
        state,
        id=new.id,
        source=CHILD_SOURCE,
        preview=new.preview,
        listed=True,
        parent_thread_id=parent.id,
    )
    loaded = Loaded(record, Counters(), 0)
    thread = Thread(services, parent.store, subscribers, loaded, ephemeral=parent.ephemeral, pins=pins)
    thread.journal.write(record)
    if new.history:
        await thread.load_history()
        thread.journal.write(*thread.add_history(new.history, 0))
    return ThreadHandle(thread)


async def load_thread(services: Services, params: ThreadResumeParams, subscribers: Subscribers) -> ThreadHandle:
    """A thread of the store, with what the request gives instead of its settings."""
    store = await services.store()
    stored = StoredThread(store, params.thread_id)
    loaded = await stored.load()
    if loaded is None:
        raise thread_refusals.no_rollout(stored.id)
    if loaded.record.archived:
        raise thread_refusals.archived(stored.id)
    opened = await _opened(services, params, store, loaded)
    if opened.settings_changed:

        async def changed(found: Loaded) -> ThreadRecord:
            nonlocal opened
            opened = await _opened(services, params, store, found)
            return opened.record

        loaded = await stored.change(changed)
    thread = Thread(services, store, subscribers, loaded, pins=opened.pins, warning=opened.warning)
    if thread.state.commands:
        from treadle.agent.thread.found_commands import find_commands  # few threads were left by a server that ended

        # In a context of its own: it is no part of the request.
        Context().run(services.spawn, find_commands(thread), f"finding commands of {thread.id}")
    return ThreadHandle(thread)


class _Opened(NamedTuple):
    """A thread of the store with the settings that it goes on with."""

    record: ThreadRecord
    pins: Pins
    settings_changed: bool
    warning: str | None


async def _opened(services: Services, params: ThreadResumeParams, store: Store, loaded: Loaded) -> _Opened:
    before = read_state(loaded.record.state, store.location)
    settings, warning = await _reopened_settings(services, before.settings, params)
    pins = await _pins_for(before, settings)
    state = structs.replace(before, settings=settings, roots=pins.on_record())
    record = structs.replace(
        loaded.record,
        state=encode(state),
        cwd=settings.shown_cwd,
        model=settings.model,
        model_provider=settings.model_provider,
    )
    return _Opened(record, pins, settings != before.settings, warning)


async def _reopened_settings(
    services: Services, before: Settings, params: ThreadResumeParams | ThreadForkParams
) -> tuple[Settings, str | None]:
    """What a stored thread goes on with, and a warning when its permission profile is not to be had any more."""
    settings = overridden_settings(before, params, services.config, services.cwd)
    if settings.remote is not None and settings.confinement != before.confinement:
        # Else it is as it was: its machine is needed with its next turn.
        settings = await _placed(services, settings, before)
    if params.permissions is not None or params.sandbox is not None:
        if settings.is_local:
            await check_enforceable(settings.confinement, settings.cwd, services.home)
        return settings, None
    settings, warning = renewed_settings(settings, services.config_for(settings))
    if warning is None and settings.is_local:
        try:
            await check_enforceable(settings.confinement, settings.cwd, services.home)
        except ExecError as error:
            if not isinstance(settings.sandbox, ProfileSandbox):
                raise
            settings, warning = without_profile(settings, error.message)
    return settings, warning


async def fork_thread(
    services: Services,
    params: ThreadForkParams,
    originator: str,
    subscribers: Subscribers,
    source: ThreadHandle | None,
) -> ThreadHandle:
    """A copy of a thread that is in memory (`source`) or in the store; none before `ThreadHandle.publish_started`."""
    if source is not None:
        record, store = await source.source_of_fork()
    else:
        store = await services.store()
        found = await store.load(params.thread_id)
        if found is None:
            raise thread_refusals.no_rollout(params.thread_id)
        record = found.record
    state = read_state(record.state, store.location)
    last_turn: int | None = None  # all turns are copied
    usage = state.usage
    if params.last_turn_id is not None:
        turn = await store.turn(params.thread_id, params.last_turn_id)
        if turn is None:
            raise thread_refusals.turn_not_found(params.last_turn_id)
        last_turn, usage = turn.number, read_usage(turn.usage, store.location)
    settings, warning = await _reopened_settings(services, state.settings, params)
    pins = await _pins_for(state, settings)
    state = State(
        settings=settings,
        usage=usage,
        git_info=state.git_info,
        thread_source=params.thread_source,
        roots=pins.on_record(),
    )
    fork = _new_record(
        originator,
        state,
        name=record.name,
        preview=record.preview,
        listed=record.listed,
        forked_from_id=params.thread_id,
    )
    target = services.ephemeral_store if params.ephemeral else store
    if store is target:
        copied: list[Write] = [CopyTurns(params.thread_id, fork.id, last_turn)]
    else:
        copied = await _copied_rows(store, params.thread_id, fork.id, last_turn)
    await target.commit(fork.id, 0, [fork, *copied])
    loaded = await target.load(fork.id)
    assert loaded is not None
    ephemeral = target is services.ephemeral_store
    return ThreadHandle(Thread(services, target, subscribers, loaded, ephemeral=ephemeral, pins=pins, warning=warning))


async def _copied_rows(source: Store, source_id: str, target_id: str, last_turn: int | None) -> list[Write]:
    """Turns, items and history, under another thread's id. What was compacted away is left out."""
    turns = [turn for turn in await source.turns(source_id) if last_turn is None or turn.number <= last_turn]
    if not turns:
        return []
    numbers = (turns[0].number, turns[-1].number)
    items = await source.items(source_id, turns=numbers)
    history = [entry for entry in await source.history(source_id) if entry.turn <= numbers[1]]
    return [
        *(structs.replace(turn, thread_id=target_id) for turn in turns),
        *(structs.replace(item, thread_id=target_id) for item in items),
        *(structs.replace(entry, thread_id=target_id, number=n) for n, entry in enumerate(history, start=1)),
    ]


def _new_record(originator: str | None, state: State, **more: Any) -> ThreadRecord:
    now = now_ms()
    known: dict[str, Any] = {"id": new_id(), "source": SOURCE, "originator": originator, **more}
    return ThreadRecord(
        created_at=now,
        updated_at=now,
        recency_at=now,
        cwd=state.settings.shown_cwd,
        model=state.settings.model,
        model_provider=state.settings.model_provider,
        state=encode(state),
        **known,
    )


async def _look_around(
    services: Services, settings: Settings, config: Config
) -> tuple[GitInfo | None, list[InstructionFile], Pins]:
    """What is in the directory, and where its names lead."""
    if settings.remote is not None:
        found = await project_instructions(services, settings, config)
        from treadle.agent.thread.remote_project import remote_git_info  # few threads are elsewhere

        return await remote_git_info(services, settings), found.files, Pins()
    known = known_instructions(settings, config)

    def look() -> tuple[GitInfo | None, list[InstructionFile], Pins]:
        found = read_instructions(settings, config) if known is None else known
        project = ProjectFiles(settings.cwd, str(config.home), settings.confinement)
        return read_git_info(project), found.files, Pins(pin(settings.confinement, settings.cwd))

    return await _look_at(settings.cwd, look)


async def _pins_for(state: State, settings: Settings) -> Pins:
    """The pins of a stored thread that goes on with these settings: those that it had stay as they are."""
    if settings.remote is not None:
        return Pins()
    fresh = await _look_at(settings.cwd, lambda: pin(settings.confinement, settings.cwd))
    return Pins.known(state.roots).changed(settings.confinement, settings.cwd, fresh)


async def _look_at(cwd: str, function: Callable[[], T]) -> T:
    """Refuses a directory whose file system does not answer."""
    try:
        return await read_in_thread(function)
    except TimeoutError:
        raise RpcError(INVALID_REQUEST, f"the file system of {cwd} does not answer; choose another cwd") from None
