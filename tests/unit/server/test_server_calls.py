"""How many requests of one client are under way at a time, over a channel and in process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from treadle.agent import ClientRequest, Event
from treadle.client import DirectChannel
from treadle.errors import INTERNAL_ERROR, OVERLOAD_DATA, OVERLOADED, RpcError
from treadle.protocol.app import ModelListResponse
from treadle.server import ROUTES, AppServer, Client, ServerCall

pytestmark = pytest.mark.anyio

WAIT_S = 30.0
LIMIT = 3
THROUGH = ModelListResponse(data=())


class Gate:
    """In the place of a handler: requests wait here until they are let through."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.inside = 0

    async def handle(self, call: ServerCall[Any]) -> ModelListResponse:
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
        super().__init__(server, DirectChannel(lambda _: None))
        self.answers: dict[int, Any] = {}

    def send_event(self, event: Event) -> None: ...

    def send_request(self, request: ClientRequest) -> None: ...

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
    monkeypatch.setattr("treadle.server.clients.MAX_CALLS", LIMIT)
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


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_answer_that_has_no_json_is_an_error(
    server: AppServer, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    """Names of this machine may be no text; who asked does not wait for ever."""
    answer = ModelListResponse(data=(), next_cursor="a\udcff")

    async def later(call: ServerCall[Any]) -> ModelListResponse:
        return answer

    monkeypatch.setattr(ROUTES["model/list"], "handler", later if is_async else lambda call: answer)
    monkeypatch.setattr(ROUTES["model/list"], "is_async", is_async)
    sent: list[bytes] = []
    client = Client(server, DirectChannel(sent.append))
    client.initialized = True
    client.receive(7, "model/list", Raw(b"{}"))
    async with asyncio.timeout(WAIT_S):
        while not sent:
            await asyncio.sleep(0)
    [told] = [json.loads(frame) for frame in sent]
    assert (told["id"], told["error"]["code"]) == (7, INTERNAL_ERROR)
    assert "UnicodeEncodeError" in told["error"]["message"]


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


async def test_a_handler_that_cannot_be_loaded_is_an_answer(
    server: AppServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No file descriptor may be left, or the file be damaged: the client must not wait for ever."""

    def no_module(name: str) -> None:
        raise OSError(24, "Too many open files", f"{name}.py")

    monkeypatch.delitem(ROUTES, "model/list", raising=False)
    monkeypatch.setattr("treadle.server.routes.import_module", no_module)
    client = Recorder(server)
    client.initialized = True
    client.receive(1, "model/list", Raw(b"{}"))
    assert isinstance(client.answers[1], RpcError)
    assert client.answers[1].message == "internal error: OSError; the log has more"
    assert "Too many open files" in caplog.text
