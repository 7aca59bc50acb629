"""What a stream channel writes, and when, on a transport that only keeps what it is given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from treadle.transport import BATCH, DEAD_AFTER_S, KEEPALIVE_S, Framer, LineFramer, StreamChannel, WebSocketFramer
from treadle.transport.stream import HIGH_WATER
from websocket_wire import PING, PONG, TEXT, frame, frames_in

pytestmark = pytest.mark.anyio


class Kept(asyncio.Transport):
    """Holds every write as one entry; takes nothing off its buffer until `drain`."""

    def __init__(self, channel: StreamChannel, *, slow: bool) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.log: list[str] = []
        self._channel = channel
        self._slow = slow
        self._held = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))
        self.log.append("write")
        self._held += len(data) if self._slow else 0
        if self._held > HIGH_WATER:
            self._channel.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self._held

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.log.append("eof")

    def abort(self) -> None:
        self.log.append("abort")
        self._held = 0

    def close(self) -> None:
        self.log.append("close")

    def is_closing(self) -> bool:
        return "close" in self.log or "abort" in self.log

    def resume_reading(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass


class Nobody:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def frame_received(self, frame: bytes) -> None:
        pass

    def channel_closed(self, reason: str) -> None:
        self.reasons.append(reason)

    def channel_writable(self) -> None:
        pass


def _open(framer: Framer | None = None, *, slow: bool = False) -> tuple[StreamChannel, Kept]:
    channel = StreamChannel(framer or LineFramer(), "test")
    transport = Kept(channel, slow=slow)
    channel.connection_made(transport)
    channel.attach(Nobody())
    return channel, transport


async def _step() -> None:
    """The rest of this step of the loop, and what was to be called soon."""
    await asyncio.sleep(0)


async def test_frames_of_one_step_leave_in_one_write() -> None:
    channel, transport = _open()
    for number in range(100):
        channel.send(b"%d" % number)
    assert transport.writes == []
    await _step()
    assert transport.writes == [b"".join(b"%d\n" % number for number in range(100))]
    assert channel.stats().frames_out == 100


async def test_a_lone_frame_waits_for_its_step_only() -> None:
    channel, transport = _open()
    for number in range(3):
        channel.send(b"%d" % number)
        await _step()
    assert transport.writes == [b"0\n", b"1\n", b"2\n"]


async def test_many_small_websocket_frames_leave_in_one_write() -> None:
    channel, transport = _open(WebSocketFramer(client=False))
    messages = [b"%d" % number * (number % 300 + 1) for number in range(50)]
    for message in messages:
        channel.send(message)
    channel.probe()
    await _step()
    (written,) = transport.writes
    expected = [*((TEXT, message, False, True) for message in messages), (PING, b"", False, True)]
    assert frames_in(written) == expected


async def test_what_the_protocol_owes_keeps_its_place_among_the_frames() -> None:
    channel, transport = _open(WebSocketFramer(client=False))
    channel.send(b"before")
    channel.data_received(b"\x89\x80" + bytes(4))
    channel.send(b"after")
    await _step()
    assert transport.writes == [b"\x81\x06before\x8a\x00\x81\x05after"]


async def test_enough_for_a_write_does_not_wait_and_the_rest_keeps_its_order() -> None:
    channel, transport = _open()
    half = b"x" * (BATCH // 2)
    channel.send(half)
    assert transport.writes == []
    channel.send(half)
    assert transport.writes == [half + b"\n" + half + b"\n"]
    channel.send(b"after")
    assert len(transport.writes) == 1
    await _step()
    assert transport.writes[1:] == [b"after\n"]


async def test_what_waits_for_the_end_of_the_step_is_pending() -> None:
    channel, _ = _open(slow=True)
    channel.send(b"four")
    assert channel.pending == 5
    await _step()
    assert channel.pending == 5
    channel.send(b"four")
    assert channel.pending == channel.stats().pending_bytes == 10


async def test_a_slow_peer_is_felt_within_the_step() -> None:
    channel, _ = _open(slow=True)
    sent = 0
    while channel.writable:
        channel.send(b"x" * 99)
        sent += 100
    assert HIGH_WATER < sent <= HIGH_WATER + BATCH + 100
    assert channel.pending == sent


@pytest.mark.parametrize(("verb", "log"), [("close", ["write", "eof"]), ("abort", ["write", "abort"])])
async def test_what_was_sent_is_written_before_the_end(verb: str, log: list[str]) -> None:
    channel, transport = _open()
    channel.send(b"last")
    getattr(channel, verb)()
    channel.send(b"too late")
    assert transport.writes == [b"last\n"]
    assert transport.log == log
    await _step()
    assert transport.writes == [b"last\n"]
    channel.abort()


async def test_the_closing_frame_of_a_websocket_comes_after_the_frames_in_the_same_write() -> None:
    channel, transport = _open(WebSocketFramer(client=False))
    channel.send(b"last")
    channel.close()
    assert transport.writes == [b"\x81\x04last\x88\x02\x03\xe8"]
    channel.abort()


async def test_nothing_is_written_to_a_connection_that_was_lost_in_the_same_step() -> None:
    channel, transport = _open()
    channel.send(b"for nobody")
    channel.connection_lost(ConnectionResetError("gone"))
    assert channel.pending == 0
    await _step()
    assert transport.writes == []


async def test_nothing_is_written_when_only_the_writing_half_was_lost_in_the_same_step() -> None:
    channel, transport = _open()
    channel.send(b"for nobody")
    channel.writing_lost(BrokenPipeError("gone"))
    assert channel.pending == 0
    await _step()
    assert transport.writes == []
    channel.abort()


# --- keep-alive ---


class Clock:
    """In the place of the event loop: the time passes when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[[], None]) -> None:
        callback()

    def call_later(self, delay: float, callback: Callable[[], None]) -> Clock:
        self.timers = [(self.now + delay, callback)]  # a channel has one
        return self

    def cancel(self) -> None:
        self.timers = []

    def advance(self, seconds: float) -> None:
        until = self.now + seconds
        while self.timers and self.timers[0][0] <= until:
            (self.now, callback), self.timers = self.timers[0], []
            callback()
        self.now = until


