"""`AppServerHarness`: a home, a workspace and a mock model, ready for an app-server; and a client for tests.

    with AppServerHarness(tmp_path) as harness:
        harness.model.enqueue_assistant_message("Hello.")
        async with harness.connect() as client:
            thread = (await client.request("thread/start", {}))["thread"]
            done = await client.run_turn(thread["id"], "hi")
            assert done["turn"]["status"] == "completed"

The server runs in this process. `command()` and `environ()` start one as a program instead.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, cast

import msgspec

from treadle.agent.client_requests import ClientRequest
from treadle.agent.event import Event
from treadle.arguments import one_of, path
from treadle.errors import RpcError
from treadle.protocol.app.base import convert, encode
from treadle.protocol.app.methods import RECORDS
from treadle.server.app import AppServer
from treadle.server.local_client import LocalClient
from treadle.testing.mock_model import MockModel
from treadle.testing.wires import WIRES, WireName

if TYPE_CHECKING:
    from treadle.client import CodexConfig

Json: TypeAlias = dict[str, Any]
Answerer: TypeAlias = Callable[[Json], Json | None]

WAIT_S: Final = 30.0


class AppServerHarness:
    """A folder with all that a server needs: `home`, `workspace` and `model`, which is also `responses`.

    Args:
        tmp_path: The folder to make it in; it may have to be made.
        model: The mock model; else one is made, and closed with the harness.
        settings: Settings to add to `config.toml`, or to replace in it.
        provider: The same for the section of the provider.
        extra_toml: More text for `config.toml`.
        wire_api: The API in which the model is asked; else what the environment variable `TREADLE_WIRE_API` says, so
            that a whole suite can be run on another one; else `responses`.
    """

    def __init__(
        self,
        tmp_path: str | os.PathLike[str],
        *,
        model: MockModel | None = None,
        settings: Mapping[str, str | int | bool] | None = None,
        provider: Mapping[str, str | int | bool] | None = None,
        extra_toml: str = "",
        wire_api: WireName | None = None,
    ) -> None:
        self.wire_api: WireName = _wire_api(wire_api)
        root = Path(path("tmp_path", tmp_path))
        self.home: Path = root / "home"
        self.workspace: Path = root / "workspace"
        self.home.mkdir(parents=True, exist_ok=True)
        self.workspace.mkdir(parents=True, exist_ok=True)
        self.model: MockModel = MockModel() if model is None else model
        self._own_model = model is None
        asked = {**_PROVIDER, "wire_api": self.wire_api, **(provider or {})}
        self._write_config({**_SETTINGS, **(settings or {})}, asked, extra_toml)

    @property
    def responses(self) -> MockModel:
        """The mock model, under another name."""
        return self.model

    @property
    def codex_home(self) -> Path:
        """The home, under another name."""
        return self.home

    def _write_config(self, settings: Mapping[str, Any], provider: Mapping[str, Any], extra: str) -> None:
        # A JSON string, number or boolean is a TOML one.
        lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
        lines += ["", "[model_providers.mock_provider]", f"base_url = {json.dumps(self.model.base_url)}"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in provider.items()]
        (self.home / "config.toml").write_text("\n".join([*lines, "", extra]), encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the mock model, if it is our own."""
        if self._own_model:
            self.model.close()

    def environ(self) -> dict[str, str]:
        """For a server as a program."""
        return {**os.environ, "CODEX_HOME": str(self.home), "TREADLE_HOME": str(self.home)}

    def codex_config(self, **members: Any) -> CodexConfig:
        """For the SDK: a server in this process, with this home, workspace and model.

        Args:
            members: Other fields of the `CodexConfig`.
        """
        from treadle.client import CodexConfig

        homes = {"CODEX_HOME": str(self.home), "TREADLE_HOME": str(self.home)}
        return CodexConfig(**{"cwd": str(self.workspace), "env": homes, **members})

    def command(self, *arguments: str) -> list[str]:
        """The command line of a server as a program.

        Args:
            arguments: Those of `treadle app-server`; without any it speaks over its standard streams.
        """
        return [sys.executable, "-m", "treadle", "app-server", *(arguments or ("--listen", "stdio://"))]

    @asynccontextmanager
    async def server(self) -> AsyncIterator[AppServer]:
        """A server in this process."""
        async with AppServer(home=self.home, cwd=str(self.workspace)) as server:
            yield server

    @asynccontextmanager
    async def connect(
        self, name: str = "test", *, server: AppServer | None = None, experimental: bool = True
    ) -> AsyncIterator[HarnessClient]:
        """A client that has shaken hands.

        Args:
            name: Who it says that it is.
            server: The server; else it gets one of its own.
            experimental: Whether it asks for the experimental parts of the protocol.
        """
        if server is None:
            async with self.server() as own, self.connect(name, server=own, experimental=experimental) as client:
                yield client
            return
        client = HarnessClient(server)
        try:
            capabilities = {"experimentalApi": experimental}
            await client.request(
                "initialize", {"clientInfo": {"name": name, "version": "1"}, "capabilities": capabilities}
            )
            yield client
        finally:
            client.close()


