"""`Thread`: a conversation that is in memory. It owns its state, its journal and the turn that runs.

Only this module assigns to a thread (a test sees to it); the goal and the queue are objects that the thread owns.
Everything that changes it happens on one event loop, under `lock` or in its own turn; what it publishes is in the store
first. Requests come to it through its `ThreadHandle`.

Other servers may use the same store, so a thread is claimed before it is written:

                 acquire                      release, the last one
    not claimed ─────────▶ claimed, in use ─────────────────────────▶ claimed, in grace
        ▲                        ▲                                      │         │
        │                        └──────────── acquire ─────────────────┘         │
        └──────────── CLAIM_GRACE_S over, or the journal has failed ──────────────┘

`acquire` from "not claimed" finds out whether another server has written the thread meanwhile, and reads it anew then:
grants and the history in memory are worth nothing after that. The grace saves a round trip to the store, because the
next turn often follows at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, structs

from treadle._version import __version__
from treadle.agent.event import now_ms
from treadle.agent.journal import Journal
from treadle.agent.services import Services, Subscribers
from treadle.agent.thread.authority import ENDED, Authority, RunningProgram, same_authority
from treadle.agent.thread.client_requests import ClientRequests
from treadle.agent.thread.model_history import History, with_origin
from treadle.agent.thread.thread_goal import Goal
from treadle.agent.thread.thread_state import (
    LOCAL,
    AgentPlace,
    RemoteCommand,
    Settings,
    State,
    Workplace,
    read_state,
    read_usage,
)
from treadle.config import model_facts, moved_text
from treadle.errors import INVALID_REQUEST, ExecError, RpcError
from treadle.execution.sandbox.sandbox_modes import check_enforceable
from treadle.execution.sandbox.sandbox_roots import Pin, Pins, pin
from treadle.hooks.hook_files import HookPlace, HookSet, known_hook_files, read_hook_files, with_settings
from treadle.llm.known_providers import LOCAL as LOCAL_PROVIDERS
from treadle.protocol.app.base import encode
from treadle.protocol.app.notifications import (
    ThreadSettingsUpdatedNotification,
    ThreadStartedNotification,
    ThreadStatusChangedNotification,
    WarningNotification,
)
from treadle.protocol.app.threads import (
    ActiveThreadStatus,
    IdleThreadStatus,
    NotLoadedThreadStatus,
    SubAgentSessionSource,
    SubAgentThreadSpawn,
    SystemErrorThreadStatus,
    ThreadSpawnSubAgentSource,
    ThreadStatus,
)
from treadle.protocol.app.threads import Thread as WireThread
from treadle.store.contract import Counters, CutTurns, HistoryRecord, Loaded, PruneEvents, Store, ThreadRecord, Write

if TYPE_CHECKING:
    from treadle.agent.thread.terminals import Terminals
    from treadle.agent.thread.thread_children import Children
    from treadle.agent.thread.thread_hooks import ThreadHooks
    from treadle.agent.thread.thread_mcp import ThreadMcp
    from treadle.agent.thread.thread_queue import ThreadQueue
    from treadle.agent.turn.turn import Turn
    from treadle.agent.turn.turn_items import OpenItems
    from treadle.config import Config, ModelFacts
    from treadle.config.mcp_settings import McpServerConfig
    from treadle.execution.sandbox.policy import Policy
    from treadle.hooks.hook_events import SessionSource
    from treadle.llm.provider import ProviderConfig
    from treadle.protocol.app.items import KnownItem
    from treadle.protocol.app.settings import TurnEnvironmentParams
    from treadle.protocol.app.turns import Turn as WireTurn
    from treadle.tools.command.command_sessions import CommandSession, CommandSessions

# Another server that wants the thread waits longer than that.
CLAIM_GRACE_S: Final = 0.1
# Events that clients can ask for again; older ones are in the items. Pruned in steps, so that it is rare.
KEPT_EVENTS: Final = 20_000
PRUNE_EVERY: Final = 1_000


class Thread:
    # There may be thousands of them, and Python shares the names of at most 30 attributes between them.
    __slots__ = (
        "__weakref__",
        "_children",
        "_claim_grace",
        "_failed",
        "_holds",
        "_left",
        "_mcp",
        "_mcp_configs",
        "_model_facts",
        "_on_idle",
        "_pruned",
        "_queue",
        "_session_source",
        "_sessions",
        "_skill_servers",
        "_terminals",
        "_warned",
        "_windows",
        "authority",
        "closing",
        "counters",
        "ephemeral",
        "goal",
        "history",
        "hooks",
        "id",
        "journal",
        "lock",
        "pins",
        "queued",
        "record",
        "requests",
        "services",
        "session_id",
        "state",
        "store",
        "subscribers",
        "turn",
        "used_at",
        "warning",
    )

    def __init__(
        self,
        services: Services,
        store: Store,
        subscribers: Subscribers,
        loaded: Loaded,
        *,
        ephemeral: bool = False,
        pins: Pins | None = None,
        warning: str | None = None,
    ) -> None:
        self.services: Services = services
        self.store: Store = store
        self.subscribers: Subscribers = subscribers
        self.ephemeral: bool = ephemeral
        self.id: str = loaded.record.id
        self.lock: asyncio.Lock = asyncio.Lock()  # requests for this thread are handled one after the other
        self.turn: Turn | None = None
        self.authority: Authority = Authority()
        self.history: History | None = None
        self.used_at: float = time.monotonic()
        self.closing: bool = False
        self.pins: Pins = Pins()
        self.warning: str | None = warning  # what everyone who joins should know of its settings
        self.goal: Goal = Goal(self)
        self._on_idle: Callable[[], None] = lambda: None
        self._pruned: int = 0  # events up to this number are gone, as far as we know
        self._queue: ThreadQueue | None = None
        self._sessions: CommandSessions | None = None
        self._mcp: ThreadMcp | None = None
        self._skill_servers: Mapping[str, McpServerConfig] = {}  # that skills need which were used
        self._mcp_configs: tuple[Mapping[str, McpServerConfig], ...] = ()
        self.hooks: ThreadHooks | None = None  # as its last turn found them; without any there is none
        # How the session began, until its first turn; None afterwards.
        self._session_source: SessionSource | None = "resume" if loaded.counters.turn else "startup"
        self._children: Children | None = None
        self._terminals: Terminals | None = None
        self._model_facts: tuple[Config, str, ModelFacts] | None = None
        # By provider and model: what the server says of the window; 0 when it says nothing, None while it is asked.
        self._windows: dict[tuple[str, str], int | None] = {}
        self._left: Settings | None = None  # with another environment, which the model does not know of yet
        self._failed = False  # the last turn did
        self._warned: set[str] = set()  # texts of ours, so they are few
        self._holds = 0
        self._claim_grace: asyncio.TimerHandle | None = None
        self._load(loaded)
        if pins is not None:
            self._adopt(pins)
        self.journal: Journal = Journal(
            self.id,
            store,
            subscribers.publish,
            seq=loaded.counters.seq,
            fence=loaded.fence,
            on_failure=self._stop_unstored_turn,
        )
        self.requests: ClientRequests = ClientRequests(
            self.id, self.journal, subscribers, self.publish_status, agent=self.state.agent
        )

    def _load(self, loaded: Loaded) -> None:
        self.record: ThreadRecord = loaded.record
        self.state: State = read_state(loaded.record.state, self.store.location)
        agent = self.state.agent
        self.session_id: str = self.id if agent is None else agent.root_id  # sub-agents belong to that of the root
        self.counters: Counters = loaded.counters
        self.queued: bool = loaded.queued  # whether messages may be waiting in the queue
        if self.state.roots != self.pins.on_record():
            self.pins = Pins.known(self.state.roots)

    @property
    def settings(self) -> Settings:
        return self.state.settings

    def config(self) -> Config:
        """The configuration as the files have it now: for what a request asks for."""
        self.services.refresh_config()
        return self.services.config_for(self.settings)

    @property
    def queue(self) -> ThreadQueue:
        if self._queue is None:
            from treadle.agent.thread.thread_queue import ThreadQueue  # loaded with the first queue

            self._queue = ThreadQueue(self)
        return self._queue

    @property
    def sessions(self) -> CommandSessions:
        if self._sessions is None:
            from treadle.tools.command.command_sessions import CommandSessions  # loaded with the first command

            self._sessions = CommandSessions(self.services.environment, self._command_closed)
        return self._sessions

    @property
    def mcp(self) -> ThreadMcp | None:
        """The MCP servers of the thread; None when the settings have none, which costs nothing."""
        if self._mcp is None and self.mcp_configs:
            from treadle.agent.thread.thread_mcp import ThreadMcp  # loaded with the first server

            self._mcp = ThreadMcp(self)
        return self._mcp

    async def look_for_hooks(self, turn: Turn, config: Config) -> None:
        """Find out which hooks there are, before a turn. Raises `ExecError` when nobody can say: a guard may be among
        them."""
        settings = self.settings
        # Hooks run on this machine: those that a project on another one brings are none of its.
        place = HookPlace(settings.cwd if settings.has_environment else None, settings.confinement, str(config.home))
        try:
            found = await known_hook_files.find(place, lambda: read_hook_files(place))
        except TimeoutError:
            problem = f"hooks were not looked for: the file system of {settings.cwd} or of the home does not answer"
            raise ExecError(problem) from None
        if found.hooks or "hooks" in config.document:
            found = with_settings(found, config)
        if config.hooks.plug_ins or self.services.hooks:  # behind the others, whose places are in their names
            own = await self.services.python_hooks(config)
            behind = [structs.replace(hook, order=hook.order + len(found.hooks)) for hook in own.hooks]
            found = HookSet((*found.hooks, *behind), (*found.warnings, *own.warnings))
        if self.hooks is None and (found.hooks or found.warnings):
            from treadle.agent.thread.thread_hooks import ThreadHooks  # loaded with the first hook

            self.hooks = ThreadHooks(self)
        if self.hooks is not None:
            self.hooks.adopt(turn, found, self._session_source)
        if turn.kind == "regular":
            self._session_source = None

    def note_session_source(self, source: SessionSource) -> None:
        """The next turn is the first of something."""
        self._session_source = source

    @property
    def mcp_configs(self) -> Mapping[str, McpServerConfig]:
        """The MCP servers of the settings, and those of skills; the same object as long as both are the same."""
        configured = self.services.config_for(self.settings).mcp_servers
        if not self._skill_servers:
            return configured
        made = self._mcp_configs
        if not made or made[0] is not configured:
            self._mcp_configs = made = configured, {**self._skill_servers, **configured}
        return made[1]

    def add_skill_servers(self, servers: Mapping[str, McpServerConfig]) -> None:
        """Skills that need these have been used. They last as long as the thread is in memory."""
        self._skill_servers = {**self._skill_servers, **servers}
        self._mcp_configs = ()

    @property
    def children(self) -> Children:
        """The sub-agents of the thread. Whether it has any open is in `state.children`."""
        if self._children is None:
            from treadle.agent.thread.thread_children import Children  # loaded with the first sub-agent

            self._children = Children(self)
        return self._children

    @property
    def terminals(self) -> Terminals:
        if self._terminals is None:
            from treadle.agent.thread.terminals import Terminals  # likewise

            self._terminals = Terminals()
        return self._terminals

    @property
    def running_items(self) -> OpenItems:
        """Items of commands that are running, or whose end is not stored yet, including those of finished turns."""
        return {} if self._terminals is None else self._terminals.open_items()

    def open_items(self) -> tuple[KnownItem, ...]:
        """The items of the turn that runs, and of commands that outlived theirs, as far as they have come."""
        turn = self.turn
        left = () if self._terminals is None else self._terminals.left_open(0 if turn is None else turn.number)
        return (*left, *(() if turn is None else turn.items.open()))

    # --- the right to write ---

    async def acquire(self) -> None:
        """Before anything is written: make sure that no other server does, and read what it has written meanwhile.

        Called under `lock`. Raises `StoreError`.
        """
        if self._holds == 0:
            news = None if self._is_still_claimed() else await self.journal.claim()
            if self._children is not None:
                self._children.look_again(everywhere=news is not None)
            if news is not None:
                self._load(news)
                self.history = None
                self._end_authority()  # what was granted here is not known there, nor what was changed there here
                self._cut_terminals(0)  # perhaps: the commands of these turns were not known there
        self._holds += 1

    def release(self) -> None:
        self._holds -= 1
        if self._holds > 0:
            return
        self.used_at = time.monotonic()
        self._on_idle()
        if self.closing or self.journal.failure is not None:
            self._release_claim()
        else:
            self._claim_grace = asyncio.get_running_loop().call_later(CLAIM_GRACE_S, self._release_claim)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """`acquire`, and `release` afterwards."""
        await self.acquire()
        try:
            yield
        finally:
            self.release()

    def _is_still_claimed(self) -> bool:
        grace, self._claim_grace = self._claim_grace, None
        if grace is None:
            return False
        grace.cancel()
        if self.journal.failure is None:
            return True
        self._release_claim()
        return False

    def _release_claim(self) -> None:
        self._claim_grace = None
        self.journal.release()

    async def catch_up(self) -> None:
        """Read what another server has written that has taken the thread over, without taking it back.

        Called under `lock`. Raises `StoreError`.
        """
        if not self.journal.is_stale or not self.is_idle:
            return
        if self._claim_grace is not None:  # there is no claim left to release, nor to find still ours
            self._claim_grace.cancel()
            self._claim_grace = None
        loaded = await self.store.load(self.id)
        if loaded is not None:
            self._load(loaded)
            self.history = None
            self.journal.reset(loaded)

    @property
    def is_idle(self) -> bool:
        """Whether nobody writes it, or is about to: its history can be read again when it is wanted."""
        return self._holds == 0

    def on_idle(self, action: Callable[[], None]) -> None:
        """`action` is called whenever nothing writes the thread any more."""
        self._on_idle = action

    def touch(self) -> None:
        """Note that the thread was used just now."""
        self.used_at = time.monotonic()

    # --- what the model has seen ---

    async def load_history(self) -> History:
        if self.history is None:
            # A new thread has nothing to read. The first turns of several threads reach the model in their order then,
            # which answers of the store's threads may not have.
            self.history = History(await self.store.history(self.id) if self.counters.history else ())
        return self.history

    def drop_history(self) -> None:
        """Take the history out of memory; it is read again when it is wanted."""
        self.history = None

    @property
    def history_tokens(self) -> int:
        return 0 if self.history is None else self.history.tokens

    def add_history(self, items: Sequence[Any], turn: int, origin: str | None = None) -> list[Write]:
        """Add to the model's history; the writes are for the journal. `origin` is that of thoughts."""
        assert self.history is not None
        writes: list[Write] = []
        for item in items:
            raw = item if isinstance(item, Raw) else Raw(msgspec.json.encode(item))
            self.history.add(raw, origin)
            self.counters = structs.replace(self.counters, history=self.counters.history + 1)
            writes.append(HistoryRecord(self.id, self.counters.history, turn, with_origin(raw, origin)))
        return writes

    async def inject(self, items: Sequence[object]) -> None:
        """Add items to what the model has seen, outside of any turn. Under `acquire`."""
        await self.load_history()
        number = self.turn.number if self.turn is not None else self.counters.turn
        self.journal.write(*self.add_history([Raw(msgspec.json.encode(item)) for item in items], number))
        await self.journal.flush()

    @property
    def model_facts(self) -> ModelFacts:
        """What is known of the model that the thread asks."""
        model, config = self.settings.model, self.services.config_for(self.settings)
        known = self._model_facts
        if known is None or known[0] is not config or known[1] != model:
            provider = self.settings.model_provider
            listed = self._windows.get((provider, model)) or None
            known = self._model_facts = (config, model, model_facts(model, config, provider, listed))
        return known[2]

    def look_for_window(self) -> None:
        """After a response: have the server asked how long the context of a model is of which nobody says it, or which
        may have been started with less than it could read. Not before: some servers know it once the model is loaded,
        and nobody should wait for that."""
        facts, key = self.model_facts, (self.settings.model_provider, self.settings.model)
        said_by = facts.window_from
        if said_by in ("user", "server") or (said_by == "catalogue" and key[0] not in LOCAL_PROVIDERS):
            return
        if key not in self._windows:
            self._windows[key] = None
            # In a context of its own: it is no part of the turn, and not in its trace.
            Context().run(self.services.spawn, self._learn_window(key), "context window of a model")
        elif self._windows[key] == 0 and self.state.usage.last.total_tokens > facts.auto_compact_limit // 2:
            self._windows[key] = None  # once
            message = (
                f"Nobody says how long the context of `{key[1]}` is, so the thread is summed up at "
                f'{facts.auto_compact_limit:,} tokens. Set context_window in [models."{key[1]}"] of config.toml.'
            )
            self.journal.emit("warning", WarningNotification(message=message, thread_id=self.id))

    async def _learn_window(self, key: tuple[str, str]) -> None:
        window = await self.services.listed_window(self.settings)
        self._windows[key] = window or 0
        self._model_facts = None

    @property
    def context_is_full(self) -> bool:
        """Whether the next request should be preceded by a compaction."""
        return self.state.usage.last.total_tokens >= self.model_facts.auto_compact_limit

    @property
    def provider(self) -> ProviderConfig | None:
        """The provider that the thread asks, as it is configured; None is the offline model."""
        name = self.settings.model_provider
        return self.services.config_for(self.settings).providers.get(name)

    @property
    def origin(self) -> str:
        """Where the answers of the model come from: thoughts go back only there."""
        provider = self.provider
        return self.settings.model_provider if provider is None else provider.origin

    def origin_of(self, call_type: str) -> str | None:
        """Whom the answer of a call is for alone; None for whoever goes on with the thread."""
        return self.origin if call_type == "tool_search_call" else None

    # --- turns ---

    def next_turn(self) -> int:
        self.counters = structs.replace(self.counters, turn=self.counters.turn + 1)
        return self.counters.turn

    def next_item(self) -> int:
        self.counters = structs.replace(self.counters, item=self.counters.item + 1)
        return self.counters.item

    def start_turn(self, turn: Turn) -> None:
        self.turn = turn

    def turn_begun(self) -> None:
        """The turn is published: how the last one ended is no longer the status of the thread."""
        self._failed = False
        self.publish_status()

    def end_turn(self, turn: Turn, *, failed: bool) -> None:
        if self.turn is turn:
            self.turn = None
        self._failed = failed
        if self._mcp is not None:
            self._mcp.rest()

    async def cut_turns(self, first: int, refusal: str) -> None:
        """Remove the turns from `first` on. Under `lock`. Refused while one runs."""
        if self.turn is not None:
            raise RpcError(INVALID_REQUEST, refusal)
        async with self.writing():
            before = await self.store.turns(self.id, after=first, limit=1, descending=True)
            usage = read_usage(before[0].usage if before else None, self.store.location)
            # The conversation of an engine cannot be cut: a new one is told what is left.
            self.change_state(usage=usage, engine=None)
            if self.state.children:
                self.children.cut(first)
            self.journal.write(CutTurns(self.id, first), self.save())
            await self.journal.flush()
            loaded = await self.store.load(self.id)
            assert loaded is not None
            self.counters = loaded.counters
            self._cut_terminals(first)
            self.history = None

    def _stop_unstored_turn(self) -> None:
        """The store has failed: nothing that a turn does from here on can be stored or published."""
        if self.turn is not None:
            self.turn.stop_unstored()

    def _cut_terminals(self, first: int) -> None:
        """Turns from `first` on are gone: what still runs in them is stored nowhere."""
        if self._terminals is not None:
            self._terminals.cut(first)

    def prune_events(self) -> list[Write]:
        """What removes the events that nobody can ask for again."""
        oldest = self.journal.seq - KEPT_EVENTS
        if oldest < self._pruned + PRUNE_EVERY:
            return []
        self._pruned = oldest
        return [PruneEvents(self.id, oldest)]

    # --- status and state ---

    @property
    def status(self) -> ThreadStatus:
        if self.turn is not None and self.turn.state.begun:
            return ActiveThreadStatus(active_flags=self.requests.flags)
        return SystemErrorThreadStatus() if self._failed else IdleThreadStatus()

    def publish_status(self, *writes: Write) -> None:
        params = ThreadStatusChangedNotification(thread_id=self.id, status=self.status)
        self.journal.emit("thread/status/changed", params, *writes)

    def change_state(self, **changes: Any) -> None:
        """Replace members of the state, in memory; `save` gives what is to be stored."""
        self.state = structs.replace(self.state, **changes)

    def save(self, **changes: Any) -> ThreadRecord:
        """The record as it is to be written now."""
        self.record = structs.replace(
            self.record,
            state=encode(self.state),
            cwd=self.settings.client_cwd or self.settings.cwd,
            model=self.settings.model,
            model_provider=self.settings.model_provider,
            updated_at=max(now_ms(), self.record.created_at),  # the clock may have been set back
            **changes,
        )
        return self.record

    def hold_queue(self, held: bool) -> None:
        """Whether messages in the queue wait until somebody goes on; part of the state."""
        if self.state.queue_held is not held:
            self.change_state(queue_held=held)

    def note_queue(self, waiting: bool) -> None:
        """Whether messages may be waiting in the queue."""
        self.queued = waiting

    def warn_once(self, turn: Turn, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            turn.report.warning(message)

    # --- settings ---

    def change_settings(self, changes: Mapping[str, Any], pins: Mapping[str, Pin]) -> None:
        """Under `acquire`. Publishes what is different. `pins` are those of `look_at_roots`."""
        before, settings = self.settings, structs.replace(self.settings, **changes)
        if settings == before:
            return
        self.change_state(settings=settings)
        if "sandbox" in changes:
            self.warning = None
        if settings.environment != before.environment and self.counters.turn:
            self._left = self._left or before
        self.pin(pins)
        params = ThreadSettingsUpdatedNotification(thread_id=self.id, thread_settings=settings.on_wire())
        self.journal.emit("thread/settings/updated", params, self.save())
        if not same_authority(before, settings):
            self._end_authority()
            if self.state.children:
                self.children.limit()
        if self._mcp is not None and settings.workspace != before.workspace:
            self._mcp.roots_changed()

    def take_move(self) -> str | None:
        """What the model should know of a change of the environment, once."""
        left, self._left = self._left, None
        if left is None or left.environment == self.settings.environment:
            return None
        return moved_text(_where(left), _where(self.settings))

    async def look_at_roots(self, changes: dict[str, Any]) -> dict[str, Pin]:
        """Where the directories lead that these changes bring; on other machines, that becomes one of the changes.
        Raises `ExecError` for a permission profile whose limits cannot be enforced there."""
        if not changes.keys() & {"cwd", "sandbox", "workspace_roots", "remote", "others"}:
            return {}
        settings = structs.replace(self.settings, **changes)
        changes |= await remote_places(self.services, settings, self.settings)
        if not settings.is_local:
            return {}
        await check_enforceable(settings.confinement, settings.cwd, self.services.home)
        return await asyncio.to_thread(pin, settings.confinement, settings.cwd)

    def pin(self, fresh: Mapping[str, Pin]) -> None:
        """Note where the directories of the sandbox lead; what is known already stays."""
        if self.settings.is_local:
            self._adopt(self.pins.changed(self.settings.confinement, self.settings.cwd, fresh))

    def _adopt(self, pins: Pins) -> None:
        self.pins = pins
        self.change_state(roots=pins.on_record())

    # --- commands that run ---

    def note_command(self, item_id: str, command: RemoteCommand) -> None:
        """A command runs on another machine, where another server may find it again."""
        self.change_state(commands={**self.state.commands, item_id: command})
        self.journal.write(self.save())

    def forget_commands(self, item_ids: Iterable[str]) -> list[Write]:
        """These have ended, or are not there any more; what that writes."""
        left = {item_id: each for item_id, each in self.state.commands.items() if item_id not in set(item_ids)}
        if len(left) == len(self.state.commands):
            return []
        self.change_state(commands=left)
        return [self.save()]

    def command_started(self, session: RunningProgram, epoch: int, settings: Settings, rules: Policy | None) -> None:
        """The model has a command running. The settings may have changed while it was started."""
        self.authority.started(session, epoch, settings, rules)
        self._end_commands(self.authority.over(self.settings))

    def _command_closed(self, session: CommandSession) -> None:
        self.authority.closed(session)
        self.journal.after(lambda: self.terminals.closed(session))

    def _end_authority(self) -> None:
        """End all grants, take open questions back, and end commands that may do more than the settings allow."""
        self.authority.forget()
        self.requests.withdraw_approvals("the settings of the thread changed")
        self._end_commands(self.authority.over(self.settings))

    def _end_commands(self, over: Sequence[RunningProgram]) -> None:
        for session in over:
            self.services.spawn(session.terminate(ENDED), f"end of command {session.process_id}")
        if over:
            numbers = ", ".join(session.process_id for session in over)
            message = f"The settings of the thread changed: commands that could do more were ended (process {numbers})."
            self.journal.emit("warning", WarningNotification(message=message, thread_id=self.id))

    # --- coming and going ---

    async def publish_started(self) -> None:
        """A new thread becomes known to clients, once its record is stored. Raises `StoreError`: then it is none.

        Nobody else knows the thread yet, so it need not be claimed.
        """
        barrier = self.journal.barrier()
        self.journal.emit("thread/started", ThreadStartedNotification(thread=self.wire()))
        try:
            await self.journal.wait_for(barrier)
        except BaseException:
            self.closing = True
            raise

    async def close(self) -> None:
        """End the turn as interrupted and the commands with their descendants. What was published is stored."""
        self.closing = True
        if self.turn is not None:
            await self.turn.abort()
        if self.hooks is not None:
            await self.hooks.close()
        if self._sessions is not None:
            await self._sessions.close()
        if self._mcp is not None:
            await self._mcp.close()
        if self._claim_grace is not None:
            self._claim_grace.cancel()
            self._release_claim()
        self.history = None  # whoever still holds the thread does not need it

    # --- on the wire ---

    def wire(self, turns: Sequence[WireTurn] = ()) -> WireThread:
        return wire_thread(
            self.record,
            self.state,
            self.status,
            location=self.store.location,
            ephemeral=self.ephemeral,
            turns=tuple(turns),
        )


def _where(settings: Settings) -> str:
    return "nowhere" if settings.environment is None else f"in `{settings.environment}`, in {settings.cwd}"


async def with_directories(
    services: Services, given: Sequence[TurnEnvironmentParams] | None
) -> tuple[TurnEnvironmentParams, ...] | None:
    """The environments of a request, each with its own directory where the request names none. Raises `ExecError`."""

    async def directory(place: TurnEnvironmentParams) -> str:
        if place.cwd is not None:
            return place.cwd
        local = place.environment_id == LOCAL
        return services.cwd if local else await services.machine(place.environment_id).directory()

    return None if given is None else tuple([structs.replace(each, cwd=await directory(each)) for each in given])


async def remote_places(services: Services, settings: Settings, before: Settings | None = None) -> dict[str, Any]:
    """The settings that say where the directories of a thread lead on other machines; `before` has those that it knows
    already. Raises `ExecError` where a machine cannot be reached, or nobody knows it."""
    known = {} if before is None else {place.environment: place.roots for place in before.workplaces}

    async def roots(place: Workplace) -> Mapping[str, str]:
        if place.is_local:
            return {}
        confinement = settings.at(place).confinement
        return await services.machine(place.environment).roots(confinement, place.cwd, known.get(place.environment, {}))

    if settings.remote is None and not settings.others:
        return {}
    first, *others = settings.workplaces
    for place in (first, *others):
        if not place.is_local:
            services.machine(place.environment)  # before any is connected
    return {
        "remote_roots": await roots(first),
        "others": tuple([structs.replace(place, roots=await roots(place)) for place in others]),
    }


def wire_thread(
    record: ThreadRecord,
    state: State,
    status: ThreadStatus,
    *,
    location: str | None,
    ephemeral: bool = False,
    turns: tuple[WireTurn, ...] = (),
) -> WireThread:
    agent = state.agent
    return WireThread(
        id=record.id,
        cli_version=__version__,
        created_at=record.created_at // 1000,
        cwd=record.cwd,
        ephemeral=ephemeral,
        model_provider=record.model_provider,
        preview=record.preview,
        session_id=record.id if agent is None else agent.root_id,
        source=record.source if agent is None else _source_of(agent),
        status=status,
        turns=turns,
        updated_at=record.updated_at // 1000,
        forked_from_id=record.forked_from_id,
        git_info=state.git_info,
        history_mode="paginated",
        model=record.model,
        name=record.name,
        originator=record.originator,
        # Clients take threads with the same path for one, and a thread without a path for one that is not stored.
        path=None if location is None else f"{location}/{record.id}",
        reasoning_effort=state.settings.effort,
        recency_at=record.recency_at // 1000,
        thread_source=state.thread_source,
        parent_thread_id=record.parent_thread_id,
        agent_nickname=None if agent is None else agent.nickname,
        agent_role=None if agent is None else agent.role,
        # As the real server has it, which knows them of threads in memory only.
        environments=None
        if isinstance(status, NotLoadedThreadStatus)
        else tuple(place.on_wire() for place in state.settings.workplaces),
    )


def _source_of(agent: AgentPlace) -> SubAgentSessionSource:
    spawned = SubAgentThreadSpawn(
        parent_thread_id=agent.parent_id,
        depth=agent.depth,
        agent_nickname=agent.nickname,
        agent_role=agent.role,
    )
    return SubAgentSessionSource(sub_agent=ThreadSpawnSubAgentSource(thread_spawn=spawned))