def _kept_alive(monkeypatch: pytest.MonkeyPatch) -> tuple[StreamChannel, Kept, Nobody, Clock]:
    clock, nobody = Clock(), Nobody()
    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "get_running_loop", lambda: clock)
        channel = StreamChannel(WebSocketFramer(client=False), "test", keepalive=True)
    transport = Kept(channel, slow=False)
    channel.connection_made(transport)
    channel.attach(nobody)
    return channel, transport, nobody, clock


async def test_a_peer_that_answers_no_ping_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    channel, transport, nobody, clock = _kept_alive(monkeypatch)
    clock.advance(DEAD_AFTER_S)
    assert [seen.opcode for seen in frames_in(b"".join(transport.writes))] == [PING] * int(DEAD_AFTER_S / KEEPALIVE_S)
    assert nobody.reasons == []
    clock.advance(KEEPALIVE_S)
    assert nobody.reasons == [f"no sign of life from the peer for {DEAD_AFTER_S:.0f} s"]
    assert transport.log[-1] == "abort"
    assert channel.closed
    assert clock.timers == []


async def test_a_peer_that_answers_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    channel, transport, nobody, clock = _kept_alive(monkeypatch)
    for answered in range(1, 20):
        clock.advance(DEAD_AFTER_S - 1)
        channel.data_received(frame(PONG, masked=True))
        assert len(frames_in(b"".join(transport.writes))) > answered
    assert nobody.reasons == []
    channel.abort()


async def test_silence_is_not_held_against_a_peer_that_we_do_not_listen_to(monkeypatch: pytest.MonkeyPatch) -> None:
    channel, _, nobody, clock = _kept_alive(monkeypatch)
    channel.pause()
    clock.advance(10 * DEAD_AFTER_S)
    assert nobody.reasons == []
    channel.resume()
    clock.advance(DEAD_AFTER_S - KEEPALIVE_S)
    assert nobody.reasons == []
    clock.advance(2 * KEEPALIVE_S)
    assert len(nobody.reasons) == 1


async def test_silence_is_not_held_against_a_peer_while_we_were_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    channel, transport, nobody, clock = _kept_alive(monkeypatch)
    (timer,) = clock.timers
    clock.timers = [(timer[0] + 10 * DEAD_AFTER_S, timer[1])]  # it runs late, because nothing did
    clock.advance(11 * DEAD_AFTER_S)
    assert nobody.reasons == []
    assert PING in [seen.opcode for seen in frames_in(b"".join(transport.writes))]
    clock.advance(DEAD_AFTER_S + KEEPALIVE_S)
    assert len(nobody.reasons) == 1
    assert channel.closed


async def test_a_channel_that_is_closed_sends_no_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    channel, transport, _, clock = _kept_alive(monkeypatch)
    channel.abort()
    clock.advance(10 * KEEPALIVE_S)
    assert transport.writes == []
