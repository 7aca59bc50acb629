"""`ExecTurn`: one turn on a server in this process, on a new or a resumed thread.

It owns the requests to the server, and knows when the turn is over. A `TurnDisplay` decides how it looks.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, Final, Protocol

from treadle.agent.client_requests import ClientRequest
from treadle.agent.event import Event
from treadle.cli.exec.exec_arguments import ExecRequest
from treadle.cli.problem import Problem
from treadle.cli.streams import OutputFailed
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.handshake import ClientInfo, InitializeCapabilities, InitializeParams
from treadle.protocol.app.inputs import LocalImageUserInput, TextUserInput
from treadle.protocol.app.items import AgentMessageThreadItem
from treadle.protocol.app.settings import AskForApproval
from treadle.protocol.app.thread_methods import ThreadListParams, ThreadResumeParams, ThreadStartParams
from treadle.protocol.app.turns import Turn, TurnInterruptParams, TurnStartParams, TurnSteerParams
from treadle.server.app import AppServer
from treadle.server.local_client import LocalClient

_ID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_MOST_NAMED: Final = 100
_OTHERS: Final = "treadle exec resume --last for the most recent one; treadle threads list shows all"
_NOBODY: Final = "nobody can be asked here; run it on a terminal, or allow more with --sandbox"
# To choose a permission profile.
_CAPABILITIES: Final = InitializeCapabilities(experimental_api=True)


class UnknownThread(Problem):
    """The thread cannot be resumed."""


class TurnDisplay(Protocol):
    """Where a turn is shown. Every method may raise `OutputFailed`."""

    def started(self, started: Any) -> None: ...
    def show(self, method: str, params: Any) -> None: ...
    def note(self, text: str) -> None: ...
    def ended(self, turn: Turn) -> None: ...
    def close(self) -> None: ...


class Asker(Protocol):
    """Puts questions of the server to a person. `ask` says whether it takes one."""

    def ask(self, request: ClientRequest) -> bool: ...
    def resolved(self, request_id: Any) -> None: ...
    async def run(self, answer: Callable[[int, Any], None], tell: Callable[[str], None]) -> None: ...


class ExecTurn:
    """`approval` is the policy; without an `asker` everything that is asked is declined."""

    def __init__(
        self,
        server: AppServer,
        display: TurnDisplay,
        *,
        approval: AskForApproval = "never",
        asker: Asker | None = None,
    ) -> None:
        self._server = server
        self._display = display
        self._approval = approval
        self._asker = asker
        self._done: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()
        self._client: LocalClient = server.connect(self._event_received, self._asked)
        self._running: TurnInterruptParams | None = None
        self._interrupted = False
        self.answer: str | None = None

    async def run(self, request: ExecRequest, prompt: str) -> Turn:
        """Raises `UnknownThread`, `RpcError` or `OutputFailed`."""
        client = self._client
        info = ClientInfo(name="treadle_exec", version="1")
        await client.request("initialize", InitializeParams(client_info=info, capabilities=_CAPABILITIES))
        thread = await self._thread(request)
        self._display.started(thread)
        images = [LocalImageUserInput(path=path) for path in request.images]
        params = TurnStartParams(
            thread_id=thread.thread.id,
            input=(*images, TextUserInput(text=prompt)),
            output_schema=request.output_schema,
            effort=self._server.config.model_reasoning_effort,
        )
        turn_id = (await client.request("turn/start", params)).turn.id
        self._running = TurnInterruptParams(thread_id=thread.thread.id, turn_id=turn_id)
        if self._interrupted:
            self.interrupt()
        turn = await self._ended()
        self._display.ended(turn)
        return turn

    async def _ended(self) -> Turn:
        if self._asker is None:
            return await self._done
        asking = asyncio.create_task(self._asker.run(self._client.answer, self._tell))
        asking.add_done_callback(self._asking_failed)
        try:
            return await self._done
        finally:
            asking.cancel()
            await asyncio.wait([asking])

    def _asking_failed(self, asking: asyncio.Task[None]) -> None:
        """It goes on until it is cancelled. Without it, questions would wait for ever."""
        if not asking.cancelled() and (error := asking.exception()) is not None:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Nobody waits for the turn any more."""
        if not self._done.done():
            self._done.set_exception(error)

    def _tell(self, words: str) -> None:
        """Words for the agent while it works."""
        if self._running is not None:
            running = self._running
            words_input = (TextUserInput(text=words),)
            params = TurnSteerParams(thread_id=running.thread_id, expected_turn_id=running.turn_id, input=words_input)
            self._client.receive_now("turn/steer", params)

    def interrupt(self) -> None:
        """Interrupt the turn, or as soon as it has started."""
        self._interrupted = True
        if self._running is not None and not self._done.done():
            self._client.receive_now("turn/interrupt", self._running)

    def note(self, text: str) -> None:
        self._guarded(lambda: self._display.note(text))

    # --- the thread ---

    async def _thread(self, request: ExecRequest) -> Any:
        if request.resume is None or (thread_id := await self._find(request)) is None:
            new = ThreadStartParams(
                approval_policy=self._approval,
                model=request.model,
                sandbox=request.sandbox,
                ephemeral=request.ephemeral or None,
                thread_source=request.thread_source,
            )
            return await self._client.request("thread/start", new)
        config = self._server.config
        # As with a new thread, this run goes by what holds now, and not by what held when the thread was begun.
        profile = None if request.sandbox else config.permissions().profile
        kept = ThreadResumeParams(
            thread_id=thread_id,
            approval_policy=self._approval,
            cwd=request.cwd,
            model=request.model or config.document.get("model"),
            model_provider=config.document.get("model_provider"),
            sandbox=None if profile else request.sandbox or config.sandbox_mode,
            permissions=None if profile is None else profile.id,
            exclude_turns=True,
        )
        try:
            return await self._client.request("thread/resume", kept)
        except RpcError as error:
            raise UnknownThread(f"{thread_id} cannot be resumed", why=error.message, do=_OTHERS) from None

    async def _find(self, request: ExecRequest) -> str | None:
        """The id; None when the most recent thread is wanted and there is none: then a new one is begun."""
        name = request.resume
        if name and _ID.fullmatch(name):
            return name
        cwd = None if name or request.everywhere else request.cwd
        limit = _MOST_NAMED if name else 1
        params = ThreadListParams(cwd=cwd, limit=limit, sort_key="updated_at", search_term=name or None)
        threads = (await self._client.request("thread/list", params)).data
        found = [thread.id for thread in threads if not name or thread.name == name]
        if name and not found:
            why = "it is neither the id nor the name of a thread that is kept here"
            raise UnknownThread(f"there is no thread called {name!r}", why=why, do=_OTHERS)
        if not found:
            self.note("there is no thread to resume yet; this is a new one")
        return found[0] if found else None

    # --- what the server says ---

    def _event_received(self, event: Event) -> None:
        if event.method == "serverRequest/resolved" and self._asker is not None:
            self._asker.resolved(getattr(event.params, "request_id", None))
        if self._done.done():  # a command that went on is ended with this program, and nobody waits for that
            return
        params: Any = event.params
        self._guarded(lambda: self._display.show(event.method, params))
        if event.method == "item/completed" and isinstance(params.item, AgentMessageThreadItem):
            self.answer = params.item.text
        if event.method == "turn/completed":
            self._done.set_result(params.turn)

    def _guarded(self, showing: Callable[[], None]) -> None:
        """We are called from inside the server, whose work must not suffer from our output errors."""
        try:
            showing()
        except OutputFailed as error:
            self.fail(error)

    def _asked(self, request: ClientRequest) -> None:
        if self._asker is None or not self._asker.ask(request):
            self.note(f"declined: {_NOBODY}")
            self._client.answer(request.id, RpcError(INVALID_REQUEST, "nobody is there to be asked"))
