"""How many requests of one client are under way at a time, over a channel and in process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from treadle.agent.event import Event
from treadle.agent.services import Ask
from treadle.errors import OVERLOAD_DATA, OVERLOADED, RpcError
from treadle.protocol.app.models import ModelListParams, ModelListResponse
from treadle.server.app import AppServer
from treadle.server.client_base import Call, Client
from treadle.server.local_client import LocalClient
from treadle.server.routes import ROUTES

pytestmark = pytest.mark.anyio

WAIT_S = 30.0
LIMIT = 3
THROUGH = ModelListResponse(data=())


class Gate:
    """In the place of a handler: requests wait here until they are let through."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.inside = 0

    async def handle(self, call: Call) -> ModelListResponse:
        self.inside += 1
        try:
            async with asyncio.timeout(WAIT_S):
                await self.open.wait()
        finally:
            self.inside -= 1
        return THROUGH


class Recorder(Client):
    """What it is answered, by request."""

    def __init__(self, server: AppServer) -> None:
        super().__init__(server)
        self.answers: dict[int, Any] = {}

    def send_event(self, event: Event) -> None: ...

    def send_ask(self, ask: Ask) -> None: ...

    def send_reply(self, request_id: Any, result: Any) -> None:
        self.answers[request_id] = result

    def send_failure(self, request_id: Any, error: RpcError) -> None:
        self.answers[request_id] = error


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[AppServer]:
    made = AppServer(home=tmp_path)
    yield made
    await made.close()


@pytest.fixture
async def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    made = Gate()
    monkeypatch.setattr(ROUTES["model/list"], "handler", made.handle)
    monkeypatch.setattr(ROUTES["model/list"], "is_async", True)
    for module in ("client_base", "local_client"):
        monkeypatch.setattr(f"treadle.server.{module}.MAX_CALLS", LIMIT)
    return made


async def full(gate: Gate, inside: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while gate.inside < inside:
            await asyncio.sleep(0)


async def empty(gate: Gate) -> None:
    gate.open.set()
    async with asyncio.timeout(WAIT_S):
        while gate.inside:
            await asyncio.sleep(0)


def check_refusal(error: Any) -> None:
    assert isinstance(error, RpcError)
    assert (error.code, error.data) == (OVERLOADED, OVERLOAD_DATA)


async def test_one_more_than_the_limit_is_refused_at_once(server: AppServer, gate: Gate) -> None:
    client = Recorder(server)
    client.initialized = True
    for number in range(LIMIT + 1):
        client.receive(number, "model/list", Raw(b"{}"))
    await full(gate, LIMIT)
    assert client.answers.keys() == {LIMIT}
    check_refusal(client.answers[LIMIT])
    await empty(gate)
    client.receive(9, "model/list", Raw(b"{}"))
    async with asyncio.timeout(WAIT_S):
        while 9 not in client.answers:
            await asyncio.sleep(0)
    assert [client.answers[number] for number in (0, 1, 2, 9)] == [THROUGH] * 4


async def test_the_limit_is_of_each_client(server: AppServer, gate: Gate) -> None:
    first, second = Recorder(server), Recorder(server)
    for client in (first, second):
        client.initialized = True
        for number in range(LIMIT):
            client.receive(number, "model/list", Raw(b"{}"))
    await full(gate, 2 * LIMIT)
    assert (first.answers, second.answers) == ({}, {})
    await empty(gate)


async def test_the_limit_holds_in_process(server: AppServer, gate: Gate) -> None:
    client = LocalClient(server, lambda _: None, lambda _: None)
    client.initialized = True
    asking = [asyncio.create_task(client.request("model/list", ModelListParams())) for _ in range(LIMIT)]
    await full(gate, LIMIT)
    with pytest.raises(RpcError) as refused:
        await client.request("model/list", ModelListParams())
    check_refusal(refused.value)
    gate.open.set()
    assert await asyncio.gather(*asking) == [THROUGH] * LIMIT
    assert await client.request("model/list", ModelListParams()) == THROUGH
