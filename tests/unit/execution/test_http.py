"""`http/request` against a small HTTP server on loopback."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import cast

import pytest
from msgspec import Struct

from treadle.errors import ChannelClosed, ExecError
from treadle.execution import HttpRequests
from treadle.protocol.exec import HttpBodyDeltaNotice, HttpHeader, HttpRequestParams, HttpResult

pytestmark = pytest.mark.anyio
DEADLINE = 60.0
PEM = Path(__file__).parents[1] / "http" / "loopback.pem"


class Site(ThreadingHTTPServer):
    """Answers by path; `gate` holds back `/slow` and the rest of `/stream` and `/broken`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.gate = threading.Event()
        self.elsewhere = ""
        self.scheme = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that hang up are part of these tests."""


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        site = cast(Site, self.server)
        match self.path.split("?")[0]:
            case "/redirect":
                self._reply(302, b"", ("Location", "/echo"))
            case "/away":
                self._reply(307, b"", ("Location", site.elsewhere + "/echo"))
            case "/loop":
                self._reply(302, b"", ("Location", "/loop"))
            case "/gopher":
                self._reply(302, b"", ("Location", "gopher://x/"))
            case "/slow":
                site.gate.wait(DEADLINE)
                self._reply(200, b"late")
            case "/big":
                self._reply(200, b"x" * 1000)
            case "/stream" | "/broken":
                self._stream(site)
            case _:
                self._echo()

    def do_POST(self) -> None:
        self._reply(201, self.rfile.read(int(self.headers["Content-Length"])))

    def _echo(self) -> None:
        seen = [[name.lower(), value] for name, value in self.headers.items()]
        self._reply(200, json.dumps(seen).encode(), ("X-A", "1"), ("X-A", "2"), ("Set-Cookie", "id=1"))

    def _reply(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, site: Site) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close")  # else the next request may be sent into a connection that is ending
        self.end_headers()
        self.wfile.write(b"3\r\none\r\n")
        site.gate.wait(DEADLINE)
        if self.path == "/stream":
            self.wfile.write(b"3\r\ntwo\r\n0\r\n\r\n")
        self.close_connection = True


class Deltas:
    """What was notified, with a way to wait for it."""

    def __init__(self) -> None:
        self.seen: list[HttpBodyDeltaNotice] = []
        self._more = asyncio.Event()

    def __call__(self, method: str, notice: Struct) -> None:
        assert method == "http/request/bodyDelta"
        assert isinstance(notice, HttpBodyDeltaNotice)
        self.seen.append(notice)
        self._more.set()

    async def until(self, count: int) -> list[HttpBodyDeltaNotice]:
        async with asyncio.timeout(DEADLINE):
            while len(self.seen) < count:
                self._more.clear()
                await self._more.wait()
        return self.seen


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")


def serve() -> Iterator[Site]:
    with Site() as site:
        thread = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield site
        site.gate.set()
        site.shutdown()
        thread.join()


site = pytest.fixture(name="site")(serve)
other_site = pytest.fixture(name="other_site")(serve)


@asynccontextmanager
async def opened(
    deltas: Deltas | None = None, *, max_body: int = 10_000, max_streams: int = 8
) -> AsyncIterator[HttpRequests]:
    requests = HttpRequests(deltas or Deltas(), max_body=max_body, max_streams=max_streams)
    try:
        yield requests
    finally:
        await requests.close()


async def fetch(params: HttpRequestParams) -> HttpResult:
    async with opened() as requests, asyncio.timeout(DEADLINE):
        return await requests.request(params)


async def refused(params: HttpRequestParams) -> ExecError:
    with pytest.raises(ExecError) as caught:
        await fetch(params)
    return caught.value


def get(url: str, request_id: str = "r", *headers: HttpHeader) -> HttpRequestParams:
    return HttpRequestParams(method="GET", url=url, request_id=request_id, headers=headers)


def stream(url: str, request_id: str, timeout_ms: int | None = None) -> HttpRequestParams:
    return HttpRequestParams(method="GET", url=url, request_id=request_id, stream_response=True, timeout_ms=timeout_ms)


def headers_seen(result: HttpResult) -> list[tuple[str, str]]:
    return [(name, value) for name, value in json.loads(result.body_base64)]


async def test_headers_are_lower_cased_and_repeated_ones_kept(site: Site) -> None:
    result = await fetch(get(site.url + "/echo"))
    assert result.status == 200
    assert [header.value for header in result.headers if header.name == "x-a"] == ["1", "2"]


async def test_nothing_is_added_to_the_headers_but_accept_and_host(site: Site) -> None:
    result = await fetch(
        get(site.url + "/echo", "r", HttpHeader(name="X-Q", value="1"), HttpHeader(name="X-Q", value="2"))
    )
    host = site.url.removeprefix("http://")
    assert sorted(headers_seen(result)) == [("accept", "*/*"), ("host", host), ("x-q", "1"), ("x-q", "2")]


async def test_a_body_is_posted(site: Site) -> None:
    params = HttpRequestParams(method="POST", url=site.url, request_id="r", body_base64=b"body!")
    result = await fetch(params)
    assert (result.status, result.body_base64) == (201, b"body!")


async def test_no_cookie_is_carried_to_the_next_request(site: Site) -> None:
    async with opened() as requests:
        await requests.request(get(site.url + "/echo"))
        second = await requests.request(get(site.url + "/redirect"))
    assert "cookie" not in dict(headers_seen(second))


async def test_a_variable_of_the_environment_is_appended(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOK", "tokval")
    result = await fetch(get(site.url + "/echo", "r", HttpHeader(name="X-T", value="Bearer ", value_env_var="TOK")))
    assert dict(headers_seen(result))["x-t"] == "Bearer tokval"


async def test_a_missing_variable_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOK", raising=False)
    error = await refused(get(site.url, "r", HttpHeader(name="X-T", value="Bearer abc", value_env_var="TOK")))
    assert error.code == -32602
    assert "`TOK`" in error.message
    assert "abc" not in error.message


async def test_a_value_with_a_line_break_is_refused_unquoted(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOK", "sec\r\nret: 1")
    error = await refused(get(site.url, "r", HttpHeader(name="X-T", value="", value_env_var="TOK")))
    assert error.code == -32602
    assert "ret" not in error.message.replace("characters", "")


async def test_redirects_are_followed_or_not(site: Site) -> None:
    followed = await fetch(get(site.url + "/redirect"))
    assert followed.status == 200
    params = HttpRequestParams(method="GET", url=site.url + "/redirect", request_id="r", redirect_policy="stop")
    stopped = await fetch(params)
    assert stopped.status == 302
    assert ("location", "/echo") in [(header.name, header.value) for header in stopped.headers]


async def test_secrets_stay_with_the_origin_they_were_meant_for(
    site: Site, other_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.elsewhere = other_site.url
    monkeypatch.setenv("TOK", "tokval")
    secret = HttpHeader(name="X-Plain", value="", value_env_var="TOK")  # neither name nor value look secret
    result = await fetch(get(site.url + "/away", "r", secret, HttpHeader(name="X-Q", value="1")))
    seen = dict(headers_seen(result))
    assert "x-plain" not in seen
    assert (seen["x-q"], seen["host"]) == ("1", other_site.url.removeprefix("http://"))


SECRETS = (
    HttpHeader(name="Authorization", value="Basic dTpw"),
    HttpHeader(name="Cookie", value="id=1"),
    HttpHeader(name="X-Api-Key", value="given as it is"),
    HttpHeader(name="Private-Token", value="given as it is"),
    HttpHeader(name="X-Opaque", value="sk-0123456789abcdef"),
)


@pytest.mark.parametrize("where", ["another port", "another host", "without TLS"])
async def test_headers_that_look_secret_go_to_no_other_host(
    site: Site, other_site: Site, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    site.elsewhere = other_site.url
    if where == "another host":
        site.elsewhere = other_site.url.replace("127.0.0.1", "localhost")
    elif where == "without TLS":
        monkeypatch.setenv("SSL_CERT_FILE", str(PEM))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(PEM)
        site.socket = context.wrap_socket(site.socket, server_side=True)
        site.scheme = "https"
    plain = HttpHeader(name="X-Q", value="1")
    there = dict(headers_seen(await fetch(get(site.url + "/echo", "r", plain, *SECRETS))))
    assert {header.name.lower() for header in SECRETS} < there.keys()
    seen = dict(headers_seen(await fetch(get(site.url + "/away", "r", plain, *SECRETS))))
    assert seen == {"accept": "*/*", "x-q": "1", "host": site.elsewhere.removeprefix("http://")}


@pytest.mark.parametrize("path", ["/loop", "/gopher"])
async def test_redirects_that_lead_nowhere_fail(site: Site, path: str) -> None:
    error = await refused(get(site.url + path))
    assert error.code == -32603
    assert "redirect" in error.message


async def test_a_deadline_covers_the_whole_request(site: Site) -> None:
    params = HttpRequestParams(method="GET", url=site.url + "/slow", request_id="r", timeout_ms=50)
    error = await refused(params)
    assert error.code == -32603
    assert "50 ms" in error.message


async def test_a_failure_names_the_url_without_its_secrets() -> None:
    error = await refused(get("http://user:word@127.0.0.1:1/path?key=hidden"))
    assert error.code == -32603
    assert error.message == "http/request failed: cannot connect for url (http://127.0.0.1:1/path)"


@pytest.mark.parametrize(
    ("method", "url", "text"),
    [
        ("GET", "ftp://x/", "http/request only supports http and https URLs, got ftp"),
        ("BAD METHOD", "http://127.0.0.1", "http/request method is invalid: invalid HTTP method"),
        ("", "http://127.0.0.1", "http/request method is invalid: invalid HTTP method"),
        ("GET", "nourl", "http/request url is invalid: relative URL without a base"),
        ("GET", "http://", "http/request url is invalid: empty host"),
        ("GET", "http://127.0.0.1:port/", "http/request url is invalid: the host or port cannot be read"),
        ("GET", "http://[::1", "http/request url is invalid: the host or port cannot be read"),
        ("GET", "http://127.0.0.1/\x00", "http/request url is invalid: it cannot be parsed"),
    ],
)
async def test_what_is_no_request_is_refused(method: str, url: str, text: str) -> None:
    error = await refused(HttpRequestParams(method=method, url=url, request_id="r"))
    assert (error.code, error.message) == (-32602, text)


async def test_a_body_over_the_limit_is_refused(site: Site) -> None:
    async with opened(max_body=999) as requests:
        with pytest.raises(ExecError, match="larger than 999 bytes") as caught:
            await requests.request(get(site.url + "/big"))
    assert caught.value.code == -32603
    async with opened(max_body=1000) as requests:
        assert len((await requests.request(get(site.url + "/big"))).body_base64) == 1000


async def test_a_streamed_body_arrives_in_numbered_deltas(site: Site) -> None:
    deltas = Deltas()
    async with opened(deltas) as requests:
        result = await requests.request(stream(site.url + "/stream", "s"))
        assert (result.status, result.body_base64, deltas.seen) == (200, b"", [])
        await deltas.until(1)
        site.gate.set()
        await deltas.until(3)
    assert [(d.request_id, d.seq, d.delta_base64, d.done, d.error) for d in deltas.seen] == [
        ("s", 1, b"one", False, None),
        ("s", 2, b"two", False, None),
        ("s", 3, b"", True, None),
    ]


async def test_an_id_is_taken_while_its_stream_is_open(site: Site) -> None:
    deltas = Deltas()
    async with opened(deltas) as requests:
        await requests.request(stream(site.url + "/stream", "s"))
        with pytest.raises(ExecError, match="requestId `s` is already active") as caught:
            await requests.request(stream(site.url + "/stream", "s"))
        assert caught.value.code == -32602
        site.gate.set()
        await deltas.until(3)
        assert (await requests.request(stream(site.url + "/stream", "s"))).status == 200


async def test_a_failed_stream_request_frees_its_id(site: Site) -> None:
    async with opened() as requests:
        with pytest.raises(ExecError, match="cannot connect"):
            await requests.request(stream("http://127.0.0.1:1/", "s"))
        assert (await requests.request(stream(site.url + "/stream", "s"))).status == 200


async def test_the_number_of_streams_is_bounded(site: Site) -> None:
    async with opened(max_streams=2) as requests:
        for request_id in "ab":
            await requests.request(stream(site.url + "/stream", request_id))
        with pytest.raises(ExecError, match="2 response streams") as caught:
            await requests.request(stream(site.url + "/stream", "c"))
    assert caught.value.code == -32600


async def test_a_stream_that_breaks_says_so_last(site: Site) -> None:
    site.gate.set()
    deltas = Deltas()
    async with opened(deltas) as requests:
        await requests.request(stream(site.url + "/broken", "s"))
        first, last = await deltas.until(2)
    assert (first.delta_base64, first.done, first.error) == (b"one", False, None)
    assert (last.seq, last.delta_base64, last.done) == (2, b"", True)
    assert last.error is not None
    assert "the connection broke" in last.error


async def test_a_stream_past_its_deadline_says_so_last(site: Site) -> None:
    deltas, timeout_ms = Deltas(), 200
    async with opened(deltas) as requests:
        while True:
            try:
                await requests.request(stream(site.url + "/stream", "s", timeout_ms))
                break
            except ExecError:  # a busy machine: not even the headers came in time
                timeout_ms *= 2
        async with asyncio.timeout(DEADLINE):
            while not (deltas.seen and deltas.seen[-1].done):
                await deltas.until(len(deltas.seen) + 1)
    error = deltas.seen[-1].error
    assert error is not None
    assert f"timed out after {timeout_ms} ms" in error


async def test_the_next_delta_waits_until_the_last_one_has_drained(site: Site) -> None:
    site.gate.set()
    deltas, waiting, go_on = Deltas(), asyncio.Event(), asyncio.Event()

    async def drained() -> None:
        waiting.set()
        await go_on.wait()

    requests = HttpRequests(deltas, drained)
    async with asyncio.timeout(DEADLINE):
        await requests.request(stream(site.url + "/stream", "s"))
        await waiting.wait()
        # A request after it has been answered, so the second chunk has long arrived; it is held all the same.
        await requests.request(get(site.url + "/echo"))
        assert len(deltas.seen) == 1
        go_on.set()
        await deltas.until(3)
    await requests.close()


async def test_a_reader_that_is_gone_ends_the_stream(site: Site) -> None:
    gone, notified = asyncio.Event(), []

    def notify(method: str, notice: Struct) -> None:
        notified.append(notice)
        gone.set()
        raise ChannelClosed("gone")

    requests = HttpRequests(notify, max_streams=1)
    async with asyncio.timeout(DEADLINE):
        await requests.request(stream(site.url + "/stream", "first"))
        await gone.wait()
        while True:
            try:
                await requests.request(stream(site.url + "/stream", "second"))
                break
            except ExecError as error:
                assert "let one end first" in error.message  # noqa: PT017
                await asyncio.sleep(0)
    assert len(notified) == 1
    await requests.close()


async def test_close_ends_streams_silently_and_refuses_new_requests(site: Site) -> None:
    deltas = Deltas()
    requests = HttpRequests(deltas)
    await requests.request(stream(site.url + "/stream", "s"))
    await deltas.until(1)
    await requests.close()
    assert [delta.done for delta in deltas.seen] == [False]
    with pytest.raises(ExecError, match="closing"):
        await requests.request(get(site.url + "/echo"))


def test_the_http_client_is_not_loaded_by_the_import() -> None:
    code = "import sys, treadle.execution.server.http_requests; sys.exit('httpx2' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=DEADLINE)
