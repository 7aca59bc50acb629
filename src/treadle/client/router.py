"""`Router`: the state of one client's conversation, sans I/O: bytes in; answers, turn streams and server requests out.

No threads, no loop, no locks: the two clients feed it, one call at a time, and wake their waiters. A *token* is what a
client passes with a request and gets back with the answer; a `waiter` is what it attaches to a stream.

The stream of a turn:

    first notification, stream() or open()
              │
              ▼         open()
           unread ─────────────────▶ reading
            │ │ ▲                     │   │
            │ │ └────── close() ──────┘   │ close() after its end was read
            │ │                           ▼
            │ └── seen(): end was read ▶ ended: only the id is remembered
            │                             ▲
            └── too many events ▶ lost ───┘ when the turn is completed, or its reader has closed

A stream exists from the first notification of its turn, because that may arrive before the answer to `turn/start`: so
nothing that a server sends about a turn is lost. It lives until its end was read, so that a reader may come back, and
is bounded, because nobody has to read a turn. Of an ended turn the id stays, so that late notifications, and a second
reader, do not begin a new stream.

The turns of a thread, as far as this client starts them:

    begin_turn ──▶ starting ── turn_started ──▶ active ── turn/completed ──▶ (none)
                      │                           │
                   abandon(None)             abandon(turn)      the caller has gone
                      ▼                           ▼
                  abandoned ── answered_late ──▶ abandoned with an id ── turn/completed ──▶ over: wake who waits

A second turn on a thread is refused while the first one is active, because the server would add its input to the first.
For the same reason it waits for the end of an abandoned one. The order of `turn/completed` and the answer to
`turn/start` is not certain: `_is_over` looks at the stream before a turn becomes active.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import DecodeError, Raw, Struct

from treadle.client.notification import (
    Notification,
    UnknownNotification,
    frequent_reader,
    make,
    warning_text,
)
from treadle.client.requests import as_json
from treadle.client.sdk_errors import CodexError, EventsLost, JsonRpcError, TurnConflict, rpc_error
from treadle.errors import MalformedMessage
from treadle.protocol.app.base import decode
from treadle.rpc import Notification as RawNotification
from treadle.rpc import Reply, Request, RequestId, decode_lenient

if TYPE_CHECKING:
    from treadle.protocol.app.item_parts import FileUpdateChange

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
"""Ids of ended turns that are remembered."""
MAX_LOGINS: Final = 64
MAX_PATCHES: Final = 256
MAX_WARNINGS: Final = 256


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
        """The next event, or None if none has come yet. Raises if none will ever come."""
        try:
            return self.events.popleft()
        except IndexError:
            if self.failure is not None:
                raise self.failure.fresh() from None
            return None


class AbandonedTurn:
    """A turn whose caller has gone. The next turn on its thread must wait for it to end: otherwise it would join it.

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
        self.warnings: dict[str, None] = {}
        """Warnings of the server about its settings, in its order."""
        self._unread_warnings: deque[str] = deque(maxlen=MAX_WARNINGS)
        self._read: Callable[[bytes], Notification] | None = None  # made with the first frame
        self._next_id = 0
        self._pending: dict[int, Any] = {}
        self.streams: dict[str, Stream] = {}
        """The open streams, by the id of a turn or by `login ID`."""
        self._reading: set[Stream] = set()
        self._ended: dict[str, None] = {}
        self._unread: dict[str, int] = {}  # ended turns with unread events, oldest first, and how many
        self._active: dict[str, str] = {}
        self._starting: set[str] = set()
        self._abandoned: dict[str, AbandonedTurn] = {}  # by thread
        self._patches: dict[str, Any] = {}  # patches in progress by item id: approval handlers show their changes

    # --- out ---

    def request(self, method: str, params: Any, token: Any = None) -> tuple[int, bytes]:
        """A new request: its id and its frame. Without a token, the answer is ignored."""
        if self.failure is not None:
            raise self.failure.fresh()
        if len(self._pending) >= MAX_PENDING:
            raise CodexError(f"{MAX_PENDING} requests wait for an answer: wait for some of them first")
        self._next_id += 1
        frame = _encoded({"id": self._next_id, "method": method}, params)
        if token is not None:
            self._pending[self._next_id] = token
        return self._next_id, frame

    def notification(self, method: str, params: Any = None) -> bytes:
        """The frame of a notification."""
        return _encoded({"method": method}, params)

    def forget(self, request_id: int) -> None:
        """Ignore the answer to a request."""
        self._pending.pop(request_id, None)

    # --- in ---

    def receive(self, frames: Iterable[bytes]) -> Received:
        """Take frames in the order in which they came, up to the first that is no message."""
        received = Received([], [], set())
        streams, backlog, touched = self.streams, self.backlog, received.streams
        read = self._read = self._read or frequent_reader()
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
            # Most are plain: what `deliver` would do for them, without the questions that it asks.
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
        """An answer, a request, or a notification in which not all is known. Raises `MalformedMessage`."""
        message = decode_lenient(frame)
        if isinstance(message, RawNotification):
            try:
                params: Any = decode(message.params, Any) if bytes(message.params) else {}
            except (DecodeError, ValueError, RecursionError) as error:
                raise MalformedMessage(f"not a JSON-RPC message: {error}") from None
            self.deliver(make(message.method, params), received)
        elif isinstance(message, Request):
            received.requests.append(ServerRequest(message.id, message.method, message.params))
        else:
            token = self._pending.pop(message.id, None) if isinstance(message.id, int) else None
            if token is None:
                return  # the caller has gone
            if isinstance(message, Reply):
                received.answers.append(Answered(token, message.result))
            else:
                failed = message.error
                received.answers.append(Answered(token, rpc_error(failed.code, failed.message, failed.data)))

    def deliver(self, notification: Notification, received: Received) -> None:
        """Route one notification."""
        self.backlog.append(notification)
        received.backlog = True
        turn_id = turn_of(notification)
        if turn_id is None:
            self._deliver_outside_turns(notification, received)
            return
        # Into the stream of its turn, which it may begin.
        stream = self.streams.get(turn_id)
        if stream is None:
            if turn_id in self._ended:
                return  # its reader has seen the end
            if len(self.streams) >= MAX_STREAMS:
                unread = next((stream for stream in self.streams.values() if not stream.reading), None)
                if unread is not None:
                    self._drop(unread)
                    self._end(unread.key)
            stream = self.streams[turn_id] = Stream(turn_id)
        if stream.failure is None:
            stream.events.append(notification)
            if len(stream.events) > MAX_TURN_EVENTS:
                self._drop(stream)
        received.streams.add(stream)
        if notification.method == "turn/completed":
            thread_id = thread_of(notification)
            stream.completed = True
            if thread_id is not None and self._active.get(thread_id) == stream.key:
                del self._active[thread_id]
            abandoned = self._abandoned.get(thread_id) if thread_id is not None else None
            if abandoned is not None and abandoned.turn_id == stream.key:
                received.streams.add(self._over(thread_id, abandoned))
            if not stream.reading:
                self._unread[stream.key] = len(stream.events)
                while sum(self._unread.values()) > MAX_UNREAD_EVENTS:
                    self._drop(self.streams[next(iter(self._unread))])
        elif notification.method == "item/started":
            item: Any = getattr(notification.payload, "item", None)
            if hasattr(item, "changes") and item.type == "fileChange":
                self._patches[item.id] = item
                if len(self._patches) > MAX_PATCHES:
                    del self._patches[next(iter(self._patches))]

    def _deliver_outside_turns(self, notification: Notification, received: Received) -> None:
        method: str = notification.method
        payload: Any = notification.payload
        if method == "account/login/completed":
            login_id = getattr(payload, "login_id", None)
            if isinstance(login_id, str):
                stream = self.login(login_id)
                stream.events.append(notification)
                received.streams.add(stream)
        elif method == "serverRequest/resolved":
            request_id = getattr(payload, "request_id", None)
            if isinstance(request_id, int | str):
                received.resolved.append(request_id)
        elif method == "configWarning" and not isinstance(payload, UnknownNotification):
            text = warning_text(payload)
            if text not in self.warnings and len(self.warnings) < MAX_WARNINGS:
                self.warnings[text] = None
                if payload.details is None:  # an error is raised by what it concerns
                    self._unread_warnings.append(text)

    def take_warning(self) -> str | None:
        """The next warning that nobody has taken."""
        try:
            return self._unread_warnings.popleft()
        except IndexError:
            return None

    def changes(self, item_id: str) -> tuple[FileUpdateChange, ...]:
        """The changes that a patch in progress is about to make."""
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

    def fail(self, failure: CodexError) -> tuple[list[Any], list[Stream | AbandonedTurn]]:
        """End the conversation: the tokens that will not be answered, and the streams to wake."""
        if self.failure is not None:
            return [], []
        self.failure = failure
        tokens = list(self._pending.values())
        streams = list(self.streams.values())
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
        """Claim a thread for a turn that is about to be started. Raises `TurnConflict` if it has one from this client.

        Input that `joins` is not from the user, and goes into the turn that runs.
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
        """Note the turn that the server answered with. It may have ended in the meantime."""
        self._starting.discard(thread_id)
        if self.failure is None and not self._is_over(turn_id):
            self._active[thread_id] = turn_id

    def turn_refused(self, thread_id: str) -> AbandonedTurn | None:
        """Note that no turn was started, or that it has ended: the abandoned turn whose waiter is to be woken."""
        self._starting.discard(thread_id)
        abandoned = self._abandoned.get(thread_id)
        return self._over(thread_id, abandoned) if abandoned is not None and abandoned.turn_id is None else None

    def answered_late(self, thread_id: str, turn_id: str | None) -> AbandonedTurn | None:
        """Note the answer to the start of an abandoned turn: a turn, which then has to be interrupted, or none. The end
        of the turn can come with the answer: then, as without a turn, the result is whose waiter is to be woken."""
        if turn_id is None or self._is_over(turn_id):
            return self.turn_refused(thread_id)
        self.turn_started(thread_id, turn_id)
        self.abandon(thread_id, turn_id)
        return None

    def start_failed(self, thread_id: str) -> None:
        """Note that a start had no answer that counts. That of an abandoned turn may still come."""
        if thread_id not in self._abandoned:
            self.turn_refused(thread_id)

    def _is_over(self, turn_id: str) -> bool:
        """Whether the end of a turn has arrived, read or not."""
        stream = self.streams.get(turn_id)
        return turn_id in self._ended if stream is None else stream.completed

    def abandon(self, thread_id: str, turn_id: str | None) -> bool:
        """Abandon a turn, or its start while that is not answered. Whether it has to be interrupted now."""
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
        """The turn for whose end the next turn of a thread has to wait."""
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

    def stream(self, turn_id: str) -> Stream:
        """The stream of a turn. Raises `TurnConflict` when its end was read already."""
        stream = self.streams.get(turn_id)
        if stream is None:
            if turn_id in self._ended:
                raise TurnConflict(f"the stream of turn {turn_id!r} has ended; thread.read(include_turns=True) has it")
            if self.failure is not None:
                raise self.failure.fresh()
            stream = self.streams[turn_id] = Stream(turn_id)
        return stream

    def open(self, turn_id: str) -> Stream:
        """Begin to read a turn. Raises `TurnConflict` when it is being read."""
        stream = self.stream(turn_id)
        if stream.reading:
            raise TurnConflict(f"turn {turn_id!r} is being read already: a turn has one stream")
        stream.reading = True
        self._unread.pop(turn_id, None)
        self._reading.add(stream)
        return stream

    @property
    def readers(self) -> int:
        """The number of turns that are being read."""
        return len(self._reading)

    def close(self, stream: Stream) -> None:
        """End the reading of a turn; the reader may come back unless it has seen the end."""
        stream.reading = False
        self._reading.discard(stream)
        if self.streams.get(stream.key) is not stream:
            return  # of an earlier conversation
        if stream.completed or stream.failure is not None:
            if not stream.events:
                self._end(stream.key)
            elif stream.completed:
                self._unread[stream.key] = len(stream.events)

    def seen(self, stream: Stream) -> None:
        """Note that the end of a turn was read by a caller that did not open it."""
        if not stream.reading:
            self._end(stream.key)

    def _end(self, key: str) -> None:
        self.streams.pop(key, None)
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
        """The stream of an interactive login, which has one event, and may have it already."""
        key = f"login {login_id}"
        stream = self.streams.get(key)
        if stream is None:
            logins = [name for name in self.streams if name.startswith("login ")]
            if len(logins) >= MAX_LOGINS:
                del self.streams[logins[0]]
            stream = self.streams[key] = Stream(key)
            stream.failure = self.failure
        return stream

    def forget_login(self, login_id: str) -> None:
        self.streams.pop(f"login {login_id}", None)


def _encoded(message: dict[str, Any], params: Any) -> bytes:
    # For some methods of the real server no params and empty ones are not the same.
    if params is not None:
        message["params"] = params
    return as_json(msgspec.json.encode, message)


def turn_of(notification: Notification) -> str | None:
    """The id of the turn that a notification is about."""
    payload: Any = notification.payload
    if isinstance(payload, UnknownNotification):
        turn_id, turn = payload.params.get("turnId"), payload.params.get("turn")
        if not isinstance(turn_id, str) and isinstance(turn, dict):
            turn_id = turn.get("id")
    elif hasattr(payload, "turn_id"):
        turn_id = payload.turn_id
    else:
        turn_id = getattr(getattr(payload, "turn", None), "id", None)
    return turn_id if isinstance(turn_id, str) else None


def thread_of(notification: Notification) -> str | None:
    """The id of the thread that a notification is about."""
    payload = notification.payload
    if isinstance(payload, UnknownNotification):
        thread_id = payload.params.get("threadId")
    else:
        thread_id = getattr(payload, "thread_id", None)
    return thread_id if isinstance(thread_id, str) else None
