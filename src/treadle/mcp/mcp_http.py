"""`HttpTransport`: an MCP server reached over streamable HTTP; and `McpHttp`, the pooled connections to such servers.

Every message is a POST. The answer to a request is a JSON document or a stream of events, which may hold other
messages before it; a stream that is lost is taken up again where it ended, if the server numbers its events. Besides
there may be one GET, open as long as the session, for what the server sends without being asked.

A session that the server has forgotten (404) is `SessionLost`: `McpServer` begins a new one. Nothing is sent twice that
a server may have begun to do.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin

import msgspec
from msgspec import Struct

from treadle.http.http1 import BadCoding, UnknownCoding, decoder_for
from treadle.http.http_connection import HttpConnection, HttpPool, HttpRequest
from treadle.http.http_errors import (
    ConnectFailed,
    ConnectionLost,
    FailureReason,
    HttpUnusable,
    IdleTimeout,
    NotHttp,
    ProxyRefused,
)
from treadle.http.sse import SseParser, SseTooLarge
from treadle.http.target import BadUrl, read_url
from treadle.llm.provider import shown_url
from treadle.mcp.mcp_messages import McpError, SessionLost
from treadle.mcp.mcp_session import MAX_FRAME, McpSession, McpTransport
from treadle.secrets import HIDDEN

if TYPE_CHECKING:
    from treadle.mcp.mcp_headers import HeaderSource

logger: logging.Logger = logging.getLogger(__name__)

# Each session has one open for its GET: a limit would be met by whoever calls.
MAX_CONNECTIONS: Final = 1 << 16
# Whoever waits has a deadline of his own, and the GET of a session may be silent for as long as it lasts.
IDLE_S: Final = 86_400.0
# So much of a body at a time: others have their turn between two pieces.
PIECE: Final = 64 << 10
MAX_ERROR_BODY: Final = 64 << 10
ERROR_BODY_S: Final = 5.0
# After the answer only the end of the stream is missing; without it, the connection is not used again.
END_OF_STREAM_S: Final = 1.0
# Of the end of a session, which is only a courtesy.
DELETE_S: Final = 2.0
OLD_SERVER_S: Final = 3.0
# A stream that ends is asked for again, until it has brought nothing for so many times.
RESUMPTIONS: Final = 5
RETRY_S: Final = 1.0
MAX_RETRY_S: Final = 30.0
MIN_RETRY_S: Final = 0.1  # whatever the server says: a stream that ends at once would keep us busy
MAX_REDIRECTS: Final = 3

_REASONS: Final[Mapping[FailureReason, str]] = {
    "refused": "nothing listens there",
    "unknown_name": "the host name is not known",
    "no_lookup": "the host name cannot be looked up now",
    "no_network": "it cannot be reached from this machine",
    "timed_out": "no connection was made in time",
    "hung_up": "the connection was closed at once",
    "tls": "TLS failed",
    "other": "no connection could be made",
}


class HttpResponse:
    """A response whose body is read, once."""

    def __init__(self, connection: HttpConnection, status: int, headers: Mapping[str, str]) -> None:
        self._connection = connection
        self.status = status
        self.headers = headers

    @property
    def kind(self) -> str:
        """The type of its content, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body, in pieces of at most `PIECE`."""
        try:
            decoder = decoder_for(self.headers)
            while data := await self._connection.read():
                if decoder is not None:
                    decoder.receive(data)
                    data = decoder.take()
                while data:
                    for start in range(0, len(data), PIECE):
                        yield data[start : start + PIECE]
                        await asyncio.sleep(0)
                    data = decoder.take() if decoder is not None else b""
        except (BadCoding, UnknownCoding, NotHttp) as error:
            raise McpError("protocol", f"the response cannot be read: {error}") from None
        except (ConnectionLost, IdleTimeout):
            raise McpError("closed", "the connection was lost in the middle of a response") from None

    async def read(self, limit: int) -> bytes:
        body = bytearray()
        async for piece in self.pieces():
            body += piece
            if len(body) > limit:
                raise McpError("protocol", f"the response is larger than {limit} bytes")
        return bytes(body)


class McpHttp:
    """Requests over HTTP, with connections that are kept and shared by all servers of one owner. Errors are
    `McpError`."""

    def __init__(self) -> None:
        self._pools: dict[tuple[str, str, int], HttpPool] = {}
        self._closed = False

    @asynccontextmanager
    async def open(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        resend: bool = True,
    ) -> AsyncIterator[HttpResponse]:
        """Send a request. The connection is kept if the body has been read to its end."""
        if self._closed:
            raise McpError("closed", "the connections are closed")
        try:
            target = read_url(url)
        except BadUrl as error:
            raise McpError("start", f"the URL cannot be used: {error}") from None
        sent = [(name.lower().encode(), value.encode("utf-8", "surrogateescape")) for name, value in headers.items()]
        pool = self._pools.get(target.origin)
        if pool is None:
            pool = self._pools[target.origin] = HttpPool(IDLE_S, max_connections=MAX_CONNECTIONS)
        connection = await pool.acquire()
        try:
            try:
                head = await connection.send(HttpRequest(target, sent, body, method.encode()), resend=resend)
            except Exception as error:
                raise _no_response(error, url) from None
            yield HttpResponse(connection, head.status, head.headers)
        finally:
            pool.release(connection, reuse=connection.is_reusable)

    async def close(self) -> None:
        self._closed = True
        await asyncio.gather(*(pool.close() for pool in self._pools.values()))


def _no_response(error: Exception, url: str) -> McpError:
    match error:
        case ConnectFailed():
            via = "" if error.proxy is None else f" through the proxy {error.proxy.scheme}://{error.proxy.host}"
            why = error.tls_problem or _REASONS[error.reason]
            return McpError("closed", f"error sending request to {_place(url)}{via}: {why}")
        case ProxyRefused():
            return McpError("closed", f"the proxy refuses the way to {_place(url)} (HTTP {error.status})")
        case ConnectionLost() | IdleTimeout():
            return McpError("closed", f"{_place(url)} closed the connection before it answered")
        case NotHttp():
            return McpError("protocol", f"what {_place(url)} answers is no HTTP: {error}")
        case HttpUnusable():
            return McpError("closed", str(error))
    return McpError("protocol", f"the request to {_place(url)} could not be sent ({type(error).__name__})")


class _Stream:
    """Where a stream of events is."""

    def __init__(self) -> None:
        self.last_id = ""
        self.retry_s = RETRY_S
        self.events = 0

    def headers(self) -> dict[str, str]:
        return {"last-event-id": self.last_id} if self.last_id else {}


class HttpTransport(McpTransport):
    """One session with a server. `headers` are asked for what each request carries, the token among it."""

    def __init__(self, http: McpHttp, url: str, headers: HeaderSource, *, name: str, user_agent: str) -> None:
        self._http = http
        self._url = url
        self._headers = headers
        self._name = name
        self._user_agent = user_agent
        self._session: McpSession | None = None
        self._session_id: str | None = None
        self._version: str | None = None
        self._requests: dict[int, asyncio.Task[None]] = {}
        self._listening: asyncio.Task[None] | None = None
        self._listens = True  # until the server says that there is nothing to hear
        self._closed = False

    async def open(self, session: McpSession) -> None:
        self._session = session
        await self._headers.open()

    async def send(self, frame: bytes, request_id: int | None = None) -> None:
        if self._closed:
            raise McpError("closed", "the connection was closed")
        if request_id is None:
            await self._post(frame, None)
            return
        task = asyncio.get_running_loop().create_task(self._run(frame, request_id))
        self._requests[request_id] = task
        task.add_done_callback(lambda _: self._requests.pop(request_id, None))

    def negotiated(self, version: str) -> None:
        self._version = version

    def abandon(self, request_id: int) -> None:
        task = self._requests.get(request_id)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        tasks = [*self._requests.values(), *([self._listening] if self._listening is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=DELETE_S)
        if self._session_id is None:
            return
        try:
            async with asyncio.timeout(DELETE_S):
                async with self._ask("DELETE", None) as response:
                    await response.read(MAX_ERROR_BODY)
        except (McpError, TimeoutError) as error:
            fields = {"server": self._name, "problem": str(error) or "no answer"}
            logger.debug("the session of an MCP server was not ended", fields)

    # --- requests ----------------------------------------------------------------------------------------------------

    @property
    def _to(self) -> McpSession:
        assert self._session is not None, "it was not opened"
        return self._session

    async def _run(self, frame: bytes, request_id: int) -> None:
        try:
            await self._post(frame, request_id)
        except McpError as error:
            self._to.request_failed(request_id, error)
        except SseTooLarge as error:
            self._to.request_failed(request_id, McpError("protocol", str(error)))
        except Exception as error:
            logger.exception("a request to an MCP server failed", {"server": self._name})
            self._to.request_failed(request_id, McpError("protocol", type(error).__name__))
        else:
            self._to.request_failed(request_id, McpError("protocol", "the response has no answer in it"))

    async def _post(self, frame: bytes, request_id: int | None) -> None:
        stream = _Stream()
        async with self._ask("POST", frame, resend=request_id is None) as response:
            if self._version is None:
                self._session_id = response.headers.get("mcp-session-id")
            if not 200 <= response.status < 300:
                await self._refused(response, request_id)
            elif response.kind == "text/event-stream":
                try:
                    await self._read(response, stream, request_id)
                except McpError as error:
                    if error.kind != "closed":
                        raise
            elif response.kind == "application/json" and response.status == 200:
                body = await response.read(MAX_FRAME)
                if request_id is not None:
                    self._to.frame_received(body)
            else:
                await response.read(MAX_ERROR_BODY)
                if request_id is not None:
                    found = response.kind or "nothing"
                    problem = f"HTTP {response.status} with {found[:80]} in place of an answer"
                    raise McpError("protocol", f"{problem}; is its url that of an MCP server?")
        if request_id is not None and self._to.awaits(request_id):
            # The stream ended without the answer: the server may go on with it where it was.
            try:
                if stream.last_id:
                    await asyncio.sleep(stream.retry_s)
                    await self._follow(stream, request_id)
            except McpError:
                pass  # whatever it is, the call may have been run
            if self._to.awaits(request_id):
                raise McpError("closed", "the connection was lost before the answer came")
        if self._listens and self._listening is None and self._version is not None and not self._closed:
            # After the first message that follows the handshake.
            self._listening = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        """The GET of the session: what the server sends without being asked."""
        try:
            await self._follow(_Stream(), None)
        except (McpError, SseTooLarge) as error:
            fields = {"server": self._name, "problem": str(error)}
            logger.debug("what an MCP server says by itself is not heard", fields)
        finally:
            self._listening = None  # the next message tries again

    async def _follow(self, stream: _Stream, request_id: int | None) -> None:
        """Ask for a stream, and for what follows each time that it ends, until the answer to the request is there, or
        nothing has come several times in a row. Raises `McpError`."""
        tries = 0
        while tries < RESUMPTIONS:
            events = stream.events
            try:
                async with self._ask("GET", None, stream.headers()) as response:
                    if response.status != 200 or response.kind != "text/event-stream":
                        self._listens = self._listens and (request_id is not None or response.status >= 500)
                        return
                    await self._read(response, stream, request_id)
            except McpError as error:
                if error.kind != "closed" or isinstance(error, SessionLost):
                    raise
            if request_id is not None and not self._to.awaits(request_id):
                return
            tries = tries + 1 if stream.events == events else 0
            await asyncio.sleep(min(stream.retry_s * 2**tries, MAX_RETRY_S))

    async def _read(self, response: HttpResponse, stream: _Stream, request_id: int | None) -> None:
        """Pass on the messages of a stream, until it ends or has brought the answer to this request."""
        parser = SseParser(max_event=MAX_FRAME)
        clock = asyncio.timeout(None)
        try:
            async with clock:
                async for piece in response.pieces():
                    for event in parser.receive(piece):
                        stream.events += 1
                        if event.data and event.event in ("", "message"):
                            self._to.frame_received(event.data.encode())
                    stream.last_id = parser.last_id or stream.last_id
                    if parser.retry_ms is not None:
                        stream.retry_s = max(MIN_RETRY_S, min(parser.retry_ms / 1000, MAX_RETRY_S))
                    if request_id is not None and clock.when() is None and not self._to.awaits(request_id):
                        clock.reschedule(asyncio.get_running_loop().time() + END_OF_STREAM_S)
        except TimeoutError:
            return

    # --- one exchange ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _ask(
        self, method: str, body: bytes | None, more: Mapping[str, str] | None = None, *, resend: bool = True
    ) -> AsyncIterator[HttpResponse]:
        """A response that is no redirect and no refusal of who we are; those are dealt with."""
        url, refused, redirects = self._url, False, 0
        while True:
            headers = {**await self._headers.current(), **self._own_headers(body), **(more or {})}
            async with self._http.open(method, url, headers, body, resend=resend) as response:
                if response.status in (307, 308):
                    redirects += 1
                    url = self._redirected(url, response, redirects)
                elif response.status == 403 and (wanted := _wanted_scopes(response)) is not None:
                    raise await self._headers.too_little(wanted)
                elif response.status == 401:
                    if refused or not await self._headers.refused():
                        raise McpError("authentication", self._headers.not_logged_in(response.status))
                    refused = True
                elif response.status == 404 and self._version is not None and self._session_id is not None:
                    raise SessionLost
                else:
                    yield response
                    return

    def _own_headers(self, body: bytes | None) -> dict[str, str]:
        headers = {"user-agent": self._user_agent, "accept": "text/event-stream, application/json"}
        if body is not None:
            headers["content-type"] = "application/json"
        if self._session_id is not None:
            headers["mcp-session-id"] = self._session_id
        if self._version is not None:
            headers["mcp-protocol-version"] = self._version
        return headers

    def _redirected(self, url: str, response: HttpResponse, redirects: int) -> str:
        """Where to go on. Not to another place: the headers are for this one."""
        try:
            there = urljoin(url, response.headers.get("location", ""))
            same = read_url(there).origin == read_url(url).origin
        except (BadUrl, ValueError):
            there, same = "", False
        if not same or redirects > MAX_REDIRECTS:
            place = _place(there)[:200] if there else "nowhere"
            raise McpError("protocol", f"{_place(url)} redirects to {place}; if you trust it, make that the url")
        return there

    async def _refused(self, response: HttpResponse, request_id: int | None) -> None:
        """Raises what is wrong, in the words of the server if it has any."""
        try:
            async with asyncio.timeout(ERROR_BODY_S):
                body = await response.read(MAX_ERROR_BODY)
        except (McpError, TimeoutError):
            body = b""
        said: _ErrorBody | None = None
        with suppress(msgspec.DecodeError, RecursionError):
            said = msgspec.json.decode(body, type=_ErrorBody)
        if said is not None and said.id == request_id and request_id is not None:
            self._to.frame_received(body)
            return
        if self._version is None and response.status in (400, 404, 405) and await self._is_old():
            raise McpError(
                "protocol",
                f"{_place(self._url)} speaks the old HTTP+SSE transport, which is not supported; use the url of its"
                " streamable HTTP (often the same with /mcp in place of /sse), or update the server",
            )
        text = "" if said is None else f": {said.error.message[:500]}"
        raise McpError("protocol", f"HTTP {response.status} from {_place(self._url)}{text}")

    async def _is_old(self) -> bool:
        """Whether a GET gives a stream that begins with `endpoint`."""
        try:
            async with asyncio.timeout(OLD_SERVER_S), self._ask("GET", None) as response:
                if response.status != 200 or response.kind != "text/event-stream":
                    return False
                parser = SseParser(max_event=PIECE)
                async for piece in response.pieces():
                    for event in parser.receive(piece):
                        return event.event == "endpoint"
        except (McpError, SseTooLarge, TimeoutError):
            return False
        return False


class _Said(Struct):
    message: str = ""


class _ErrorBody(Struct):
    error: _Said
    id: int | str | None = None


def _wanted_scopes(response: HttpResponse) -> tuple[str, ...] | None:
    """What a server says that is lacking; None when it is not that."""
    challenge = response.headers.get("www-authenticate", "")
    if "insufficient_scope" not in challenge:
        return None
    from treadle.mcp.oauth import challenge_parameters, scopes_of  # which needs this module

    return scopes_of(challenge_parameters(challenge))


# Of a path: services give out URLs with a key in them.
_KEY: Final = re.compile(r"(?<=/)[\w~%+=-]{24,}(?=/|$)")


def _place(url: str) -> str:
    """A URL as it may be shown: query and path may hold a key."""
    return _KEY.sub(HIDDEN, shown_url(url))
