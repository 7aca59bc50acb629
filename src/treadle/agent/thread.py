"""`Thread`: a conversation that is in memory. It owns its state, its journal and the turn that runs.

Everything that changes it happens on one event loop, under `lock` or in its own turn; what it publishes is in the
store first. Another server may write the thread while nothing happens here: `acquire` finds out and reads it anew.
Requests come to it through its `ThreadHandle`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, structs

from treadle._version import __version__
from treadle.agent.authority import ENDED, Authority, same_authority
from treadle.agent.client_requests import ClientRequests
from treadle.agent.ids import now_ms
from treadle.agent.journal import Journal
from treadle.agent.model_history import History, with_origin
from treadle.agent.services import Services, Subscribers
from treadle.agent.state import Settings, State, read_state
from treadle.config import model_facts
from treadle.execution.sandbox.pinned_roots import Pin, Pins, pin
from treadle.execution.sandbox.sandbox_modes import check_enforceable
from treadle.protocol.app.notifications import WarningNotification
from treadle.protocol.app.thread_notifications import (
    ThreadSettingsUpdatedNotification,
    ThreadStatusChangedNotification,
)
from treadle.protocol.app.threads import (
    ActiveThreadStatus,
    IdleThreadStatus,
    SystemErrorThreadStatus,
    ThreadStatus,
)
from treadle.protocol.app.threads import Thread as WireThread
from treadle.store.contract import Counters, HistoryRecord, Loaded, Store, ThreadRecord, Write

if TYPE_CHECKING:
    from treadle.agent.context import CachedContext
    from treadle.agent.terminals import Terminals
    from treadle.agent.turn import Turn
    from treadle.agent.turn_items import OpenItems
    from treadle.config import Config, ModelFacts
    from treadle.execution.sandbox.policy import Policy
    from treadle.protocol.app.items import KnownItem
    from treadle.protocol.app.turns import Turn as WireTurn
    from treadle.tools.command.command_sessions import CommandSession, CommandSessions

# A thread is kept claimed for this long after its last use: the next turn often follows at once, and a claim is a trip
# to the store. Another server that wants it waits longer than that.
LINGER_S: Final = 0.1


class Thread:
    # There may be thousands of them, and Python shares the names of at most 30 attributes between them.
    __slots__ = (
        "__weakref__",
        "_failed",
        "_holds",
        "_lingering",
        "_model_facts",
        "_sessions",
        "_terminals",
        "_warned",
        "authority",
        "cached_context",
        "closing",
        "counters",
        "ephemeral",
        "history",
        "id",
        "idle_goal_turns",
        "journal",
        "lock",
        "on_rest",
        "pins",
        "pruned",
        "queued",
        "record",
        "requests",
        "services",
        "state",
        "store",
        "subscribers",
        "turn",
        "used_at",
        "warning",
    )

    def __init__(
        self, services: Services, store: Store, subscribers: Subscribers, loaded: Loaded, *, ephemeral: bool = False
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
        self.on_rest: Callable[[], None] = lambda: None  # called when nothing uses it any more
        self.cached_context: CachedContext | None = None
        self.idle_goal_turns: int = 0
        self.pruned: int = 0  # events up to this number went, as far as we remember
        self.closing: bool = False
        self._sessions: CommandSessions | None = None
        self._terminals: Terminals | None = None
        self._model_facts: tuple[Config, str, ModelFacts] | None = None
        self._failed = False  # the last turn did
        self._warned: set[str] = set()  # texts of ours, so they are few
        self._holds = 0
        self._lingering: asyncio.TimerHandle | None = None
        self.pins: Pins = Pins()
        self.warning: str | None = None  # what everyone who joins should know of its settings
        self._take(loaded)
        self.journal: Journal = Journal(
            self.id, store, subscribers.publish, seq=loaded.counters.seq, fence=loaded.fence
        )
        self.requests: ClientRequests = ClientRequests(self.id, self.journal, subscribers, self.publish_status)

    def _take(self, loaded: Loaded) -> None:
        self.record: ThreadRecord = loaded.record
        self.state: State = read_state(loaded.record.state, self.store.location)
        self.counters: Counters = loaded.counters
        self.queued: bool = loaded.queued  # whether messages may be waiting in the queue
        if self.state.roots != self.pins.on_record():
            self.pins = Pins.known(self.state.roots)

    @property
    def settings(self) -> Settings:
        return self.state.settings

    def config(self) -> Config:
        return self.services.config_for(self.settings)

    @property
    def sessions(self) -> CommandSessions:
        if self._sessions is None:
            from treadle.tools.command.command_sessions import CommandSessions  # loaded with the first command

            self._sessions = CommandSessions(self.services.environment, self._command_closed)
        return self._sessions

    @property
    def terminals(self) -> Terminals:
        if self._terminals is None:
            from treadle.agent.terminals import Terminals  # likewise

            self._terminals = Terminals()
        return self._terminals

    @property
    def running_items(self) -> OpenItems:
        """Those of commands that run now, also of turns that are over, and of those whose end is not kept yet."""
        return {} if self._terminals is None else self._terminals.open_items()

    def open_items(self) -> tuple[KnownItem, ...]:
        """Those of the turn that runs, and of commands that outlived theirs, as far as they have come."""
        turn = self.turn
        left = () if self._terminals is None else self._terminals.left_open(0 if turn is None else turn.number)
        return (*left, *(() if turn is None else turn.items.open()))

    # --- the right to write ---

    async def acquire(self) -> None:
        """Before anything is written: make sure that no other server does, and know what it has written meanwhile.

        Called under `lock`. Raises `StoreError`.
        """
        if self._holds == 0 and not self._still_ours():
            news = await self.journal.claim()
            if news is not None:
                self._take(news)
                self.history = None
                self._end_authority()  # what was granted here is not known there, nor what was changed there here
                self.turns_cut(0)  # perhaps: the commands of these turns were not known there
        self._holds += 1

    async def catch_up(self) -> None:
        """Another server has taken the thread over: know what it has written, without taking it back.

        Called under `lock`. Raises `StoreError`.
        """
        if not self.journal.is_stale or not self.at_rest:
            return
        if self._lingering is not None:  # there is nothing left to let go of, nor to find still ours
            self._lingering.cancel()
            self._lingering = None
        loaded = await self.store.load(self.id)
        if loaded is not None:
            self._take(loaded)
            self.history = None
            self.journal.reset(loaded)

    def _still_ours(self) -> bool:
        lingering, self._lingering = self._lingering, None
        if lingering is None:
            return False
        lingering.cancel()
        if self.journal.failure is None:
            return True
        self._let_go()
        return False

    def release(self) -> None:
        self._holds -= 1
        if self._holds > 0:
            return
        self.used_at = time.monotonic()
        self.on_rest()
        if self.closing or self.journal.failure is not None:
            self._let_go()
        else:
            self._lingering = asyncio.get_running_loop().call_later(LINGER_S, self._let_go)

    def _let_go(self) -> None:
        self._lingering = None
        self.journal.release()

    @property
    def at_rest(self) -> bool:
        """Whether nobody writes it, or is about to: its history can be read again when it is wanted."""
        return self._holds == 0

    async def load_history(self) -> History:
        if self.history is None:
            self.history = History(await self.store.history(self.id))
        return self.history

    @property
    def history_tokens(self) -> int:
        return 0 if self.history is None else self.history.tokens

    # --- numbers ---

    def next_turn(self) -> int:
        self.counters = structs.replace(self.counters, turn=self.counters.turn + 1)
        return self.counters.turn

    def next_item(self) -> int:
        self.counters = structs.replace(self.counters, item=self.counters.item + 1)
        return self.counters.item

    @property
    def model_facts(self) -> ModelFacts:
        """What is known of the model that the thread asks."""
        config = self.services.config_for(self.settings)
        known = self._model_facts
        if known is None or known[0] is not config or known[1] != self.settings.model:
            known = self._model_facts = (config, self.settings.model, model_facts(self.settings.model, config))
        return known[2]

    @property
    def context_is_full(self) -> bool:
        """Whether the next request should be preceded by a compaction."""
        return self.state.usage.last.total_tokens >= self.model_facts.auto_compact_limit

    @property
    def origin(self) -> str:
        """Where what the model says comes from: thoughts go back only there."""
        provider = self.services.config_for(self.settings).providers.get(self.settings.model_provider)
        return self.settings.model_provider if provider is None else provider.origin

    def remember(self, items: Sequence[Any], turn: int, origin: str | None = None) -> list[Write]:
        """Add to the model's history; the writes are for the journal. `origin` is that of thoughts."""
        assert self.history is not None
        writes: list[Write] = []
        for item in items:
            raw = item if isinstance(item, Raw) else Raw(msgspec.json.encode(item))
            self.history.add(raw, origin)
            self.counters = structs.replace(self.counters, history=self.counters.history + 1)
            writes.append(HistoryRecord(self.id, self.counters.history, turn, with_origin(raw, origin)))
        return writes

    # --- status ---

    @property
    def status(self) -> ThreadStatus:
        if self.turn is not None and self.turn.state.begun:
            return ActiveThreadStatus(active_flags=self.requests.flags)
        return SystemErrorThreadStatus() if self._failed else IdleThreadStatus()

    def publish_status(self, *writes: Write) -> None:
        params = ThreadStatusChangedNotification(thread_id=self.id, status=self.status)
        self.journal.emit("thread/status/changed", params, *writes)

    def set_failed(self, failed: bool) -> None:
        self._failed = failed

    def hold_queue(self, held: bool) -> None:
        """Whether messages in the queue wait until somebody goes on; kept with the record."""
        if self.state.queue_held is not held:
            self.state = structs.replace(self.state, queue_held=held)

    def warn_once(self, turn: Turn, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            turn.report.warning(message)

    # --- settings ---

    def change_settings(self, changes: Mapping[str, Any], pins: Mapping[str, Pin]) -> None:
        """Under `acquire`. Tells clients when something is different. `pins` are those of `look_at_roots`."""
        before, settings = self.settings, structs.replace(self.settings, **changes)
        if settings == before:
            return
        self.state = structs.replace(self.state, settings=settings)
        if "sandbox" in changes:
            self.warning = None
        self.pin(pins)
        params = ThreadSettingsUpdatedNotification(thread_id=self.id, thread_settings=settings.on_wire())
        self.journal.emit("thread/settings/updated", params, self.save())
        if not same_authority(before, settings):
            self._end_authority()

    def command_started(self, session: CommandSession, epoch: int, settings: Settings, rules: Policy | None) -> None:
        """The model has a command running. The settings may have changed while it was started."""
        self.authority.started(session, epoch, settings, rules)
        self._end_commands(self.authority.over(self.settings))

    def _command_closed(self, session: CommandSession) -> None:
        self.authority.closed(session)
        self.journal.after(lambda: self.terminals.closed(session))

    def turns_cut(self, first: int) -> None:
        """Turns from `first` on are gone: what still runs in them is kept nowhere."""
        if self._terminals is not None:
            self._terminals.cut(first)

    def _end_authority(self) -> None:
        """Nothing that was allowed before counts any more; a question that is open is taken back."""
        self.authority.forget()
        self.requests.withdraw_approvals("the settings of the thread changed")
        self._end_commands(self.authority.over(self.settings))

    def _end_commands(self, over: Sequence[CommandSession]) -> None:
        for session in over:
            self.services.spawn(session.terminate(ENDED), f"end of command {session.process_id}")
        if over:
            numbers = ", ".join(session.process_id for session in over)
            message = f"The settings of the thread changed: commands that could do more were ended (process {numbers})."
            self.journal.emit("warning", WarningNotification(message=message, thread_id=self.id))

    async def look_at_roots(self, changes: Mapping[str, Any]) -> dict[str, Pin]:
        """Where the directories lead that these changes bring. Raises `ExecError` for a permission profile whose limits
        cannot be held there."""
        if not changes.keys() & {"cwd", "sandbox", "workspace_roots"}:
            return {}
        settings = structs.replace(self.settings, **changes)
        await check_enforceable(settings.confinement, settings.cwd, self.services.home)
        return await asyncio.to_thread(pin, settings.confinement, settings.cwd)

    def pin(self, fresh: Mapping[str, Pin]) -> None:
        """Remember where the directories of the sandbox lead; what is remembered already stays."""
        self.adopt(self.pins.changed(self.settings.confinement, self.settings.cwd, fresh))

    def adopt(self, pins: Pins) -> None:
        self.pins = pins
        self.state = structs.replace(self.state, roots=pins.on_record())

    def save(self, **changes: Any) -> ThreadRecord:
        """The record as it is to be written now."""
        self.record = structs.replace(
            self.record,
            state=self.state.encoded(),
            cwd=self.settings.cwd,
            model=self.settings.model,
            model_provider=self.settings.model_provider,
            updated_at=max(now_ms(), self.record.created_at),  # the clock may have been set back
            **changes,
        )
        return self.record

    # --- ends ---

    async def close(self) -> None:
        """End the turn as interrupted and the commands with their descendants. What was announced is kept."""
        self.closing = True
        if self.turn is not None:
            await self.turn.abort()
        if self._sessions is not None:
            await self._sessions.close()
        if self._lingering is not None:
            self._lingering.cancel()
            self._let_go()
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


def wire_thread(
    record: ThreadRecord,
    state: State,
    status: ThreadStatus,
    *,
    location: str | None,
    ephemeral: bool = False,
    turns: tuple[WireTurn, ...] = (),
) -> WireThread:
    return WireThread(
        id=record.id,
        cli_version=__version__,
        created_at=record.created_at // 1000,
        cwd=record.cwd,
        ephemeral=ephemeral,
        model_provider=record.model_provider,
        preview=record.preview,
        session_id=record.id,
        source=record.source,
        status=status,
        turns=turns,
        updated_at=record.updated_at // 1000,
        forked_from_id=record.forked_from_id,
        git_info=state.git_info,
        history_mode="paginated",
        model=record.model,
        name=record.name,
        originator=record.originator,
        # Clients take threads with the same path for one, and a thread without a path for one that is not kept.
        path=None if location is None else f"{location}/{record.id}",
        reasoning_effort=state.settings.effort,
        recency_at=record.recency_at // 1000,
        thread_source=state.thread_source,
    )
