"""One suite over every transport: the same `Channel`, whatever carries it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from channel_pair import DEADLINE_S, MAX_HELD, TRANSPORTS, Acceptor, Pair, Recorder, open_pair
from treadle.transport import Channel, StreamChannel

pytestmark = pytest.mark.anyio

FRAME = b"x" * (64 << 10)


@pytest.fixture
async def acceptor() -> AsyncIterator[Acceptor]:
    acceptor = Acceptor()
    yield acceptor
    await acceptor.close()


@pytest.fixture(params=[f"{name}-{side}" for name in TRANSPORTS for side in ("first", "second")])
async def pair(request: pytest.FixtureRequest, acceptor: Acceptor, tmp_path: Path) -> AsyncIterator[Pair]:
    """Two joined channels, nobody attached. Every test runs with either side (client, server) as the left one."""
    transport, side = request.param.split("-")
    one, two = await open_pair(transport, acceptor, tmp_path)
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
    left, _ = pair
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
        assert number == 4 or not at_right.reasons
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
