"""RFC 6455 by bytes over real sockets: what a peer of ours may send, and how each breach of a rule ends.

Each case runs against our listener and against our client. The other side is plain sockets and frames made by hand.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from channel_pair import DEADLINE_S, Acceptor, Recorder
from treadle.errors import ChannelClosed
from treadle.transport import MAX_FRAME, Address, Channel, connect
from websocket_wire import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    Seen,
    close_frame,
    frame,
    frames_in,
    upgrade_answer,
    upgrade_request,
)

pytestmark = pytest.mark.anyio

ROLES = pytest.mark.parametrize("role", ["server", "client"])
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Bytes = Callable[[bool], bytes]
"""What the peer sends, when it has to mask and when it must not."""


def _f(opcode: int, payload: bytes = b"", *, final: bool = True, reserved: int = 0, long: int | None = None) -> Bytes:
    return lambda masked: frame(opcode, payload, masked=masked, final=final, reserved=reserved, length_bytes=long)


def _c(code: int, reason: bytes = b"") -> Bytes:
    return lambda masked: close_frame(code, reason, masked=masked)


class Opened(NamedTuple):
    channel: Channel
    recorder: Recorder
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ours(self) -> list[Seen]:
        """All that our side sends until it hangs up, when the peer sends nothing more."""
        async with asyncio.timeout(DEADLINE_S):
            return frames_in(await self.reader.read())


@pytest.fixture
async def acceptor() -> AsyncIterator[Acceptor]:
    acceptor = Acceptor()
    yield acceptor
    await acceptor.close()


async def _as_server(acceptor: Acceptor) -> Opened:
    address = await acceptor.open("ws://127.0.0.1:0")
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(upgrade_request())
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
    return _opened(await acceptor.next(), reader, writer)


def _opened(channel: Channel, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Opened:
    recorder = Recorder()
    channel.attach(recorder)
    return Opened(channel, recorder, reader, writer)


@asynccontextmanager
async def _plain_server(answer: Callable[[bytes], bytes]) -> AsyncIterator[tuple[Address, asyncio.Queue[Streams]]]:
    """Answers each upgrade with what `answer` makes of it; the streams of the connections come by the queue."""
    streams: asyncio.Queue[Streams] = asyncio.Queue()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(await reader.readuntil(b"\r\n\r\n")))
        streams.put_nowait((reader, writer))

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()[:2]
        yield Address("ws", host, port, "/"), streams
    finally:
        server.close()


@asynccontextmanager
async def _peer(role: str, acceptor: Acceptor) -> AsyncIterator[Opened]:
    if role == "server":
        opened = await _as_server(acceptor)
    else:
        async with _plain_server(upgrade_answer) as (address, streams):
            channel = await connect(address)
            reader, writer = await asyncio.wait_for(streams.get(), DEADLINE_S)
            opened = _opened(channel, reader, writer)
    try:
        yield opened
    finally:
        opened.channel.abort()
        opened.writer.close()


PIECES = (_f(TEXT, b"one ", final=False), _f(0, b"two ", final=False), _f(0, b"three"))
ACCEPTED: dict[str, tuple[tuple[Bytes, ...], list[bytes]]] = {
    "text": ((_f(TEXT, b"x"),), [b"x"]),
    "an empty text": ((_f(TEXT),), [b""]),
    "binary": ((_f(BINARY, b"\xff\x00"),), [b"\xff\x00"]),
    "lengths at their marks": (
        tuple(_f(TEXT, b"x" * size) for size in (125, 126, 65535, 65536)),
        [b"x" * size for size in (125, 126, 65535, 65536)],
    ),
    "fragments": (PIECES, [b"one two three"]),
    "empty fragments": ((_f(TEXT, final=False), _f(0, final=False), _f(0)), [b""]),
    "control frames between fragments": (
        (PIECES[0], _f(PING, b"a"), PIECES[1], _f(PONG, b"b"), _f(PING, b"c"), PIECES[2]),
        [b"one two three"],
    ),
    "a character cut by fragments": ((_f(TEXT, b"\xe2\x82", final=False), _f(0, b"\xac")), ["€".encode()]),
    "binary fragments that are not UTF-8": ((_f(BINARY, b"\xff", final=False), _f(0, b"\xfe")), [b"\xff\xfe"]),
    "a pong nobody asked for": ((_f(PONG, b"?"), _f(TEXT, b"x")), [b"x"]),
    "a control frame of 125 bytes": ((_f(PING, b"x" * 125), _f(TEXT, b"x")), [b"x"]),
}
REFUSED: dict[str, tuple[tuple[Bytes, ...], int]] = {
    "text that is not UTF-8": ((_f(TEXT, b"a\xff"),), 1007),
    "text with half a surrogate": ((_f(TEXT, b"\xed\xa0\x80"),), 1007),
    "text that ends inside a character": ((_f(TEXT, b"\xe2\x82"),), 1007),
    "fragments that are not UTF-8 together": ((_f(TEXT, b"\xe2\x82", final=False), _f(0, b"x")), 1007),
    "a short length in two bytes": ((_f(TEXT, b"x" * 125, long=2),), 1002),
    "a short length in eight bytes": ((_f(TEXT, b"x" * 125, long=8),), 1002),
    "a medium length in eight bytes": (
        (lambda masked: struct.pack("!BBQ", 0x81, 0xFF if masked else 0x7F, 65535),),
        1002,
    ),
    "a binary frame with such a length": ((_f(BINARY, b"x", long=2),), 1002),
    "a length below zero": ((lambda masked: struct.pack("!BBQ", 0x82, 0xFF if masked else 0x7F, 1 << 63),), 1002),
    "close code 999": ((_c(999),), 1002),
    "close code 1005": ((_c(1005),), 1002),
    "close code 1006": ((_c(1006),), 1002),
    "close code 1015": ((_c(1015),), 1002),
    "close code 5000": ((_c(5000),), 1002),
    "half a close code": ((_f(CLOSE, b"\x03"),), 1002),
    "a close reason that is not UTF-8": ((_c(1000, b"\xff"),), 1007),
    "close inside a message": ((_f(TEXT, b"x", final=False), _c(1000)), 1002),
    **{f"reserved bit {bit:#x}": ((_f(TEXT, b"x", reserved=bit),), 1002) for bit in (0x40, 0x20, 0x10)},
    **{f"opcode {opcode}": ((_f(opcode, b"x"),), 1002) for opcode in (3, 7, 11, 15)},
    "a fragmented ping": ((_f(PING, b"x", final=False),), 1002),
    "a ping of 126 bytes": ((_f(PING, b"x" * 126),), 1002),
    "a close of 126 bytes": ((_c(1000, b"x" * 124),), 1002),
    "the header alone of a long ping": ((lambda masked: bytes((0x89, 0xFF if masked else 0x7F)),), 1002),
    "a continuation of nothing": ((_f(0, b"x"),), 1002),
    "a continuation of a whole message": ((_f(TEXT, b"x"), _f(0, b"x")), 1002),
    "a new message inside another": ((_f(TEXT, b"x", final=False), _f(TEXT, b"x")), 1002),
    "the wrong masking": ((lambda masked: frame(TEXT, b"x", masked=not masked),), 1002),
    "the wrong masking of a ping": ((lambda masked: frame(PING, b"x", masked=not masked),), 1002),
    "the header alone of a frame over the limit": (
        (lambda masked: struct.pack("!BBQ", 0x81, 0xFF if masked else 0x7F, MAX_FRAME + 1),),
        1009,
    ),
}


@ROLES
@pytest.mark.parametrize("case", ACCEPTED)
async def test_what_the_rules_allow_arrives(role: str, case: str, acceptor: Acceptor) -> None:
    parts, messages = ACCEPTED[case]
    to_server = role == "server"
    stream = b"".join(part(to_server) for part in parts)
    async with _peer(role, acceptor) as peer:
        peer.writer.write(stream + close_frame(1000, masked=to_server))
        await peer.recorder.closed()
        assert peer.recorder.frames == messages
        answers = await peer.ours()
        assert all(seen.masked is not to_server for seen in answers)
        pings = [seen.payload for seen in frames_in(stream) if seen.opcode == PING]
        assert [(seen.opcode, seen.payload) for seen in answers] == [
            *((PONG, payload) for payload in pings),
            (CLOSE, b"\x03\xe8"),
        ]


@ROLES
@pytest.mark.parametrize("case", REFUSED)
async def test_a_breach_of_the_rules_ends_the_connection_with_its_code(
    role: str, case: str, acceptor: Acceptor
) -> None:
    parts, code = REFUSED[case]
    to_server = role == "server"
    async with _peer(role, acceptor) as peer:
        whole = [frame(TEXT, b"good", masked=to_server), *(part(to_server) for part in parts)]
        peer.writer.write(b"".join(whole) + frame(TEXT, b"too late", masked=to_server))
        await peer.recorder.closed()
        assert peer.recorder.frames[0] == b"good"
        assert b"too late" not in peer.recorder.frames
        closing = (await peer.ours())[-1]
        assert (closing.opcode, int.from_bytes(closing.payload[:2], "big")) == (CLOSE, code)


@ROLES
@pytest.mark.parametrize("code", [1000, 1001, 1011, 3000, 4999])
async def test_a_close_is_answered_and_told(role: str, code: int, acceptor: Acceptor) -> None:
    async with _peer(role, acceptor) as peer:
        peer.writer.write(close_frame(code, "bye €".encode(), masked=role == "server"))
        await peer.recorder.closed()
        assert peer.recorder.reasons == [f"the peer closed the connection (code {code})"]
        assert [seen.opcode for seen in await peer.ours()] == [CLOSE]


@ROLES
async def test_our_close_comes_once_and_waits_for_the_peers(role: str, acceptor: Acceptor) -> None:
    async with _peer(role, acceptor) as peer:
        peer.channel.send(b"last")
        peer.channel.close()
        to_server = role == "server"
        peer.writer.write(frame(PING, b"?", masked=to_server) + close_frame(1000, masked=to_server))
        peer.writer.write_eof()
        assert [(seen.opcode, seen.payload) for seen in await peer.ours()] == [(TEXT, b"last"), (CLOSE, b"\x03\xe8")]
        await peer.recorder.closed()


@ROLES
async def test_an_end_without_a_close_is_told(role: str, acceptor: Acceptor) -> None:
    async with _peer(role, acceptor) as peer:
        peer.writer.write(frame(TEXT, b"half a message", masked=role == "server")[:-3])
        peer.writer.write_eof()
        await peer.recorder.closed()
        assert peer.recorder.frames == []
        assert peer.recorder.reasons == ["the peer closed the connection without a closing handshake"]


# --- handshakes ---


@pytest.mark.parametrize(
    "request_head",
    [
        upgrade_request(without="Upgrade"),
        upgrade_request(without="Connection"),
        upgrade_request(without="Sec-WebSocket-Key"),
        upgrade_request(without="Sec-WebSocket-Version"),
        upgrade_request(Upgrade="h2c"),
        upgrade_request(Connection="keep-alive"),
        upgrade_request(Sec_WebSocket_Key="short"),
        upgrade_request(Sec_WebSocket_Key="not base64, this one!!!!"),
        upgrade_request(Sec_WebSocket_Version="8"),
    ],
)
async def test_a_request_that_is_no_upgrade_is_refused(request_head: bytes, acceptor: Acceptor) -> None:
    address = await acceptor.open("ws://127.0.0.1:0")
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(request_head)
    async with asyncio.timeout(DEADLINE_S):
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"expected a WebSocket upgrade (version 13)" in answer
    writer.close()


async def test_no_extension_is_agreed_on(acceptor: Acceptor) -> None:
    address = await acceptor.open("ws://127.0.0.1:0")
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(upgrade_request(Sec_WebSocket_Extensions="permessage-deflate; client_max_window_bits"))
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), DEADLINE_S)
    assert answer.startswith(b"HTTP/1.1 101 ")
    assert b"extensions" not in answer.lower()
    (await acceptor.next()).abort()
    writer.close()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"without": "Upgrade"}, "missing Upgrade header"),
        ({"without": "Connection"}, "missing Connection header"),
        ({"without": "Sec-WebSocket-Accept"}, "missing Sec-WebSocket-Accept header"),
        ({"Upgrade": "h2c"}, "invalid Upgrade header"),
        ({"Sec_WebSocket_Accept": "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="}, "invalid Sec-WebSocket-Accept header"),
        ({"Sec_WebSocket_Extensions": "permessage-deflate"}, "no extensions supported"),
        ({"Sec_WebSocket_Protocol": "chat"}, "no subprotocols supported"),
    ],
)
async def test_an_answer_that_is_no_agreement_is_refused(changes: dict[str, str], text: str) -> None:
    async with _plain_server(lambda request: upgrade_answer(request, **changes)) as (address, streams):
        with pytest.raises(ChannelClosed, match=f"handshake does not match the request: {text}"):
            await connect(address)
        _, writer = await asyncio.wait_for(streams.get(), DEADLINE_S)
        writer.close()
