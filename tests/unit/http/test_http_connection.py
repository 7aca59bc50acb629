"""Connections over real sockets: kept, lost, proxied, encrypted, slow or closed; and a protocol without a socket."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from model_server import DEADLINE, ModelServer, Reply, chunked, model_server, status
from treadle.http import MAX_UNREAD, ConnectionLost, HttpProtocol, IdleTimeout, NotHttp, PoolStats
from treadle.llm import Exchange, ModelError, ProviderClient, endpoint, read_provider
from treadle.llm.failure import http_failure

pytestmark = pytest.mark.anyio
PEM = Path(__file__).with_name("loopback.pem")
BODY = b'{"model": "m"}'


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with asyncio.timeout(DEADLINE), model_server() as running:
        yield running


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


class Sender:
    """A connection that sends to one place."""

    def __init__(self, base_url: str, **table: Any) -> None:
        config = read_provider("mock", {"base_url": base_url, "request_max_retries": 0, **table})
        self.connection = ProviderClient(config, http_failure)
        self._endpoint = endpoint(config, "/responses", {})

    async def send(self, body: bytes = BODY) -> Exchange:
        return await self.connection.send(self._endpoint, body)

    async def get(self, body: bytes = BODY) -> bytes:
        """The whole response."""
        exchange = await self.send(body)
        received = bytearray()
        try:
            while piece := await exchange.read():
                received += piece
        finally:
            await exchange.aclose()
        return bytes(received)

    async def failure(self) -> ModelError:
        with pytest.raises(ModelError) as caught:
            await self.get()
        return caught.value

    @property
    def idle_protocol(self) -> HttpProtocol:
        protocol = self.connection._pool._idle[-1]._protocol
        assert protocol is not None
        return protocol


HELLO = chunked([b"hello"])


# --- keeping connections ---------------------------------------------------------------------------------------------


async def test_a_kept_connection_that_ends_before_any_answer_is_replaced_without_a_word(server: ModelServer) -> None:
    server.play(HELLO, Reply([], "close"), chunked([b"again"]))
    sender = Sender(server.base_url)
    assert [await sender.get(), await sender.get()] == [b"hello", b"again"]
    assert [asked.connection for asked in server.asked] == [1, 1, 2]
    await sender.connection.close()


async def test_a_new_connection_that_ends_before_any_answer_is_a_failure(server: ModelServer) -> None:
    server.play(Reply([], "close"))
    sender = Sender(server.base_url)
    error = await sender.failure()
    assert error.message.startswith("the model server hung up before it answered, url: ")
    assert len(server.asked) == 1
    await sender.connection.close()


async def test_a_request_is_not_repeated_when_its_answer_has_begun(server: ModelServer) -> None:
    server.play(HELLO, Reply([b"HTTP/1.1 2"], "close"))
    sender = Sender(server.base_url)
    await sender.get()
    error = await sender.failure()
    assert error.message.startswith("the model server hung up")
    assert len(server.asked) == 2
    await sender.connection.close()


async def test_the_replacement_is_not_replaced(server: ModelServer) -> None:
    server.play(HELLO, Reply([], "close"), Reply([], "close"))
    sender = Sender(server.base_url)
    await sender.get()
    await sender.failure()
    assert len(server.asked) == 3
    await sender.connection.close()


@pytest.mark.parametrize("more", [b"", b"HTTP/1.1 200 OK\r\n\r\n"], ids=["it ended", "it speaks unasked"])
async def test_a_connection_that_went_bad_while_idle_is_not_used(server: ModelServer, more: bytes) -> None:
    then: Any = "hang" if more else "close"
    server.play(Reply([*HELLO.pieces, more], then, last_when_told=True), chunked([b"again"]))
    sender = Sender(server.base_url)
    assert await sender.get() == b"hello"
    protocol = sender.idle_protocol
    assert protocol.is_open
    server.told.set()
    await protocol._gone
    assert await sender.get() == b"again"
    assert [asked.connection for asked in server.asked] == [1, 2]
    assert sender.connection.stats() == PoolStats(busy=0, idle=1)
    await sender.connection.close()


async def test_a_connection_is_not_kept_for_ever(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.play(HELLO, HELLO)
    sender = Sender(server.base_url)
    await sender.get()
    monkeypatch.setattr("treadle.http.http_connection.KEEP_ALIVE_S", 0.0)
    await sender.get()
    assert [asked.connection for asked in server.asked] == [1, 2]
    await sender.connection.close()


async def test_idle_connections_are_closed_without_being_asked_for(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A burst leaves many, and perhaps no request ever comes again."""
    monkeypatch.setattr("treadle.http.http_connection.KEEP_ALIVE_S", 0.05)
    server.play(HELLO)
    sender = Sender(server.base_url)
    await sender.get()
    protocol = sender.idle_protocol
    async with asyncio.timeout(30):
        await protocol._gone
    assert sender.connection.stats() == PoolStats(busy=0, idle=0)
    await sender.connection.close()


