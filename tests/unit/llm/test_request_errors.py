"""Requests that get no response that can be read: what is said, how often is asked, and how soon it is told."""

from __future__ import annotations

import asyncio
import errno
import gzip
import socket
import ssl
import zlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from model_server import DEADLINE, ModelServer, Reply, chunked, model_server, sse, status, text_events
from treadle.llm import ABSENT_RETRIES, ModelError, ModelRequest, ProviderModel, TextDelta, read_provider

pytestmark = pytest.mark.anyio
SECRET = "s3cret-value"
REQUEST = ModelRequest(model="m", input=[{"type": "message", "role": "user", "content": "hi"}])
CODED = b"HTTP/1.1 200 OK\r\nContent-Encoding: %s\r\nContent-Length: %d\r\n\r\n"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy is not a server that is slow to refuse."""
    monkeypatch.setattr("treadle.llm.provider_client.ABSENT_S", DEADLINE)


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with asyncio.timeout(DEADLINE), model_server() as running:
        yield running


class Asked:
    """One request with the usual retries, as a user has them."""

    def __init__(self, base_url: str, **table: Any) -> None:
        config = read_provider("mock", {"base_url": base_url, "env_key": "KEY", **table})
        self.pauses: list[float] = []
        self._model = ProviderModel(config, environ={"KEY": SECRET}, pause=self._pause)

    async def text(self) -> str:
        try:
            async with self._model.stream(REQUEST) as events:
                return "".join([event.delta async for event in events if isinstance(event, TextDelta)])
        finally:
            await self._model.close()

    async def failure(self) -> ModelError:
        with pytest.raises(ModelError) as caught:
            await self.text()
        assert SECRET not in str(caught.value)
        return caught.value

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)


async def refused_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    return port


# --- nobody is there -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_refused(host: str) -> None:
    asked = Asked(f"http://{host}:{await refused_port()}/v1")
    error = await asked.failure()
    assert error.message.startswith("the model server refuses connections: nothing listens there; start it, or correct")
    assert (error.kind, len(asked.pauses)) == ("absent", ABSENT_RETRIES)
    assert 0.4 < sum(asked.pauses) < 1.0, "a moment, but not two seconds"


async def test_a_name_that_is_not_known() -> None:
    error = await Asked("http://model.invalid/v1").failure()
    assert error.message.startswith("the host name of the model server ")
    assert error.kind == "absent"


@pytest.mark.parametrize(
    ("raised", "says"),
    [
        (socket.gaierror(socket.EAI_NONAME, "x"), "is not known; correct base_url"),
        (socket.gaierror(socket.EAI_AGAIN, "x"), "cannot be looked up now; is this machine online?"),
        (OSError(errno.ENETUNREACH, "x"), "no way from this machine to the model server; look at its network"),
    ],
)
async def test_no_name_and_no_network(monkeypatch: pytest.MonkeyPatch, raised: OSError, says: str) -> None:
    asked = Asked("http://model.invalid/v1")

    async def fail(*args: object, **named: object) -> None:
        raise raised

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", fail)
    error = await asked.failure()
    assert says in error.message
    assert (error.kind, len(asked.pauses)) == ("absent", ABSENT_RETRIES)


async def test_when_finding_out_takes_long_it_is_not_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.llm.provider_client.ABSENT_S", 0.0)
    asked = Asked(f"http://127.0.0.1:{await refused_port()}/v1")
    assert (await asked.failure()).kind == "absent"
    assert asked.pauses == []


async def test_a_server_that_comes_back_is_found() -> None:
    port = await refused_port()
    asked = Asked(f"http://127.0.0.1:{port}/v1")
    async with asyncio.timeout(DEADLINE), model_server() as server:
        server.play(chunked(sse(*text_events("here"))))

        async def start(seconds: float) -> None:
            listening.append(await asyncio.start_server(server.serve, "127.0.0.1", port))

        listening: list[asyncio.Server] = []
        asked._model._connection._pause = start
        assert await asked.text() == "here"
        for one in listening:
            one.close()


async def test_a_proxy_that_is_not_there_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    port = await refused_port()
    monkeypatch.setenv("http_proxy", f"http://user:{SECRET}@127.0.0.1:{port}")
    error = await Asked("http://model.invalid/v1").failure()
    assert error.message.startswith(f"the proxy http://127.0.0.1:{port} refuses connections: nothing listens there; ")
    assert "unset HTTP_PROXY" in error.message


async def test_no_tls(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(server.base_url.replace("http:", "https:"), request_max_retries=0)

    async def fail(*args: object, **named: object) -> None:
        raise ssl.SSLError(1, "[SSL: TLSV1_ALERT_INTERNAL_ERROR] x")

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", fail)
    error = await asked.failure()
    assert error.message.startswith("TLS with the model server failed; are base_url and its port those of an https")
    assert (error.kind, error.retryable) == ("unreachable", True)


async def test_no_http(server: ModelServer) -> None:
    server.play(Reply([b"SSH-2.0-OpenSSH_9.6\r\n"], "close"))
    error = await Asked(server.base_url, request_max_retries=0).failure()
    assert error.message.startswith("what the model server answers is no HTTP (no status line); is its base_url right?")


# --- redirects -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "location", "place"),
    [
        (301, "https://other.example/v1/responses", "to https://other.example/v1/responses"),
        (302, f"https://user:{SECRET}@other.example/x?key={SECRET}#y", "to https://other.example/x"),
        (303, f"//other.example/{SECRET}/x", "to http://other.example/[redacted]/x"),
        (307, "/login?next=1", "to http://127.0.0.1:{port}/login"),
        (308, "http://[", "and does not say where to"),
    ],
)
async def test_a_redirect_is_told_and_not_followed(server: ModelServer, code: int, location: str, place: str) -> None:
    server.play(status(code, "", f"Location: {location}"))
    asked = Asked(server.base_url)
    error = await asked.failure()
    place = place.replace("{port}", str(server.port))
    assert error.message.startswith(f"the model server redirects {place} (HTTP {code}), which is not followed")
    assert "correct base_url" in error.message
    assert (error.kind, error.http_status, error.retryable) == ("redirected", code, False)
    assert (len(server.asked), asked.pauses) == (1, [])


# --- codings ---------------------------------------------------------------------------------------------------------

EVENTS = b"".join(sse(*text_events("hello")))


@pytest.mark.parametrize(
    ("coding", "body"), [(b"gzip", gzip.compress(EVENTS)), (b"deflate", zlib.compress(EVENTS))], ids=["gzip", "deflate"]
)
async def test_a_coded_answer_is_read(server: ModelServer, coding: bytes, body: bytes) -> None:
    server.play(Reply([CODED % (coding, len(body)), *(body[n : n + 7] for n in range(0, len(body), 7))]))
    assert await Asked(server.base_url).text() == "hello"
    assert len(server.asked) == 1


async def test_a_coded_answer_that_is_cut_can_be_asked_for_again(server: ModelServer) -> None:
    coder = zlib.compressobj(wbits=31)
    body = coder.compress(EVENTS[:300]) + coder.flush(zlib.Z_SYNC_FLUSH)
    server.play(Reply([CODED % (b"gzip", len(body)), body]))
    error = await Asked(server.base_url).failure()
    assert error.message == "stream disconnected before completion: the body is not all there"
    assert (error.kind, error.retryable) == ("cut", True)


async def test_what_is_no_gzip(server: ModelServer) -> None:
    server.play(Reply([CODED % (b"gzip", len(EVENTS)), EVENTS]))
    error = await Asked(server.base_url).failure()
    assert error.message == "stream disconnected before completion: the body is not what its coding says"


async def test_a_bomb_is_refused_by_the_limit_of_events(server: ModelServer) -> None:
    body = gzip.compress(b"data: " + bytes(64 * 1024 * 1024), 1)
    server.play(Reply([CODED % (b"gzip", len(body)), body], "hang"))
    error = await Asked(server.base_url).failure()
    assert not error.retryable
    assert len(server.asked) == 1


@pytest.mark.parametrize("coding", [b"br", b"zstd", b"gzip, br"])
async def test_a_coding_that_is_not_read_is_named_and_not_tried_again(server: ModelServer, coding: bytes) -> None:
    server.play(Reply([CODED % (coding, 3), b"???"]))
    error = await Asked(server.base_url).failure()
    assert f"in the content coding `{coding.decode()}`, which is not read here; switch that off" in error.message
    assert (error.kind, error.retryable, len(server.asked)) == ("unreadable", False, 1)


async def test_a_coded_error_is_read(server: ModelServer) -> None:
    body = gzip.compress(b'{"error": {"message": "no such thing"}}')
    head = b"HTTP/1.1 404 X\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    server.play(Reply([head + body]), status(404, "???", "Content-Encoding: br"))
    read, unread = await Asked(server.base_url).failure(), await Asked(server.base_url).failure()
    assert "404 Not Found: no such thing" in read.message
    assert "404 Not Found: no text, its content coding is not read here" in unread.message
