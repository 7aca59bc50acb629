"""Nothing grows with a hostile peer: what the server owes to a client that does not read stays bounded."""

from __future__ import annotations

import asyncio
import json

import pytest

from kit.processes import DEADLINE_S
from treadle.execution.server import ExecServer
from treadle.transport import Channel, memory_pair

pytestmark = pytest.mark.anyio

# Far more than a channel holds before it is full.
MESSAGES = 20_000


class Silent:
    """A receiver that takes nothing: the channel is paused before anything arrives."""

    def frame_received(self, frame: bytes) -> None:
        raise AssertionError("a paused channel delivered")

    def channel_closed(self, reason: str) -> None:
        pass

    def channel_writable(self) -> None:
        pass


async def _settled(channel: Channel) -> int:
    """How many messages the server has answered when it answers no more."""
    before, quiet = -1, 0
    while quiet < 50:
        await asyncio.sleep(0)
        sent = channel.stats().frames_out
        quiet, before = (quiet + 1, before) if sent == before else (0, sent)
    return before


@pytest.mark.parametrize(
    "message",
    [
        "x" * 40,
        json.dumps({"id": 1, "method": "no/such/method"}),
        json.dumps({"id": 1, "method": "process/start", "params": {}}),
        json.dumps({"id": 1, "method": "environment/info"}),
        json.dumps({"id": "i" * 100, "method": "initialize", "params": {"clientName": "x", "resumeSessionId": "?"}}),
    ],
    ids=["malformed", "unknown method", "bad params", "too early", "bad resume"],
)
async def test_refusals_wait_for_the_peer(message: str) -> None:
    async with ExecServer() as server:
        ours, theirs = memory_pair()
        ours.attach(Silent())
        ours.pause()
        server.accept(theirs)
        for _ in range(MESSAGES):
            ours.send(message.encode())
        async with asyncio.timeout(DEADLINE_S):
            answered = await _settled(theirs)
        assert 0 < answered < MESSAGES
        assert theirs.pending < 2 << 20
        ours.abort()
