"""Texts that no path, program or environment can have are refused before a handler sees them, in every method."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw, Struct

from treadle.agent import ClientRequest, Event
from treadle.client import DirectChannel
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app import RECORDS, encode
from treadle.server import METHOD_NAMES, ROUTES, AppServer, Client, ServerCall
from unit.protocol.app_samples import samples

pytestmark = pytest.mark.anyio

NUL, HALF = "a\0b", "a\ud800b"
CHECKED = [name for name in METHOD_NAMES if name != "thread/inject_items"]


class Recorder(Client):
    """A client on a wire; what it is refused."""

    def __init__(self, server: AppServer) -> None:
        super().__init__(server, DirectChannel(lambda _: None))
        self.initialized = self.experimental = True
        self.refused: list[RpcError] = []

    def send_event(self, event: Event) -> None: ...

    def send_request(self, request: ClientRequest) -> None: ...

    def send_reply(self, request_id: Any, result: Any) -> None:
        raise AssertionError("it was answered")

    def send_failure(self, request_id: Any, error: RpcError) -> None:
        self.refused.append(error)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[AppServer]:
    made = AppServer(home=tmp_path, environ={})
    yield made
    await made.close()


@pytest.fixture(autouse=True)
def never_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sent here must not be done, whatever a check lets through."""

    def handler(call: ServerCall[Any]) -> None:
        raise AssertionError(f"{call.method} was handled")

    for name in METHOD_NAMES:
        monkeypatch.setattr(ROUTES[name], "handler", handler)
        monkeypatch.setattr(ROUTES[name], "is_async", False)


def spoiled(value: Any, bad: str) -> Iterator[Any]:
    """The same value with `bad` in the place of a text, once for each text in it."""
    if isinstance(value, str):
        yield bad
    elif isinstance(value, dict):
        for name, member in value.items():
            yield from ({**value, name: each} for each in spoiled(member, bad))
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from ([*value[:index], each, *value[index + 1 :]] for each in spoiled(member, bad))


def made(method: str) -> tuple[Struct, ...]:
    """Params of a method, the fullest among them. Those of one that takes a union are left out."""
    wanted = RECORDS[method].params
    return samples(wanted) if isinstance(wanted, type) else ()


@pytest.mark.parametrize("bad", [NUL, HALF], ids=["nul", "half"])
@pytest.mark.parametrize("method", CHECKED)
async def test_every_text_of_every_method_is_looked_at(server: AppServer, method: str, bad: str) -> None:
    client = Recorder(server)
    sent = [given for params in made(method) for given in spoiled(json.loads(encode(params)), bad)]
    for given in sent:
        client.receive(1, method, Raw(json.dumps(given).encode()))
    assert len(client.refused) == len(sent)
    for error in client.refused:
        assert error.code == INVALID_REQUEST, (error.code, error.message)
        # A word that there is not is refused as such.
        told = ("has a NUL character", "half a character", "unknown variant", "Invalid request: Expected")
        assert any(part in error.message for part in told), error.message
        assert "internal" not in error.message


async def test_the_place_is_named(server: AppServer) -> None:
    client = Recorder(server)
    given = {"threadId": "t", "input": [{"type": "text", "text": "hi"}, {"type": "text", "text": NUL}]}
    client.receive(1, "turn/start", Raw(json.dumps(given).encode()))
    [error] = client.refused
    assert error.message == "Invalid request: `params.input[1].text` has a NUL character: leave it out"


async def test_what_only_looks_like_a_nul_is_a_text(server: AppServer) -> None:
    client = Recorder(server)
    given = json.dumps({"threadId": "t", "input": [{"type": "text", "text": "\\u0000"}]}).encode()
    assert b"\\u0000" in given
    client.receive(1, "turn/start", Raw(given))
    [error] = client.refused
    assert "internal error: AssertionError" in error.message  # it was handled


async def test_bytes_that_are_no_text_are_refused(server: AppServer) -> None:
    client = Recorder(server)
    client.receive(1, "fs/readFile", Raw(b'{"path":"/a\xff"}'))
    [error] = client.refused
    assert error.code == INVALID_REQUEST


async def test_an_injected_item_may_have_a_nul(server: AppServer) -> None:
    client = Recorder(server)
    given = {"threadId": "t", "items": [{"type": "function_call_output", "call_id": "c", "output": NUL}]}
    client.receive(1, "thread/inject_items", Raw(json.dumps(given).encode()))
    [error] = client.refused
    assert "internal error: AssertionError" in error.message  # it was handled
