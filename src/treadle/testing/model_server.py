"""`ModelServer`: what every mock model is: a server on 127.0.0.1 that records what it is asked.

Owns its life and the record. What is answered is for those who inherit from it; `mock_server` does the HTTP.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from types import TracebackType
from typing import ClassVar, Final, Self

from treadle.testing.mock_server import MockServer
from treadle.testing.recorded import RecordedRequest
from treadle.testing.replies import Reply
from treadle.testing.wires import ROUTES, translated

MAX_RECORDED: Final = 100_000  # a client in an endless loop must not eat the machine; the oldest are dropped
WAIT_S: Final = 30.0


class ModelServer:
    """Serves from construction until `close()`, in threads of its own.

    Args:
        port: Where it answers; 0 takes a free one.
    """

    _ROUTES: ClassVar[tuple[str, ...]] = ROUTES

    def __init__(self, *, port: int = 0) -> None:
        self._requests: deque[RecordedRequest] = deque(maxlen=MAX_RECORDED)
        self._received = 0
        self._closing = False
        self._changed = threading.Condition()  # guards the record, and what those who inherit keep
        self._server = MockServer(self._answer, port, self._ROUTES)

    # --- life ---

    @property
    def base_url(self) -> str:
        """What a client is configured with: the path of the API is added to it, such as `/responses`."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def port(self) -> int:
        """Where it answers."""
        return self._server.port

    def close(self) -> None:
        """End every connection and thread; waiting replies are given up. May be called again."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._server.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
        if error is None and self._server.failures:
            raise self._server.failures[0]

    # --- what was asked ---

    def requests(self) -> list[RecordedRequest]:
        """Every request for a response so far, in the order of arrival."""
        with self._changed:
            return list(self._requests)

    def single_request(self) -> RecordedRequest:
        """The only request; `AssertionError` when there was none, or more than one."""
        requests = self.requests()
        if len(requests) != 1:
            raise AssertionError(f"the mock model was asked {len(requests)} times, not once")
        return requests[0]

    def wait_for_requests(self, n: int, timeout: float = WAIT_S) -> list[RecordedRequest]:
        """Block until so many requests have arrived in all, and return all; `TimeoutError` says how many did.

        In an async test that runs the client on the same loop, use `await model.arrived(n)`.

        Args:
            n: How many.
            timeout: Seconds to wait for them.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._received >= n, timeout):
                raise TimeoutError(f"the mock model was asked {self._received} times in {timeout:g} s, not {n} times")
            return list(self._requests)

    async def arrived(self, n: int, timeout: float = WAIT_S) -> list[RecordedRequest]:
        """`wait_for_requests` without blocking the event loop.

        Args:
            n: How many.
            timeout: Seconds to wait for them.
        """
        return await asyncio.to_thread(self.wait_for_requests, n, timeout)

    def _answer(self, request: RecordedRequest) -> Reply:
        with self._changed:
            self._requests.append(request)
            self._received += 1
            number = self._received
            self._changed.notify_all()
        return self._reply(request, number)

    def _reply(self, request: RecordedRequest, number: int) -> Reply:
        """What is answered to a request, the `number`th of all."""
        raise NotImplementedError


def in_the_api_of(request: RecordedRequest, reply: Reply) -> Reply:
    """The reply as the API has it that was asked; those without events or a body stay as they are."""
    if not reply.events and reply.body is None:
        return reply
    try:
        asked = request.json
    except ValueError:  # only what is no stream in the other APIs needs it
        asked = {}
    return translated(reply, request.path, asked)
