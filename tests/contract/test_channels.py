"""One suite over every transport: the same `Channel`, whatever carries it."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from treadle.errors import ChannelClosed
from treadle.transport import Address, Channel, memory_pair
from treadle.transport.connect import connect
from treadle.transport.listen import Listener, ListenError, listen
from treadle.transport.stdio import stdio_channel
from treadle.transport.stream import StreamChannel

pytestmark = pytest.mark.anyio

DEADLINE_S = 60
TRANSPORTS = ("memory", "websocket", "unix", "stdio")
# More than any transport may hold between two programs: its own mark, the kernel's buffers, a frame.
MAX_HELD = 24 << 20
FRAME = b"x" * (64 << 10)

Pair = tuple[Channel, Channel]


class Recorder:
    """Keeps what arrives, in order; `react` is called with each frame."""

    def __init__(self, react: Callable[[bytes], None] | None = None) -> None:
        self.frames: list[bytes] = []
        self.reasons: list[str] = []
        self.writable = 0
        self.log: list[str] = []
        self._react = react
        self._changed = asyncio.Event()

    def frame_received(self, frame: bytes) -> None:
        self.frames.append(frame)
        self._note("frame")
        if self._react is not None:
            self._react(frame)

    def channel_closed(self, reason: str) -> None:
        self.reasons.append(reason)
        self._note("closed")

    def channel_writable(self) -> None:
        self.writable += 1
        self._note("writable")

    def _note(self, what: str) -> None:
        self.log.append(what)
        self._changed.set()

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not true():
                self._changed.clear()
                await self._changed.wait()

    async def count(self, frames: int) -> list[bytes]:
        await self.until(lambda: len(self.frames) >= frames)
        return self.frames

    async def closed(self) -> None:
        await self.until(lambda: bool(self.reasons))


class Acceptor:
    """A listener and the channels that come in."""

    def __init__(self) -> None:
        self.channels: asyncio.Queue[Channel] = asyncio.Queue()
        self._listener: Listener | None = None

    async def open(self, url: str, *, token: str | None = None) -> Address:
        self._listener = await listen(Address.parse(url), self.channels.put_nowait, token=token)
        return Address.parse(self._listener.url)

    async def next(self) -> Channel:
        async with asyncio.timeout(DEADLINE_S):
            return await self.channels.get()

    async def close(self) -> None:
        if self._listener is not None:
            await self._listener.close()
        while not self.channels.empty():
            self.channels.get_nowait().abort()


@pytest.fixture
async def acceptor() -> AsyncIterator[Acceptor]:
    acceptor = Acceptor()
    yield acceptor
    await acceptor.close()


async def _open(transport: str, acceptor: Acceptor, folder: Path) -> Pair:
    if transport == "memory":
        return memory_pair()
    if transport == "stdio":
        (read_one, write_one), (read_two, write_two) = os.pipe(), os.pipe()
        return await stdio_channel(read_one, write_two, "one"), await stdio_channel(read_two, write_one, "two")
    address = await acceptor.open("ws://127.0.0.1:0" if transport == "websocket" else f"unix://{folder}/s")
    client = await connect(address)
    return client, await acceptor.next()


@pytest.fixture(params=[f"{name}-{side}" for name in TRANSPORTS for side in ("first", "second")])
async def pair(request: pytest.FixtureRequest, acceptor: Acceptor, tmp_path: Path) -> AsyncIterator[Pair]:
    """Two joined channels, nobody attached. Every test runs with either side (client, server) as the left one."""
    transport, side = request.param.split("-")
    one, two = await _open(transport, acceptor, tmp_path)
    yield (one, two) if side == "first" else (two, one)
    for channel in (one, two):
        channel.abort()
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(one.wait_closed(), two.wait_closed())
    await _turns()


def _attach(pair: Pair) -> tuple[Recorder, Recorder]:
    recorders = Recorder(), Recorder()
    for channel, recorder in zip(pair, recorders, strict=True):
        channel.attach(recorder)
    return recorders


async def _turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def _fill(channel: Channel) -> int:
    """Send until the channel asks to stop; how many frames that took."""
    for number in range(1, MAX_HELD // len(FRAME)):
        channel.send(str(number).encode() + FRAME)
        if not channel.writable:
            return number
        await asyncio.sleep(0)
    raise AssertionError(f"{MAX_HELD} bytes were taken for a peer that does not read")


# --- frames ----------------------------------------------------------------------------------------------------------


async def test_frames_arrive_complete_and_in_order_in_both_directions(pair: Pair) -> None:
    left, right = pair
    at_left, at_right = _attach(pair)
    to_right = [f"right {number} ".encode() * (number * 7 % 300 + 1) for number in range(300)]
    to_left = [f"left {number} ".encode() * (number * 11 % 500 + 1) for number in range(300)]
    expected = [frame.strip() for frame in to_right], [frame.strip() for frame in to_left]
    for one, two in zip(*expected, strict=True):
        left.send(one)
        right.send(two)
    assert await at_right.count(300) == expected[0]
    assert await at_left.count(300) == expected[1]
    assert not at_left.reasons
    assert not at_right.reasons
    assert (left.stats().frames_out, left.stats().frames_in) == (300, 300)


async def test_big_frames(pair: Pair) -> None:
    left, right = pair
    at_left, at_right = _attach(pair)
    big = bytes(range(33, 127)) * (5_000_000 // 94)
    left.send(big)
    right.send(big)
    left.send(b"after")
    assert await at_right.count(2) == [big, b"after"]
    assert await at_left.count(1) == [big]


async def test_frames_of_before_the_receiver_wait_for_it(pair: Pair) -> None:
    left, right = pair
    left.attach(Recorder())
    for number in range(20):
        left.send(b"%d" % number)
    await _turns()
    at_right = Recorder()
    right.attach(at_right)
    assert await at_right.count(20) == [b"%d" % number for number in range(20)]


async def test_only_one_receiver(pair: Pair) -> None:
    _attach(pair)
    for channel in pair:
        with pytest.raises(RuntimeError):
            channel.attach(Recorder())


# --- flow ------------------------------------------------------------------------------------------------------------


async def test_nothing_is_delivered_while_paused_and_all_of_it_after(pair: Pair) -> None:
    left, right = pair
    at_left, at_right = _attach(pair)
    right.pause()
    for number in range(50):
        left.send(b"%d" % number)
    right.send(b"the other way is open")
    await at_left.count(1)
    await _turns()
    assert at_right.frames == []
    right.resume()
    assert await at_right.count(50) == [b"%d" % number for number in range(50)]


async def test_receiver_may_pause_after_each_frame(pair: Pair) -> None:
    left, right = pair
    at_right = Recorder(lambda _: right.pause())
    left.attach(Recorder())
    right.attach(at_right)
    for number in range(10):
        left.send(b"%d" % number)
    for number in range(10):
        await at_right.count(number + 1)
        await _turns()
        assert at_right.frames == [b"%d" % earlier for earlier in range(number + 1)]
        right.resume()


async def test_peer_that_does_not_read_is_felt_and_memory_stays_bounded(pair: Pair) -> None:
    left, right = pair
    at_left, at_right = _attach(pair)
    right.pause()
    sent = await _fill(left)
    assert left.pending <= 2 << 20
    assert left.stats().pending_bytes == left.pending
    assert at_left.writable == 0
    right.resume()
    frames = await at_right.count(sent)
    assert frames == [str(number).encode() + FRAME for number in range(1, sent + 1)]
    await at_left.until(lambda: at_left.writable == 1)
    assert left.writable
    assert left.pending == 0


async def test_flow_can_stop_and_go_on_many_times(pair: Pair) -> None:
    left, right = pair
    at_left, at_right = _attach(pair)
    total = 0
    for round_number in range(1, 4):
        right.pause()
        total += await _fill(left)
        right.resume()
        await at_right.count(total)
        await at_left.until(lambda expected=round_number: at_left.writable == expected)  # type: ignore[misc]
    assert at_right.log.count("frame") == total


# --- endings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["close", "abort"])
async def test_end_is_told_to_both_sides_exactly_once(pair: Pair, verb: str) -> None:
    left, right = pair
    at_left, at_right = _attach(pair)
    left.send(b"hello")
    await at_right.count(1)
    getattr(left, verb)()
    await at_left.closed()
    await at_right.closed()
    for channel in (left, right, left):
        channel.close()
        channel.abort()
    await _turns()
    for channel, recorder in ((left, at_left), (right, at_right)):
        assert channel.closed
        assert len(recorder.reasons) == 1
        assert recorder.reasons[0]
        assert recorder.log[-1] == "closed"
        async with asyncio.timeout(DEADLINE_S):
            await channel.wait_closed()


async def test_both_may_close_at_the_same_time(pair: Pair) -> None:
    left, right = pair
    at_left, at_right = _attach(pair)
    left.close()
    right.close()
    await at_left.closed()
    await at_right.closed()
    await _turns()
    assert (len(at_left.reasons), len(at_right.reasons)) == (1, 1)


async def test_frames_sent_right_before_the_close_arrive(pair: Pair) -> None:
    left, right = pair
    _, at_right = _attach(pair)
    frames = [b"%d " % number + FRAME for number in range(40)]
    for frame in frames:
        left.send(frame)
    left.close()
    await at_right.closed()
    assert at_right.frames == frames
    assert at_right.log[-1] == "closed"


async def test_frames_before_the_close_arrive_also_when_the_other_side_was_writing(pair: Pair) -> None:
    """A socket that is closed with unread input is reset, and that would drop what it has not sent yet."""
    left, right = pair
    _, at_right = _attach(pair)
    left.pause()
    for number in range(8):
        right.send(b"unread %d " % number + FRAME)
    await _turns(50)
    frames = [b"%d " % number + FRAME for number in range(40)]
    for frame in frames:
        left.send(frame)
    left.close()
    await at_right.closed()
    assert at_right.frames == frames


async def test_frames_before_the_close_wait_for_a_paused_receiver(pair: Pair) -> None:
    left, right = pair
    left.attach(Recorder())
    at_right = Recorder(lambda _: right.pause())
    right.attach(at_right)
    for number in range(5):
        left.send(b"%d" % number)
    left.close()
    for number in range(5):
        await at_right.count(number + 1)
        await _turns()
        assert at_right.frames == [b"%d" % earlier for earlier in range(number + 1)]
        assert not at_right.reasons
        right.resume()
    await at_right.closed()


async def test_frames_and_close_of_before_the_receiver_wait_for_it(pair: Pair) -> None:
    left, right = pair
    left.attach(Recorder())
    for number in range(5):
        left.send(b"%d" % number)
    left.close()
    await _turns()
    at_right = Recorder()
    right.attach(at_right)
    await at_right.closed()
    assert at_right.frames == [b"%d" % number for number in range(5)]
    assert at_right.reasons == at_right.reasons[:1]


@pytest.mark.parametrize("verb", ["close", "abort"])
async def test_nothing_is_delivered_after_the_end(pair: Pair, verb: str) -> None:
    left, right = pair
    at_left = Recorder(lambda frame: getattr(left, verb)() if frame == b"5" else None)
    left.attach(at_left)
    right.attach(Recorder())
    for number in range(50):
        right.send(b"%d" % number)
    await at_left.closed()
    await _turns()
    assert at_left.frames == [b"%d" % number for number in range(6)]
    assert at_left.log[-1] == "closed"


@pytest.mark.parametrize("verb", ["close", "abort"])
async def test_receiver_that_ends_the_channel_while_it_is_attached_is_told_once(pair: Pair, verb: str) -> None:
    left, right = pair
    left.attach(Recorder())
    left.send(b"first")
    left.send(b"second")
    await _turns()
    at_right = Recorder(lambda _: getattr(right, verb)())
    right.attach(at_right)
    await at_right.closed()
    await _turns()
    assert at_right.frames == [b"first"]
    assert len(at_right.reasons) == 1


async def test_receiver_of_an_ended_channel_is_told_at_once(pair: Pair) -> None:
    left, _ = pair
    left.abort()
    recorder = Recorder()
    left.attach(recorder)
    assert recorder.log == ["closed"]
    await _turns()
    assert recorder.log == ["closed"]
    if isinstance(left, StreamChannel):
        assert left._timer is None  # no keepalive for what is dead


@pytest.mark.parametrize("verb", ["close", "abort"])
async def test_what_is_sent_after_the_end_is_dropped(pair: Pair, verb: str) -> None:
    left, right = pair
    at_left, at_right = _attach(pair)
    left.send(b"before")
    await at_right.count(1)
    getattr(left, verb)()
    left.send(b"after")
    await at_left.closed()
    await at_right.closed()
    left.send(b"long after")
    right.send(b"long after")
    await _turns()
    assert at_right.frames == [b"before"]
    assert left.pending == 0
    assert right.pending == 0


async def test_blocked_channel_can_be_aborted(pair: Pair) -> None:
    left, right = pair
    at_left, _ = _attach(pair)
    right.pause()
    await _fill(left)
    left.abort()
    await at_left.closed()
    await _turns()
    assert left.pending == 0
    assert at_left.log == ["closed"]


# --- sockets ---------------------------------------------------------------------------------------------------------


async def test_small_messages_leave_at_once_from_both_ends(acceptor: Acceptor) -> None:
    client = await connect(await acceptor.open("ws://127.0.0.1:0"))
    server = await acceptor.next()
    for channel in (client, server):
        assert isinstance(channel, StreamChannel)
        assert channel._writer is not None
        sock = channel._writer.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        channel.abort()


async def test_unix_socket_is_for_its_owner_only_and_goes_with_its_listener(acceptor: Acceptor, tmp_path: Path) -> None:
    path = tmp_path / "s"
    mask = os.umask(0)
    try:
        await acceptor.open(f"unix://{path}")
        assert os.umask(0) == 0
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    await acceptor.close()
    assert not path.exists()


async def test_stale_unix_socket_is_replaced(acceptor: Acceptor, tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    client = await connect(await acceptor.open(f"unix://{path}"))
    client.abort()


async def test_live_unix_socket_is_not_replaced(acceptor: Acceptor, tmp_path: Path) -> None:
    address = await acceptor.open(f"unix://{tmp_path}/s")
    with pytest.raises(ListenError, match="another server"):
        await listen(address, lambda _: None)
    (await connect(address)).abort()


@pytest.mark.parametrize("place", ["file", "file/below", "missing/s", "x" * 200])
async def test_unix_socket_that_cannot_be_made(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(ListenError, match="cannot listen on unix://"):
        await listen(Address.parse(f"unix://{tmp_path}/{place}"), lambda _: None)
    assert (tmp_path / "file").read_text() == "precious"


async def test_port_that_is_taken(acceptor: Acceptor) -> None:
    address = await acceptor.open("ws://127.0.0.1:0")
    with pytest.raises(ListenError, match="in use"):
        await listen(address, lambda _: None)


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.0.2.1", "example.org"])
async def test_listening_beyond_this_machine_needs_a_token(host: str) -> None:
    with pytest.raises(ListenError, match="without a token"):
        await listen(Address.parse(f"ws://{host}:0"), lambda _: None)


@pytest.mark.parametrize("url", ["wss://127.0.0.1:0", "stdio://"])
async def test_what_cannot_be_listened_on(url: str) -> None:
    with pytest.raises(ListenError, match="cannot listen"):
        await listen(Address.parse(url), lambda _: None)


@pytest.mark.parametrize("scheme", ["ws", "unix"])
async def test_token_is_asked_for(acceptor: Acceptor, tmp_path: Path, scheme: str) -> None:
    url = "ws://127.0.0.1:0" if scheme == "ws" else f"unix://{tmp_path}/s"
    address = await acceptor.open(url, token="right-one")
    for token in (None, "wrong-one"):
        with pytest.raises(ChannelClosed, match="401") as caught:
            await connect(address, token=token)
        assert "right-one" not in caught.value.reason
        assert "wrong-one" not in caught.value.reason
    assert acceptor.channels.empty()
    channel = await connect(address, token="right-one")
    channel.abort()
    (await acceptor.next()).abort()


@pytest.mark.parametrize(
    "url", ["ws://127.0.0.1:1", "unix:///nonexistent/s", "stdio://", f"ws://{'a' * 100}.invalid:1", "ws://127.0.0.1:1/x"]
)
async def test_connecting_to_nothing_says_so(url: str) -> None:
    with pytest.raises(ChannelClosed, match="cannot connect"):
        await connect(Address.parse(url))


async def test_server_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(f"{tmp_path}/s")
        silent.listen()
        with pytest.raises(ChannelClosed, match="no answer within"):
            await connect(Address.parse(f"unix://{tmp_path}/s"), deadline_s=0.05)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /readyz HTTP/1.1\r\n\r\n", b"200"),
        (b"GET / HTTP/1.1\r\nOrigin: http://evil.example\r\n\r\n", b"403"),
        (b"GET /nothing HTTP/1.1\r\n\r\n", b"404"),
        (b"no colon\r\nno colon\r\n\r\n", b"400"),
        (b"x" * 20_000, b"400"),
    ],
)
async def test_plain_requests_are_answered_and_closed(acceptor: Acceptor, request_bytes: bytes, status: bytes) -> None:
    address = await acceptor.open("ws://127.0.0.1:0", token="secret")
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(request_bytes)
    async with asyncio.timeout(DEADLINE_S):
        answer = await reader.read()
    writer.close()
    assert answer.split(b" ")[1] == status
    assert acceptor.channels.empty()


async def test_stdio_must_be_pipes(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    reader, writer = os.open(tmp_path / "file", os.O_RDONLY), os.open(tmp_path / "file", os.O_WRONLY)
    with pytest.raises(ChannelClosed, match="must be pipes"):
        await stdio_channel(reader, writer, "file")
    for fd in (reader, writer):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
