"""`WebClient`: GET requests into the web, for one call of a tool.

It owns the limits (bytes, also after decompression; seconds; redirects), `robots.txt`, and which content is text. Every
connection goes to an address that was checked. It keeps no cookies, sends no credentials and no referrer, and uses no
proxy: a proxy would look the name up again.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, Literal, TypeAlias
from urllib.parse import urljoin

from msgspec import Struct

from treadle._version import __version__
from treadle.http.http1 import BadCoding, UnknownCoding, decoder_for
from treadle.http.http_connection import HttpConnection, HttpPool, HttpRequest
from treadle.http.http_errors import ConnectFailed, ConnectionLost, IdleTimeout, NotHttp
from treadle.http.public_address import Lookup, NotPublic, look_up, public_addresses
from treadle.http.target import BadUrl, HttpTarget, read_url
from treadle.tools.web.readable import Readable, decoded, plain, readable
from treadle.tools.web.robots import MAX_ROBOTS, Robots, read_robots

TOTAL_S: Final = 30.0
IDLE_S: Final = 10.0
MAX_BYTES: Final = 4 * 1024 * 1024
MAX_REDIRECTS: Final = 5
MAX_URL: Final = 8192
ROBOTS_S: Final = 3600.0
MAX_ROBOTS_KNOWN: Final = 256
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_HTML: Final = ("text/html", "application/xhtml+xml")
_TEXT: Final = re.compile(r"text/.*|application/(json|xml|yaml|toml|javascript|x-ndjson|.*\+(json|xml|yaml))")
_CHARSET: Final = re.compile(r"charset\s*=\s*[\"']?([A-Za-z0-9_:.-]{1,40})", re.IGNORECASE)
_PAGE: Final = b"text/html, application/xhtml+xml, text/plain;q=0.9, application/json;q=0.9, text/*;q=0.8, */*;q=0.1"

WebProblem: TypeAlias = Literal[
    "bad_url", "not_public", "robots", "redirects", "status", "content", "unreachable", "timeout", "broken"
]
MayVisit: TypeAlias = Callable[[HttpTarget], bool]


class WebFailure(Exception):
    """What was asked for cannot be had. The message is for the model."""

    def __init__(self, kind: WebProblem, message: str) -> None:
        super().__init__(message)
        self.kind: WebProblem = kind
        self.message = message


class Response(Struct, frozen=True):
    """What a server has answered. `cut`: there was more than was wanted."""

    status: int
    headers: dict[str, str]
    body: bytes
    cut: bool


class WebPage(Struct, frozen=True):
    """A page as text; without text and with `moved_to` when it leads to where nobody may go without asking."""

    url: str
    title: str
    text: str
    cut: bool = False
    moved_to: str | None = None


class KnownRobots:
    """The rules of sites that were asked for lately."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, Robots]] = {}

    def get(self, site: str) -> Robots | None:
        until, rules = self._known.get(site, (0.0, None))
        return rules if time.monotonic() < until else None

    def put(self, site: str, rules: Robots) -> None:
        self._known.pop(site, None)
        while len(self._known) >= MAX_ROBOTS_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[site] = time.monotonic() + ROBOTS_S, rules


def read_address(url: str) -> HttpTarget:
    """Where a URL that a model wrote leads. Raises `WebFailure`. Blocking: an unusual URL takes a library to load."""
    try:
        target = None if len(url) > MAX_URL else read_url(url.strip())
    except BadUrl:
        target = None
    if target is None or not host_of(target):
        raise WebFailure("bad_url", "only http and https URLs can be read, as in https://example.com/page")
    if target.user or target.password:
        raise WebFailure("bad_url", "the URL has credentials in it, which are not sent; leave them out")
    return target


def host_of(target: HttpTarget) -> str:
    """The host as rules name it."""
    return target.host.lower().rstrip(".")


def url_of(target: HttpTarget) -> str:
    return f"{target.scheme}://{target.authority.decode()}{target.path.decode('latin-1')}"


