"""`Children`: the sub-agents of a thread. They are started, spoken to, waited for and closed here, and here the model
of the thread is sent how they ended.

A child is an ordinary thread. What its parent stores of it is a `Child` in its own state. An end is reported once,
whenever which process dies, because nothing is queued: what is pending follows from what is stored.

    child   its turn ends and is stored ─▶ the server says so (`note_end`); after a restart the store does (`look`)
    parent  before it asks its model: is the last turn of a child that has ended newer than the one that was seen? Then
            the notification in the history, and `seen`, are one write (`deliver`); `wait_agent` does the same

A child is made in an order of which every part may be the last: the parent stores that there will be one, the child is
stored, its turn begins. A child that is in the parent's state and nowhere else never was; one without a turn, found
after a restart, was interrupted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw, structs

from treadle.agent.thread.model_history import user_message
from treadle.agent.thread.thread_state import AgentPlace, Child, Settings, Usage, read_state, read_usage
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.base import decode
from treadle.protocol.app.items import AgentMessageThreadItem, CollabAgentState
from treadle.protocol.app.turns import TurnError, TurnInterruptParams, TurnStartParams
from treadle.tools.command.command_output import cut_to

if TYPE_CHECKING:
    from treadle.agent.services import AgentServices
    from treadle.agent.thread.thread import Thread
    from treadle.agent.thread.thread_handle import ThreadHandle
    from treadle.agent.turn.turn import Turn
    from treadle.protocol.app.item_parts import UserInput
    from treadle.store.contract import Store, Write

Word: TypeAlias = Literal["pendingInit", "running", "interrupted", "completed", "errored", "notFound"]
_OF_MODEL: Final[dict[Word, str]] = {"pendingInit": "pending_init", "notFound": "not_found"}

NOTIFICATION: Final = "<subagent_notification>"
LIMIT_REACHED: Final = "agent thread limit reached"
# Those that are done need little, but each is a thread and has its place in the state of its parent.
MAX_OPEN: Final = 256
# Of what a child has said last.
MAX_MESSAGE_TOKENS: Final = 20_000
# How often the store is asked for one that is waited for and works in another server.
LOOK_S: Final = 1.0
_PAGE: Final = 20


class ChildStatus(NamedTuple):
    """The status of a child, or how its last turn ended: then `message` is what it said last, or what went wrong."""

    word: Word
    message: str | None = None

    @property
    def is_final(self) -> bool:
        return self.word not in ("pendingInit", "running")

    @property
    def for_model(self) -> str | dict[str, str | None]:
        if self.word in ("completed", "errored"):
            return {self.word: self.message}
        return _OF_MODEL.get(self.word, self.word)

    @property
    def on_wire(self) -> CollabAgentState:
        return CollabAgentState(status=self.word, message=self.message)


class NewChild(NamedTuple):
    """What the thread of a sub-agent begins with; `history` are the items of its parent's that its model sees."""

    id: str
    settings: Settings
    place: AgentPlace
    preview: str
    history: Sequence[Raw] = ()


class _Ended(NamedTuple):
    """The last turn of a child that has ended; empty when none has. An interrupted one `wakes` nobody."""

    turn_id: str
    wakes: bool


class _End(NamedTuple):
    turn_id: str
    status: ChildStatus
    usage: Usage


class FoundChild(NamedTuple):
    """How a child is; with its end, when it is that."""

    status: ChildStatus
    end: _End | None = None


