"""`ChatSession`: one conversation with an app-server, through the SDK. It knows no terminal; a `SessionView` shows it.

The session owns the thread that is talked to, the turn that runs, and the order of what the user wants: one thing after
the other, except an interrupt. A turn is read from its own stream, which loses nothing; all other notifications, such
as those of a turn that another client began, come from the client's queue. An error of the server is shown, and the
session goes on.

    typed ─▶ want ─▶ queue ─▶ send ─┬─ a turn runs and takes it ─▶ turn/steer
                                    └─ else, once it is idle ────▶ turn/start ─▶ _follow ─▶ _read_turn ─▶ idle
    turn/started of another client ──────────────────────────────────────────────▲
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from treadle.cli.chat.chat_thread import ChatThread
from treadle.client import AsyncAppServerClient, CodexConfig, TransportClosedError
from treadle.client.notification import UnknownNotification
from treadle.client.sdk_errors import JsonRpcError
from treadle.errors import TreadleError
from treadle.protocol.app.base import JsonObject
from treadle.protocol.app.environment_messages import EnvironmentListResponse, ListedEnvironment
from treadle.protocol.app.item_parts import UserInput
from treadle.protocol.app.ours import McpPrompt, McpServerPromptGetResponse, McpServerPromptListResponse

# What a person can have typed ahead; more is refused.
MAX_WAITING: Final = 64


class ChatMessage(Struct, frozen=True):
    """A message of the user as it is sent: the text, and the pictures by their absolute paths; or the input that a
    prompt of an MCP server is."""

    text: str
    pictures: tuple[str, ...] = ()
    prompt: tuple[UserInput, ...] = ()

    def items(self) -> list[Any]:
        """The items of the protocol: pictures first, as Codex sends them."""
        if self.prompt:
            return [*self.prompt]
        pictures: list[Mapping[str, Any]] = [{"type": "localImage", "path": path} for path in self.pictures]
        return [*pictures, {"type": "text", "text": self.text}] if self.text else pictures


class ThreadOptions(Struct, frozen=True, kw_only=True):
    """The settings that threads of this session are started and resumed with; None: those of the server."""

    model: str | None = None
    provider: str | None = None
    sandbox: str | None = None
    permissions: str | None = None
    approvals: str | None = None
    cwd: str | None = None
    environments: tuple[JsonObject, ...] | None = None

    def params(self) -> dict[str, Any]:
        given = {
            "model": self.model,
            "modelProvider": self.provider,
            "sandbox": self.sandbox,
            "permissions": self.permissions,
            "approvalPolicy": self.approvals,
            "cwd": self.cwd,
            "environments": self.environments,
        }
        return {name: value for name, value in given.items() if value is not None}


class UserAnswer(Struct, frozen=True):
    """The user's answer to a question of the server."""

    result: Any
    instead: str | None = None
    """What the agent is to do instead."""


class SessionView(Protocol):
    """The interface that shows a session and asks the user."""

    def turn_started(self) -> None: ...
    def show(self, method: str, payload: Any) -> None: ...
    def note(self, text: str) -> None: ...
    def problem(self, text: str) -> None: ...
    def lost(self, why: str) -> None: ...
    async def ask(self, method: str, params: dict[str, Any]) -> UserAnswer: ...


