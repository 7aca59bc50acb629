"""`LocalClient`: a client in the same process. No child, no bytes: params and results are objects of the protocol."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from treadle.agent.client_requests import ClientRequest
from treadle.agent.event import Event
from treadle.errors import INVALID_REQUEST, OVERLOAD_DATA, OVERLOADED, RpcError
from treadle.logs.trace import IDS
from treadle.protocol.app.base import encode
from treadle.rpc.nesting import MAX_DEPTH, is_too_deep
from treadle.server import refusals
from treadle.server.client_base import MAX_CALLS, Call, Client, find_route

if TYPE_CHECKING:
    from treadle.server.app import AppServer

logger: logging.Logger = logging.getLogger(__name__)


class LocalClient(Client):
    """`on_event` gets every notification, `on_request` every request of the server, which `answer` answers."""

    def __init__(
        self,
        server: AppServer,
        on_event: Callable[[Event], None],
        on_request: Callable[[ClientRequest], None],
    ) -> None:
        super().__init__(server)
        self._on_event = on_event
        self._on_request = on_request
        self._next = 0
        self._waiters: dict[int, asyncio.Future[Any]] = {}

    async def request(self, method: str, params: Any) -> Any:
        """The result, as the protocol's object. Raises `RpcError`."""
        if self.closed:
            raise RpcError(INVALID_REQUEST, "the connection is closed")
        self._next += 1
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiters[self._next] = waiter
        number = self._next
        try:
            self._receive(number, method, params)
            return await waiter
        finally:
            self._waiters.pop(number, None)

    def receive_now(self, method: str, params: Any) -> None:
        """Send a request whose answer nobody waits for."""
        self._next += 1
        self._receive(self._next, method, params)

    def _receive(self, number: int, method: str, params: Any) -> None:
        before = IDS.set(self.ids_of(number))
        try:
            route = find_route(method)
            if not self.initialized and method != "initialize":
                raise RpcError(INVALID_REQUEST, "Not initialized")
            if self.calls >= MAX_CALLS:
                raise RpcError(OVERLOADED, "Server overloaded; retry later.", OVERLOAD_DATA)
            if not self.experimental:
                refusals.refuse_experimental(route, params)
            if _is_too_deep(params):
                raise refusals.too_deep()
        except RpcError as error:
            Call(self, number, method, None).fail(error)
        else:
            self._begin(Call(self, number, method, params), route)
        finally:
            IDS.reset(before)

    def answer(self, request_id: int, result: Any) -> None:
        """`result` is an object of the protocol, or an `RpcError`."""
        self.answered(request_id, result if isinstance(result, RpcError) else Raw(encode(result)))

    def close(self) -> None:
        for waiter in self._waiters.values():
            if not waiter.done():
                waiter.set_exception(RpcError(INVALID_REQUEST, "the connection is closed"))
        self.gone()

    # --- out ---

    def send_event(self, event: Event) -> None:
        self._guard(self._on_event, event)

    def send_request(self, request: ClientRequest) -> None:
        self._guard(self._on_request, request)

    def _guard(self, listener: Callable[[Any], None], news: Any) -> None:
        """A listener that fails loses its connection; nobody else notices."""
        try:
            listener(news)
        except Exception:
            logger.exception("a client in this process failed to take what it was told; it is disconnected")
            self.close()

    def send_reply(self, request_id: Any, result: Any) -> None:
        waiter = self._waiters.get(request_id)
        if waiter is not None and not waiter.done():
            waiter.set_result(result)

    def send_failure(self, request_id: Any, error: RpcError) -> None:
        waiter = self._waiters.get(request_id)
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)


def _is_too_deep(params: Any) -> bool:
    """As it would be for a client that sends JSON: what walks through params later is the same code."""
    try:
        given = encode(params)
        return len(given) > 2 * MAX_DEPTH and is_too_deep(given)  # every level has two brackets
    except RecursionError:
        return True
    except (TypeError, ValueError):  # not of JSON; whoever reads it says so
        return False
