"""`Client`: one party that talks to the server, whatever the road. It owns who the client is, what it wants to hear and
the requests that it waits for.

`ChannelClient` (in `channel_client`) speaks JSON over a channel; `LocalClient` (in `local_client`) is in the same
process and gets objects.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec
from msgspec import Raw

from treadle.errors import (
    CONFIG_PROBLEMS,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    OVERLOAD_DATA,
    OVERLOADED,
    RpcError,
    TreadleError,
)
from treadle.logs.trace import IDS, trace_of
from treadle.protocol.app.base import decode
from treadle.rpc.nesting import TOO_DEEP, is_too_deep
from treadle.server import refusals
from treadle.server.client_workarounds import NONE, Workarounds, workarounds_for
from treadle.server.routes import EXPERIMENTAL_NOTIFICATIONS, ROUTES, Route

if TYPE_CHECKING:
    from treadle.agent.client_requests import ClientRequest
    from treadle.agent.event import Event
    from treadle.server.app import AppServer
    from treadle.server.identity import Identity

logger: logging.Logger = logging.getLogger(__name__)

P = TypeVar("P")

# Requests that one client may have under way. More are refused: a client that does not wait will not stop.
MAX_CALLS: Final = 1024
# Of what a client says, in logs.
MAX_LOGGED: Final = 80


class Call(Generic[P]):
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
        """For the one who calls the handler: deliver what it returned."""
        if logger.isEnabledFor(logging.INFO):
            logger.info("request answered", {"method": self.method, "duration_ms": self._took_ms()})
        self.client.send_reply(self.request_id, result)
        if self._afterwards is not None:
            self._afterwards()

    def fail(self, error: RpcError) -> None:
        if logger.isEnabledFor(logging.INFO):
            fields = {"method": self.method, "code": error.code, "duration_ms": self._took_ms()}
            logger.info("request failed", fields)
            logger.debug("why it failed", {"reason": error.message})
        self.client.send_failure(self.request_id, error)

    def _took_ms(self) -> int:
        return int((time.monotonic() - self._began) * 1000)


class Client(ABC):
    must_not_lose = True
    """Whether the agent waits for this client when it does not keep up; otherwise it is cut off some day."""

    def __init__(self, server: AppServer) -> None:
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

    def warn_once(self, message: str) -> None:
        """About something that concerns this client and no thread."""
        if message not in self._warned:
            # Loaded with the first warning.
            from treadle.agent.event import Event
            from treadle.agent.ids import now_ms
            from treadle.protocol.app.notifications import WarningNotification

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

    # --- out ---

    @abstractmethod
    def send_event(self, event: Event) -> None: ...

    @abstractmethod
    def send_request(self, request: ClientRequest) -> None: ...

    @abstractmethod
    def send_reply(self, request_id: Any, result: Any) -> None: ...

    @abstractmethod
    def send_failure(self, request_id: Any, error: RpcError) -> None: ...

    def may_answer(self, request: ClientRequest) -> bool:
        return not (request.person and self.workarounds.says_yes)

    @property
    def congested(self) -> bool:
        return False

    def notify(self, event: Event) -> None:
        """What this client wants to hear, and nothing before it is initialized."""
        if self.initialized and event.method not in self._muted:
            self.send_event(event)

    # --- in ---

    def receive(self, request_id: Any, method: str, params: Raw, traceparent: str = "") -> None:
        """A request has come: check it and let it be handled."""
        before = IDS.set(self.ids_of(request_id, traceparent))
        try:
            call, route = self._accept(request_id, method, params)
        except RpcError as error:
            Call(self, request_id, method[:MAX_LOGGED], None).fail(error)
        else:
            self._begin(call, route)
        finally:
            IDS.reset(before)

    def ids_of(self, request_id: Any, traceparent: str = "") -> dict[str, str]:
        """How logs find everything that this request has led to."""
        trace = trace_of(traceparent) if traceparent else os.urandom(16).hex()
        return {"trace": trace, "request": f"{self.number}:{request_id!s:.{MAX_LOGGED}}"}

    def _begin(self, call: Call[Any], route: Route) -> None:
        logger.debug("request received", {"method": call.method})
        if not route.is_async:
            self._run_now(call, route)
        elif self.calls >= MAX_CALLS:
            call.fail(RpcError(OVERLOADED, "Server overloaded; retry later.", OVERLOAD_DATA))
        else:
            self.calls += 1
            self.server.spawn(self._run(call, route), route.method)

    def _accept(self, request_id: Any, method: str, raw: Raw) -> tuple[Call[Any], Route]:
        """Parsing comes before the handshake check: what is no request at all is told so."""
        route = find_route(method)
        params = _read_params(route, raw)
        if not self.initialized and method != "initialize":
            raise RpcError(INVALID_REQUEST, "Not initialized")
        if not self.experimental:
            refusals.refuse_experimental(route, params)
        return Call(self, request_id, method, params), route

    def _run_now(self, call: Call[Any], route: Route) -> None:
        try:
            result = route.handler(call)
        except Exception as error:
            call.fail(wire_error(error, route.method))
        else:
            call.reply(result)

    async def _run(self, call: Call[Any], route: Route) -> None:
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


def find_route(method: str) -> Route:
    """Raises `RpcError` for a method that there is not."""
    try:
        return ROUTES[method]
    except KeyError:
        raise refusals.unknown_method(method) from None


def _read_params(route: Route, raw: Raw) -> Any:
    given = bytes(raw)
    if not given or given == b"null":
        if not route.params_optional:
            raise RpcError(INVALID_REQUEST, "Invalid request: missing field `params`")
        given = b"{}"
    if is_too_deep(given):
        raise refusals.too_deep()
    try:
        return decode(given, route.params)
    except msgspec.ValidationError as error:
        raise refusals.bad_params(error) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise RpcError(INVALID_REQUEST, f"Invalid request: {error}") from None


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
