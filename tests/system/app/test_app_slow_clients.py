"""Clients that do not read: cut off on a socket, waited for on stdio; nobody else notices, and memory has an end."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable

import pytest

from kit.app_client import AppClient, connected, joined
from kit.app_program import Program, resident_bytes, stdio_server
from kit.transports import Socket
from kit.wire_client import Json
from treadle.server import AppServer
from treadle.testing import AppServerHarness
from treadle.transport import memory_pair

pytestmark = pytest.mark.anyio

# Its refusal lists all methods, so it is long.
LONG_ANSWER = "no/such/method"


def test_a_socket_that_is_never_read_is_cut_off(shared_server: Program, shared_harness: AppServerHarness) -> None:
    shared_harness.model.enqueue_assistant_message("Not held up.")
    with connected(shared_server.url, max_queue=1) as deaf, joined(shared_server.url) as client:
        deaf.initialize()
        assert isinstance(deaf.transport, Socket)
        sender = threading.Thread(target=_ask_for_ever, args=(deaf,))
        sender.start()
        assert client.run(client.start_thread())["status"] == "completed"
        sender.join(60)  # it ends when the connection does
        assert not sender.is_alive()
        assert "does not read what it is sent" in shared_server.stderr
        assert client.call("thread/loaded/list")["data"]
    assert resident_bytes(shared_server.pid) < 400 << 20


def _ask_for_ever(client: AppClient) -> None:
    from websockets.exceptions import ConnectionClosed

    try:
        while True:
            client.transport.send(json.dumps({"id": 1, "method": LONG_ANSWER, "params": {}}))
    except (ConnectionClosed, OSError):
        return


def test_standard_output_that_is_not_read_makes_the_requests_wait(harness: AppServerHarness) -> None:
    number = 60_000  # with their answers about 170 MB
    with stdio_server(harness) as program:
        client = program.client
        client.initialize()
        before = resident_bytes(program.pid)
        lines = [json.dumps({"id": index, "method": LONG_ANSWER, "params": {}}) for index in range(number)]
        sender = threading.Thread(target=client.transport.send, args=("\n".join(lines),), daemon=True)
        sender.start()
        peak = before
        for index in range(number):  # slower than it is asked
            client.transport.receive()
            if index % 1000 == 0:
                peak = max(peak, resident_bytes(program.pid))
        sender.join(30)
        assert peak - before < 160 << 20
        assert client.call("thread/loaded/list")["data"] == []


async def test_the_agent_waits_for_a_client_that_must_not_lose_anything(
    harness: AppServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = [f"{index:06}" + "x" * 6_000 for index in range(3_000)]  # 18 MB
    harness.model.enqueue_assistant_message("".join(pieces), deltas=pieces)
    async with asyncio.timeout(60), harness.server() as server:
        ours, theirs = memory_pair()
        client = server.accept(ours, must_not_lose=True)
        peer = _Peer()
        theirs.attach(peer)
        theirs.send(b'{"id":1,"method":"initialize","params":{"clientInfo":{"name":"slow","version":"1"}}}')
        theirs.send(b'{"id":2,"method":"thread/start","params":{}}')
        started = await peer.wait_for(lambda message: message.get("id") == 2)
        waits = _note_waiting(server, monkeypatch)
        theirs.pause()
        start = {"threadId": started["result"]["thread"]["id"], "input": [{"type": "text", "text": "go"}]}
        theirs.send(json.dumps({"id": 3, "method": "turn/start", "params": start}).encode())
        await waits.wait()
        assert client.congested
        assert client._waiting_bytes + ours.pending < 8 << 20  # far less than it has to say
        theirs.resume()
        await peer.wait_for(lambda message: message.get("method") == "turn/completed")
        deltas = [each["params"]["delta"] for each in peer.messages if each.get("method") == "item/agentMessage/delta"]
        assert "".join(deltas) == "".join(pieces)
        assert not client.congested


def _note_waiting(server: AppServer, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set when the agent waits for a client to catch up."""
    waits = asyncio.Event()
    wait = server.wait_until_writable

    async def noted() -> None:
        waits.set()
        await wait()

    monkeypatch.setattr(server, "wait_until_writable", noted)
    return waits


class _Peer:
    """The other end of a channel."""

    def __init__(self) -> None:
        self.messages: list[Json] = []
        self._news = asyncio.Event()

    def frame_received(self, frame: bytes) -> None:
        self.messages.append(json.loads(frame))
        self._news.set()

    def channel_closed(self, reason: str) -> None:
        self._news.set()

    def channel_writable(self) -> None:
        """What we send is short."""

    async def wait_for(self, fits: Callable[[Json], bool]) -> Json:
        seen = 0
        while True:
            for message in self.messages[seen:]:
                if fits(message):
                    return message
            seen = len(self.messages)
            self._news.clear()
            await self._news.wait()