@pytest.mark.parametrize(
    "reply",
    [
        Reply([b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello"], "hang"),
        Reply([b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello"], "hang"),
        Reply([b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello!"], "hang"),
    ],
    ids=["close", "1.0", "more than was announced"],
)
async def test_a_connection_that_cannot_be_kept_is_closed(server: ModelServer, reply: Reply) -> None:
    server.play(reply)
    sender = Sender(server.base_url)
    assert await sender.get() == b"hello"
    assert sender.connection.stats() == PoolStats(busy=0, idle=0)
    await server.gone.wait()
    await sender.connection.close()


async def test_a_response_that_has_come_but_was_not_read_does_not_cost_its_connection(server: ModelServer) -> None:
    server.play(chunked([b"first"]), chunked([b"second"]))
    sender = Sender(server.base_url)
    exchange = await sender.send()
    while not exchange._connection.is_reusable:
        assert await exchange.read()
    await exchange.aclose()
    assert await sender.get() == b"second"
    assert [asked.connection for asked in server.asked] == [1, 1]
    await sender.connection.close()


# --- sending and receiving -------------------------------------------------------------------------------------------


async def test_large_bodies_both_ways(server: ModelServer) -> None:
    large = bytes(range(256)) * 32 * 1024
    body = json.dumps({"text": "x" * 6_000_000}).encode()
    server.play(Reply([b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(large), large]), chunked([large] * 2))
    sender = Sender(server.base_url)
    assert await sender.get(body) == large
    assert await sender.get(body) == large * 2
    assert server.asked[1].body == json.loads(body)
    assert [asked.connection for asked in server.asked] == [1, 1]
    await sender.connection.close()


async def test_nothing_is_left_behind(server: ModelServer) -> None:
    """By endings of every kind, including cancellation while connecting."""
    sender = Sender(server.base_url)
    for reply in (Reply([], "close"), status(400, "no"), Reply([b"HTTP/1.1 200 OK\r\n\r\n"], "close"), HELLO):
        server.play(reply)
        with suppress(ModelError):
            await sender.get()
    server.play(*[Reply([], "hang")] * 3)
    for _ in range(3):
        task = asyncio.ensure_future(sender.get())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert sender.connection.stats().busy == 0
    await sender.connection.close()
    assert sender.connection.stats() == PoolStats(busy=0, idle=0)


async def test_a_framing_header_of_the_user_is_ours_instead(server: ModelServer) -> None:
    server.play(HELLO)
    sender = Sender(server.base_url, http_headers={"Content-Length": "3", "Transfer-Encoding": "chunked"})
    await sender.get()
    assert server.asked[0].headers["content-length"] == str(len(BODY))
    assert "transfer-encoding" not in server.asked[0].headers
    await sender.connection.close()


async def test_credentials_in_the_url(server: ModelServer) -> None:
    server.play(HELLO)
    sender = Sender(server.base_url.replace("://", "://user:pass%40word@"), experimental_bearer_token="token-of-it")
    await sender.get()
    assert server.asked[0].headers["authorization"] == "Basic dXNlcjpwYXNzQHdvcmQ="
    await sender.connection.close()


# --- TLS and proxies -------------------------------------------------------------------------------------------------


def server_context(file: Path = PEM) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


class Proxy:
    """Passes requests on to `server`, whatever they name."""

    def __init__(self, server: ModelServer, refuse: int | None) -> None:
        self.heads: list[str] = []
        self._server = server
        self._refuse = refuse
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head.decode())
        if self._refuse is not None:
            writer.write(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % self._refuse)
            writer.close()
            return
        there, back = await asyncio.open_connection("127.0.0.1", self._server.port)
        if head.startswith(b"CONNECT"):
            writer.write(b"HTTP/1.1 200 Go on\r\nTransfer-Encoding: chunked\r\n\r\n")
        else:
            back.write(head)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pump(reader, back))
            tasks.create_task(self._pump(there, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
        except ConnectionError:
            pass  # the end of a connection, as any other
        finally:
            writer.close()


@asynccontextmanager
async def proxy_to(
    server: ModelServer, *, refuse: int | None = None, context: ssl.SSLContext | None = None
) -> AsyncIterator[Proxy]:
    proxy = Proxy(server, refuse)
    listening = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, ssl=context)
    scheme = "http" if context is None else "https"
    proxy.url = f"{scheme}://us%40er:secret@127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        listening.close()


BASIC = "Proxy-Authorization: Basic dXNAZXI6c2VjcmV0"


async def test_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(PEM))
    async with asyncio.timeout(DEADLINE), model_server(server_context()) as server:
        server.play(HELLO, HELLO)
        sender = Sender(server.base_url)
        await sender.connection.warm_up()
        assert [await sender.get(), await sender.get()] == [b"hello", b"hello"]
        assert [asked.connection for asked in server.asked] == [1, 1]
        await sender.connection.close()


async def test_tls_with_a_server_that_nobody_vouches_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    async with asyncio.timeout(DEADLINE), model_server(server_context()) as server:
        sender = Sender(server.base_url)
        error = await sender.failure()
        assert error.message.startswith("the certificate of the model server is self-signed; if you trust it, set ")
        assert "SSL_CERT_FILE" in error.message
        assert not error.retryable
        assert server.asked == []
        await sender.connection.close()


@pytest.mark.parametrize(
    ("file", "trusted", "host", "says"),
    [
        ("issued.pem", None, "127.0.0.1", "is from an issuer that is not known here; if you trust it, set "),
        ("expired.pem", "expired.pem", "127.0.0.1", "has expired; it has to be renewed there"),
        ("loopback.pem", "loopback.pem", "127.1", "is for another host name; correct base_url"),
    ],
)
async def test_what_is_wrong_with_a_certificate_is_told_and_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, file: str, trusted: str | None, host: str, says: str
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    if trusted is not None:
        monkeypatch.setenv("SSL_CERT_FILE", str(PEM.with_name(trusted)))
    async with asyncio.timeout(DEADLINE), model_server(server_context(PEM.with_name(file))) as server:
        sender = Sender(server.base_url.replace("127.0.0.1", host), request_max_retries=2)
        error = await sender.failure()
        assert error.message.startswith(f"the certificate of the model server {says}")
        assert (error.kind, error.retryable) == ("untrusted", False)
        assert server.asked == []
        await sender.connection.close()


async def test_a_server_without_tls_is_named_so() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with asyncio.timeout(DEADLINE), await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
        sender = Sender(f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1")
        error = await sender.failure()
        assert "does not speak TLS; is its base_url http://" in error.message
        assert not error.retryable
        await sender.connection.close()


@pytest.mark.parametrize("encrypted", [False, True], ids=["http proxy", "https proxy"])
async def test_a_proxy_is_asked_by_whole_urls(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch, encrypted: bool
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(PEM))
    server.play(HELLO, HELLO)
    async with proxy_to(server, context=server_context() if encrypted else None) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        sender = Sender("http://model.invalid:81/v1")
        assert [await sender.get(), await sender.get()] == [b"hello", b"hello"]
        first, *headers = proxy.heads[0].strip().split("\r\n")
        assert first == "POST http://model.invalid:81/v1/responses HTTP/1.1"
        assert headers == ["Host: model.invalid:81", BASIC, f"Content-Length: {len(BODY)}"]
        assert [asked.connection for asked in server.asked] == [1, 1]
        await sender.connection.close()


@pytest.mark.parametrize("encrypted", [False, True], ids=["http proxy", "https proxy"])
async def test_tls_goes_through_a_tunnel(monkeypatch: pytest.MonkeyPatch, encrypted: bool) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(PEM))
    async with asyncio.timeout(DEADLINE), model_server(server_context()) as server:
        server.play(HELLO, HELLO)
        async with proxy_to(server, context=server_context() if encrypted else None) as proxy:
            monkeypatch.setenv("https_proxy", proxy.url)
            sender = Sender("https://model.invalid/v1")
            assert [await sender.get(), await sender.get()] == [b"hello", b"hello"]
            (head,) = proxy.heads
            assert head.strip().split("\r\n") == [
                *("CONNECT model.invalid:443 HTTP/1.1", "Host: model.invalid:443", "Accept: */*", BASIC)
            ]
            assert [asked.connection for asked in server.asked] == [1, 1]
            assert "proxy-authorization" not in server.asked[0].headers
            await sender.connection.close()


async def test_a_proxy_that_refuses(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with proxy_to(server, refuse=407) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        sender = Sender("https://model.invalid/v1")
        error = await sender.failure()
        assert error.message.startswith("the proxy refuses the way to the model server (HTTP 407), url: https://model")
        assert "secret" not in repr(error) + str(error)
        assert error.retryable
        await sender.connection.close()


async def test_no_proxy(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.0/8")
    server.play(HELLO)
    sender = Sender(server.base_url)
    assert await sender.get() == b"hello"
    await sender.connection.close()


async def test_socks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", "socks5://127.0.0.1:9")
    sender = Sender("https://model.invalid/v1", request_max_retries=3)
    error = await sender.failure()
    assert "SOCKS proxy, which is not supported" in error.message
    assert not error.retryable
    await sender.connection.close()


async def test_a_name_with_several_addresses(server: ModelServer) -> None:
    server.play(HELLO)
    sender = Sender(server.base_url.replace("127.0.0.1", "localhost"))
    assert await sender.get() == b"hello"
    assert server.asked[0].headers["host"] == f"localhost:{server.port}"
    await sender.connection.close()


async def test_a_server_that_does_not_take_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """It accepts, and is silent where a TLS handshake should be."""
    monkeypatch.setattr("treadle.http.http_connection.CONNECT_S", 0.1)
    async with asyncio.timeout(DEADLINE), model_server() as server:
        sender = Sender(server.base_url.replace("http:", "https:"))
        error = await sender.failure()
        assert error.message.startswith("no connection to the model server within 30 s")
        await sender.connection.close()


# --- a protocol with no socket ---------------------------------------------------------------------------------------


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.reading = True
        self.closing = False

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.closing = True


def connected(idle_timeout_s: float = DEADLINE) -> tuple[HttpProtocol, Transport]:
    protocol, transport = HttpProtocol(idle_timeout_s), Transport()
    protocol.connection_made(transport)
    return protocol, transport


async def test_what_is_not_read_stops_the_reading() -> None:
    protocol, transport = connected()
    protocol.send(b"request")
    protocol.data_received(b"HTTP/1.1 200 OK\r\n\r\n" + bytes(MAX_UNREAD))
    assert transport.reading
    protocol.data_received(b"x")
    assert not transport.reading
    assert (await protocol.read_head()).status == 200
    assert len(await protocol.read()) == MAX_UNREAD + 1
    assert transport.reading


async def test_what_is_there_is_read_without_a_pause_and_in_one_piece() -> None:
    protocol, _ = connected()
    protocol.send(b"request")
    protocol.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\na")
    protocol.data_received(b"bc")
    protocol.data_received(b"d")
    for coroutine, expected in ((protocol.read(), b"abcd"), (protocol.read(), b"")):
        with pytest.raises(StopIteration) as returned:
            coroutine.send(None)
        assert returned.value.value == expected
    assert protocol.is_reusable


@pytest.mark.parametrize("stuck", ["sending", "the head", "the body"])
async def test_silence(stuck: str) -> None:
    protocol, _ = connected(0.01)
    protocol.send(b"request")
    if stuck == "sending":
        protocol.pause_writing()
    if stuck == "the body":
        protocol.data_received(b"HTTP/1.1 200 OK\r\n\r\n")
        await protocol.read_head()
    with pytest.raises(IdleTimeout):
        await (protocol.read() if stuck == "the body" else protocol.read_head())


async def test_an_answer_may_come_before_the_request_is_sent() -> None:
    protocol, _ = connected()
    protocol.send(b"request")
    protocol.pause_writing()
    waiting = asyncio.ensure_future(protocol.read_head())
    await asyncio.sleep(0)
    protocol.data_received(b"HTTP/1.1 413 Too large\r\nContent-Length: 0\r\n\r\n")
    async with asyncio.timeout(DEADLINE):
        assert (await waiting).status == 413


async def test_what_came_is_read_before_the_end_is_told() -> None:
    protocol, _ = connected()
    protocol.send(b"request")
    protocol.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab")
    protocol.connection_lost(ConnectionResetError())
    assert (await protocol.read_head()).status == 200
    assert await protocol.read() == b"ab"
    with pytest.raises(ConnectionLost) as caught:
        await protocol.read()
    assert caught.value.began


async def test_what_is_no_http_ends_the_connection() -> None:
    protocol, transport = connected()
    protocol.send(b"request")
    protocol.data_received(b"SSH-2.0-\r\n")
    assert transport.closing
    with pytest.raises(NotHttp):
        await protocol.read_head()


async def test_one_reader_at_a_time() -> None:
    protocol, _ = connected()
    with pytest.raises(RuntimeError, match="nothing was sent"):
        await protocol.read()
    protocol.send(b"request")
    first = asyncio.ensure_future(protocol.read_head())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="two tasks"):
        await protocol.read_head()
    protocol.close()
    with pytest.raises(ConnectionLost):
        await first


# --- what is loaded --------------------------------------------------------------------------------------------------

PROGRAM = """
import asyncio, sys
from treadle.llm.model import ModelRequest
from treadle.llm.provider import read_provider
from treadle.llm.provider_model import ProviderModel

async def main(url):
    model = ProviderModel(read_provider("mock", {"base_url": url}))
    await model.warm_up()
    async with model.stream(ModelRequest(model="m", input=[])) as stream:
        print([type(event).__name__ async for event in stream])
    await model.close()

asyncio.run(main(sys.argv[1]))
print(sorted({"httpx2", "httpcore2", "h11", "anyio", "urllib.request"} & set(sys.modules)))
"""


async def test_a_request_without_tls_loads_no_http_library(server: ModelServer) -> None:
    server.play(chunked([b'data: {"type": "response.completed", "response": {"id": "r"}}\n\n']))
    ran = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", PROGRAM, server.base_url],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert (ran.stdout, ran.stderr) == ("['Completed']\n[]\n", "")
