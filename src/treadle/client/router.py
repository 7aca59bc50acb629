"""`Router`: the state of one client's conversation, sans I/O: bytes in; answers, turn streams and server requests out.

No threads, no loop, no locks: the two clients feed it and wake their waiters; threads share a `SharedRouter`. A *token*
is what a client passes with a request and gets back with the answer; a `waiter` is what it attaches to a stream.

Nothing that a server says about a turn is lost, however early it arrives: a stream exists from the first notification
of its turn, and is dropped when its end was read. Unread events are bounded.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import DecodeError, Raw, Struct

from treadle.client.notification import Notification, frequent_reader, make, thread_of, turn_of
from treadle.client.sdk_errors import CodexError, EventsLost, JsonRpcError, TurnConflict, rpc_error
from treadle.errors import ArgumentTypeError, MalformedMessage
from treadle.protocol.app.base import decode
from treadle.rpc import Failure, Reply, Request, RequestId, decode_lenient
from treadle.rpc import Notification as RawNotification

if TYPE_CHECKING:
    from treadle.protocol.app.actions import FileUpdateChange

W = TypeVar("W")

MAX_PENDING: Final = 16_384
"""Requests waiting for an answer."""
MAX_TURN_EVENTS: Final = 262_144
"""Unread events of one turn."""
MAX_STREAMS: Final = 65_536
"""Turns with at least one event whose end was not read."""
MAX_UNREAD_EVENTS: Final = 1_048_576
"""Unread events of ended turns, in total."""
BACKLOG: Final = 4_096
"""How far `next_notification` may lag behind."""
MAX_ENDED: Final = 4_096
MAX_LOGINS: Final = 64
MAX_PATCHES: Final = 256


class ServerRequest(NamedTuple):
    """A request of the server, to be answered."""

    id: RequestId
    method: str
    params: Raw


class Answered(NamedTuple):
    """The answer to one of our requests."""

    token: Any
    result: Raw | JsonRpcError


class Stream:
    """The unread events of one turn, or of one login."""

    __slots__ = ("completed", "events", "failure", "key", "reading", "waiter")

    def __init__(self, key: str) -> None:
        self.key: str = key
        self.events: deque[Notification] = deque()
        self.completed: bool = False
        self.reading: bool = False
        self.failure: CodexError | None = None
        self.waiter: Any = None

    def take(self) -> Notification | None:
        """The next event, or None if there is none yet. Raises if there will never be one."""
        try:
            return self.events.popleft()
        except IndexError:
            if self.failure is not None:
                raise self.failure.fresh() from None
            return None


class AbandonedTurn:
    """A turn that its reader has given up. The next turn on its thread must wait for it to end: otherwise it would join
    it.

    `turn_id` is None until the answer to `turn/start` arrives.
    """

    __slots__ = ("over", "turn_id", "waiter")

    def __init__(self, turn_id: str | None) -> None:
        self.turn_id: str | None = turn_id
        self.over: bool = False
        self.waiter: Any = None


class Received(Struct):
    """What the client has to do after `receive`."""

    answers: list[Answered]
    requests: list[ServerRequest]
    streams: set[Stream | AbandonedTurn]
    """Streams whose waiters must be woken."""
    backlog: bool = False
    resolved: list[RequestId] = []
    """Server requests that no longer need an answer."""
    malformed: MalformedMessage | None = None
    """The first malformed frame; frames after it were ignored."""


class Router:
    """One conversation."""

    def __init__(self) -> None:
        self.failure: CodexError | None = None
        self.backlog: deque[Notification] = deque(maxlen=BACKLOG)
        self._next_id = 0
        self._pending: dict[int, Any] = {}
        self._streams: dict[str, Stream] = {}
        self._reading: set[Stream] = set()
        self._ended: dict[str, None] = {}
        self._unread: dict[str, int] = {}  # ended turns with unread events, oldest first, and how many
        self._active: dict[str, str] = {}
        self._starting: set[str] = set()
        self._abandoned: dict[str, AbandonedTurn] = {}  # by thread
        self._patches: dict[
            str, Any
        ] = {}  # patches in progress by item id, so that approval handlers can show the changes

    # --- out ---

    def request(self, method: str, params: Any, token: Any = None) -> tuple[int, bytes]:
        """A new request: its id and its frame. Without a token, the answer is ignored."""
        if self.failure is not None:
            raise self.failure.fresh()
        if len(self._pending) >= MAX_PENDING:
            raise CodexError(f"{MAX_PENDING} requests wait for an answer: wait for some of them first")
        self._next_id += 1
        frame = _encoded(_message({"id": self._next_id, "method": method}, params))
        if token is not None:
            self._pending[self._next_id] = token
        return self._next_id, frame

    def notification(self, method: str, params: Any = None) -> bytes:
        return _encoded(_message({"method": method}, params))

    def forget(self, request_id: int) -> None:
        """Nobody waits for this answer any more."""
        self._pending.pop(request_id, None)

    # --- in ---

    def receive(self, frames: Iterable[bytes]) -> Received:
        """Take frames in the order in which they came, up to the first that is no message."""
        received = Received([], [], set())
        streams, backlog, touched = self._streams, self.backlog, received.streams
        read = frequent_reader()
        for frame in frames:
            try:
                notification = read(frame)
            except (DecodeError, ValueError, RecursionError):
                try:
                    self._receive_other(frame, received)
                except MalformedMessage as error:
                    received.malformed = error
                    break
                continue
            if not notification.plain:
                self.deliver(notification, received)
                continue
            # Most are, so the way of these is short.
            payload: Any = notification.payload
            stream = streams.get(payload.turn_id)
            if stream is None or stream.failure is not None or len(stream.events) >= MAX_TURN_EVENTS:
                self.deliver(notification, received)
            else:
                backlog.append(notification)
                stream.events.append(notification)
                touched.add(stream)
        received.backlog = received.backlog or bool(touched)
        return received

    def _receive_other(self, frame: bytes, received: Received) -> None:
        message = decode_lenient(frame)
        if isinstance(message, RawNotification):
            self.deliver(make(message.method, _plain(message.params)), received)
        elif isinstance(message, Request):
            received.requests.append(ServerRequest(message.id, message.method, message.params))
        else:
            self._answer(message, received)

    def deliver(self, notification: Notification, received: Received) -> None:
        """Route one notification."""
        turn_id = turn_of(notification)
        self.backlog.append(notification)
        received.backlog = True
        if turn_id is None:
            if notification.method == "account/login/completed":
                self._login_completed(notification, received)
            elif notification.method == "serverRequest/resolved":
                self._request_resolved(notification.payload, received)
            return
        stream = self._streams.get(turn_id)
        if stream is None:
            if turn_id in self._ended:
                return  # its reader has seen the end
            stream = self._new_stream(turn_id)
        events = stream.events
        if stream.failure is None:
            events.append(notification)
            if len(events) > MAX_TURN_EVENTS:
                self._drop(stream)
        received.streams.add(stream)
        if notification.method == "turn/completed":
            self._turn_completed(stream, thread_of(notification), received)
        elif notification.method == "item/started":
            self._note_patch(notification.payload)

    def _new_stream(self, turn_id: str) -> Stream:
        if len(self._streams) >= MAX_STREAMS:
            unread = next((stream for stream in self._streams.values() if not stream.reading), None)
            if unread is not None:
                self._drop(unread)
                self._end(unread.key)
        stream = self._streams[turn_id] = Stream(turn_id)
        return stream

    def _turn_completed(self, stream: Stream, thread_id: str | None, received: Received) -> None:
        stream.completed = True
        if thread_id is not None and self._active.get(thread_id) == stream.key:
            del self._active[thread_id]
        abandoned = self._abandoned.get(thread_id) if thread_id is not None else None
        if abandoned is not None and abandoned.turn_id == stream.key:
            received.streams.add(self._over(thread_id, abandoned))
        if not stream.reading:
            self._unread[stream.key] = len(stream.events)
            while sum(self._unread.values()) > MAX_UNREAD_EVENTS:
                self._drop(self._streams[next(iter(self._unread))])

    def _note_patch(self, payload: Any) -> None:
        item = getattr(payload, "item", None)
        if item is not None and item.type == "fileChange" and hasattr(item, "changes"):
            self._patches[item.id] = item
            if len(self._patches) > MAX_PATCHES:
                del self._patches[next(iter(self._patches))]

    def changes(self, item_id: str) -> tuple[FileUpdateChange, ...]:
        """What a patch that was begun is about to do."""
        item = self._patches.get(item_id)
        return () if item is None else item.changes

    def _drop(self, stream: Stream) -> None:
        stream.events.clear()
        self._unread.pop(stream.key, None)
        stream.failure = EventsLost(
            f"turn {stream.key} was not read, and its events have been dropped; read its items with "
            "thread.read(include_turns=True)"
        )
        if stream.completed:
            self._end(stream.key)

    def _login_completed(self, notification: Notification, received: Received) -> None:
        login_id = getattr(notification.payload, "login_id", None)
        if isinstance(login_id, str):
            stream = self.login(login_id)
            stream.events.append(notification)
            received.streams.add(stream)

    def _request_resolved(self, payload: Any, received: Received) -> None:
        request_id = getattr(payload, "request_id", None)
        if isinstance(request_id, int | str):
            received.resolved.append(request_id)

    def _answer(self, message: Reply | Failure, received: Received) -> None:
        token = self._pending.pop(message.id, None) if isinstance(message.id, int) else None
        if token is None:
            return  # the caller has given up
        if isinstance(message, Reply):
            received.answers.append(Answered(token, message.result))
        else:
            error = message.error
            received.answers.append(Answered(token, rpc_error(error.code, error.message, error.data)))

    def fail(self, failure: CodexError) -> tuple[list[Any], list[Stream | AbandonedTurn]]:
        """The conversation is over: the tokens that will not be answered, and the streams to wake."""
        if self.failure is not None:
            return [], []
        self.failure = failure
        tokens = list(self._pending.values())
        streams = list(self._streams.values())
        endings = [self._over(thread_id, abandoned) for thread_id, abandoned in list(self._abandoned.items())]
        self._pending.clear()
        self._active.clear()
        self._starting.clear()
        for stream in streams:
            if stream.failure is None and not stream.completed:
                stream.failure = failure
        return tokens, [*streams, *endings]

    # --- turns ---

    def begin_turn(self, thread_id: str, *, joins: bool = False) -> None:
        """A turn is about to be started. Raises `TurnConflict` when the thread has one from this client.

        What `joins` is not the user's word, and goes into the turn that runs.
        """
        active = self._active.get(thread_id)
        if active is not None and joins:
            return
        if active is not None:
            raise TurnConflict(
                f"thread {thread_id!r} already has active turn {active!r} on this client: add to it with steer(), end "
                "it with interrupt(), or wait until it is completed"
            )
        if thread_id in self._starting:
            raise TurnConflict(
                f"thread {thread_id!r} already has active turn: it is being started on this client. Wait for it, or "
                "use steer() once it runs"
            )
        self._starting.add(thread_id)

    def turn_started(self, thread_id: str, turn_id: str) -> None:
        """The server has answered. The turn may have ended in the meantime."""
        self._starting.discard(thread_id)
        if self.failure is None and not self._is_over(turn_id):
            self._active[thread_id] = turn_id

    def turn_refused(self, thread_id: str) -> AbandonedTurn | None:
        """There is no turn, or none any more. Whoever waits for the end of it is to be woken."""
        self._starting.discard(thread_id)
        abandoned = self._abandoned.get(thread_id)
        return self._over(thread_id, abandoned) if abandoned is not None and abandoned.turn_id is None else None

    def answered_late(self, thread_id: str, turn_id: str | None) -> AbandonedTurn | None:
        """The start of a turn that was given up is answered: with a turn, which has to be interrupted, or with none.
        The end of the turn can come with the answer: then, as without one, whoever waits for it is to be woken."""
        if turn_id is None or self._is_over(turn_id):
            return self.turn_refused(thread_id)
        self.turn_started(thread_id, turn_id)
        self.abandon(thread_id, turn_id)
        return None

    def start_failed(self, thread_id: str) -> None:
        """Whoever started a turn got no answer that counts. One that was given up may still come."""
        if thread_id not in self._abandoned:
            self.turn_refused(thread_id)

    def _is_over(self, turn_id: str) -> bool:
        """Whether the end of a turn has arrived, read or not."""
        stream = self._streams.get(turn_id)
        return turn_id in self._ended if stream is None else stream.completed

    def abandon(self, thread_id: str, turn_id: str | None) -> bool:
        """Somebody gives up a turn, or its start while that is not answered. Whether it has to be interrupted now."""
        if self.failure is not None:
            return False
        abandoned = self._abandoned.get(thread_id)
        if turn_id is None:
            self._abandoned[thread_id] = abandoned or AbandonedTurn(None)
            return False
        if self._is_over(turn_id) or (abandoned is not None and abandoned.turn_id == turn_id):
            return False
        if abandoned is None:
            abandoned = self._abandoned[thread_id] = AbandonedTurn(None)
        abandoned.turn_id = turn_id
        return True

    def abandoned(self, thread_id: str) -> AbandonedTurn | None:
        """What the next turn of a thread has to wait for."""
        return self._abandoned.get(thread_id)

    def _over(self, thread_id: str | None, abandoned: AbandonedTurn) -> AbandonedTurn:
        abandoned.over = True
        if thread_id is not None:
            self._abandoned.pop(thread_id, None)
        return abandoned

    def waiter(self, what: Stream | AbandonedTurn, make: Callable[[], W]) -> W:
        """The waiter of a stream, made by `make` the first time."""
        if what.waiter is None:
            what.waiter = make()
        waiter: W = what.waiter
        return waiter

    def peek(self, turn_id: str) -> Stream | None:
        """The stream of a turn if anything is known of it."""
        return self._streams.get(turn_id)

    def stream(self, turn_id: str) -> Stream:
        """The stream of a turn. Raises `TurnConflict` when its end was read already."""
        stream = self._streams.get(turn_id)
        if stream is None:
            if turn_id in self._ended:
                raise TurnConflict(f"the stream of turn {turn_id!r} has ended; thread.read(include_turns=True) has it")
            if self.failure is not None:
                raise self.failure.fresh()
            stream = self._streams[turn_id] = Stream(turn_id)
        return stream

    def open(self, turn_id: str) -> Stream:
        """Somebody reads a turn."""
        stream = self.stream(turn_id)
        if stream.reading:
            raise TurnConflict(f"turn {turn_id!r} is being read already: a turn has one stream")
        stream.reading = True
        self._unread.pop(turn_id, None)
        self._reading.add(stream)
        return stream

    @property
    def readers(self) -> int:
        """How many turns are being read."""
        return len(self._reading)

    def close(self, stream: Stream) -> None:
        """The reader has gone; it may come back unless it has seen the end."""
        stream.reading = False
        self._reading.discard(stream)
        if self._streams.get(stream.key) is not stream:
            return  # of an earlier conversation
        if stream.completed or stream.failure is not None:
            if not stream.events:
                self._end(stream.key)
            elif stream.completed:
                self._unread[stream.key] = len(stream.events)

    def seen(self, stream: Stream) -> None:
        """The end of a turn was read."""
        if not stream.reading:
            self._end(stream.key)

    def _end(self, key: str) -> None:
        self._streams.pop(key, None)
        self._unread.pop(key, None)
        self._ended[key] = None
        if len(self._ended) > MAX_ENDED:
            del self._ended[next(iter(self._ended))]

    def next_backlog(self) -> Notification | None:
        """The next notification of all. Raises while a turn is being read, and when there will be none."""
        if self._reading:
            raise TurnConflict(
                "next_notification() is incompatible with turn streams on the same client: read the notifications of a "
                "turn from its stream() or run()"
            )
        if self.backlog:
            return self.backlog.popleft()
        if self.failure is not None:
            raise self.failure.fresh()
        return None

    # --- logins ---

    def login(self, login_id: str) -> Stream:
        """The one event of an interactive login, which may have come already."""
        key = f"login {login_id}"
        stream = self._streams.get(key)
        if stream is None:
            logins = [name for name in self._streams if name.startswith("login ")]
            if len(logins) >= MAX_LOGINS:
                del self._streams[logins[0]]
            stream = self._streams[key] = Stream(key)
            stream.failure = self.failure
        return stream

    def forget_login(self, login_id: str) -> None:
        self._streams.pop(f"login {login_id}", None)


def _encoded(message: dict[str, Any]) -> bytes:
    return msgspec.json.encode(message, enc_hook=_path_text)


def _path_text(value: object) -> object:
    """A path may stand wherever the protocol has the text of one."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise ArgumentTypeError("params", f"the params have an object of {type(value).__name__} in them: JSON has none")


def _message(message: dict[str, Any], params: Any) -> dict[str, Any]:
    # For some methods of the real server no params and empty ones are not the same.
    if params is not None:
        message["params"] = params
    return message


def _plain(params: Raw) -> Any:
    if not bytes(params):
        return {}
    try:
        return decode(params, Any)
    except (DecodeError, ValueError, RecursionError) as error:
        raise MalformedMessage(f"not a JSON-RPC message: {error}") from None
