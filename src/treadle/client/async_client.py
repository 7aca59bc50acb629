"""`AsyncAppServerClient`: the client for asyncio, one awaitable method for each RPC.

It knows requests and responses; waiting, opening, closing and running handlers on the loop is in `async_shell`. The
blocking client, `client.py`, is generated from this file by scripts/make_sync.py. Many threads use that one, so nothing
here may assume that no other code runs between two lines, and the router is called under `_lock` (which does nothing on
an event loop). Only what is a single look into a dict or a deque goes without: `streams`, `changes`, `take_warning`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

from treadle.arguments import function
from treadle.arguments import limit as seconds_or_none
from treadle.arguments import text as text_of
from treadle.client import notification as notifications
from treadle.client.async_calls import AsyncCalls
from treadle.client.async_shell import AsyncAnswer, AsyncShell, AsyncWaiter, answer_within, new_answer
from treadle.client.codex_config import CodexConfig
from treadle.client.lifecycle import InitializeResponse, async_retry_on_overload, client_info
from treadle.client.notification import Notification
from treadle.client.params import check_config
from treadle.client.requests import (
    Handlers,
    RawHandler,
    input_items,
    no_answer_in_time,
    read_result,
    request_timeout,
    started_turn,
    thread_of_start,
    wire_params,
    with_members,
)
from treadle.client.router import AbandonedTurn, Received, ServerRequest, Stream
from treadle.client.sdk_errors import CodexError, JsonRpcError, RequestTimeout, TransportClosedError
from treadle.protocol.app.threads import ThreadGoalStatus

if TYPE_CHECKING:
    from treadle.client.async_connection import AsyncConnection
    from treadle.protocol.app.accounts import AccountLoginCompletedNotification, LoginAccountResponse
    from treadle.protocol.app.base import JsonObject
    from treadle.protocol.app.notifications import AgentMessageDeltaNotification, TurnCompletedNotification
    from treadle.protocol.app.thread_methods import ThreadGoalSetResponse
    from treadle.protocol.app.turns import ReviewStartParams, ReviewStartResponse, TurnStartParams, TurnStartResponse

logger: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")

ABANDONED_S: Final = 10.0
"""An abandoned turn gets this long to end before another one is tried on its thread."""


class AsyncAppServerClient(AsyncShell, AsyncCalls):
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
        super().__init__(config or CodexConfig(), Handlers(approval_handler))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'connected' if self._connection is not None else 'not connected'}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("a client cannot be pickled: pickle its CodexConfig and make a new one from that")

    async def initialize(self) -> InitializeResponse:
        """Shake hands."""
        answer = await self.request("initialize", client_info(self.config), response_model=InitializeResponse)
        self._extensions = frozenset(answer.extensions or ())
        self.notify("initialized")
        return answer

    # --- asking ---

    async def request(self, method: str, params: Any, *, response_model: type[T], timeout: float | None = None) -> T:
        """Ask, and wait for the answer. Raises `JsonRpcError`, `TransportClosedError` or `RequestTimeout`.

        `timeout` None is the config's `request_timeout`, `math.inf` no limit.
        """
        timeout = seconds_or_none(timeout)
        params = wire_params(params)
        limit = request_timeout(method, timeout, self.config.request_timeout)
        answer = new_answer()
        number = self._send_request(method, params, answer)
        try:
            return read_result(method, await answer_within(answer, limit), response_model)
        except BaseException as error:  # also when the caller is cancelled
            # Nobody waits for the answer any more. A turn that it starts has to be interrupted.
            thread_id = thread_of_start(method, params)
            if thread_id is None:
                with self._lock:
                    self._router.forget(number)
            elif not answer.done() or answer.exception() is None:
                with self._lock:
                    self._router.abandon(thread_id, None)
                answer.add_done_callback(lambda done: self._interrupt_abandoned(thread_id, done))
            if isinstance(error, TimeoutError):
                raise no_answer_in_time(method, limit or 0.0) from None
            raise

    def _send_request(self, method: str, params: Any, answer: AsyncAnswer | None = None) -> int:
        self._check_usable()
        connection = self._connected()
        with self._lock:
            number, frame = self._router.request(method, params, answer)
        try:
            connection.send(frame)
        except BaseException:
            with self._lock:
                self._router.forget(number)
            if self._router.failure is not None:  # that is why it cannot be sent
                raise self._router.failure.fresh() from None
            raise
        return number

    def _connected(self) -> AsyncConnection:
        connection = self._connection
        if connection is not None:
            return connection
        if self._router.failure is not None:
            raise self._router.failure.fresh()
        raise TransportClosedError("the client is not connected: call start() first")

    def notify(self, method: str, params: Any = None) -> None:
        """Send the server a notification."""
        self._check_usable()
        frame = self._router.notification(method, wire_params(params))
        self._connected().send(frame)

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
        self._check_usable()
        sent = with_members(params, threadId=thread_id, input=input_items(input))
        joins = sent.get("toolOutput") is not None
        started: TurnStartResponse = await self._start(thread_id, "turn/start", sent, timeout, joins=joins)
        return started

    async def start_review(
        self, params: ReviewStartParams | JsonObject, *, timeout: float | None = None
    ) -> ReviewStartResponse:
        """Start a review in the thread, as a turn that is read like others. Raises `TurnConflict` as `turn_start`."""
        self._check_usable()
        sent = with_members(params)
        thread_id = text_of("threadId", sent.get("threadId"))
        started: ReviewStartResponse = await self._start(thread_id, "review/start", sent, timeout)
        return started

    async def _start(
        self, thread_id: str, method: str, sent: JsonObject, timeout: float | None, *, joins: bool = False
    ) -> Any:
        await self._wait_for_ending(thread_id)
        with self._lock:
            self._router.begin_turn(thread_id, joins=joins)
        started: TurnStartResponse | ReviewStartResponse | None = None
        try:
            started = await self._call(method, sent, timeout)
            with self._lock:
                self._router.turn_started(thread_id, started.turn.id)
            return started
        except BaseException:
            if started is not None:
                self.abandon_turn(thread_id, started.turn.id)
            else:
                with self._lock:
                    self._router.start_failed(thread_id)
            raise

    async def next_turn_notification(
        self, thread_id: str, turn_id: str, *, timeout: float | None = None
    ) -> Notification:
        """The next event of a turn; waits for it. After `turn/completed` there is none."""
        stream = self._router.streams.get(turn_id)
        found = stream.take() if stream is not None and stream.events else None
        if stream is None or found is None:
            self._check_usable()
            with self._lock:
                stream = self._router.stream(turn_id)
            found = await self._next_event(stream, timeout)
        if found.method == "turn/completed":
            with self._lock:
                self._router.seen(stream)
        return found

    def _turn_source(self, thread_id: str, turn_id: str) -> Callable[..., Awaitable[Notification]]:
        """`next_turn_notification` of one turn, with the ids that it takes."""
        return partial(self.next_turn_notification, thread_id, turn_id)

    async def _next_event(self, stream: Stream, timeout: float | None) -> Notification:
        timeout = seconds_or_none(timeout)
        with self._lock:
            waiter = self._router.waiter(stream, AsyncWaiter)
        try:
            return await waiter.take(stream.take, timeout)
        except TimeoutError:
            raise RequestTimeout(f"nothing was heard of {stream.key} within {timeout:g} s") from None

    def open_turn(self, turn_id: str) -> Stream:
        """Begin to read a turn: it has one reader, and `next_notification` is refused meanwhile."""
        self._check_owner()
        with self._lock:
            return self._router.open(turn_id)

    def close_turn(self, stream: Stream) -> None:
        """End the reading of a turn."""
        if not self._forked:
            with self._lock:
                self._router.close(stream)

    def abandon_turn(self, thread_id: str, turn_id: str) -> None:
        """Interrupt a turn without waiting for its end. The next one on its thread waits for that."""
        if self._forked or self._connection is None:
            return
        with self._lock:
            running = self._router.abandon(thread_id, turn_id)
        if running:
            self._send_interrupt(thread_id, turn_id)

    def _send_interrupt(self, thread_id: str, turn_id: str) -> None:
        try:
            self._send_request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
        except CodexError as error:
            logger.debug("turn %s could not be interrupted: %s", turn_id, error)

    def _interrupt_abandoned(self, thread_id: str, answer: AsyncAnswer) -> None:
        """Interrupt a turn that was started for a caller who has gone, once the server has answered."""
        turn_id = started_turn(answer.result() if answer.exception() is None else None)
        with self._lock:
            over = self._router.answered_late(thread_id, turn_id)
        if over is not None:
            _wake([over])
        elif turn_id is not None and not self._forked and self._connection is not None:
            self._send_interrupt(thread_id, turn_id)

    async def _wait_for_ending(self, thread_id: str) -> None:
        """Wait for the end of an abandoned turn: the next one would join it."""
        with self._lock:
            abandoned = self._router.abandoned(thread_id)
            if abandoned is None:
                return
            waiter = self._router.waiter(abandoned, AsyncWaiter)
        try:
            await waiter.take(lambda: abandoned.over or None, ABANDONED_S)
        except TimeoutError:
            return  # then the server decides

    async def next_notification(self, *, timeout: float | None = None) -> Notification:
        """The next notification of any kind; waits for it. Not while the stream of a turn is being read."""

        def next_in_backlog() -> Notification | None:
            with self._lock:
                return self._router.next_backlog()

        timeout = seconds_or_none(timeout)
        self._check_usable()
        with self._lock:
            news = self._news = self._news or AsyncWaiter()
        try:
            return await news.take(next_in_backlog, timeout)
        except TimeoutError:
            raise RequestTimeout(f"the server has sent nothing within {timeout:g} s") from None

    async def wait_for_turn_completed(self, turn_id: str) -> TurnCompletedNotification:
        """Read a turn to its end."""
        next_event = self._turn_source("", turn_id)
        while True:
            found = await next_event()
            if found.method == "turn/completed":
                completed: TurnCompletedNotification = cast("Any", found.payload)
                return completed

    async def stream_text(
        self, thread_id: str, text: str, params: TurnStartParams | JsonObject | None = None
    ) -> AsyncIterator[AgentMessageDeltaNotification]:
        """Run a turn and give the deltas of the agent's messages."""
        turn_id = (await self.turn_start(thread_id, text, params=params)).turn.id
        stream, next_event = self.open_turn(turn_id), self._turn_source(thread_id, turn_id)
        try:
            while True:
                found = await next_event()
                if found.method == "item/agentMessage/delta":
                    yield cast("Any", found.payload)
                elif found.method == "turn/completed":
                    return
        finally:
            self.close_turn(stream)

    async def pause_goal(self, thread_id: str) -> ThreadGoalSetResponse:
        """Pause the goal of a thread."""
        return await self.thread_goal_set(thread_id, status=ThreadGoalStatus.paused)

    # --- logins ---

    async def account_login_start(self, params: Any, *, timeout: float | None = None) -> LoginAccountResponse:
        """Log in with a key, or begin an interactive login. (`account/login/start`)"""
        return await super().account_login_start(getattr(params, "root", params), timeout=timeout)

    async def next_login_notification(self, login_id: str, *, timeout: float | None = None) -> Notification:
        """How an interactive login ended; waits for it."""
        self._check_usable()
        with self._lock:
            stream = self._router.login(login_id)
        return await self._next_event(stream, timeout)

    async def wait_for_login_completed(
        self, login_id: str, *, timeout: float | None = None
    ) -> AccountLoginCompletedNotification:
        """Wait for the end of an interactive login."""
        notification = await self.next_login_notification(login_id, timeout=timeout)
        with self._lock:
            self._router.forget_login(login_id)
        found: AccountLoginCompletedNotification = cast("Any", notification.payload)
        return found

    # --- what arrives ---

    def frames_received(self, frames: list[bytes]) -> None:
        """Take frames of the server; called by the connection."""
        with self._lock:
            received = self._router.receive(frames)
        self._distribute(received)
        if received.malformed is not None:
            text = f"the server sent something that is no message: {received.malformed}"
            self.connection_ended(TransportClosedError(text))

    def _dispatch_notification(self, notification: Notification) -> None:
        """Route a notification as if it had come from the server."""
        received = Received([], [], set())
        with self._lock:
            self._router.deliver(notification, received)
        self._distribute(received)

    def _coerce_notification(self, method: str, params: object) -> Notification:
        return notifications.make(method, params)

    def _distribute(self, received: Received) -> None:
        """Set the answers, wake the readers, and run handlers. Not under the lock: it belongs to the router alone."""
        if received.backlog and self._news is not None:
            self._news.set()
        for answered in received.answers:
            answer: AsyncAnswer = answered.token
            if isinstance(answered.result, JsonRpcError):
                answer.set_exception(answered.result)
            else:
                answer.set_result(answered.result)
        _wake(received.streams)
        for request in received.requests:
            self._request_received(request)
        if received.resolved:
            self._withdrawn(received.resolved)

    def connection_ended(self, failure: TransportClosedError) -> None:
        """Fail everyone who waits: the connection is over. Called by the connection."""
        with self._lock:
            tokens, streams = self._router.fail(failure)
        if self._news is not None:
            self._news.set()
        for answer in tokens:
            answer.set_exception(failure.fresh())
            answer.exception()  # the caller may have gone
        _wake(streams)

    def _reply(self, request: ServerRequest, result: Any) -> None:
        from treadle.client.server_requests import answer_frame  # loaded with the first request of the server

        connection = self._connection
        try:
            if connection is not None:
                connection.send(answer_frame(request, result))
        except TransportClosedError:
            logger.debug("the server went before %s was answered", request.method)


def _wake(streams: Iterable[Stream | AbandonedTurn]) -> None:
    for stream in streams:
        if stream.waiter is not None:
            stream.waiter.set()