class Children:
    __slots__ = ("_asked", "_changed", "_ended", "_returned", "_spawned", "_thread")

    def __init__(self, thread: Thread) -> None:
        self._thread = thread
        self._ended: dict[str, _Ended] = {}
        self._asked: dict[str, str] = {}  # the last turn of each that was begun from here
        self._returned: dict[str, dict[str, _End]] = {}  # what a call has found, whose output is not written yet
        self._spawned = ("", 0)  # in which turn, how many
        self._changed = asyncio.Event()  # replaced when it is set

    @property
    def _agents(self) -> AgentServices:
        return self._thread.services.agents

    @property
    def _open(self) -> dict[str, Child]:
        return dict(self._thread.state.children)

    # --- their ends ---

    def note_end(self, child_id: str, turn_id: str, *, wakes: bool) -> None:
        """Note that a turn of a child has ended, and is stored."""
        before = self._ended.get(child_id)
        if child_id in self._thread.state.children and (before is None or before.turn_id < turn_id):
            self._ended[child_id] = _Ended(turn_id, wakes)
        self._changed.set()
        self._changed = asyncio.Event()

    async def look(self) -> None:
        """Find out how those ended that nobody has noted: the process was another one then."""
        thread = self._thread
        for child_id in [each for each in thread.state.children if each not in self._ended]:
            turns = await thread.store.turns(child_id, limit=2, descending=True)
            ended = next((turn for turn in turns if turn.status != "inProgress"), None)
            if ended is not None and ended is turns[0]:
                self._ended.setdefault(child_id, _Ended(ended.id, ended.status != "interrupted"))
            elif self._is_running(child_id) or (not turns and self._agents.find(child_id) is not None):
                self._ended.setdefault(child_id, _Ended("" if ended is None else ended.id, wakes=False))
            elif not turns:
                if await thread.store.load(child_id) is None:
                    self._forget(child_id)
                else:  # it was to begin: ids of turns are greater than that of their thread
                    self._ended.setdefault(child_id, _Ended(child_id, wakes=False))

    def look_again(self, *, everywhere: bool) -> None:
        """Another server may have had the thread, and others may have children that do not work here: what is known of
        these is not known any more, but for ends that are still to be reported to the model."""
        news = self.pending()
        for child_id in [each for each in self._ended if everywhere or not (self._is_running(each) or each in news)]:
            del self._ended[child_id]

    def pending(self) -> list[str]:
        """The children whose end was not reported to the model."""
        return [
            child_id
            for child_id, child in self._thread.state.children.items()
            if child_id in self._ended and self._ended[child_id].turn_id > child.seen
        ]

    async def deliver(self, turn: Turn) -> bool:
        """Report to the model the ends that it does not know of; whether there were any."""
        self._returned.clear()  # those of calls that were interrupted, which were not reported
        await self.look()
        ends = {child_id: await self._end(child_id) for child_id in self.pending()}
        if ends:
            reports = [user_message(notification(child_id, end.status)) for child_id, end in ends.items()]
            self._see(ends, turn)
            self._thread.journal.write(*turn.add_history(reports), self._thread.save())
        return bool(ends)

    def _see(self, ends: dict[str, _End], turn: Turn) -> None:
        """Record that these ends are reported to the model, by what is written together with the state. What the
        children have used since the last time is counted."""
        thread = self._thread
        children, usage, spent = self._open, thread.state.usage, 0
        for child_id, end in ends.items():
            if end.status.word == "notFound":
                children.pop(child_id, None)
            if child_id not in children:  # it was closed, or is deleted
                self._ended.pop(child_id, None)
                self._asked.pop(child_id, None)
                continue
            child = children[child_id] = structs.replace(children[child_id], seen=end.turn_id, told=turn.number)
            tokens, cost = end.usage.tokens_with_agents, end.usage.cost_with_agents
            if tokens <= child.tokens:  # nothing new, or nobody knows: the server died in that turn
                continue
            more = None if cost is None or child.cost_usd is None else cost - child.cost_usd
            usage = usage.add_agents(tokens - child.tokens, more)
            spent += tokens - child.tokens
            children[child_id] = structs.replace(child, tokens=tokens, cost_usd=cost)
        thread.change_state(children=children, usage=usage)
        if thread.state.goal is not None and spent:
            thread.goal.account(turn.id, spent, 0)

    async def _end(self, child_id: str) -> _End:
        turn_id = self._ended[child_id].turn_id
        status, usage = await _read_end(self._thread.store, child_id, turn_id)
        return _End(turn_id, status, usage)

    # --- how they are ---

    async def status(self, child_id: str) -> ChildStatus:
        return (await self._find(child_id)).status

    async def _find(self, child_id: str) -> FoundChild:
        if child_id not in self._thread.state.children:
            return FoundChild(ChildStatus("notFound"))
        if self._is_running(child_id):
            return FoundChild(ChildStatus("running"))
        if (
            self._agents.find(child_id) is None and await self._thread.store.load(child_id) is None
        ):  # somebody has deleted it
            self._forget(child_id)
            return FoundChild(ChildStatus("notFound"))
        if child_id not in self._ended:
            await self.look()
            if child_id not in self._ended:  # it works in another server, or there is none
                return FoundChild(ChildStatus("running" if child_id in self._thread.state.children else "notFound"))
        turn_id = self._ended[child_id].turn_id
        if turn_id < self._asked.get(child_id, ""):
            return FoundChild(ChildStatus("running"))  # or has ended this moment
        if not turn_id:
            return FoundChild(ChildStatus("pendingInit"))
        end = await self._end(child_id)
        return FoundChild(end.status, end)

    @property
    def any_running(self) -> bool:
        return any(self._is_running(child_id) for child_id in self._thread.state.children)

    def _is_running(self, child_id: str) -> bool:
        found = self._agents.find(child_id)
        return found is not None and found.turn_id is not None

    @property
    def wants_turn(self) -> bool:
        """Whether one has ended that an idle thread should go on for."""
        thread = self._thread
        children = thread.state.children
        waking = [child_id for child_id in self.pending() if self._ended[child_id].wakes]
        if not waking or thread.state.queue_held:
            return False
        if thread.goal.is_pursued or any(children[child_id].wake for child_id in waking):
            return True
        return thread.services.config_for(thread.settings).agents.wake_parent

    async def wait(self, ids: Collection[str], timeout_s: float) -> dict[str, FoundChild]:
        """The first of them whose status is final, with others that are by then; none when it takes longer."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            changed = self._changed
            found = {each: found for each in ids if (found := await self._find(each)).status.is_final}
            if found:
                return found
            now = asyncio.get_running_loop().time()
            if now >= deadline:
                return {}
            # Of one that works in another server nobody says here that it has ended.
            elsewhere = any(each not in self._ended for each in ids)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(min(deadline, now + LOOK_S) if elsewhere else deadline):
                    await changed.wait()

    def returned(self, call_id: str, found: Mapping[str, FoundChild]) -> None:
        """A call tells the model this, once its output is written: a hook may look at that first, or the turn end."""
        self._returned[call_id] = {child_id: each.end for child_id, each in found.items() if each.end is not None}

    def output_written(self, call_id: str, turn: Turn) -> list[Write]:
        """The output of a call is about to be written: what belongs into the same write."""
        children = self._thread.state.children
        ends = self._returned.pop(call_id, {})
        ends = {each: end for each, end in ends.items() if each in children and children[each].seen < end.turn_id}
        if not ends:
            return []
        self._see(ends, turn)
        return [self._thread.save()]

    # --- what is done to them ---

    async def start(self, new: NewChild, task: Sequence[UserInput], turn: Turn, *, wake: bool) -> None:
        """Make a child that begins to work at once. When that raises, there is no child."""
        thread = self._thread
        self._ended[new.id] = _Ended("", wakes=False)
        thread.change_state(
            children={**thread.state.children, new.id: Child(nickname=new.place.nickname, wake=wake, made=turn.number)}
        )
        thread.journal.write(thread.save())
        try:
            await thread.journal.flush()
            child = await self._agents.make(thread, new)
            await child.limit(thread.settings)  # which may have changed meanwhile
            params = TurnStartParams(thread_id=new.id, input=tuple(task))
            self._asked[new.id] = (await child.start_turn(params, root_turn_id=turn.state.root_id)).turn.id
        except BaseException:
            self._forget(new.id)
            if thread.journal.failure is None:
                thread.journal.write(thread.save())
            thread.services.spawn(self._agents.discard(new.id), f"removing the sub-agent {new.id}")
            raise
        counted = self._spawned[1] if self._spawned[0] == turn.id else 0
        self._spawned = (turn.id, counted + 1)

    @asynccontextmanager
    async def room(self, turn: Turn, child_id: str) -> AsyncIterator[None]:
        """Room for another child, held while it is made. Raises `RpcError` when there is none."""
        limits = self._thread.services.config_for(self._thread.settings).agents
        with self._agents.place(self._thread.session_id, child_id, limits.most):
            await self._check_open()
            if self._spawned[0] == turn.id and self._spawned[1] >= limits.max_spawns_per_turn:
                most = f"this turn has started {limits.max_spawns_per_turn} (agents.max_spawns_per_turn)"
                raise RpcError(INVALID_REQUEST, f"{LIMIT_REACHED}: {most}")
            yield

    async def _check_open(self) -> None:
        if len(self._thread.state.children) >= MAX_OPEN:
            for child_id in list(self._thread.state.children):
                await self.status(child_id)  # which forgets those that somebody has deleted
        if len(self._thread.state.children) >= MAX_OPEN:
            raise RpcError(INVALID_REQUEST, f"{LIMIT_REACHED}: {MAX_OPEN} are open; close some")

    async def send(self, child_id: str, said: Sequence[UserInput], turn: Turn, *, interrupt: bool) -> str:
        """Give a child more to do; the id of the turn that will."""
        await self.look()
        child = self._agents.find(child_id) or await self._agents.load(child_id)
        most = self._thread.services.config_for(self._thread.settings).agents.most
        with self._agents.place(self._thread.session_id, child_id, most):
            running = child.turn_id
            if interrupt and running is not None:
                await child.interrupt(TurnInterruptParams(thread_id=child_id, turn_id=""))
                await child.wait_turn()
                entry = self._thread.state.children.get(child_id)
                # That it was interrupted is no news: it was wanted. But it may have come to its own end just before.
                if entry is not None and self._ended.get(child_id) == _Ended(running, wakes=False):
                    entry = structs.replace(entry, seen=running, told=turn.number)
                    self._thread.change_state(children={**self._thread.state.children, child_id: entry})
            await child.limit(self._thread.settings)
            params = TurnStartParams(thread_id=child_id, input=tuple(said))
            started = (await child.start_turn(params, root_turn_id=turn.state.root_id)).turn.id
        self._asked[child_id] = started
        return started

    async def close(self, child_id: str, turn: Turn) -> ChildStatus:
        """Take a child and those below it out of memory; its status before."""
        before = await self.status(child_id)
        await self._agents.close(child_id)
        self._ended.pop(child_id, None)
        await self.look()
        if child_id in self._ended:
            self._see({child_id: await self._end(child_id)}, turn)
        self._forget(child_id)
        return before

    async def reopen(self, child_id: str, turn: Turn) -> bool:
        """Take up again a child that was closed; False when there is no such child of this thread."""
        thread = self._thread
        stored = await thread.store.load(child_id)
        if stored is None or stored.record.parent_thread_id != thread.id:
            return False
        await self._check_open()
        await self._agents.load(child_id)
        if child_id not in thread.state.children:
            state = read_state(stored.record.state, thread.store.location)
            assert state.agent is not None
            turns = await thread.store.turns(child_id, limit=2, descending=True)
            ended = next((each.id for each in turns if each.status != "inProgress"), "")
            self._ended[child_id] = _Ended(ended, wakes=False)
            entry = Child(
                nickname=state.agent.nickname,
                seen=ended,
                made=turn.number,
                tokens=state.usage.tokens_with_agents,
                cost_usd=state.usage.cost_with_agents,
            )
            thread.change_state(children={**thread.state.children, child_id: entry})
        return True

    def limit(self) -> None:
        """The settings of the thread have changed: none of its children in memory may do more from their next call on.
        The others are limited when they are given something to do."""
        for child_id in self._thread.state.children:
            if (child := self._agents.find(child_id)) is not None:
                self._thread.services.spawn(self._limit(child), f"limiting the sub-agent {child_id}")

    async def _limit(self, child: ThreadHandle) -> None:
        try:
            await child.limit(self._thread.settings)
        except RpcError:
            return  # it is closed

    def interrupt(self) -> None:
        """Interrupt the turns of the children, and with them those of the children below."""
        for child_id in self._thread.state.children:
            if (child := self._agents.find(child_id)) is not None:
                params = TurnInterruptParams(thread_id=child_id, turn_id="")
                self._thread.services.spawn(child.interrupt(params), f"interrupting the sub-agent {child_id}")

    def cut(self, first: int) -> None:
        """The turns of the thread from `first` on are removed, so its model knows nothing of what was started or
        reported in them: those children are closed, and these ends are reported again."""
        thread = self._thread
        known: dict[str, Child] = {}
        for child_id, child in thread.state.children.items():
            if child.made >= first:
                self._ended.pop(child_id, None)
                self._asked.pop(child_id, None)
                thread.services.spawn(self._agents.close(child_id), f"closing the sub-agent {child_id}")
            else:
                known[child_id] = structs.replace(child, seen="", told=0) if child.told >= first else child
        thread.change_state(children=known)

    def _forget(self, child_id: str) -> None:
        children = self._open
        children.pop(child_id, None)
        self._thread.change_state(children=children)
        self._ended.pop(child_id, None)
        self._asked.pop(child_id, None)


def notification(child_id: str, status: ChildStatus) -> str:
    """The message that reports an end to the model."""
    report = msgspec.json.encode({"agent_path": child_id, "status": status.for_model}).decode()
    report = report.replace("</", "<\\/")  # what the child said must not end the notification
    return f"{NOTIFICATION}\n{report}\n</subagent_notification>"


async def _read_end(store: Store, child_id: str, turn_id: str) -> tuple[ChildStatus, Usage]:
    record = await store.turn(child_id, turn_id)
    if record is None and await store.load(child_id) is None:
        return ChildStatus("notFound"), Usage()
    if record is None or record.status in ("interrupted", "inProgress"):
        return ChildStatus("interrupted"), read_usage(None if record is None else record.usage, store.location)
    usage = read_usage(record.usage, store.location)
    if record.status == "failed":
        why = None if record.error is None else decode(record.error, TurnError).message
        return ChildStatus("errored", why or "the turn failed"), usage
    return ChildStatus("completed", await _last_message(store, child_id, record.number)), usage


async def _last_message(store: Store, child_id: str, turn: int) -> str | None:
    after: int | None = None
    while True:
        page = await store.items(child_id, turns=(turn, turn), after=after, limit=_PAGE, descending=True)
        for record in page:
            if record.type == "agentMessage":
                return cut_to(decode(record.data, AgentMessageThreadItem).text, MAX_MESSAGE_TOKENS)
        if len(page) < _PAGE:
            return None
        after = page[-1].number
