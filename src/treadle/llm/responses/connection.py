"""Requests to one provider: sent, sent again when that is harmless, and their responses read.

It owns the retries of requests that got no response or a 5xx, and the reading of bodies. It knows nothing of what a
body says. A response that has begun is never asked for again here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from treadle.llm.model import Departure, ModelError
from treadle.llm.provider import Endpoint, ProviderConfig
from treadle.llm.responses.failure import cut, http_failure, retry_after, unreachable
from treadle.llm.responses.lanes import CONNECT_S, Lanes, LaneStats

if TYPE_CHECKING:
    import httpx2

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

    def __init__(self, config: ProviderConfig, *, pause: Pause = asyncio.sleep) -> None:
        self._config = config
        self._pause = pause
        self._lanes = Lanes(config.stream_idle_timeout_ms / 1000)

    async def send(self, endpoint: Endpoint, body: bytes, departure: Departure | None = None) -> Exchange:
        """A response with status 200, which the caller reads and closes. Raises `ModelError`."""
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
        """Load the HTTP client before it is needed."""
        await self._lanes.warm_up()

    def stats(self) -> LaneStats:
        return self._lanes.stats()

    async def close(self) -> None:
        await self._lanes.close()

    async def _send_once(self, endpoint: Endpoint, body: bytes, departure: Departure | None) -> Exchange:
        lane = await self._lanes.acquire()
        try:
            response = await self._ask(lane, endpoint, body, departure)
        except BaseException:
            await self._lanes.release(lane, reuse=False)
            raise
        return Exchange(self._lanes, lane, response, self._config)

    async def _ask(
        self, lane: httpx2.AsyncClient, endpoint: Endpoint, body: bytes, departure: Departure | None
    ) -> httpx2.Response:
        try:
            response = await lane.send(_build(lane, endpoint, body, departure), stream=True)
        except Exception as error:
            raise _no_response(error, endpoint, self._config) from None
        if response.status_code == 200:
            return response
        said = endpoint.redact((await _error_body(response)).decode("utf-8", "replace")).encode()
        failure = http_failure(
            response.status_code, said, endpoint.shown, retry_after(response.headers.get("retry-after"))
        )
        # Where the table says that the request will not do better a second time, that holds for a 5xx too.
        raise _Again(failure) if response.status_code >= 500 and failure.retryable else failure


class Exchange:
    """A response whose body is being read. It ends with `finish` or `aclose`."""

    def __init__(
        self, lanes: Lanes, lane: httpx2.AsyncClient, response: httpx2.Response, config: ProviderConfig
    ) -> None:
        self._lanes = lanes
        self._lane = lane
        self._response = response
        self._config = config
        self._chunks: AsyncGenerator[bytes, None] = response.aiter_bytes()
        self._reading = False
        self._ended = False
        self._closed = False

    async def read(self) -> bytes:
        """The next bytes; none at the end."""
        self._reading = True
        try:
            chunk = await anext(self._chunks, b"")
            self._ended = not chunk
            return chunk
        except Exception as error:
            raise _broken(error, self._config) from None
        finally:
            self._reading = False

    async def finish(self) -> None:
        """Read the end of the body, where nothing of interest is, so that the connection can be used again."""
        try:
            async with asyncio.timeout(END_OF_BODY_S):
                while await self.read():
                    pass
        except (ModelError, TimeoutError):
            return  # what mattered has come; this was only about the connection
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Give up the rest of the body, and with it the connection, unless it was read to its end."""
        if self._closed:
            return
        self._closed = True
        try:
            # A generator that another task waits in cannot be closed; that task is woken by the end of its connection.
            if not self._reading:
                await self._chunks.aclose()
            await self._response.aclose()
        finally:
            await self._lanes.release(self._lane, reuse=self._ended)


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


def _build(lane: httpx2.AsyncClient, endpoint: Endpoint, body: bytes, departure: Departure | None) -> httpx2.Request:
    import httpx2

    extensions: dict[str, object] = {"timeout": lane.timeout.as_dict()}
    if departure is not None:
        extensions["trace"] = _watch(departure)

    # Built directly, so that no header is sent that we do not know of (a user-agent, content codings).
    headers = [(name.encode(), value.encode("utf-8", "surrogateescape")) for name, value in endpoint.headers.items()]
    return httpx2.Request("POST", endpoint.url, headers=headers, content=body, extensions=extensions)


def _watch(departure: Departure) -> Callable[[str, object], Awaitable[None]]:
    """The connection is there before the request has to wait for its turn, and its turn ends when it is written."""

    async def trace(step: str, _: object) -> None:
        if step.endswith("send_request_headers.started"):
            await departure.wait()
        elif step.endswith("send_request_body.complete"):
            departure.leave()

    return trace


async def _error_body(response: httpx2.Response) -> bytes:
    """As much as comes of it: what is missing does not change that the request failed."""
    import httpx2

    body = bytearray()
    try:
        async with asyncio.timeout(ERROR_BODY_S):
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) >= MAX_ERROR_BODY:
                    break
    except (httpx2.HTTPError, TimeoutError) as error:
        body = body or bytearray(f"no text, {type(error).__name__}".encode())
    finally:
        await response.aclose()
    return bytes(body[:MAX_ERROR_BODY])


def _no_response(error: Exception, endpoint: Endpoint, config: ProviderConfig) -> Exception:
    """By type only: the texts of the HTTP library quote header values."""
    import httpx2

    match error:
        case ModelError():
            return error
        case httpx2.ConnectTimeout() | httpx2.PoolTimeout():
            return _Again(unreachable(f"no connection to the model server within {CONNECT_S:.0f} s", endpoint.shown))
        case httpx2.ReadTimeout() | httpx2.WriteTimeout():
            # Not silently again: whoever waited this long should hear of it.
            return cut(f"no answer from the model server for {config.stream_idle_timeout_ms} ms")
        case httpx2.ConnectError():
            return _Again(unreachable("cannot connect to the model server; is its base_url right?", endpoint.shown))
        case httpx2.TransportError():
            return _Again(unreachable("the model server hung up, or its answer is no HTTP", endpoint.shown))
        case httpx2.InvalidURL() | UnicodeError():
            return ModelError(f"the URL of provider `{config.id}` cannot be used; correct its base_url in config.toml")
    return ModelError(f"the request to provider `{config.id}` could not be sent ({type(error).__name__})")


def _broken(error: Exception, config: ProviderConfig) -> ModelError:
    """A response broke off while it was read."""
    import httpx2

    match error:
        case httpx2.ReadTimeout():
            return cut(f"no data from the model server for {config.stream_idle_timeout_ms} ms")
        case httpx2.TransportError():
            return cut()
        case httpx2.DecodingError():
            return cut("the response has a content coding that cannot be read")
    return cut(f"the response could not be read ({type(error).__name__})")
