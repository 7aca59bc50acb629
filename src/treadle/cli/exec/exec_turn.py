"""`ExecTurn`: one turn on a server in this process, on a new or a resumed thread, through the SDK's client.

It owns the requests to the server, and knows when the turn is over. A `TurnDisplay` decides how the turn looks. The
turn is read from its own stream, which loses nothing; what belongs to no turn, such as a warning, from the client's
backlog.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

from msgspec import convert
from msgspec.structs import replace

from treadle.cli.exec.exec_arguments import ExecRequest
from treadle.cli.problem import Problem
from treadle.cli.streams import OutputFailed
from treadle.cli.thread_choice import is_thread_id, newest_threads, thread_to_resume
from treadle.cli.workplace import workplace
from treadle.client import AsyncAppServerClient
from treadle.client.notification import Notification, UnknownNotification
from treadle.client.router import turn_of
from treadle.config import Config
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.pages.view_blocks import with_reasoning
from treadle.protocol.app.base import JsonObject
from treadle.protocol.app.items import AgentMessageThreadItem
from treadle.protocol.app.settings import AskForApproval, TurnEnvironmentParams
from treadle.protocol.app.thread_methods import ThreadStartParams
from treadle.protocol.app.turns import ReviewStartParams, Turn

_OTHERS: Final = "treadle exec resume --last for the most recent one; treadle threads list shows all"
_PLACES: Final = tuple[TurnEnvironmentParams, ...]
_NOBODY: Final = "nobody can be asked here; run it on a terminal, or allow more with --sandbox"


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
    """Puts a question of the server to a person: the answer, and what the agent is to do instead. Cancelled when the
    question is withdrawn."""

    async def ask(self, method: str, params: dict[str, Any]) -> tuple[Any, str]: ...


class ExecTurn:
    """One turn.

    Args:
        config: The settings of the run.
        display: Where the turn is shown.
        approval: The approval policy.
        asker: Who asks the person; without one, everything that is asked is declined.
    """

    def __init__(
        self, config: Config, display: TurnDisplay, *, approval: AskForApproval = "never", asker: Asker | None = None
    ) -> None:
        self._config = config
        self._display = display
        self._approval = approval
        self._asker = asker
        self._done: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()
        self._client: AsyncAppServerClient | None = None
        self._ids: tuple[str, str] | None = None  # of the thread and of the turn, once it runs
        self._tasks: set[asyncio.Task[None]] = set()
        self._interrupted = False
        self.answer: str | None = None

    async def run(self, client: AsyncAppServerClient, request: ExecRequest, prompt: str) -> Turn:
        """Raises `UnknownThread`, `RpcError` or `OutputFailed`."""
        self._client = client
        self._start(self._read_news(client))
        try:
            places = None
            if request.environment is not None:
                places = [await workplace(client, request.environment, request.directory)]
            started = await self._thread(client, request, places)
            if places is not None:  # where a thread that is resumed goes with this turn
                started = replace(started, thread=replace(started.thread, environments=convert(places, _PLACES)))
            thread_id = started.thread.id
            self._display.started(started)
            if request.review is not None:
                turn = (await client.review_start(ReviewStartParams(thread_id=thread_id, target=request.review))).turn
            else:
                images = [{"type": "localImage", "path": path} for path in request.images]
                answer = await client.turn_start(
                    thread_id,
                    [*images, {"type": "text", "text": prompt}],
                    params={
                        "outputSchema": request.output_schema,
                        "effort": self._config.model_reasoning_effort,
                        "environments": places,
                    },
                )
                turn = answer.turn
            self._ids = thread_id, turn.id
            self._start(self._read_turn(client, *self._ids))
            if self._interrupted:
                self.interrupt()
            ended = await self._done
            self._display.ended(ended)
            return ended
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if self._done.done() and not self._done.cancelled():
                self._done.exception()  # it may have failed while something else did: then nobody waits for it

    def fail(self, error: BaseException) -> None:
        """End the run with an error: the turn is not awaited any more."""
        if not self._done.done():
            self._done.set_exception(error)

    def interrupt(self) -> None:
        """Interrupt the turn, or as soon as it has started."""
        self._interrupted = True
        if self._client is not None and self._ids is not None and not self._done.done():
            client, ids = self._client, self._ids

            async def interrupt() -> None:
                with suppress(RpcError):  # the turn has ended by itself
                    await client.turn_interrupt(*ids)

            self._start(interrupt())

    def note(self, text: str) -> None:
        self._guarded(lambda: self._display.note(text))

    def _start(self, work: Any) -> None:
        """Run something beside the turn; what it raises ends the run."""

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                self.fail(error)

        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(ended)

    # --- the thread ---

    async def _thread(self, client: AsyncAppServerClient, request: ExecRequest, places: list[JsonObject] | None) -> Any:
        if request.resume is None or (thread_id := await self._find(client, request)) is None:
            new = ThreadStartParams(
                approval_policy=self._approval,
                model=request.model,
                sandbox=request.sandbox,
                ephemeral=request.ephemeral or None,
                thread_source=request.thread_source,
                environments=None if places is None else convert(places, _PLACES),
            )
            return await client.thread_start(new)
        config = self._config
        # As with a new thread, this run goes by what holds now, and not by what held when the thread was begun.
        profile = None if request.sandbox else config.permissions().profile
        settings: dict[str, Any] = {
            "approvalPolicy": self._approval,
            "cwd": request.cwd,
            "model": request.model or config.document.get("model"),
            "modelProvider": config.document.get("model_provider"),
            "sandbox": None if profile else request.sandbox or config.sandbox_mode,
            "permissions": None if profile is None else profile.id,
            "excludeTurns": True,
        }
        try:
            if not request.fork:
                return await client.thread_resume(thread_id, settings)
            copy = {"ephemeral": request.ephemeral, "threadSource": request.thread_source}
            return await client.thread_fork(thread_id, {**settings, **copy})
        except RpcError as error:
            how = "forked" if request.fork else "resumed"
            raise UnknownThread(f"{thread_id} cannot be {how}", why=error.message, do=_OTHERS) from None

    async def _find(self, client: AsyncAppServerClient, request: ExecRequest) -> str | None:
        """The id; None when the most recent thread is wanted and there is none: then a new one is begun."""
        name = request.resume
        if not name:
            last = await newest_threads(client, 1, cwd=None if request.everywhere else request.cwd)
            if not last:
                self.note("there is no thread to resume yet; this is a new one")
            return last[0].id if last else None
        if is_thread_id(name):  # whether there is such a thread is seen when it is resumed
            return name
        found = await thread_to_resume(client, name)
        if found is None:
            why = "it is neither the id nor the name of a thread that is stored here"
            raise UnknownThread(f"there is no thread called {name!r}", why=why, do=_OTHERS)
        return found.id

    # --- notifications and questions of the server ---

    async def _read_turn(self, client: AsyncAppServerClient, thread_id: str, turn_id: str) -> None:
        while not self._done.done():
            event = await client.next_turn_notification(thread_id, turn_id)
            self._show(event)
            params: Any = event.payload
            if event.method == "item/completed" and isinstance(params.item, AgentMessageThreadItem):
                self.answer = params.item.text
            if event.method == "turn/completed" and not self._done.done():
                self._done.set_result(params.turn)

    async def _read_news(self, client: AsyncAppServerClient) -> None:
        while not self._done.done():
            news = await client.next_notification()
            if turn_of(news) is None:
                self._show(news)

    def _show(self, event: Notification) -> None:
        if not isinstance(event.payload, UnknownNotification):
            params = with_reasoning(self._config, event.method, event.payload)
            if params is not None:
                self._guarded(lambda: self._display.show(event.method, params))

    def _guarded(self, showing: Callable[[], None]) -> None:
        """Output that fails ends the run, and not the task that reads."""
        try:
            showing()
        except OutputFailed as error:
            self.fail(error)

    async def answer_request(self, method: str, params: dict[str, Any] | None) -> Any:
        """The approval handler of the client: what it raises is a no."""
        if self._asker is None:
            self.note(f"declined: {_NOBODY}")
            raise RpcError(INVALID_REQUEST, "nobody is there to be asked")
        try:
            answer, instead = await self._asker.ask(method, params or {})
        except OutputFailed as error:
            self.fail(error)
            raise
        if instead and self._client is not None and self._ids is not None:
            with suppress(RpcError):  # the turn has ended meanwhile
                await self._client.turn_steer(*self._ids, instead)
        return answer