class WebClient:
    """Requests to the web, in `async with`. `private_hosts` are those that may have addresses that are not public.

    Args:
        private_hosts: Such hosts, in lower case.
        robots: What is known of sites; without it `robots.txt` is not asked for.
        lookup: What looks a name up.
    """

    def __init__(
        self, *, private_hosts: Collection[str] = (), robots: KnownRobots | None = None, lookup: Lookup = look_up
    ) -> None:
        resolver = partial(public_addresses, private_hosts=private_hosts, lookup=lookup)
        self._pool = HttpPool(IDLE_S, resolver=resolver)
        self._robots = robots

    async def __aenter__(self) -> WebClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.close()

    async def page(self, target: HttpTarget, may_visit: MayVisit) -> WebPage:
        """The page as text, wherever it is redirected to, if that may be visited. Raises `WebFailure`."""
        async with _deadline():
            for _ in range(MAX_REDIRECTS + 1):
                if not await self._robots_allow(target, may_visit):
                    raise WebFailure("robots", f"robots.txt of {host_of(target)} asks programs not to read this page")
                response = await self.get(target, accept=_PAGE, limit=MAX_BYTES, wanted=_is_text)
                following = _redirect(target, response)
                if following is None:
                    return await _read_page(url_of(target), response)
                target = await asyncio.to_thread(read_address, following)
                if not may_visit(target):
                    return WebPage(url_of(target), "", "", moved_to=url_of(target))
        raise WebFailure("redirects", f"the page is redirected more than {MAX_REDIRECTS} times")

    async def data(self, target: HttpTarget, limit: int) -> Response:
        """The answer at an address, without redirects. Raises `WebFailure`."""
        async with _deadline():
            return await self.get(target, accept=b"application/json", limit=limit)

    async def get(
        self, target: HttpTarget, *, accept: bytes, limit: int, wanted: Callable[[dict[str, str]], bool] | None = None
    ) -> Response:
        """One request. The body is read if the status is 200 and the headers are `wanted`, up to the limit."""
        host = host_of(target)
        headers = [
            (b"user-agent", f"treadle/{__version__}".encode()),
            (b"accept", accept),
            (b"accept-encoding", b"gzip, deflate"),
        ]
        connection = await self._pool.acquire()
        reuse = False
        try:
            head = await connection.send(HttpRequest(target, headers, None))
            given = dict(head.headers)
            if head.status != 200:
                return Response(head.status, given, b"", cut=False)
            if wanted is not None and not wanted(given):
                raise WebFailure("content", f"{given.get('content-type', 'this')[:100]} is no text; it was not read")
            body, cut = await _read_body(connection, given, limit)
            reuse = not cut and connection.is_reusable
            return Response(head.status, given, body, cut)
        except NotPublic as error:
            why = "an address that is not public" if error.host == error.address else f"the address {error.address}"
            raise WebFailure(
                "not_public",
                f"not asked: {host} is {why}, which may be part of the user's own network. If that is wanted, the user "
                "has to name the host in `private_hosts` of [tools.web_search]",
            ) from None
        except ConnectFailed as error:
            why = "its certificate is not valid" if error.tls_problem else error.reason.replace("_", " ")
            raise WebFailure("unreachable", f"{host} cannot be reached ({why})") from None
        except (TimeoutError, IdleTimeout):
            raise WebFailure("timeout", f"{host} did not answer in time") from None
        except (NotHttp, ConnectionLost, BadCoding, UnknownCoding, ValueError):
            raise WebFailure("broken", f"the answer of {host} cannot be read or broke off") from None
        finally:
            self._pool.release(connection, reuse=reuse)

    # --- robots.txt ---

    async def _robots_allow(self, target: HttpTarget, may_visit: MayVisit) -> bool:
        if self._robots is None:
            return True
        site = f"{target.scheme}://{target.authority.decode()}"
        rules = self._robots.get(site)
        if rules is None:
            rules = await self._ask_robots(f"{site}/robots.txt", may_visit)
            if rules is None:
                return False
            self._robots.put(site, rules)
        return rules.allow(target.path.decode("latin-1"))

    async def _ask_robots(self, url: str, may_visit: MayVisit) -> Robots | None:
        """The rules of a site. As the RFC says, one without allows everything, one that cannot say (None) nothing."""
        for _ in range(MAX_REDIRECTS + 1):
            target = await asyncio.to_thread(read_address, url)
            if not may_visit(target):
                break
            response = await self.get(target, accept=b"text/plain", limit=MAX_ROBOTS)
            following = _redirect(target, response)
            if following is None:
                if response.status >= 500:
                    return None
                return read_robots(response.body.decode("utf-8", "replace")) if response.status == 200 else Robots()
            url = following
        return Robots()


def _redirect(target: HttpTarget, response: Response) -> str | None:
    location = response.headers.get("location")
    if response.status not in _REDIRECTS or location is None:
        return None
    try:
        return urljoin(url_of(target), location)
    except ValueError:
        return location  # which cannot be read either


def _kind(headers: dict[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _is_text(headers: dict[str, str]) -> bool:
    """Whether a body is worth reading. Without a type it is: the content tells."""
    kind = _kind(headers)
    return not kind or kind in _HTML or _TEXT.fullmatch(kind) is not None


async def _read_body(connection: HttpConnection, headers: dict[str, str], limit: int) -> tuple[bytes, bool]:
    """At most `limit` bytes, decompressed, and whether there were more."""
    decoder = decoder_for(headers)
    body = bytearray()
    while data := await connection.read():
        if decoder is None:
            body += data
        else:
            decoder.receive(data)
            while len(body) <= limit and (piece := decoder.take()):
                body += piece
        if len(body) > limit:
            return bytes(body[:limit]), True
    if decoder is not None:
        decoder.end()
    return bytes(body), False


async def _read_page(url: str, response: Response) -> WebPage:
    if response.status != 200:
        raise WebFailure("status", f"the server answered with HTTP status {response.status}")
    kind = _kind(response.headers)
    charset = _CHARSET.search(response.headers.get("content-type", ""))
    is_html = kind in _HTML or (not kind and response.body.lstrip()[:1] == b"<")

    def read() -> Readable | None:
        text = decoded(response.body, charset and charset[1], html=is_html)
        if text is None:
            return None
        return readable(text, url) if is_html else Readable("", plain(text))

    found = await asyncio.to_thread(read)
    if found is None:
        raise WebFailure("content", "this is no text, whatever its type says; it was not read")
    return WebPage(url, found.title, found.text, cut=response.cut)


@asynccontextmanager
async def _deadline() -> AsyncIterator[None]:
    """The deadline of a whole call."""
    try:
        async with asyncio.timeout(TOTAL_S):
            yield
    except TimeoutError:
        raise WebFailure("timeout", f"it was not all there after {TOTAL_S:.0f} seconds") from None
