"""Shaking hands: what a server must say of itself, and what happens to a client when it doesn't."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from treadle.client import (
    AsyncCodex,
    Codex,
    CodexConfig,
    InitializeResponse,
    MissingMetadata,
    ServerInfo,
    api,
    check_metadata,
    client_info,
)

pytestmark = pytest.mark.anyio

GOOD = {"userAgent": "codex/1.2.3 (Linux)"}


@pytest.mark.parametrize(
    ("answer", "name", "version"),
    [
        ({"userAgent": "codex/1.2.3 (Linux)"}, "codex", "1.2.3 (Linux)"),
        ({"userAgent": "codex 1.2.3"}, "codex", "1.2.3"),
        ({"userAgent": " codex/1 ", "serverInfo": None}, "codex", "1"),
        ({"userAgent": "x", "serverInfo": {"name": "n", "version": "v"}}, "n", "v"),
        ({"userAgent": "a/b", "serverInfo": {"name": "n"}}, "n", "b"),
        ({"userAgent": "a/b", "serverInfo": {"name": " ", "version": "v"}}, "a", "v"),
        ({"userAgent": "a/b", "newMember": [1]}, "a", "b"),
    ],
)
def test_who_the_server_is(answer: dict[str, Any], name: str, version: str) -> None:
    checked = check_metadata(InitializeResponse.model_validate(answer))
    assert checked.serverInfo == ServerInfo(name=name, version=version)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"userAgent": ""},
        {"userAgent": "  "},
        {"userAgent": "nameonly"},
        {"userAgent": "/1.0"},
        {"userAgent": "name/"},
        {"serverInfo": {"name": "n", "version": "v"}},
        {"userAgent": None, "serverInfo": None},
    ],
)
def test_a_server_that_does_not_say_who_it_is(answer: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match="missing required metadata") as caught:
        check_metadata(InitializeResponse.model_validate(answer))
    assert isinstance(caught.value, MissingMetadata)


def test_we_say_who_we_are() -> None:
    config = CodexConfig(client_name="n", client_title="t", client_version="v", experimental_api=False)
    assert client_info(config) == {
        "clientInfo": {"name": "n", "title": "t", "version": "v"},
        "capabilities": {"experimentalApi": False},
    }


# --- the blocking client ---


class FakeClient:
    """In the place of `AppServerClient`, as users' tests do it: it knows only what it must."""

    def __init__(self, config: CodexConfig | None = None) -> None:
        self.config = config
        self.log: list[str] = []
        made.append(self)

    def start(self) -> None:
        self.log.append("start")

    def initialize(self) -> InitializeResponse:
        self.log.append("initialize")
        return InitializeResponse.model_validate(answers.pop(0))

    def close(self) -> None:
        self.log.append("close")


made: list[FakeClient] = []
answers: list[dict[str, Any]] = []


@pytest.fixture(autouse=True)
def replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    made.clear()
    answers.clear()
    monkeypatch.setattr(api, "AppServerClient", FakeClient)


def test_codex_connects_when_it_is_made() -> None:
    answers.append(GOOD)
    config = CodexConfig(client_name="me")
    with Codex(config=config) as codex:
        assert made[0].config is config
        assert made[0].log == ["start", "initialize"]
        assert codex.metadata.userAgent == "codex/1.2.3 (Linux)"
    assert made[0].log == ["start", "initialize", "close"]


def test_codex_closes_what_is_no_server() -> None:
    answers.append({})
    with pytest.raises(RuntimeError, match="missing required metadata"):
        Codex()
    assert made[0].log == ["start", "initialize", "close"]


def test_codex_closes_what_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: FakeClient) -> None:
        raise FileNotFoundError("no such program")

    monkeypatch.setattr(FakeClient, "start", start)
    with pytest.raises(FileNotFoundError):
        Codex()
    assert made[0].log == ["close"]


# --- the client for asyncio ---


class Faked:
    """An `AsyncCodex` whose client has fakes for methods; `log` has their calls."""

    def __init__(self, *answers: dict[str, Any] | Exception) -> None:
        self.log: list[str] = []
        self._answers = list(answers)
        self.codex = AsyncCodex()
        client: Any = self.codex._client
        for name in ("start", "initialize", "close", "model_list"):
            setattr(client, name, getattr(self, f"_{name}"))

    async def _start(self) -> None:
        self.log.append("start")
        await asyncio.sleep(0)

    async def _initialize(self) -> InitializeResponse:
        self.log.append("initialize")
        await asyncio.sleep(0)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return InitializeResponse.model_validate(answer)

    async def _close(self) -> None:
        self.log.append("close")

    async def _model_list(self, include_hidden: bool = False) -> str:
        self.log.append(f"model_list({include_hidden})")
        return "models"


async def test_it_connects_when_it_is_first_used() -> None:
    faked = Faked(GOOD)
    with pytest.raises(RuntimeError, match="not connected"):
        _ = faked.codex.metadata
    found: Any = await faked.codex.models()
    assert found == "models"
    assert faked.log == ["start", "initialize", "model_list(False)"]
    assert faked.codex._initialized
    assert faked.codex.metadata.userAgent == "codex/1.2.3 (Linux)"


async def test_it_connects_once_whoever_comes_first() -> None:
    faked = Faked(GOOD)
    await asyncio.gather(*(faked.codex.models(include_hidden=number == 3) for number in range(10)))
    assert faked.log[:2] == ["start", "initialize"]
    assert sorted(faked.log[2:]) == [*["model_list(False)"] * 9, "model_list(True)"]


@pytest.mark.parametrize("failure", [{}, OSError("no road")], ids=["no metadata", "an error"])
async def test_it_can_be_used_again_after_a_failure(failure: Any) -> None:
    faked = Faked(failure, GOOD)
    with pytest.raises((RuntimeError, OSError)):
        await faked.codex.models()
    assert (faked.log, faked.codex._initialized, faked.codex._init) == (["start", "initialize", "close"], False, None)
    found: Any = await faked.codex.models()
    assert found == "models"
    assert faked.log[3:] == ["start", "initialize", "model_list(False)"]


async def test_a_failure_under_concurrency() -> None:
    """The first one fails; the next one tries again, and all others profit."""
    faked = Faked({}, GOOD)
    found = await asyncio.gather(*(faked.codex.models() for _ in range(4)), return_exceptions=True)
    assert [type(one) for one in found] == [MissingMetadata, str, str, str]
    assert faked.log[:5] == ["start", "initialize", "close", "start", "initialize"]


async def test_being_cancelled_while_it_connects() -> None:
    faked = Faked(GOOD, GOOD)
    using = asyncio.create_task(faked.codex.models())
    while "initialize" not in faked.log:
        await asyncio.sleep(0)
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using
    assert (faked.log[-1], faked.codex._initialized) == ("close", False)


async def test_as_a_context() -> None:
    faked = Faked(GOOD)
    async with faked.codex as codex:
        assert codex._initialized
    assert (faked.log, codex._initialized) == (["start", "initialize", "close"], False)
