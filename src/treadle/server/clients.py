"""`Client`: one party that talks to the server. It owns who the client is, what it wants to hear and the requests that
it waits for.

A client speaks JSON over a channel, also in this process. It owns the reading of frames and the queue for a client that
does not keep up: deltas are joined in it, and a client that still falls behind without end is disconnected, except on
stdio and in process, where the agent waits instead.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec
from msgspec import Raw, Struct, structs

from treadle.agent.event import Event, now_ms
from treadle.errors import (
    CONFIG_PROBLEMS,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    OVERLOAD_DATA,
    OVERLOADED,
    MalformedMessage,
    RpcError,
    TreadleError,
)
from treadle.logs import audit
from treadle.logs.metrics import REQUESTS
from treadle.logs.trace import IDS, trace_of
from treadle.protocol.app.base import decode
from treadle.rpc import Failure, Reply, Request, decode_lenient, encode_failure
from treadle.rpc.message import TOO_DEEP, decode_problem, is_too_deep
from treadle.server.routes import (
    EXPERIMENTAL_NOTIFICATIONS,
    NUL,
    ROUTES,
    MethodRoute,
    bad_params,
    refuse_experimental,
    refuse_nul,
    too_deep,
    unknown_method,
)

if TYPE_CHECKING:
    from treadle.agent.thread.client_requests import ClientRequest
    from treadle.server.app import AppServer
    from treadle.server.identity import Identity
    from treadle.transport import Channel


logger: logging.Logger = logging.getLogger(__name__)
P = TypeVar("P")
# Requests that one client may have under way. More are refused: a client that does not wait will not stop.
MAX_CALLS: Final = 1024
# Of what a client says, in logs.
MAX_LOGGED: Final = 80


# --- what single clients need -----------------------------------------------------------------------------------------


class Workarounds(Struct, frozen=True, kw_only=True):
    """`turn_min_s`: least time between the response to turn/start and turn/completed. `says_yes`: it accepts approvals
    without asking a person, so it is not asked in place of an automatic reviewer that could not decide."""

    turn_min_s: float = 0.0
    says_yes: bool = False


NONE: Final = Workarounds()
BY_CLIENT: Final = {
    # The official Python SDK drops a `turn/completed` that arrives before its caller has registered the turn, and then
    # waits for it for ever.
    "codex_python_sdk": Workarounds(turn_min_s=0.020, says_yes=True),
}


def workarounds_for(client_name: str) -> Workarounds:
    return BY_CLIENT.get(client_name, NONE)


# --- requests ---------------------------------------------------------------------------------------------------------


class ServerCall(Generic[P]):
    """One request: its params, who sent it, and the server. A handler answers by what it returns or raises."""

    __slots__ = ("_afterwards", "_began", "client", "method", "params", "request_id", "server")

    def __init__(self, client: Client, request_id: Any, method: str, params: P) -> None:
        self._began = time.monotonic()
        self.client: Client = client
        self.server: AppServer = client.server
        self.request_id: Any = request_id
        self.method: str = method
        self.params: P = params
        self._afterwards: Callable[[], None] | None = None

    def afterwards(self, action: Callable[[], None]) -> None:
        """What has to come right after the answer, before anything else happens. Not when the answer is an error."""
        self._afterwards = action

    def reply(self, result: Any) -> None:
        """Send what the handler returned; for whoever calls the handler."""
        REQUESTS.add(self.method, "answered")
        if logger.isEnabledFor(logging.INFO):
            logger.info("request answered", {"method": self.method, "duration_ms": self._took_ms()})
        try:
            self.client.send_reply(self.request_id, result)
        except UnicodeEncodeError as error:  # a name of this machine that JSON cannot hold; nobody may wait for ever
            self.fail(wire_error(error, self.method))
            return
        if self._afterwards is not None:
            self._afterwards()

    def fail(self, error: RpcError) -> None:
        REQUESTS.add(self.method if self.method in ROUTES else "unknown", "failed")
        if logger.isEnabledFor(logging.INFO):
            fields = {"method": self.method, "code": error.code, "duration_ms": self._took_ms()}
            logger.info("request failed", fields)
            logger.debug("why it failed", {"reason": error.message})
        self.client.send_failure(self.request_id, error)

    def _took_ms(self) -> int:
        return int((time.monotonic() - self._began) * 1000)


# --- clients ----------------------------------------------------------------------------------------------------------


# What may wait for a client. Beyond the first mark the agent pauses for one that must not lose anything.
HIGH_BYTES: Final = 4 << 20
MAX_BYTES: Final = 64 << 20
MAX_WAITING: Final = 32_768
# Deltas are joined up to about this size: some clients take no longer messages than a mebibyte.
MAX_JOINED: Final = 256 << 10
_encode = msgspec.json.Encoder().encode


class _ReplyFrame(Struct):
    id: Any
    result: Any


class _RequestFrame(Struct):
    method: str
    id: int
    params: Any


class Client:
    """One party that talks to the server over a channel: what it sends, what it is sent, and what waits for it."""

    def __init__(self, server: AppServer, channel: Channel, *, must_not_lose: bool = False) -> None:
        self.server = server
        self.number: int = next(server.client_numbers)  # what logs call it
        self.name: str = ""
        self.version: str = ""
        self.initialized: bool = False
        self.experimental: bool = False
        self._muted: frozenset[str] = frozenset()  # notifications that it does not get
        self.workarounds: Workarounds = NONE
        self.calls: int = 0
        self.closed: bool = False
        self._warned: set[str] = set()  # texts of ours, so they are few
        # Whether the agent waits for this client when it does not keep up; otherwise it is cut off some day.
        self.must_not_lose = must_not_lose
        self._channel = channel
        self._waiting: deque[Event | _Joined | bytes] = deque()
        self._waiting_bytes = 0
        self._deaf = False

    def start(self) -> None:
        self._channel.attach(self)

    def close(self) -> None:
        self._channel.close()

    def warn_once(self, message: str) -> None:
        """About something that concerns this client and no thread."""
        if message not in self._warned:
            from treadle.protocol.app.notifications import WarningNotification  # loaded with the first warning

            self._warned.add(message)
            self.notify(Event("warning", WarningNotification(message=message), None, now_ms()))

    def identify(self, identity: Identity) -> None:
        """The handshake is done."""
        self.name, self.version = identity.name, identity.version
        self.experimental = identity.experimental
        self._muted = identity.opted_out if self.experimental else identity.opted_out | EXPERIMENTAL_NOTIFICATIONS
        self.workarounds = workarounds_for(identity.name)
        self.initialized = True
        logger.info("client is known", {"client": self.number, "name": self.name, "version": self.version})

    # --- in: frames of the channel, then requests ---

    def frame_received(self, frame: bytes) -> None:
        try:
            message = decode_lenient(frame)
        except MalformedMessage as error:
            logger.warning("%s sent something that is no message: %s", self._channel.peer, error)
            return
        if isinstance(message, Request):
            self.receive(message.id, message.method, message.params, message.traceparent)
        elif isinstance(message, Reply):
            self.answered(message.id, message.result.copy())
        elif isinstance(message, Failure):
            self.answered(message.id, RpcError(message.error.code, message.error.message, message.error.data))

    def channel_closed(self, reason: str) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0
        self.gone(reason)

    def channel_writable(self) -> None:
        while self._waiting and self._channel.writable:
            entry = self._waiting.popleft()
            frame = entry if isinstance(entry, bytes) else entry.frame
            self._waiting_bytes -= entry.size if isinstance(entry, _Joined) else len(frame)
            self._channel.send(frame)
        if not self.congested:
            self.server.notify_writable()
            if self._deaf:
                self._deaf = False
                self._channel.resume()

    def receive(self, request_id: Any, method: str, params: Raw, traceparent: str = "") -> None:
        """A request has come: check it and let it be handled.

        Parsing comes before the check of the handshake: what is no request at all is refused as such.
        """
        before = IDS.set(self.ids_of(request_id, traceparent))
        try:
            route = find_route(method)
            given = _read_params(route, params)
            if not self.initialized and method != "initialize":
                raise RpcError(INVALID_REQUEST, "Not initialized")
            if not self.experimental:
                refuse_experimental(route, given)
        except Exception as error:  # a handler's module may fail to load too: no file descriptor is left, say
            method = method[:MAX_LOGGED]
            ServerCall(self, request_id, method, None).fail(wire_error(error, method))
        else:
            self._begin(ServerCall(self, request_id, method, given), route)
        finally:
            IDS.reset(before)

    def ids_of(self, request_id: Any, traceparent: str = "") -> dict[str, str]:
        """How logs find everything that this request has led to."""
        trace = trace_of(traceparent) if traceparent else os.urandom(16).hex()
        return {"trace": trace, "request": f"{self.number}:{request_id!s:.{MAX_LOGGED}}"}

    def _begin(self, call: ServerCall[Any], route: MethodRoute) -> None:
        if audit.log is not None:
            who = {"client": self.number, "name": self.name, "peer": self._channel.peer, "method": call.method}
            try:
                audit.log.record("request", {**who, **audit.subject(call.params)})
            except audit.AuditFailed as error:
                call.fail(wire_error(error, route.method))
                return
        logger.debug("request received", {"method": call.method})
        if not route.is_async:
            try:
                result = route.handler(call)
            except Exception as error:
                call.fail(wire_error(error, route.method))
            else:
                call.reply(result)
        elif self.calls >= MAX_CALLS:
            call.fail(RpcError(OVERLOADED, "Server overloaded; retry later.", OVERLOAD_DATA))
        else:
            self.calls += 1
            self.server.spawn(self._run(call, route), route.method)

    async def _run(self, call: ServerCall[Any], route: MethodRoute) -> None:
        try:
            result = await route.handler(call)
        except asyncio.CancelledError:
            call.fail(RpcError(INTERNAL_ERROR, "the server is being stopped"))
            raise
        except Exception as error:
            call.fail(wire_error(error, route.method))
        else:
            call.reply(result)
        finally:
            self.calls -= 1

    def answered(self, request_id: object, answer: Raw | RpcError) -> None:
        if isinstance(answer, Raw) and is_too_deep(bytes(answer)):
            answer = RpcError(INVALID_REQUEST, f"the answer is {TOO_DEEP}")
        if isinstance(request_id, int):
            self.server.answered(self, request_id, answer)

    def gone(self, reason: str = "") -> None:
        """The client has left: its turns go on without it."""
        if not self.closed:
            self.closed = True
            logger.info("client has left", {"client": self.number, "reason": reason})
            self.server.client_gone(self)

    # --- out ---

    def may_answer(self, request: ClientRequest) -> bool:
        return not (request.person and self.workarounds.says_yes)

    def notify(self, event: Event) -> None:
        """What this client wants to hear, and nothing before it is initialized."""
        if self.initialized and event.method not in self._muted:
            self.send_event(event)

    def send_event(self, event: Event) -> None:
        if not self._waiting and self._channel.writable:
            self._channel.send(event.encoded or event.frame)
            return
        # A delta is put to the one before it, when both are of the same item.
        last = self._waiting[-1] if self._waiting else None
        if last is not None and not isinstance(last, bytes) and hasattr(event.params, "delta"):
            joined = last if isinstance(last, _Joined) else _Joined(last)
            if joined.add(event):
                self._waiting[-1] = joined
                self._waiting_bytes += len(event.params.delta)
                self._check_room()
                return
        self._wait(event, len(event.frame))

    def send_request(self, request: ClientRequest) -> None:
        self._send(_encode(_RequestFrame(request.method, request.id, request.params)))

    def send_reply(self, request_id: Any, result: Any) -> None:
        self._send(_encode(_ReplyFrame(request_id, result)))

    def send_failure(self, request_id: Any, error: RpcError) -> None:
        self._send(encode_failure(request_id, error.code, error.message, error.data))

    @property
    def congested(self) -> bool:
        return not self.closed and self._channel.pending + self._waiting_bytes > HIGH_BYTES

    def _send(self, frame: bytes) -> None:
        if not self._waiting and self._channel.writable:
            self._channel.send(frame)
        else:
            self._wait(frame, len(frame))

    def _wait(self, entry: Event | bytes, size: int) -> None:
        if self.closed:
            return
        self._waiting.append(entry)
        self._waiting_bytes += size
        self._check_room()

    def _check_room(self) -> None:
        if self._waiting_bytes <= MAX_BYTES and len(self._waiting) <= MAX_WAITING:
            return
        if not self.must_not_lose:
            logger.warning("%s does not read what it is sent; the connection is cut", self._channel.peer)
            self._channel.abort()
        elif not self._deaf:
            # It asks and does not take the answers: nothing more is read until it does.
            self._deaf = True
            self._channel.pause()


class _Joined:
    """Deltas of one item that will be sent as one. They are put together once, at the end: a reader that is far behind
    must not make everyone else wait. `size` is about that of the message."""

    __slots__ = ("_last", "_likeness", "_texts", "size")

    def __init__(self, first: Event) -> None:
        self._last = first
        self._likeness: Any = None  # the params but for the text
        self._texts: list[str] = []
        self.size = len(first.frame)

    def add(self, event: Event) -> bool:
        """False when the delta is not of the same item and kind, or this is long already."""
        if event.method != self._last.method or self.size > MAX_JOINED:
            return False
        first: Any = self._last.params
        delta: Any = event.params
        if not self._texts:
            self._likeness = structs.replace(first, delta="")
            self._texts.append(first.delta)
        if structs.replace(delta, delta="") != self._likeness:
            return False
        self._last = event
        self._texts.append(delta.delta)
        self.size += len(delta.delta)
        return True

    @property
    def frame(self) -> bytes:
        last = self._last
        params = structs.replace(self._likeness, delta="".join(self._texts))
        return Event(last.method, params, last.seq, last.at_ms).frame


# --- reading and refusing ---------------------------------------------------------------------------------------------


def find_route(method: str) -> MethodRoute:
    """Raises `RpcError` for a method that there is not."""
    try:
        return ROUTES[method]
    except KeyError:
        raise unknown_method(method) from None


def _read_params(route: MethodRoute, raw: Raw) -> Any:
    given = bytes(raw)
    if not given or given == b"null":
        if not route.params_optional:
            raise RpcError(INVALID_REQUEST, "Invalid request: missing field `params`")
        given = b"{}"
    if is_too_deep(given):
        raise too_deep()
    try:
        params = decode(given, route.params)
    except msgspec.ValidationError as error:
        raise bad_params(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RpcError(INVALID_REQUEST, f"Invalid request: {decode_problem(given, error)}") from None
    if NUL in given:
        refuse_nul(route.method, given)
    return params


def wire_error(error: Exception, method: str) -> RpcError:
    """The one place where an exception becomes an error on the wire."""
    if isinstance(error, RpcError):
        return error
    # Loaded with the first thing that fails.
    from treadle.config.problems import ConfigError
    from treadle.store.contract import StoreError

    if isinstance(error, StoreError):
        return RpcError(INTERNAL_ERROR, error.message, {"kind": error.kind})
    if isinstance(error, ConfigError):
        problems = [msgspec.structs.asdict(problem) for problem in error.problems]
        return RpcError(INVALID_REQUEST, f"failed to load configuration: {error}", {CONFIG_PROBLEMS: problems})
    if isinstance(error, TreadleError):
        return RpcError(INVALID_REQUEST, str(error))
    logger.error("%s failed", method, exc_info=error)
    return RpcError(INTERNAL_ERROR, f"internal error: {type(error).__name__}; the log has more")
