"""What is special about the in-memory pair; what all transports share is in the contract suite."""

from __future__ import annotations

import asyncio

import pytest

from treadle.transport import memory_pair
from treadle.transport.channel import HIGH_WATER

pytestmark = pytest.mark.anyio


class Recorder:
    def __init__(self) -> None:
        self.log: list[str] = []

    def frame_received(self, frame: bytes) -> None:
        self.log.append(f"frame of {len(frame)}")

    def channel_closed(self, reason: str) -> None:
        self.log.append(f"closed: {reason}")

    def channel_writable(self) -> None:
        self.log.append("writable")


async def _turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_each_end_knows_the_name_of_the_other() -> None:
    left, right = memory_pair("client", "server")
    assert (left.peer, right.peer) == ("server", "client")


async def test_delivery_is_on_a_later_turn_as_with_a_real_transport() -> None:
    left, right = memory_pair()
    recorder = Recorder()
    right.attach(recorder)
    left.send(b"x")
    assert recorder.log == []
    await _turns()
    assert recorder.log == ["frame of 1"]


async def test_mark_is_exact() -> None:
    left, _ = memory_pair()
    left.send(b"x" * HIGH_WATER)
    assert left.pending == HIGH_WATER
    assert left.writable
    left.send(b"x")
    assert not left.writable


async def test_writable_is_told_once_and_only_after_it_was_not() -> None:
    left, right = memory_pair()
    at_left = Recorder()
    left.attach(at_left)
    right.attach(Recorder())
    left.send(b"little")
    await _turns()
    assert at_left.log == []
    for _ in range(4):
        left.send(b"x" * (HIGH_WATER // 2))
    await _turns()
    assert at_left.log == ["writable"]


async def test_nobody_is_told_that_a_closed_channel_is_writable() -> None:
    left, right = memory_pair()
    at_left = Recorder()
    left.attach(at_left)
    left.send(b"x" * (HIGH_WATER + 1))
    left.close()
    right.attach(Recorder())
    await _turns()
    assert at_left.log == ["closed: closed"]


async def test_reasons_name_the_side() -> None:
    for verb, expected in (("close", "the other side closed the connection"), ("abort", "the connection was cut")):
        left, right = memory_pair()
        recorder = Recorder()
        right.attach(recorder)
        getattr(left, verb)()
        await _turns()
        assert recorder.log == [f"closed: {expected}"]


async def test_abort_drops_what_was_not_delivered_and_holds_nothing() -> None:
    left, right = memory_pair()
    recorder = Recorder()
    left.send(b"x" * 1000)
    left.abort()
    right.attach(recorder)
    await _turns()
    assert recorder.log == ["closed: the connection was cut"]
    assert right.stats().pending_bytes == left.stats().pending_bytes == 0
