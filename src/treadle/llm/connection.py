"""Requests to one provider: sent, sent again when that is harmless, and their responses read.

It owns the retries of requests that got no response or a 5xx, and the reading of bodies. It knows nothing of what a
body says. A response that has begun is never asked for again here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from treadle.http.departure import Departure
from treadle.http.errors import HttpUnusable
from treadle.http.http1 import NotHttp, ResponseHead
from treadle.http.lane import CONNECT_S, Lane, NoConnection, ProxyRefused, Request
from treadle.http.lanes import Lanes, LaneStats
from treadle.http.target import BadUrl, Target, read_url
from treadle.http.wire import HungUp, Silence
from treadle.llm.failure import cut, retry_after, unreachable, untrusted
from treadle.llm.model import ModelError
from treadle.llm.provider import Endpoint, ProviderConfig
from treadle.llm.wire_api import HttpFailure

Pause: TypeAlias = Callable[[float], Awaitable[None]]

MAX_ERROR_BODY: Final = 64 * 1024
# The server is asked to say what failed, but an error must not become a wait.
ERROR_BODY_S: Final = 10.0
# After the last event only the end of the body is missing. Servers that do not send it lose their connection.
END_OF_BODY_S: Final = 1.0
FIRST_PAUSE_S: Final = 0.2
MAX_PAUSE_S: Final = 30.0


class Connection:
    """Sends requests; `close` may be called again."""

    def __init__(
        self,
        config: ProviderConfig,
        failure: Callable[[HttpFailure], ModelError],
        *,
        pause: Pause = asyncio.sleep,
    ) -> None:
        self._config = config
        self._failure = failure
        self._pause = pause
        self._lanes = Lanes(config.stream_idle_timeout_ms / 1000)
        self._target: tuple[str, Target] | None = None  # of the last URL, which is mostly that of the next

    async def send(self, endpoint: Endpoint, body: bytes | None, departure: Departure | None = None) -> Exchange:
        """A response with status 200, which the caller reads and closes; without a body it is a GET. Raises
        `ModelError`."""
        for attempt in range(self._config.request_max_retries + 1):
            try:
                return await self._send_once(endpoint, body, departure)
            except _Again as again:
                wait = pause_before(attempt, again.error.retry_after_s)
                if attempt == self._config.request_max_retries or wait is None:
                    raise again.error from None
            await self._pause(wait)
        raise AssertionError("the last attempt returns or raises")

    async def warm_up(self) -> None:
        """Load what TLS needs, before it is needed."""
        if self._config.base_url[:6].lower() == "https:":
            await self._lanes.warm_up()

    def stats(self) -> LaneStats:
        return self._lanes.stats()

    async def close(self) -> None:
        await self._lanes.close()

    async def _send_once(self, endpoint: Endpoint, body: bytes | None, departure: Departure | None) -> Exchange:
        try:
            lane = await self._lanes.acquire()
        except HttpUnusable as error:
            raise ModelError(str(error)) from None
        try:
            head = await self._ask(lane, endpoint, body, departure)
        except BaseException:
            self._lanes.release(lane, reuse=False)
            raise
        return Exchange(self._lanes, lane, head, self._config)

    async def _ask(
        self, lane: Lane, endpoint: Endpoint, body: bytes | None, departure: Departure | None
    ) -> ResponseHead:
        try:
            head = await lane.ask(self._build(endpoint, body), departure)
        except Exception as error:
            raise _no_response(error, endpoint, self._config) from None
        if head.status == 200:
            return head
        said = endpoint.redact((await _error_body(lane, head)).decode("utf-8", "replace")).encode()
        asked_s = retry_after(head.headers, time.time())
        answer = HttpFailure(head.status, head.headers, said, endpoint.shown, asked_s)
        failure = self._failure(answer)
        failure.answer = answer
        # Where the table says that the request will not do better a second time, that holds for a 5xx too.
        raise _Again(failure) if head.status >= 500 and failure.retryable else failure

    def _build(self, endpoint: Endpoint, body: bytes | None) -> Request:
        if self._target is None or self._target[0] != endpoint.url:
            self._target = endpoint.url, read_url(endpoint.url)
        values = endpoint.headers.items()
        headers = [(name.encode(), value.encode("utf-8", "surrogateescape")) for name, value in values]
        return Request(self._target[1], headers, body)


class Exchange:
    """A response whose body is being read. It ends with `finish` or `aclose`."""

    def __init__(self, lanes: Lanes, lane: Lane, head: ResponseHead, config: ProviderConfig) -> None:
        self._lanes = lanes
        self._lane = lane
        self._head = head
        self._config = config
        self._closed = False

    async def read(self) -> bytes:
        """The next bytes; none at the end."""
        if self._closed:  # the lane may be another's by now
            raise cut("it was closed")
        if _is_coded(self._head):
            raise cut("the response has a content coding that cannot be read")
        try:
            return await self._lane.read()
        except Exception as error:
            raise _broken(error, self._config) from None

    async def finish(self) -> None:
        """Read the end of the body, where nothing of interest is, so that the connection can be used again."""
        if self.give_back():
            return
        try:
            async with asyncio.timeout(END_OF_BODY_S):
                while await self.read():
                    pass
        except (ModelError, TimeoutError):
            return  # what mattered has come; this was only about the connection
        finally:
            await self.aclose()

    def give_back(self) -> bool:
        """When the whole body has come, read or not, the connection is free for the next; otherwise nothing happens."""
        if self._closed or not self._lane.is_reusable:
            return self._closed
        self._closed = True
        self._lanes.release(self._lane, reuse=True)
        return True

    async def aclose(self) -> None:
        """Give up the rest of the body, and with it the connection, unless all of it has come."""
        if not self.give_back():
            self._closed = True
            self._lanes.release(self._lane, reuse=False)


class _Again(Exception):
    """An attempt failed in a way that another one may not."""

    def __init__(self, error: ModelError) -> None:
        super().__init__()
        self.error = error


def pause_before(attempt: int, asked_s: float | None) -> float | None:
    """How long to wait after failed `attempt` (0 is the first); None when the server asks for more than we give."""
    import random

    if asked_s is not None:
        return asked_s if asked_s <= MAX_PAUSE_S else None
    # The exponent is bounded because 2.0 ** 2000 is an error.
    return min(FIRST_PAUSE_S * 2.0 ** min(attempt, 30), MAX_PAUSE_S) * random.uniform(0.9, 1.1)


async def _error_body(lane: Lane, head: ResponseHead) -> bytes:
    """As much as comes of it: what is missing does not change that the request failed."""
    if _is_coded(head):
        return b"no text, its content coding cannot be read"
    body = bytearray()
    try:
        async with asyncio.timeout(ERROR_BODY_S):
            while len(body) < MAX_ERROR_BODY and (piece := await lane.read()):
                body += piece
    except (HungUp, NotHttp, Silence, TimeoutError) as error:
        body = body or bytearray(f"no text, {type(error).__name__}".encode())
    return bytes(body[:MAX_ERROR_BODY])


def _is_coded(head: ResponseHead) -> bool:
    """Compressed, although nobody said that we understand that."""
    return head.headers.get("content-encoding", "").lower() not in ("", "identity")


def _no_response(error: Exception, endpoint: Endpoint, config: ProviderConfig) -> Exception:
    """By type only: texts may quote what is secret."""
    match error:
        case ModelError():
            return error
        case HttpUnusable():
            return ModelError(str(error))
        case NoConnection(timed_out=True):
            return _Again(unreachable(f"no connection to the model server within {CONNECT_S:.0f} s", endpoint.shown))
        case NoConnection(distrust=str(why)):
            return untrusted(why, endpoint.shown)
        case NoConnection():
            return _Again(unreachable("cannot connect to the model server; is its base_url right?", endpoint.shown))
        case ProxyRefused():
            why = f"the proxy refuses the way to the model server (HTTP {error.status})"
            return _Again(unreachable(why, endpoint.shown))
        case Silence():
            # Not silently again: whoever waited this long should hear of it.
            return cut(f"no answer from the model server for {config.stream_idle_timeout_ms} ms")
        case HungUp() | NotHttp():
            return _Again(unreachable("the model server hung up, or its answer is no HTTP", endpoint.shown))
        case BadUrl() | UnicodeError():
            return ModelError(f"the URL of provider `{config.id}` cannot be used; correct its base_url in config.toml")
    return ModelError(f"the request to provider `{config.id}` could not be sent ({type(error).__name__})")


def _broken(error: Exception, config: ProviderConfig) -> ModelError:
    """A response broke off while it was read."""
    match error:
        case Silence():
            return cut(f"no data from the model server for {config.stream_idle_timeout_ms} ms")
        case HungUp() | NotHttp():
            return cut()
    return cut(f"the response could not be read ({type(error).__name__})")
