"""`ChatSession`: one conversation with an app-server, through the SDK. It knows no terminal; a `SessionView` shows it.

It owns the thread that is talked to, the turn that runs, and the order of what the user wants: one thing after the
other, except an interrupt. A turn is read from its own stream, which loses nothing; what else the server tells, such as
a turn that somebody else began, comes from the news of the client. An error of the server is shown, and the session
goes on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from msgspec import Struct

from treadle.cli.chat.mentions import Message
from treadle.cli.chat.thread_facts import ThreadFacts
from treadle.client import AsyncAppServerClient, CodexConfig, TransportClosedError
from treadle.client.notification import Notification, UnknownNotification
from treadle.client.sdk_errors import JsonRpcError
from treadle.errors import TreadleError
from treadle.protocol.app.threads import Thread

# What a person can have typed ahead; more is refused.
MAX_WAITING: Final = 64
_MOST_NAMED: Final = 100


class ThreadOptions(Struct, frozen=True, kw_only=True):
    """What threads of this session are started and resumed with; None: as the server has it."""

    model: str | None = None
    provider: str | None = None
    sandbox: str | None = None
    permissions: str | None = None
    approvals: str | None = None
    cwd: str | None = None

    def params(self) -> dict[str, Any]:
        given = {
            "model": self.model,
            "modelProvider": self.provider,
            "sandbox": self.sandbox,
            "permissions": self.permissions,
            "approvalPolicy": self.approvals,
            "cwd": self.cwd,
        }
        return {name: value for name, value in given.items() if value is not None}


class Answer(Struct, frozen=True):
    """What the user said to a question of the server."""

    result: Any
    instead: str | None = None
    """What the agent is to do instead."""


class SessionView(Protocol):
    """Where the session is shown."""

    def turn_started(self) -> None: ...
    def show(self, method: str, payload: Any) -> None: ...
    def note(self, text: str) -> None: ...
    def problem(self, text: str) -> None: ...
    def lost(self, why: str) -> None: ...
    async def ask(self, method: str, params: dict[str, Any]) -> Answer: ...


class ChatSession:
    """`run` is its life; the rest may be called while that runs."""

    def __init__(
        self, config: CodexConfig, view: SessionView, new: ThreadOptions, resumed: ThreadOptions | None = None
    ) -> None:
        handler: Any = self._answer
        self.client: AsyncAppServerClient = AsyncAppServerClient(config, approval_handler=handler)
        self._view = view
        self._new = new
        self._resumed = resumed or new
        self._tasks: asyncio.TaskGroup | None = None
        self._wanted: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue(MAX_WAITING)
        self._facts: ThreadFacts | None = None
        self._turn_id: str | None = None
        self._read: deque[str] = deque(maxlen=64)  # turns whose beginning may be news that comes late
        self._starting = False
        self._interrupting = False
        self._idle = asyncio.Event()
        self._idle.set()
        self.last_diff: str = ""
        self.has_turns: bool = False
        """Whether there is something in the thread to go on with."""

    @property
    def facts(self) -> ThreadFacts:
        assert self._facts is not None, "the session has no thread before `enter`"
        return self._facts

    @property
    def working(self) -> bool:
        """Whether a turn runs, or is about to."""
        return self._starting or self._turn_id is not None

    @property
    def interrupting(self) -> bool:
        return self._interrupting

    async def connect(self) -> None:
        """Raises what the SDK raises, as the others do."""
        await self.client.start()
        await self.client.initialize()

    async def enter(self, thread_id: str | None) -> ThreadFacts:
        """A thread that there is, or a new one."""
        if thread_id is None:
            facts = self._entered(await self.client.thread_start(self._new.params()))
            self.has_turns = False
            return facts
        params = {"excludeTurns": True, **self._resumed.params()}
        facts = self._entered(await self.client.thread_resume(thread_id, params))
        self.has_turns = True
        return facts

    async def run(self) -> None:
        """Until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self._guarded(self._read_news))
            tasks.create_task(self._work())

    async def close(self) -> None:
        """The turn that runs is interrupted, and the server ended if it is ours."""
        await self.client.close()

    # --- what the user wants ---

    def want(self, what: Callable[[], Awaitable[None]]) -> None:
        """Do it when all that was wanted before is done."""
        try:
            self._wanted.put_nowait(what)
        except asyncio.QueueFull:
            self._view.problem(f"{MAX_WAITING} messages wait already; this one was not taken")

    async def _work(self) -> None:
        while True:
            what = await self._wanted.get()
            await self._guarded(what)

    async def _guarded(self, what: Callable[[], Awaitable[None]]) -> None:
        try:
            await what()
        except TransportClosedError as error:
            self._view.lost(str(error))
        except TreadleError as error:
            self._view.problem(error.message if isinstance(error, JsonRpcError) else str(error))

    async def send(self, message: Message) -> None:
        """Into the turn that runs; else it begins the next one."""
        if self._turn_id is not None and await self._steer(message):
            return
        await self._idle.wait()
        await self._begin(message)

    async def _steer(self, message: Message) -> bool:
        try:
            await self.client.turn_steer(self.facts.id, self._turn_id or "", message.items())
        except TransportClosedError:
            raise
        except JsonRpcError:
            if self._turn_id is not None:  # one that takes nothing, such as the summary that /compact makes
                self._view.note("sent when the agent is done with this")
            return False
        self._view.note("added to the running turn")
        return True

    async def _begin(self, message: Message) -> None:
        self._starting, self._interrupting = True, False
        self._view.turn_started()
        try:
            started = await self.client.turn_start(self.facts.id, message.items())
            self._follow(started.turn.id)
        finally:
            self._starting = False

    def interrupt(self) -> None:
        """End the turn that runs. Asked for once a turn."""
        if self.working and not self._interrupting:
            self._interrupting = True
            if self._turn_id is not None:
                self._begin_interrupt(self._turn_id)

    def _begin_interrupt(self, turn_id: str) -> None:
        async def interrupt() -> None:
            try:
                await self.client.turn_interrupt(self.facts.id, turn_id)
            except JsonRpcError:
                return  # it has ended by itself

        assert self._tasks is not None
        self._tasks.create_task(self._guarded(interrupt))

    # --- threads ---

    async def fork(self) -> ThreadFacts:
        return self._entered(await self.client.thread_fork(self.facts.id, {"excludeTurns": True}))

    async def compact(self) -> None:
        """It is a turn, which the news tell of."""
        await self.client.thread_compact(self.facts.id)

    async def change(self, **settings: Any) -> None:
        """Of the thread, from the next turn on."""
        await self.client.thread_settings_update({"threadId": self.facts.id, **settings})

    async def find_threads(self, wanted: str | None, cwd: str, *, limit: int) -> tuple[Thread, ...]:
        """By id, else by name, else by the words it begins with; without any, those of the directory. Newest first."""
        if wanted is None:
            return (await self.client.thread_list({"limit": limit, "sortKey": "updated_at", "cwd": cwd})).data
        try:
            return ((await self.client.thread_read(wanted)).thread,)
        except JsonRpcError:
            pass  # then it is a name
        params = {"limit": _MOST_NAMED, "sortKey": "updated_at", "searchTerm": wanted}
        found = (await self.client.thread_list(params)).data
        return (tuple(thread for thread in found if thread.name == wanted) or found)[:limit]

    async def find_files(self, letters: str) -> list[str]:
        params = {"query": letters, "roots": [self.facts.cwd], "cancellationToken": "chat"}
        return [found.path for found in (await self.client.fuzzy_file_search(params)).files]

    def _entered(self, answer: Any) -> ThreadFacts:
        left, self._facts = self._facts, ThreadFacts.of(answer)
        self.last_diff = ""
        if left is not None and left.id != self._facts.id:
            self.want(lambda: self._leave(left.id))
        return self._facts

    async def _leave(self, thread_id: str) -> None:
        await self.client.thread_unsubscribe({"threadId": thread_id})

    # --- what the server says ---

    async def _read_news(self) -> None:
        while True:
            news = await self.client.next_notification()
            payload: Any = news.payload
            if isinstance(payload, UnknownNotification) or self._facts is None:
                continue
            if getattr(payload, "thread_id", self._facts.id) == self._facts.id:
                self._told(news.method, payload)

    def _told(self, method: str, payload: Any) -> None:
        match method:
            case "turn/started" if not self.working and payload.turn.id not in self._read:
                self._view.turn_started()
                self._follow(payload.turn.id)
            case "thread/settings/updated":
                self._facts = self.facts.with_settings(payload.thread_settings)
            case "thread/name/updated":
                self._facts = self.facts.with_name(payload.thread_name)
            case "thread/tokenUsage/updated":  # also that of a thread which is resumed
                self._facts = self.facts.with_usage(payload.token_usage)
            case "warning" | "configWarning" | "deprecationNotice":
                self._view.problem(f"warning: {getattr(payload, 'message', None) or getattr(payload, 'summary', '')}")

    def _follow(self, turn_id: str) -> None:
        if self._tasks is None or turn_id in self._read:
            return
        self._read.append(turn_id)
        self._turn_id, self.has_turns = turn_id, True
        self._idle.clear()
        if self._interrupting:
            self._begin_interrupt(turn_id)
        self._tasks.create_task(self._guarded(lambda: self._read_turn(self.facts.id, turn_id)))

    async def _read_turn(self, thread_id: str, turn_id: str) -> None:
        try:
            while True:
                event = await self.client.next_turn_notification(thread_id, turn_id)
                self._turn_told(event)
                if event.method == "turn/completed":
                    return
        finally:
            self._turn_id, self._interrupting = None, False
            self._idle.set()

    def _turn_told(self, event: Notification) -> None:
        payload: Any = event.payload
        if isinstance(payload, UnknownNotification):
            return
        if event.method == "turn/diff/updated":
            self.last_diff = payload.diff
        elif event.method == "thread/tokenUsage/updated":
            self._facts = self.facts.with_usage(payload.token_usage)
        self._view.show(event.method, payload)

    async def _answer(self, method: str, params: dict[str, Any] | None) -> Any:
        """To a request of the server. It is cancelled when the question is withdrawn; what it raises is a no."""
        answer = await self._view.ask(method, params or {})
        if answer.instead:
            message = Message(answer.instead)
            self.want(lambda: self.send(message))
        return answer.result