_SETTINGS: Final = {
    "model": "mock-model",
    "model_provider": "mock_provider",
    "approval_policy": "never",
    "sandbox_mode": "danger-full-access",
}
_PROVIDER: Final[dict[str, str | int | bool]] = {"name": "Mock", "request_max_retries": 0, "stream_max_retries": 0}


def _wire_api(given: WireName | None) -> WireName:
    name = "TREADLE_WIRE_API" if given is None else "wire_api"
    wanted = one_of(name, (os.environ.get(name) or "responses") if given is None else given, WIRES)
    return cast(WireName, wanted)


class HarnessClient:
    """Plain JSON objects in and out. Everything that the server tells is in `messages`, oldest first.

    Args:
        server: The server to talk to.
        answer: Decides about requests of the server: a function of the request that returns the result, or None to
            leave it open (`reply` answers it later).
    """

    def __init__(self, server: AppServer, answer: Answerer | None = None) -> None:
        self.server = server
        self.messages: list[Json] = []
        self.answer = answer
        self._client: LocalClient = server.connect(self._told, self._asked)
        self._news = asyncio.Event()

    async def request(self, method: str, params: Mapping[str, Any]) -> Json:
        """The result. Raises `RpcError`.

        Args:
            method: The method, such as `thread/start`.
            params: Its params, with the names of the wire.
        """
        record = RECORDS.get(method)
        try:
            given = params if record is None else convert(dict(params), record.params)
        except msgspec.ValidationError as error:
            from treadle.server.refusals import bad_params

            raise bad_params(error) from None
        result: Json = json.loads(encode(await self._client.request(method, given)))
        return result

    async def run_turn(self, thread_id: str, text: str, **params: Any) -> Json:
        """Start a turn and wait for its end; the params of `turn/completed`.

        Args:
            thread_id: The thread.
            text: What the user says.
            params: Other params of `turn/start`, with the names of the wire.
        """
        given = {"threadId": thread_id, "input": [{"type": "text", "text": text}], **params}
        turn = (await self.request("turn/start", given))["turn"]
        return await self.turn_end(turn["id"])

    async def turn_end(self, turn_id: str) -> Json:
        """Wait for the end of a turn; the params of `turn/completed`.

        Args:
            turn_id: The turn.
        """
        done = await self.wait_for("turn/completed", lambda params: params["turn"]["id"] == turn_id)
        params: Json = done["params"]
        return params

    async def wait_for(self, method: str, fits: Callable[[Json], bool] = lambda _: True) -> Json:
        """The first message of a method that fits, from the beginning; waits for it.

        Args:
            method: The method.
            fits: Whether the params of a message are what is waited for.
        """
        async with asyncio.timeout(WAIT_S):
            seen = 0
            while True:
                for message in self.messages[seen:]:
                    if message["method"] == method and fits(message["params"]):
                        return message
                seen = len(self.messages)
                self._news.clear()
                await self._news.wait()

    def told(self, *methods: str) -> list[Json]:
        """What the server has told so far.

        Args:
            methods: Only the messages of these; all without any.
        """
        return [message for message in self.messages if not methods or message["method"] in methods]

    def reply(self, request: Json, result: Json | RpcError) -> None:
        """Answer a request of the server.

        Args:
            request: The request, as it is in `messages`.
            result: The result, or an error.
        """
        if isinstance(result, RpcError):
            self._client.answer(request["id"], result)
        else:
            self._client.answer(request["id"], msgspec.Raw(json.dumps(result).encode()))

    def close(self) -> None:
        """End the connection."""
        self._client.close()

    def _told(self, event: Event) -> None:
        self._add(json.loads(event.encoded or event.frame))

    def _asked(self, ask: ClientRequest) -> None:
        message = {"id": ask.id, "method": ask.method, "params": json.loads(encode(ask.params))}
        self._add(message)
        result = self.answer(message) if self.answer is not None else None
        if result is not None:
            self.reply(message, result)

    def _add(self, message: Json) -> None:
        self.messages.append(message)
        self._news.set()
