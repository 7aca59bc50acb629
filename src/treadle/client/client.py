"""`AppServerClient`: the blocking client, one method for each RPC. Any number of threads may use one at the same time.

It owns the lock around the router, the waiting, and the threads on which handlers run. A thread of the connection
reads; nothing of the user's runs there.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

from msgspec import Raw

from treadle.arguments import function
from treadle.arguments import limit as seconds_or_none
from treadle.client import notification as notifications
from treadle.client.calls import Calls
from treadle.client.checks import check_config
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
from treadle.client.retry import retry_on_overload
from treadle.client.router import Answered, Asked, News, Router, Stream

if TYPE_CHECKING:
    from treadle.client.asks import Work
    from treadle.client.connection import Connection
    from treadle.protocol.app.accounts import AccountLoginCompletedNotification, LoginAccountResponse
    from treadle.protocol.app.base import JsonObject
    from treadle.protocol.app.goals import ThreadGoalSetResponse
    from treadle.protocol.app.item_notifications import AgentMessageDeltaNotification
    from treadle.protocol.app.thread_notifications import TurnCompletedNotification
    from treadle.protocol.app.turns import TurnStartParams, TurnStartResponse

logger: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")

ENDING_S: Final = 10.0
"""A turn that was told to end gets this long before another one is tried on its thread."""
MAX_HANDLERS: Final = 64
"""Handlers that run at a time."""


class _Waiting:
    """One request that waits. `abandoned` is what is done with an answer that nobody waits for any more."""

    __slots__ = ("abandoned", "event", "failure", "result")

    def __init__(self) -> None:
        self.event = threading.Event()
        self.result: Raw | None = None
        self.failure: CodexError | None = None
        self.abandoned: str | None = None


class AppServerClient(Calls):
    """A client of one server. `start` connects, `initialize` shakes hands, `close` ends it; then `start` works again.

    Args:
        config: Which server to use.
        approval_handler: A function that gets the method and the params of every request of the server and returns the
            result: it takes the place of the handlers of `Codex`.
    """

    def __init__(self, config: CodexConfig | None = None, approval_handler: RawHandler | None = None) -> None:
        check_config(config)
        if approval_handler is not None:
            function("approval_handler", approval_handler, "a method and its params")
        self.config: CodexConfig = config or CodexConfig()
        self.handlers: Handlers = Handlers(approval_handler)
        self._lock = threading.Lock()
        self._router = self._new_router()
        self._news = threading.Condition(self._lock)  # for whoever reads the backlog
        self._connection: Connection | None = None
        self._opening = threading.Lock()
        self._running = threading.Semaphore(MAX_HANDLERS)
        self._pid: int | None = None  # of the process that it was started in

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'connected' if self._connection is not None else 'not connected'}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("a client cannot be pickled: pickle its CodexConfig and make a new one from that")

    # --- life ---

    def start(self) -> None:
        """Connect to the server, starting it when the config says so. Does nothing when that was done."""
        from treadle.client.connection import open_connection

        self._check_process()
        with self._opening:
            with self._lock:
                if self._connection is not None:
                    return
                self._router = self._new_router()
            connection = open_connection(self.config, self)
            with self._lock:
                self._connection = connection
                self._pid = os.getpid()

    def _new_router(self) -> Router:
        """For one conversation."""
        return Router()

    def initialize(self) -> InitializeResponse:
        """Shake hands."""
        answer = self.request("initialize", introduction(self.config), response_model=InitializeResponse)
        self.notify("initialized")
        return answer

    def close(self) -> None:
        """End the connection, and the server with all that it started if it is our own. May be called again."""
        if self._is_forked():  # then all of it belongs to somebody else, who may be using it
            self._connection = None
            return
        with self._lock:
            connection, self._connection = self._connection, None
            self._pid = None
        self.connection_ended(TransportClosedError("the client was closed"))
        if connection is not None:
            connection.close()

    def _is_forked(self) -> bool:
        return self._pid is not None and self._pid != os.getpid()

    def _check_process(self) -> None:
        """Before any lock: a fork has copies of them, which nobody opens, and no thread that reads."""
        if self._is_forked():
            from treadle.transport.owner import forked

            raise CodexError(forked("this client", self._pid or 0))

    # --- asking ---

    def request(self, method: str, params: Any, *, response_model: type[T], timeout: float | None = None) -> T:
        """Ask, and wait for the answer. Raises `JsonRpcError`, `TransportClosedError` or `RequestTimeout`.

        `timeout` None is the config's `request_timeout`, `math.inf` no limit.
        """
        timeout = seconds_or_none(timeout)
        params = wire_params(params)
        waiting = _Waiting()
        number = self._send_request(method, params, waiting)
        limit = limit_of_request(method, timeout, self.config.request_timeout)
        try:
            if not waiting.event.wait(limit):
                raise unanswered(method, limit or 0.0)
            if waiting.failure is not None:
                raise waiting.failure.fresh()
            assert waiting.result is not None
            return read_result(method, waiting.result, response_model)
        except BaseException:
            self._give_up(number, waiting, thread_of_start(method, params))
            raise

    def _give_up(self, number: int, waiting: _Waiting, thread_id: str | None) -> None:
        """Nobody waits any more. A turn that is started for somebody who has gone is to be ended."""
        with self._lock:
            if thread_id is None:
                self._router.forget(number)
            if thread_id is None or waiting.failure is not None:
                return
            waiting.abandoned = thread_id
            self._router.abandon(thread_id, None)
            answer = waiting.result
        if answer is not None:  # it has come already
            self._interrupt_abandoned(thread_id, answer)

    def _send_request(self, method: str, params: Any, token: Any) -> int:
        self._check_process()
        with self._lock:
            connection = self._connected()
            number, frame = self._router.request(method, params, token)
        try:
            connection.send(frame)
        except BaseException:
            with self._lock:
                self._router.forget(number)
                failure = self._router.failure
            if failure is not None:
                raise failure.fresh() from None
            raise
        return number

    def _connected(self) -> Connection:
        if self._connection is None:
            if self._router.failure is not None:
                raise self._router.failure.fresh()
            raise TransportClosedError("the client is not connected: call start() first")
        return self._connection

    def notify(self, method: str, params: Any = None) -> None:
        """Tell the server something that has no answer."""
        self._check_process()
        frame = self._router.notification(method, wire_params(params))
        with self._lock:
            connection = self._connected()
        connection.send(frame)

    def request_with_retry_on_overload(
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
        return retry_on_overload(
            lambda: self.request(method, params, response_model=response_model),
            max_attempts=max_attempts,
            initial_delay_s=initial_delay_s,
            max_delay_s=max_delay_s,
        )

    # --- turns ---

    def turn_start(
        self,
        thread_id: str,
        input: list[JsonObject] | JsonObject | str,
        *,
        params: TurnStartParams | JsonObject | None = None,
        timeout: float | None = None,
    ) -> TurnStartResponse:
        """Start a turn. Raises `TurnConflict` when the thread has one that was started here."""
        self._check_process()
        sent = with_members(params, threadId=thread_id, input=input_items(input))
        self._wait_for_ending(thread_id)
        with self._lock:
            self._router.begin_turn(thread_id, joins=sent.get("toolOutput") is not None)
        started: TurnStartResponse | None = None
        try:
            started = self._call("turn/start", sent, timeout)
            with self._lock:
                self._router.turn_started(thread_id, started.turn.id)
            return started
        except BaseException:
            if started is not None:
                self.abandon_turn(thread_id, started.turn.id)
            else:
                with self._lock:
                    if self._router.ending(thread_id) is None:  # else the answer may still come
                        self._router.turn_refused(thread_id)
            raise

    def next_turn_notification(self, thread_id: str, turn_id: str, *, timeout: float | None = None) -> Notification:
        """The next event of a turn; waits for it. After `turn/completed` there is none."""
        stream = self._router.peek(turn_id)
        found = stream.take() if stream is not None and stream.events else None
        if stream is None or found is None:
            self._check_process()
            with self._lock:
                stream = self._router.stream(turn_id)
            found = self._wait_for_event(stream, timeout)
        if found.method == "turn/completed":
            with self._lock:
                self._router.seen(stream)
        return found

    def _wait_for_event(self, stream: Stream, timeout: float | None) -> Notification:
        waiter: threading.Event | None = stream.waiter
        if waiter is None:
            with self._lock:
                waiter = stream.waiter = stream.waiter or threading.Event()
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            waiter.clear()
            found = stream.take()
            if found is not None:
                return found
            if not waiter.wait(None if deadline is None else max(0.0, deadline - time.monotonic())):
                raise RequestTimeout(f"nothing was heard of {stream.key} within {timeout:g} s")

    def open_turn(self, turn_id: str) -> Stream:
        """Say that somebody reads a turn: it has one reader, and `next_notification` is refused meanwhile."""
        self._check_process()
        with self._lock:
            return self._router.open(turn_id)

    def close_turn(self, stream: Stream) -> None:
        """The reader of a turn has gone."""
        if self._is_forked():
            return
        with self._lock:
            self._router.close(stream)

    def abandon_turn(self, thread_id: str, turn_id: str) -> None:
        """Have a turn ended on the server without waiting for it. The next one on its thread waits for its end."""
        if self._is_forked():
            return
        with self._lock:
            needed = self._router.abandon(thread_id, turn_id)
        if needed:
            try:
                self._send_request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id}, _Waiting())
            except CodexError as error:
                logger.debug("turn %s could not be interrupted: %s", turn_id, error)

    def _wait_for_ending(self, thread_id: str) -> None:
        """For a turn that somebody has given up: the next one would join it."""
        with self._lock:
            ending = self._router.ending(thread_id)
            if ending is None:
                return
            waiter = ending.waiter = ending.waiter or threading.Event()
        if not ending.over:
            waiter.wait(ENDING_S)  # after that the server decides

    def next_notification(self, *, timeout: float | None = None) -> Notification:
        """The next notification of any kind; waits for it. Not while the stream of a turn is being read."""
        self._check_process()
        with self._news:
            found = self._router.next_backlog()
            deadline = None if timeout is None else time.monotonic() + timeout
            while found is None:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise RequestTimeout(f"the server has told nothing within {timeout:g} s")
                self._news.wait(left)
                found = self._router.next_backlog()
            return found

    def wait_for_turn_completed(self, turn_id: str) -> TurnCompletedNotification:
        """Read a turn to its end."""
        while True:
            found = self.next_turn_notification("", turn_id)
            if found.method == "turn/completed":
                completed: TurnCompletedNotification = cast("Any", found.payload)
                return completed

    def stream_text(
        self, thread_id: str, text: str, params: TurnStartParams | JsonObject | None = None
    ) -> Iterator[AgentMessageDeltaNotification]:
        """Run a turn and give the pieces of what the agent says."""
        turn_id = self.turn_start(thread_id, text, params=params).turn.id
        stream = self.open_turn(turn_id)
        try:
            while True:
                found = self.next_turn_notification(thread_id, turn_id)
                if found.method == "item/agentMessage/delta":
                    yield cast("Any", found.payload)
                elif found.method == "turn/completed":
                    return
        finally:
            self.close_turn(stream)

    def pause_goal(self, thread_id: str) -> ThreadGoalSetResponse:
        """Let the goal of a thread rest."""
        from treadle.protocol.app.threads import ThreadGoalStatus

        return self.thread_goal_set(thread_id, status=ThreadGoalStatus.paused)

    # --- logins ---

    def account_login_start(self, params: Any, *, timeout: float | None = None) -> LoginAccountResponse:
        """Log in with a key, or begin an interactive login. (`account/login/start`)"""
        return super().account_login_start(getattr(params, "root", params), timeout=timeout)

    def next_login_notification(self, login_id: str, *, timeout: float | None = None) -> Notification:
        """How an interactive login ended; waits for it."""
        self._check_process()
        with self._lock:
            stream = self._router.login(login_id)
        return self._wait_for_event(stream, timeout)

    def wait_for_login_completed(
        self, login_id: str, *, timeout: float | None = None
    ) -> AccountLoginCompletedNotification:
        """Wait for the end of an interactive login."""
        notification = self.next_login_notification(login_id, timeout=timeout)
        found: AccountLoginCompletedNotification = cast("Any", notification.payload)
        with self._lock:
            self._router.forget_login(login_id)
        return found

    # --- Sink: on the thread of the connection ---

    def frames_received(self, frames: list[bytes]) -> None:
        """What the server said; called by the connection."""
        with self._news:
            news = self._router.receive(frames)
            if news.backlog:
                self._news.notify_all()
        self._spread(news)
        if news.malformed is not None:
            text = f"the server sent something that is no message: {news.malformed}"
            self.connection_ended(TransportClosedError(text))

    def _dispatch_notification(self, notification: Notification) -> None:
        """Route a notification as if it had come from the server."""
        news = News([], [], set())
        with self._news:
            self._router.tell(notification, news)
            self._news.notify_all()
        self._spread(news)

    def _coerce_notification(self, method: str, params: object) -> Notification:
        return notifications.make(method, params)

    def _spread(self, news: News) -> None:
        for answered in news.answers:
            self._answered(answered)
        for stream in news.streams:
            if stream.waiter is not None:
                stream.waiter.set()
        for asked in news.asks:
            self._asked(asked)

    def _answered(self, answered: Answered) -> None:
        waiting: _Waiting = answered.token
        with self._lock:
            if isinstance(answered.result, JsonRpcError):
                waiting.failure = answered.result
            else:
                waiting.result = answered.result
            abandoned = waiting.abandoned
        waiting.event.set()
        if abandoned is not None:
            self._interrupt_abandoned(abandoned, waiting.result)

    def _interrupt_abandoned(self, thread_id: str, answer: Raw | None) -> None:
        """A turn was started, or was not, for somebody who has gone."""
        turn_id = started_turn(answer)
        with self._lock:
            over = self._router.turn_refused(thread_id) if turn_id is None else None
            if turn_id is not None:
                self._router.turn_started(thread_id, turn_id)
        if over is not None and over.waiter is not None:
            over.waiter.set()
        if turn_id is not None:
            self.abandon_turn(thread_id, turn_id)

    def connection_ended(self, failure: TransportClosedError) -> None:
        """The connection is over: everyone who waits is told. Called by the connection."""
        with self._news:
            tokens, streams = self._router.fail(failure)
            self._news.notify_all()
        for waiting in tokens:
            waiting.failure = failure
            waiting.event.set()
        for stream in streams:
            if stream.waiter is not None:
                stream.waiter.set()

    # --- answering ---

    def _asked(self, asked: Asked) -> None:
        from treadle.client import asks

        if not self._running.acquire(blocking=False):
            self._reply(asked, asks.busy(MAX_HANDLERS))
            return
        threading.Thread(target=self._answer, args=(asked,), name=f"treadle {asked.method}", daemon=True).start()

    def _answer(self, asked: Asked) -> None:
        from treadle.client.asks import work_for

        try:
            self._reply(asked, _result_of(work_for(asked, self.handlers, self._router.changes)))
        finally:
            self._running.release()

    def _reply(self, asked: Asked, result: Any) -> None:
        from treadle.client.asks import frame_of

        with self._lock:
            connection = self._connection
        try:
            if connection is not None:
                connection.send(frame_of(asked, result))
        except TransportClosedError:
            logger.debug("the server went before %s was answered", asked.method)


def _result_of(work: Work) -> Any:
    try:
        value = work.call()
        if hasattr(value, "__await__"):
            import asyncio

            value = asyncio.run(_finish(value))
        return work.answer(value)
    except BaseException as error:  # also one that would end the thread: the server waits for an answer
        return work.refuse(error if isinstance(error, Exception) else RuntimeError(repr(error)))


async def _finish(value: Any) -> Any:
    return await value
