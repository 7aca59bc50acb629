"""`http/request`: HTTP requests made on behalf of one connection of the exec-server.

Owns the checks on a request, its redirects, its deadline, and the task that streams a response body. Knows nothing of
JSON-RPC: the reply is a return value, body deltas go to `notify`. The HTTP client itself is httpx2, loaded by the first
request. Texts of errors never hold header values, nor the query or the credentials of a URL.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from msgspec import Struct

from treadle.errors import INVALID_PARAMS, INVALID_REQUEST, ChannelClosed, ExecError
from treadle.protocol.exec import HttpBodyDeltaNotice, HttpHeader, HttpRequestParams, HttpResult
from treadle.secrets import is_secret

if TYPE_CHECKING:
    import httpx2

BODY_DELTA: Final = "http/request/bodyDelta"
# In base64 this still fits into the 64 MiB that the protocol allows for one message.
MAX_BODY: Final = 40 * 1024 * 1024
MAX_STREAMS: Final = 64
MAX_REDIRECTS: Final = 10
# Only for reaching the other side: a response may rightly take as long as `timeoutMs` allows, or for ever.
CONNECT_SECONDS: Final = 30.0

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FORBIDDEN_IN_VALUE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class HttpRequests:
    """The HTTP requests of one connection; `close` ends what is still streaming.

    The caller should send the reply of a streamed request before it next suspends: the first delta may follow at once.
    `drained`, when given, is awaited after each delta, so that a slow reader slows down the download. `environ` has the
    variables that headers may name.
    """

    def __init__(
        self,
        notify: Callable[[str, Struct], None],
        drained: Callable[[], Awaitable[None]] | None = None,
        *,
        environ: Mapping[str, str] = os.environ,
        max_body: int = MAX_BODY,
        max_streams: int = MAX_STREAMS,
    ) -> None:
        self._notify = notify
        self._drained = drained
        self._environ = environ
        self._max_body = max_body
        self._max_streams = max_streams
        self._client: httpx2.AsyncClient | None = None
        self._client_lock = asyncio.Lock()  # guards the making of the client
        self._active: set[str] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._closed = False

    async def request(self, params: HttpRequestParams) -> HttpResult:
        """Make one request. With `streamResponse` the result has no body; it follows as notifications."""
        call = _prepare(params, self._environ)
        if not params.stream_response:
            response = await self._send(call)
            body = bytearray()
            try:
                async with aclosing(response), asyncio.timeout_at(call.deadline):
                    async for chunk in response.aiter_raw():
                        body += chunk
                        if len(body) > self._max_body:
                            raise ExecError(
                                f"http/request response body of {call.shown_url} is larger than {self._max_body} bytes;"
                                " ask for it with streamResponse"
                            )
            except ExecError:
                raise
            except Exception as error:
                raise ExecError(_failure(error, call)) from None
            return _result(response, bytes(body))
        if params.request_id in self._active:
            raise ExecError(
                f"http/request streamResponse requestId `{params.request_id}` is already active; use another",
                INVALID_PARAMS,
            )
        if len(self._active) >= self._max_streams:
            raise ExecError(
                f"http/request has {self._max_streams} response streams open on this connection; let one end first",
                INVALID_REQUEST,
            )
        self._active.add(params.request_id)
        try:
            response = await self._send(call)
        except BaseException:
            self._active.discard(params.request_id)
            raise
        pump = asyncio.create_task(self._pump(call, response), name=f"http body {params.request_id}")
        self._pumps.add(pump)
        pump.add_done_callback(self._pumps.discard)
        return _result(response, b"")

    async def close(self) -> None:
        """End all streams without a notification; the connection is gone."""
        self._closed = True
        pumps = tuple(self._pumps)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        async with self._client_lock:
            client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _send(self, call: _Call) -> httpx2.Response:
        """The final response, up to its headers; the caller reads the body and closes it."""
        async with self._client_lock:
            if self._closed:
                raise ExecError("http/request failed: the connection is closing")
            if self._client is None:
                # Importing httpx2 and reading the CA bundle takes long enough to be felt by other connections.
                self._client = await asyncio.to_thread(_make_client)
            client = self._client
        try:
            async with asyncio.timeout_at(call.deadline):
                request = _build(call)
                for _ in range(MAX_REDIRECTS + 1):
                    response = await client.send(request, stream=True, follow_redirects=False)
                    following = response.next_request
                    if following is None or call.params.redirect_policy == "stop":
                        return response
                    await response.aclose()
                    if request.url.origin != following.url.origin:
                        # A secret is for the host that it was sent to, not for where that host points.
                        for name, value in following.headers.items():
                            if name in call.names_from_environment or is_secret(name, value):
                                del following.headers[name]
                    request = following
        except ExecError:
            raise
        except Exception as error:
            raise ExecError(_failure(error, call)) from None
        raise ExecError(f"http/request failed: more than {MAX_REDIRECTS} redirects from {call.shown_url}")

    async def _pump(self, call: _Call, response: httpx2.Response) -> None:
        request_id, seq, failure = call.params.request_id, 0, None
        try:
            async with aclosing(response), asyncio.timeout_at(call.deadline):
                async for chunk in response.aiter_raw():
                    seq += 1
                    self._notify(BODY_DELTA, _delta(request_id, seq, chunk))
                    if self._drained is not None:
                        await self._drained()
        except ChannelClosed:
            return  # nobody is left to notify
        except Exception as error:
            failure = _failure(error, call)
        finally:
            self._active.discard(request_id)
        with suppress(ChannelClosed):
            self._notify(BODY_DELTA, _delta(request_id, seq + 1, b"", done=True, error=failure))


@dataclass(frozen=True, slots=True)
class _Call:
    """A request that passed the checks."""

    params: HttpRequestParams
    headers: tuple[tuple[str, str], ...]
    names_from_environment: frozenset[str]
    shown_url: str
    deadline: float | None


def _prepare(params: HttpRequestParams, environ: Mapping[str, str]) -> _Call:
    if not _TOKEN.fullmatch(params.method):
        raise ExecError("http/request method is invalid: invalid HTTP method", INVALID_PARAMS)
    try:
        url = urlsplit(params.url)
        _ = url.port  # raises when it is no port
    except ValueError:
        raise ExecError("http/request url is invalid: the host or port cannot be read", INVALID_PARAMS) from None
    if not url.scheme:
        raise ExecError("http/request url is invalid: relative URL without a base", INVALID_PARAMS)
    if url.scheme not in ("http", "https"):
        raise ExecError(f"http/request only supports http and https URLs, got {url.scheme}", INVALID_PARAMS)
    if not url.hostname:
        raise ExecError("http/request url is invalid: empty host", INVALID_PARAMS)
    deadline = None
    if params.timeout_ms is not None:
        deadline = asyncio.get_running_loop().time() + params.timeout_ms / 1000
    return _Call(
        params=params,
        headers=tuple(_header(header, environ) for header in params.headers),
        names_from_environment=frozenset(
            header.name.lower() for header in params.headers if header.value_env_var is not None
        ),
        shown_url=f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}",
        deadline=deadline,
    )


def _header(header: HttpHeader, environ: Mapping[str, str]) -> tuple[str, str]:
    if not _TOKEN.fullmatch(header.name):
        raise ExecError("http/request header name is invalid: it must be an HTTP token", INVALID_PARAMS)
    value = header.value
    if header.value_env_var is not None:
        secret = environ.get(header.value_env_var)
        if secret is None:
            raise ExecError(
                f"http/request header `{header.name}` needs the environment variable `{header.value_env_var}`,"
                " which is not set for this server, or not for this client",
                INVALID_PARAMS,
            )
        value += secret
    if _FORBIDDEN_IN_VALUE.search(value):
        raise ExecError(f"http/request header `{header.name}` has a value with control characters", INVALID_PARAMS)
    return header.name, value


def _make_client() -> httpx2.AsyncClient:
    from http.cookiejar import CookieJar, DefaultCookiePolicy  # loaded at the first request, as the client is

    import httpx2

    # Requests of a client are unrelated: no cookie of one may reach another.
    no_cookies = CookieJar(policy=DefaultCookiePolicy(allowed_domains=()))
    return httpx2.AsyncClient(
        cookies=no_cookies, timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS, pool=CONNECT_SECONDS)
    )


def _build(call: _Call) -> httpx2.Request:
    import httpx2  # loaded at the first request

    # Built directly, not by the client, which would add a user-agent and offer content codings that we would then
    # have to undo: the caller gets the bytes as they are on the wire.
    headers = [(name.encode(), value.encode("utf-8", "surrogateescape")) for name, value in call.headers]
    if all(name.lower() != b"accept" for name, _ in headers):
        headers.append((b"Accept", b"*/*"))
    try:
        return httpx2.Request(call.params.method, call.params.url, headers=headers, content=call.params.body_base64)
    except httpx2.InvalidURL:
        raise ExecError("http/request url is invalid: it cannot be parsed", INVALID_PARAMS) from None


def _result(response: httpx2.Response, body: bytes) -> HttpResult:
    headers = tuple(
        HttpHeader(name=name.decode("ascii").lower(), value=value.decode("utf-8", "replace"))
        for name, value in response.headers.raw
    )
    return HttpResult(status=response.status_code, headers=headers, body_base64=body)


def _delta(
    request_id: str, seq: int, chunk: bytes, *, done: bool = False, error: str | None = None
) -> HttpBodyDeltaNotice:
    return HttpBodyDeltaNotice(request_id=request_id, seq=seq, delta_base64=chunk, done=done, error=error)


def _failure(error: Exception, call: _Call) -> str:
    """The text for an error, by its type only: the texts of the HTTP library quote header values."""
    import httpx2  # loaded at the first request

    match error:
        case TimeoutError():
            what = f"timed out after {call.params.timeout_ms} ms"
        case httpx2.ConnectTimeout() | httpx2.PoolTimeout():
            what = f"no connection within {CONNECT_SECONDS:.0f} s"
        case httpx2.ConnectError():
            what = "cannot connect"
        case httpx2.ReadError() | httpx2.WriteError() | httpx2.CloseError() | httpx2.RemoteProtocolError():
            what = "the connection broke or the response is no valid HTTP"
        case httpx2.UnsupportedProtocol():
            what = "redirected to a URL that is neither http nor https"
        case _:
            what = type(error).__name__
    return f"http/request failed: {what} for url ({call.shown_url})"
