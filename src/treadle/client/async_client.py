"""`AsyncAppServerClient`: the client for asyncio, one awaitable method for each RPC.

It owns the futures of those who wait and the tasks in which handlers run. Everything happens on the event loop on which
it was started; there are no threads except for handlers that are plain functions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

from msgspec import Raw

from treadle.arguments import function
from treadle.arguments import limit as seconds_or_none
from treadle.client import notification as notifications
from treadle.client.apart import on_thread
from treadle.client.async_calls import AsyncCalls
from treadle.client.checks import check_config
from treadle.client.client import ENDING_S, MAX_HANDLERS
from treadle.client.config import CodexConfig
from treadle.client.errors import CodexError, JsonRpcError, RequestTimeout, TransportClosedError
from treadle.client.exchange import (
    input_items,
    limit_of_request,
    read_result,
    started_turn,
    thread_of_start,
    unanswered,
    wire_params,
    with_members,
)
from treadle.client.handlers import Handlers, RawHandler
from treadle.client.metadata import InitializeResponse, introduction
from treadle.client.notification import Notification
from treadle.client.retry import async_retry_on_overload
from treadle.client.router import Asked, News, Router, Stream
from treadle.rpc import RequestId
from treadle.transport.owner import LoopOwner, needs_loop

if TYPE_CHECKING:
    from treadle.client.asks import Work
    from treadle.client.async_connection import AsyncConnection
    from treadle.protocol.app.accounts import AccountLoginCompletedNotification, LoginAccountResponse
    from treadle.protocol.app.base import JsonObject
    from treadle.protocol.app.goals import ThreadGoalSetResponse
    from treadle.protocol.app.item_notifications import AgentMessageDeltaNotification
    from treadle.protocol.app.thread_notifications import TurnCompletedNotification
    from treadle.protocol.app.turns import TurnStartParams, TurnStartResponse

logger: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")

INTERRUPT_S: Final = 10.0


class AsyncAppServerClient(AsyncCalls):
    """A client of one server. `start` connects, `initialize` shakes hands, `close` ends it; then `start` works again.

    Args:
        config: Which server to use.
        approval_handler: A function that gets the method and the params of every request of the server and returns the
            result: it takes the place of the handlers of `AsyncCodex`.
    """

    def __init__(self, config: CodexConfig | None = None, approval_handler: RawHandler | None = None) -> None:
        check_config(config)
        if approval_handler is not None:
            function("approval_handler", approval_handler, "a method and its params")
        self.config: CodexConfig = config or CodexConfig()
        self.handlers: Handlers = Handlers(approval_handler)
        self._router = self._new_router()
        self._connection: AsyncConnection | None = None
        self._news: asyncio.Event | None = None
        self._opening: asyncio.Lock | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._handling: dict[asyncio.Task[None], RequestId] = {}
        self._owner: LoopOwner | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'connected' if self._connection is not None else 'not connected'}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("a client cannot be pickled: pickle its CodexConfig and make a new one from that")

    # --- life ---

    async def start(self) -> None:
        """Connect to the server, starting it when the config says so. Does nothing when that was done."""
        from treadle.client.async_connection import open_connection

        self._check_loop()
        if self._opening is None:
            self._opening = asyncio.Lock()
            self._owner = LoopOwner("this client")
        async with self._opening:
            if self._connection is None:
                self._router = self._new_router()
                self._news = None  # it belongs to the loop that it was used on, as the lock does
                self._connection = await open_connection(self.config, self)

    def _new_router(self) -> Router:
        """For one conversation."""
        return Router()

    async def initialize(self) -> InitializeResponse:
        """Shake hands."""
        answer = await self.request("initialize", introduction(self.config), response_model=InitializeResponse)
        self.notify("initialized")
        return answer

    async def close(self) -> None:
        """End the connection, and the server with all that it started if it is our own. May be called again."""
        owner = self._owner
        if owner is None:  # it was never started, or is closed
            self.connection_ended(TransportClosedError("the client was closed"))
            return
        self._check_closable()
        connection, self._connection = self._connection, None
        self._opening = self._owner = None
        if owner.forked:  # then all of it belongs to somebody else, who may be using it
            return
        if owner.gone:
            self._tasks.clear()
            self._handling.clear()
            if connection is not None:
                await connection.abandon()
            return
        self.connection_ended(TransportClosedError("the client was closed"))
        tasks = self._tasks - {asyncio.current_task()}  # a handler may close the client that it works for
        for task in tasks:
            task.cancel()
        if connection is not None:
            await connection.close()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _check_closable(self) -> None:
        """It can also be closed where it cannot be used any more: in a fork, and when its loop has ended."""
        if self._owner is not None and not self._owner.gone and not self._owner.forked:
            self._check_loop()

    def _check_loop(self) -> None:
        """Raises `CodexError` where the client cannot be used: on another event loop, on none, or in a fork."""
        problem = self._owner.problem() if self._owner is not None else needs_loop("an asyncio client")
        if problem is not None:
            raise CodexError(problem)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- asking ---

    async def request(self, method: str, params: Any, *, response_model: type[T], timeout: float | None = None) -> T:
        """Ask, and wait for the answer. Raises `JsonRpcError`, `TransportClosedError` or `RequestTimeout`.

        `timeout` None is the config's `request_timeout`, `math.inf` no limit.
        """
        timeout = seconds_or_none(timeout)
        params = wire_params(params)
        limit = limit_of_request(method, timeout, self.config.request_timeout)
        number, answer = self._send_request(method, params)
        try:
            async with asyncio.timeout(limit):
                return read_result(method, await asyncio.shield(answer), response_model)
        except TimeoutError:
            self._give_up(number, answer, thread_of_start(method, params))
            raise unanswered(method, limit or 0.0) from None
        except asyncio.CancelledError:
            self._give_up(number, answer, thread_of_start(method, params))
            raise

    def _give_up(self, number: int, answer: asyncio.Future[Raw], thread_id: str | None) -> None:
        """Nobody waits any more. A turn that is started for somebody who has gone is to be ended."""
        if thread_id is None:
            self._router.forget(number)
            answer.cancel()
            return
        self._router.abandon(thread_id, None)
        answer.add_done_callback(lambda done: self._interrupt_abandoned(thread_id, done))

    def _send_request(self, method: str, params: Any) -> tuple[int, asyncio.Future[Raw]]:
        self._check_loop()
        connection = self._connected()
        answer: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        number, frame = self._router.request(method, params, answer)
        connection.send(frame)
        return number, answer

    def _connected(self) -> AsyncConnection:
        if self._connection is None:
            if self._router.failure is not None:
                raise self._router.failure.fresh()
            raise TransportClosedError("the client is not connected: call start() first")
        return self._connection

    def notify(self, method: str, params: Any = None) -> None:
        """Tell the server something that has no answer."""
        self._check_loop()
        self._connected().send(self._router.notification(method, wire_params(params)))

    async def request_with_retry_on_overload(
        self,
        method: str,
        params: JsonObject | None,
        *,
        response_model: type[T],
        max_attempts: int = 3,
        initial_delay_s: float = 0.25,
        max_delay_s: float = 2.0,
    ) -> T:
        """`request`, tried again while the server is busy."""
        return await async_retry_on_overload(
            lambda: self.request(method, params, response_model=response_model),
            max_attempts=max_attempts,
            initial_delay_s=initial_delay_s,
            max_delay_s=max_delay_s,
        )

    # --- turns ---

    async def turn_start(
        self,
        thread_id: str,
        input: list[JsonObject] | JsonObject | str,
        *,
        params: TurnStartParams | JsonObject | None = None,
        timeout: float | None = None,
    ) -> TurnStartResponse:
        """Start a turn. Raises `TurnConflict` when the thread has one that was started here."""
        self._check_loop()
        sent = with_members(params, threadId=thread_id, input=input_items(input))
        await self._wait_for_ending(thread_id)
        self._router.begin_turn(thread_id, joins=sent.get("toolOutput") is not None)
        try:
            started: TurnStartResponse = await self._call("turn/start", sent, timeout)
        except BaseException:
            if self._router.ending(thread_id) is None:  # else the answer may still come
                self._router.turn_refused(thread_id)
            raise
        self._router.turn_started(thread_id, started.turn.id)
        return started

    async def next_turn_notification(
        self, thread_id: str, turn_id: str, *, timeout: float | None = None
    ) -> Notification:
        """The next event of a turn; waits for it. After `turn/completed` there is none."""
        stream = self._router.peek(turn_id)
        found = stream.take() if stream is not None and stream.events else None
        if stream is None or found is None:
            stream = self._router.stream(turn_id)
            found = await self._wait_for_event(stream, timeout)
        if found.method == "turn/completed":
            self._router.seen(stream)
        return found

    async def _wait_for_event(self, stream: Stream, timeout: float | None) -> Notification:
        self._check_loop()
        if stream.waiter is None:
            stream.waiter = asyncio.Event()
        waiter: asyncio.Event = stream.waiter
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        while True:
            waiter.clear()
            found = stream.take()
            if found is not None:
                return found
            if deadline is None:
                await waiter.wait()
                continue
            try:
                async with asyncio.timeout_at(deadline):
                    await waiter.wait()
            except TimeoutError:
                raise RequestTimeout(f"nothing was heard of {stream.key} within {timeout:g} s") from None

    def open_turn(self, turn_id: str) -> Stream:
        """Say that somebody reads a turn: it has one reader, and `next_notification` is refused meanwhile."""
        if self._owner is not None:
            self._check_loop()
        return self._router.open(turn_id)

    def close_turn(self, stream: Stream) -> None:
        """The reader of a turn has gone."""
        self._router.close(stream)

    def abandon_turn(self, thread_id: str, turn_id: str) -> None:
        """Have a turn ended on the server without waiting for it. The next one on its thread waits for its end."""
        if self._connection is not None and self._router.abandon(thread_id, turn_id):
            self._spawn(self._interrupt(thread_id, turn_id), f"interrupting {turn_id}")

    async def _interrupt(self, thread_id: str, turn_id: str) -> None:
        try:
            await self.turn_interrupt(thread_id, turn_id, timeout=INTERRUPT_S)
        except CodexError as error:
            logger.debug("turn %s could not be interrupted: %s", turn_id, error)

    def _interrupt_abandoned(self, thread_id: str, answer: asyncio.Future[Raw]) -> None:
        """A turn was started, or was not, for somebody who has gone."""
        failed = answer.cancelled() or answer.exception() is not None
        turn_id = None if failed else started_turn(answer.result())
        if turn_id is None:
            over = self._router.turn_refused(thread_id)
            if over is not None and over.waiter is not None:
                over.waiter.set()
            return
        self._router.turn_started(thread_id, turn_id)
        self.abandon_turn(thread_id, turn_id)

    async def _wait_for_ending(self, thread_id: str) -> None:
        """For a turn that somebody has given up: the next one would join it."""
        ending = self._router.ending(thread_id)
        if ending is None:
            return
        ending.waiter = ending.waiter or asyncio.Event()
        try:
            async with asyncio.timeout(ENDING_S):
                await ending.waiter.wait()
        except TimeoutError:
            return  # then the server decides

    async def next_notification(self, *, timeout: float | None = None) -> Notification:
        """The next notification of any kind; waits for it. Not while the stream of a turn is being read."""
        self._check_loop()
        if self._news is None:
            self._news = asyncio.Event()
        try:
            async with asyncio.timeout(timeout):
                while (found := self._router.next_backlog()) is None:
                    self._news.clear()
                    await self._news.wait()
                return found
        except TimeoutError:
            raise RequestTimeout(f"the server has told nothing within {timeout:g} s") from None

    async def wait_for_turn_completed(self, turn_id: str) -> TurnCompletedNotification:
        """Read a turn to its end."""
        while True:
            found = await self.next_turn_notification("", turn_id)
            if found.method == "turn/completed":
                completed: TurnCompletedNotification = cast("Any", found.payload)
                return completed

    async def stream_text(
        self, thread_id: str, text: str, params: TurnStartParams | JsonObject | None = None
    ) -> AsyncIterator[AgentMessageDeltaNotification]:
        """Run a turn and give the pieces of what the agent says."""
        turn_id = (await self.turn_start(thread_id, text, params=params)).turn.id
        stream = self.open_turn(turn_id)
        try:
            while True:
                found = await self.next_turn_notification(thread_id, turn_id)
                if found.method == "item/agentMessage/delta":
                    yield cast("Any", found.payload)
                elif found.method == "turn/completed":
                    return
        finally:
            self.close_turn(stream)

    async def pause_goal(self, thread_id: str) -> ThreadGoalSetResponse:
        """Let the goal of a thread rest."""
        from treadle.protocol.app.threads import ThreadGoalStatus

        return await self.thread_goal_set(thread_id, status=ThreadGoalStatus.paused)

    # --- logins ---

    async def account_login_start(self, params: Any, *, timeout: float | None = None) -> LoginAccountResponse:
        """Log in with a key, or begin an interactive login. (`account/login/start`)"""
        return await super().account_login_start(getattr(params, "root", params), timeout=timeout)

    async def next_login_notification(self, login_id: str, *, timeout: float | None = None) -> Notification:
        """How an interactive login ended; waits for it."""
        return await self._wait_for_event(self._router.login(login_id), timeout)

    async def wait_for_login_completed(
        self, login_id: str, *, timeout: float | None = None
    ) -> AccountLoginCompletedNotification:
        """Wait for the end of an interactive login."""
        notification = await self.next_login_notification(login_id, timeout=timeout)
        self._router.forget_login(login_id)
        found: AccountLoginCompletedNotification = cast("Any", notification.payload)
        return found

    # --- what arrives ---

    def frames_received(self, frames: list[bytes]) -> None:
        """What the server said; called by the connection."""
        news = self._router.receive(frames)
        self._spread(news)
        if news.malformed is not None:
            text = f"the server sent something that is no message: {news.malformed}"
            self.connection_ended(TransportClosedError(text))

    def _dispatch_notification(self, notification: Notification) -> None:
        """Route a notification as if it had come from the server."""
        news = News([], [], set())
        self._router.tell(notification, news)
        self._spread(news)

    def _coerce_notification(self, method: str, params: object) -> Notification:
        return notifications.make(method, params)

    def _spread(self, news: News) -> None:
        if self._news is not None and news.backlog:
            self._news.set()
        for answered in news.answers:
            future: asyncio.Future[Raw] = answered.token
            if future.done():
                continue
            if isinstance(answered.result, JsonRpcError):
                future.set_exception(answered.result)
            else:
                future.set_result(answered.result)
        for stream in news.streams:
            if stream.waiter is not None:
                stream.waiter.set()
        for asked in news.asks:
            self._asked(asked)
        if news.resolved:
            for task, request_id in self._handling.items():
                if request_id in news.resolved:
                    task.cancel()

    def connection_ended(self, failure: TransportClosedError) -> None:
        """The connection is over: everyone who waits is told. Called by the connection."""
        tokens, streams = self._router.fail(failure)
        if self._news is not None:
            self._news.set()
        for future in tokens:
            if not future.done():
                future.set_exception(failure.fresh())
                future.exception()  # whoever waited may have gone
        for stream in streams:
            if stream.waiter is not None:
                stream.waiter.set()

    # --- answering ---

    def _asked(self, asked: Asked) -> None:
        from treadle.client import asks

        if len(self._handling) >= MAX_HANDLERS:
            self._reply(asked, asks.busy(MAX_HANDLERS))
            return
        task = self._spawn(self._answer(asked), f"treadle {asked.method}")
        self._handling[task] = asked.id
        task.add_done_callback(self._handled)

    def _handled(self, task: asyncio.Task[None]) -> None:
        self._handling.pop(task, None)

    async def _answer(self, asked: Asked) -> None:
        from treadle.client.asks import work_for

        work = work_for(asked, self.handlers, self._router.changes)
        self._reply(asked, await _result_of(work))

    def _reply(self, asked: Asked, result: Any) -> None:
        from treadle.client.asks import frame_of

        if self._connection is not None:
            self._connection.send(frame_of(asked, result))


async def _result_of(work: Work) -> Any:
    try:
        # A plain function may take its time, so it runs on a thread; what it gives may have to be awaited, here.
        value = await on_thread(work.call) if work.blocking else work.call()
        if hasattr(value, "__await__"):
            value = await value
        return work.answer(value)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return work.refuse(RuntimeError(repr(error)))
    except BaseException as error:  # also one that would end the loop: the server waits for an answer
        return work.refuse(error if isinstance(error, Exception) else RuntimeError(repr(error)))
