"""A client in the server's process: what it may ask, and what happens when it fails or leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from treadle.agent.event import Event
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.handshake import ClientInfo, InitializeParams
from treadle.protocol.app.models import ModelListParams
from treadle.protocol.app.notifications import WarningNotification
from treadle.server.app import AppServer
from treadle.server.local_client import LocalClient
from treadle.server.routes import ROUTES

pytestmark = pytest.mark.anyio

INITIALIZE = InitializeParams(client_info=ClientInfo(name="tests", version="1"))


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[AppServer]:
    made = AppServer(home=tmp_path, environ={})
    yield made
    await made.close()


def connect(server: AppServer) -> LocalClient:
    return server.connect(lambda event: None, lambda request: None)


async def refusal(client: LocalClient, method: str, params: Any) -> RpcError:
    with pytest.raises(RpcError) as caught:
        await client.request(method, params)
    return caught.value


async def test_the_handshake_comes_first(server: AppServer) -> None:
    client = connect(server)
    assert (await refusal(client, "model/list", ModelListParams())).message == "Not initialized"
    await client.request("initialize", INITIALIZE)
    assert (await client.request("model/list", ModelListParams())).data


async def test_an_unknown_method_is_refused(server: AppServer) -> None:
    client = connect(server)
    assert (await refusal(client, "no/such", None)).code == INVALID_REQUEST


async def test_whoever_waits_when_it_closes_is_told(server: AppServer, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = asyncio.Event()

    async def endless(call: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(ROUTES["model/list"], "handler", endless)
    monkeypatch.setattr(ROUTES["model/list"], "is_async", True)
    client = connect(server)
    await client.request("initialize", INITIALIZE)
    waiting = asyncio.create_task(refusal(client, "model/list", ModelListParams()))
    await begun.wait()
    client.close()
    assert (await waiting).message == "the connection is closed"
    assert (await refusal(client, "model/list", ModelListParams())).message == "the connection is closed"


async def test_a_listener_that_fails_loses_its_connection_alone(server: AppServer) -> None:
    def fails(event: Event) -> None:
        raise ValueError("no room")

    broken, sound = server.connect(fails, lambda request: None), connect(server)
    for client in (broken, sound):
        await client.request("initialize", INITIALIZE)
        client.send_event(Event("warning", WarningNotification(message="mind"), None, 0))
    assert (broken.closed, sound.closed) == (True, False)