class ChatSession:
    """One conversation. `run` does the work; the other methods may be called while that runs."""

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
        self._facts: ChatThread | None = None
        self._turn_id: str | None = None
        self._followed: deque[str] = deque(maxlen=64)  # turns that are followed: their `turn/started` may come late
        self._starting = False
        self._interrupting = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._place: JsonObject | None = None  # where the next turn of the thread moves to
        self.directory: str = ""
        """That of the thread on the machine of the server, wherever it works."""
        self._prompts: tuple[McpPrompt, ...] | None = None
        self.found_files: set[str] = set()
        """What searches have found where the thread works."""
        self.last_diff: str = ""
        self.has_turns: bool = False
        """Whether there is something in the thread to go on with."""

    @property
    def facts(self) -> ChatThread:
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
        """Start and greet the server. Raises what the SDK raises, as the methods below do."""
        await self.client.start()
        await self.client.initialize()

    async def enter(self, thread_id: str | None, *, copied: bool = False, as_it_is: bool = False) -> ChatThread:
        """Make an existing thread, a copy of it, or a new one, the thread of the session: with the settings of this
        session, or as it is."""
        if thread_id is None:
            thread = self._entered(await self.client.thread_start(self._new.params()))
            self._place = None
        else:
            params = {"excludeTurns": True, **({} if as_it_is else self._resumed.params())}
            opened = self.client.thread_fork if copied else self.client.thread_resume
            thread = self._entered(await opened(thread_id, params))
        self.has_turns = thread_id is not None
        return thread

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self._guarded(self._read_notifications))
            while True:
                await self._guarded(await self._wanted.get())

    async def close(self) -> None:
        """Close the connection: a running turn is interrupted, and the server ends if it is ours."""
        await self.client.close()

    # --- what the user wants ---

    def want(self, what: Callable[[], Awaitable[None]]) -> None:
        """Call `what` when all that was wanted before is done."""
        try:
            self._wanted.put_nowait(what)
        except asyncio.QueueFull:
            self._view.problem(f"{MAX_WAITING} messages wait already; this one was not taken")

    async def _guarded(self, what: Callable[[], Awaitable[None]]) -> None:
        try:
            await what()
        except TransportClosedError as error:
            self._view.lost(str(error))
        except TreadleError as error:
            self._view.problem(error.message if isinstance(error, JsonRpcError) else str(error))

    async def send(self, message: ChatMessage) -> None:
        """Add a message to the running turn; if that does not take it, begin the next turn with it."""
        if self._turn_id is not None and await self._steer(message):
            return
        await self._start(lambda: self._begin(message))

    async def _begin(self, message: ChatMessage) -> Any:
        place, params = self._place, None if self._place is None else {"environments": [self._place]}
        begun = await self.client.turn_start(self.facts.id, message.items(), params=params)
        if self._place is place:
            self._place = None
        return begun

    async def review(self, target: Mapping[str, Any]) -> None:
        """Begin a review, which is a turn."""
        await self._start(lambda: self.client.review_start({"threadId": self.facts.id, "target": target}))

    async def _start(self, start: Callable[[], Awaitable[Any]]) -> None:
        """Begin a turn when none runs."""
        await self._idle.wait()
        self._starting, self._interrupting = True, False
        self._view.turn_started()
        try:
            self._follow((await start()).turn.id)
        finally:
            self._starting = False

    async def _steer(self, message: ChatMessage) -> bool:
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

    def interrupt(self) -> None:
        """Interrupt the running turn, once. A turn that is starting is interrupted when its id is known."""
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

    async def fork(self) -> ChatThread:
        """Go on in a copy of the thread."""
        return self._entered(await self.client.thread_fork(self.facts.id, {"excludeTurns": True}))

    async def compact(self) -> None:
        """Summarise the conversation. It is a turn, which begins with a notification."""
        await self.client.thread_compact(self.facts.id)

    async def change(self, **settings: Any) -> None:
        """Change settings of the thread, from the next turn on."""
        await self.client.thread_settings_update({"threadId": self.facts.id, **settings})

    def move(self, place: JsonObject) -> None:
        """Work somewhere else, from the next turn on; new threads do, too."""
        self._place, self._new = place, replace(self._new, environments=(place,))
        self.found_files.clear()
        if self._facts is not None:
            self._facts = self._facts.moved(place)

    async def environments(self) -> Sequence[ListedEnvironment]:
        """The places to work on."""
        found = await self.client.request("environment/list", {}, response_model=EnvironmentListResponse)
        return found.data

    async def set_mode(self, mode: str) -> None:
        """Plan, or work (`default`), from the next turn on, with the model of now."""
        settings = {"model": self.facts.model, "reasoning_effort": self.facts.effort, "developer_instructions": None}
        await self.change(collaborationMode={"mode": mode, "settings": settings})

    async def find_files(self, letters: str) -> list[str]:
        """The best paths for some letters, best first, relative to where the agent works."""
        there = self.facts.elsewhere
        params = {"query": letters, "roots": [self.facts.folder], "cancellationToken": "chat"}
        params |= {} if there is None else {"environmentId": there.environment_id}
        found = [found.path for found in (await self.client.fuzzy_file_search(params)).files]
        self.found_files.update(found)
        return found

    async def mcp_prompts(self) -> tuple[McpPrompt, ...]:
        """The prompts of the thread's MCP servers, which are started for the first time that somebody asks."""
        if self._prompts is None:
            params = {"threadId": self.facts.id}
            found = await self.client.request(
                "mcpServer/prompt/list", params, response_model=McpServerPromptListResponse
            )
            self._prompts = found.data
        return self._prompts

    async def mcp_prompt(self, prompt: McpPrompt, arguments: Mapping[str, str]) -> ChatMessage:
        """A prompt as the message that it is with these arguments."""
        params = {
            "threadId": self.facts.id,
            "server": prompt.server,
            "name": prompt.name,
            "arguments": {**arguments},
        }
        got = await self.client.request("mcpServer/prompt/get", params, response_model=McpServerPromptGetResponse)
        return ChatMessage("", prompt=got.input)

    def _entered(self, answer: Any) -> ChatThread:
        left, self._facts = self._facts, ChatThread.of(answer)
        self.directory = self._facts.cwd
        self.last_diff = ""
        self.found_files.clear()
        self._prompts = None
        if left is not None and left.id != self._facts.id:

            async def unsubscribe() -> None:
                await self.client.thread_unsubscribe({"threadId": left.id})

            self.want(unsubscribe)
        return self._facts

    # --- what the server sends ---

    async def _read_notifications(self) -> None:
        while True:
            notification = await self.client.next_notification()
            payload: Any = notification.payload
            if isinstance(payload, UnknownNotification) or self._facts is None:
                continue
            if getattr(payload, "thread_id", self._facts.id) != self._facts.id:
                continue
            match notification.method:
                case "turn/started" if not self.working and payload.turn.id not in self._followed:
                    self._view.turn_started()
                    self._follow(payload.turn.id)
                case "thread/settings/updated":
                    self._facts = self._facts.with_settings(payload.thread_settings)
                case "thread/name/updated":
                    self._facts = self._facts.with_name(payload.thread_name)
                case "thread/tokenUsage/updated":  # also that of a thread which is resumed
                    self._facts = self._facts.with_usage(payload.token_usage)
                case "mcpServer/startupStatus/updated":
                    if payload.status == "ready":  # what it has is to be asked for again
                        self._prompts = None
                    self._view.show(notification.method, payload)
                case "warning" | "configWarning" | "deprecationNotice":
                    text = getattr(payload, "message", None) or getattr(payload, "summary", "")
                    self._view.problem(f"warning: {text}")

    def _follow(self, turn_id: str) -> None:
        if self._tasks is None or turn_id in self._followed:
            return
        self._followed.append(turn_id)
        self._turn_id, self.has_turns = turn_id, True
        self._idle.clear()
        if self._interrupting:
            self._begin_interrupt(turn_id)
        self._tasks.create_task(self._guarded(lambda: self._read_turn(self.facts.id, turn_id)))

    async def _read_turn(self, thread_id: str, turn_id: str) -> None:
        try:
            while True:
                event = await self.client.next_turn_notification(thread_id, turn_id)
                payload: Any = event.payload
                if not isinstance(payload, UnknownNotification):
                    if event.method == "turn/diff/updated":
                        self.last_diff = payload.diff
                    elif event.method == "thread/tokenUsage/updated":
                        self._facts = self.facts.with_usage(payload.token_usage)
                    self._view.show(event.method, payload)
                if event.method == "turn/completed":
                    return
        finally:
            self._turn_id, self._interrupting = None, False
            self._idle.set()

    async def _answer(self, method: str, params: dict[str, Any] | None) -> Any:
        """Answer a request of the server. Cancelled when the question is withdrawn; what it raises is a no."""
        answer = await self._view.ask(method, params or {})
        if answer.instead:
            message = ChatMessage(answer.instead)
            self.want(lambda: self.send(message))
        return answer.result
