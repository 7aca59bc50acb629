"""`ProviderClient`: sends requests to one provider, retries them when that is harmless, and reads the responses.

It owns retries of requests that got no response or a 5xx, and reading bodies. It does not interpret a body. Once a
response has begun, it is never requested again here.

The texts on why a request got no response depend only on the type of the error: the text of someone else's error may
quote a secret.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias
from urllib.parse import urljoin

from treadle.http.http1 import BadCoding, ContentDecoder, ResponseHead, UnknownCoding, decoder_for
from treadle.http.http_connection import CONNECT_S, HttpConnection, HttpPool, HttpRequest, PoolStats
from treadle.http.http_errors import (
    ConnectFailed,
    ConnectionLost,
    FailureReason,
    HttpUnusable,
    IdleTimeout,
    NotHttp,
    ProxyRefused,
)
from treadle.http.target import BadUrl, HttpTarget, read_url
from treadle.llm.failure import (
    MAX_PAUSE_S,
    absent,
    cut,
    pause,
    redirected,
    retry_after,
    unreachable,
    unreadable,
    untrusted,
)
from treadle.llm.model import HttpFailure, ModelError, TokenUsage
from treadle.llm.provider import Endpoint, ProviderConfig, shown_url
from treadle.llm.rate_limiter import Admission, LimiterStats, OnWait, PendingRequest, RateLimits
from treadle.llm.rates import QueueEntry

_SERVER: Final[dict[FailureReason, str]] = {
    "refused": "the model server refuses connections: nothing listens there; start it, or correct base_url",
    "unknown_name": "the host name of the model server is not known; correct base_url, or this machine's DNS",
    "no_lookup": "the host name of the model server cannot be looked up now; is this machine online?",
    "no_network": "there is no way from this machine to the model server; look at its network, VPN and firewall",
    "timed_out": (
        f"no connection to the model server within {CONNECT_S:.0f} s; look at base_url, and whether a firewall is in"
        " between or a proxy is needed (HTTPS_PROXY)"
    ),
    "tls": "TLS with the model server failed; are base_url and its port those of an https server?",
    "hung_up": "the model server hung up before a connection was made; is base_url right?",
    "other": "cannot connect to the model server; is its base_url right?",
}
_PROXY: Final[dict[FailureReason, str]] = {
    "refused": "refuses connections: nothing listens there",
    "unknown_name": "has a host name that is not known",
    "no_lookup": "has a host name that cannot be looked up now",
    "no_network": "cannot be reached from this machine",
    "timed_out": f"made no connection within {CONNECT_S:.0f} s",
}
_ABSENT: Final[frozenset[FailureReason]] = frozenset({"refused", "unknown_name", "no_lookup", "no_network"})


def request_error(error: Exception, endpoint: Endpoint, config: ProviderConfig) -> ModelError:
    """The `ModelError` for whatever was raised in place of a response."""
    match error:
        case ModelError():
            return error
        case HttpUnusable():
            return ModelError(str(error))
        case ConnectFailed():
            if error.tls_problem is not None:
                return untrusted(error.tls_problem, endpoint.shown)
            reason = _SERVER[error.reason]
            if error.proxy is not None and error.reason in _PROXY:
                reason = (
                    f"the proxy {error.proxy.scheme}://{error.proxy.tunnel.decode()} {_PROXY[error.reason]}; "
                    "correct or unset HTTP_PROXY, HTTPS_PROXY or ALL_PROXY in the environment"
                )
            return absent(reason, endpoint.shown) if error.reason in _ABSENT else unreachable(reason, endpoint.shown)
        case ProxyRefused():
            why = f"the proxy refuses the way to the model server (HTTP {error.status})"
            return unreachable(why, endpoint.shown)
        case IdleTimeout():
            # No silent retry: the user has waited this long and should know why.
            return cut(f"no answer from the model server for {config.stream_idle_timeout_ms} ms")
        case ConnectionLost():
            return unreachable("the model server hung up before it answered", endpoint.shown)
        case NotHttp():
            why = f"what the model server answers is no HTTP ({error}); is its base_url right?"
            return unreachable(why, endpoint.shown)
        case BadUrl() | UnicodeError():
            return ModelError(f"the URL of provider `{config.id}` cannot be used; correct its base_url in config.toml")
    return ModelError(f"the request to provider `{config.id}` could not be sent ({type(error).__name__})")


logger: logging.Logger = logging.getLogger(__name__)

Pause: TypeAlias = Callable[[float], Awaitable[None]]

MAX_ERROR_BODY: Final = 64 * 1024
MAX_PLACE: Final = 200
# The server is asked to say what failed, but an error must not become a wait.
ERROR_BODY_S: Final = 10.0
# After the last event only the end of the body is missing. Servers that do not send it lose their connection.
END_OF_BODY_S: Final = 1.0
# Without a word we wait no longer than this, whatever the server asks for.
# A server that is not there is tried a little, in case it is just being started again; then a person should know.
ABSENT_RETRIES: Final = 2
ABSENT_S: Final = 1.0

# With a time to wait, these are about the server and not about this request.
_BUSY: Final = frozenset({503, 529})
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


class ProviderClient:
    """Sends requests. `close` is idempotent."""

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
        self._pool = HttpPool(config.stream_idle_timeout_ms / 1000)
        limits = RateLimits(config.max_concurrent_requests, config.requests_per_minute, config.tokens_per_minute)
        self._admission = Admission(config.id, limits)
        self._target: tuple[str, HttpTarget] | None = None  # of the last URL; the next one is usually the same

    async def send(
        self,
        endpoint: Endpoint,
        body: bytes | None,
        *,
        fair_key: str | None = None,
        on_wait: OnWait | None = None,
        retried: bool = False,
    ) -> Exchange:
        """A response with status 200, which the caller reads and closes; without a body it is a GET. One that is
        `retried` already is sent once. Raises `ModelError`."""
        pending = PendingRequest(fair_key or "", on_wait)
        limit, began = 0 if retried else self._config.request_max_retries, time.monotonic()
        attempt = 0
        while True:
            try:
                return await self._send_once(endpoint, body, pending)
            except _Refused as refused:
                # Others may be answered meanwhile; it is over when nobody is.
                if self._admission.refusals > self._config.request_max_retries:
                    raise refused.error from None
                continue
            except _Again as again:
                error = again.error
            if error.kind == "absent":
                limit = min(limit, ABSENT_RETRIES if time.monotonic() - began < ABSENT_S else 0)
            wait = pause(attempt, error.retry_after_s, MAX_PAUSE_S)
            if attempt >= limit or wait is None:
                raise error
            await self._pause(wait)
            attempt += 1

    async def warm_up(self) -> None:
        """Load what TLS needs, before it is needed."""
        if self._config.base_url[:6].lower() == "https:":
            await self._pool.warm_up()

    def stats(self) -> PoolStats:
        return self._pool.stats()

    def queue_stats(self) -> LimiterStats:
        return self._admission.stats()

    async def close(self) -> None:
        self._admission.close()
        await self._pool.close()

    async def _send_once(self, endpoint: Endpoint, body: bytes | None, pending: PendingRequest) -> Exchange:
        entry = await self._admission.enter(pending, len(body or b""))
        try:
            connection, head, decoder = await self._exchange(endpoint, body)
        except _Refused as refused:
            error = refused.error
            wait = error.retry_after_s
            if wait is None:
                wait = pause(self._admission.refusals, None, MAX_PAUSE_S)
            headers = {} if error.answer is None else error.answer.headers
            self._admission.refused(pending, entry, headers, wait or 0.0, error.http_status or 429)
            raise
        except BaseException:
            self._admission.leave(entry)
            raise
        self._admission.accepted(entry, head.headers)
        return Exchange(self._pool, connection, decoder, self._config, self._admission, entry)

    async def _exchange(
        self, endpoint: Endpoint, body: bytes | None
    ) -> tuple[HttpConnection, ResponseHead, ContentDecoder | None]:
        try:
            connection = await self._pool.acquire()
        except HttpUnusable as error:
            raise ModelError(str(error)) from None
        try:
            return connection, *await self._ask(connection, endpoint, body)
        except BaseException:
            self._pool.release(connection, reuse=False)
            raise

    async def _ask(
        self, connection: HttpConnection, endpoint: Endpoint, body: bytes | None
    ) -> tuple[ResponseHead, ContentDecoder | None]:
        """The head of the response, and what decodes its body, if that is needed."""
        began = time.monotonic()
        try:
            if self._target is None or self._target[0] != endpoint.url:
                self._target = endpoint.url, read_url(endpoint.url)
            values = endpoint.headers.items()
            headers = [(name.encode(), value.encode("utf-8", "surrogateescape")) for name, value in values]
            head = await connection.send(HttpRequest(self._target[1], headers, body))
        except Exception as error:
            failure = request_error(error, endpoint, self._config)
            self._log("no response to a model request", began, failure.kind)
            raise (_Again(failure) if failure.kind in ("absent", "unreachable") else failure) from None
        if logger.isEnabledFor(logging.INFO):
            self._log("response to a model request", began, head.status)
        if head.status in _REDIRECTS:
            raise redirected(head.status, _redirect_target(head, endpoint), endpoint.shown)
        try:
            decoder = decoder_for(head.headers) if "content-encoding" in head.headers else None
        except UnknownCoding as error:
            if head.status == 200:
                raise unreadable(error.name, endpoint.shown) from None
            raise self._failed(head, endpoint, b"no text, its content coding is not read here") from None
        if head.status == 200:
            return head, decoder
        raise self._failed(head, endpoint, await _error_body(connection, decoder))

    def _log(self, what: str, began: float, status: int | str) -> None:
        took_ms = int((time.monotonic() - began) * 1000)
        logger.info(what, {"provider": self._config.id, "status": status, "duration_ms": took_ms})

    def _failed(self, head: ResponseHead, endpoint: Endpoint, body: bytes) -> Exception:
        said = endpoint.redact(body.decode("utf-8", "replace")).encode()
        asked_s = retry_after(head.headers, time.time())
        answer = HttpFailure(head.status, head.headers, said, endpoint.shown, asked_s)
        failure = self._failure(answer)
        failure.answer = answer
        if not failure.retryable:  # by the wire API's own table, whatever the status is
            return failure
        if head.status == 429 or (head.status in _BUSY and failure.retry_after_s is not None):
            return _Refused(failure)
        return _Again(failure) if head.status >= 500 else failure


class Exchange:
    """A response whose body is being read. It ends with `finish` or `aclose`."""

    def __init__(
        self,
        pool: HttpPool,
        connection: HttpConnection,
        decoder: ContentDecoder | None,
        config: ProviderConfig,
        admission: Admission,
        entry: QueueEntry,
    ) -> None:
        self._pool = pool
        self._connection = connection
        self._decoder = decoder
        self._config = config
        self._admission = admission
        self._entry = entry
        self._closed = False

    async def read(self) -> bytes:
        """The next bytes; none at the end."""
        if self._closed:  # the connection may be another's by now
            raise cut("it was closed")
        try:
            return await _read(self._connection, self._decoder)
        except IdleTimeout:
            raise cut(f"no data from the model server for {self._config.stream_idle_timeout_ms} ms") from None
        except (ConnectionLost, NotHttp):
            raise cut() from None
        except BadCoding as error:
            raise cut(str(error)) from None
        except Exception as error:
            raise cut(f"the response could not be read ({type(error).__name__})") from None

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
        if self._closed or not self._connection.is_reusable:
            return self._closed
        self._release(reuse=True)
        return True

    async def aclose(self) -> None:
        """Close the connection without reading the rest of the body, unless all of it has come."""
        if not self.give_back():
            self._release(reuse=False)

    def used(self, usage: TokenUsage) -> None:
        """Count the tokens of the response, where the server reports them."""
        self._admission.used(self._entry, usage)

    def _release(self, *, reuse: bool) -> None:
        self._closed = True
        self._pool.release(self._connection, reuse=reuse)
        self._admission.leave(self._entry)


class _Again(Exception):
    """An attempt failed in a way that a retry may not."""

    def __init__(self, error: ModelError) -> None:
        super().__init__()
        self.error = error


class _Refused(Exception):
    """The server has too many requests, from us or from everyone. A retry goes through the rate limiter, which knows
    when.
    """

    def __init__(self, error: ModelError) -> None:
        super().__init__()
        self.error = error


async def _read(connection: HttpConnection, decoder: ContentDecoder | None) -> bytes:
    """The next bytes of a body; none at the end."""
    if decoder is None:
        return await connection.read()
    while not (piece := decoder.take()):
        coded = await connection.read()
        if not coded:
            decoder.end()
            return b""
        decoder.receive(coded)
    await asyncio.sleep(0)  # much may come out of little, and others have something to do too
    return piece


def _redirect_target(head: ResponseHead, endpoint: Endpoint) -> str:
    """Where a redirect leads, as it may be shown."""
    try:
        entry = shown_url(urljoin(endpoint.url, head.headers.get("location", "")))
    except ValueError:
        return ""
    return endpoint.redact(entry)[:MAX_PLACE] if "location" in head.headers else ""


async def _error_body(connection: HttpConnection, decoder: ContentDecoder | None) -> bytes:
    """The body of a refusal, as much as comes: what is missing does not change that the request failed."""
    body = bytearray()
    try:
        async with asyncio.timeout(ERROR_BODY_S):
            while len(body) < MAX_ERROR_BODY and (piece := await _read(connection, decoder)):
                body += piece
    except (BadCoding, ConnectionLost, NotHttp, IdleTimeout, TimeoutError) as error:
        body = body or bytearray(f"no text, {type(error).__name__}".encode())
    return bytes(body[:MAX_ERROR_BODY])
