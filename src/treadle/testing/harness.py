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
import itertools
import json
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, cast

from treadle.arguments import one_of, path
from treadle.client.async_connection import DirectChannel
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.own_python import treadle_command
from treadle.server.app import AppServer
from treadle.testing.mock_model import MockModel
from treadle.testing.wires import WIRES, WireName

if TYPE_CHECKING:
    from treadle.client import CodexConfig

Json: TypeAlias = dict[str, Any]
Answerer: TypeAlias = Callable[[Json], Json | None]

WAIT_S: Final = 30.0
_CLOSED: Final = "the connection is closed"

logger: Final = logging.getLogger(__name__)


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
        name = "TREADLE_WIRE_API" if wire_api is None else "wire_api"
        wanted = wire_api or os.environ.get(name) or "responses"
        self.wire_api: WireName = cast(WireName, one_of(name, wanted, WIRES))
        root = Path(path("tmp_path", tmp_path))
        self.home: Path = root / "home"
        self.workspace: Path = root / "workspace"
        self.home.mkdir(parents=True, exist_ok=True)
        self.workspace.mkdir(parents=True, exist_ok=True)
        self.model: MockModel = MockModel() if model is None else model
        self._own_model = model is None
        # A JSON string, number or boolean is a TOML one.
        lines = [f"{key} = {json.dumps(value)}" for key, value in {**_SETTINGS, **(settings or {})}.items()]
        asked = {**_PROVIDER, "base_url": self.model.base_url, "wire_api": self.wire_api, **(provider or {})}
        lines += ["", "[model_providers.mock_provider]", *(f"{key} = {json.dumps(asked[key])}" for key in asked)]
        (self.home / "config.toml").write_text("\n".join([*lines, "", extra_toml]), encoding="utf-8")

    @property
    def responses(self) -> MockModel:
        """The mock model, under another name."""
        return self.model

    @property
    def codex_home(self) -> Path:
        """The home, under another name."""
        return self.home

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
        """The environment of a server as a program."""
        return {**os.environ, "CODEX_HOME": str(self.home), "TREADLE_HOME": str(self.home)}

    def codex_config(self, **members: Any) -> CodexConfig:
        """The SDK's configuration: a server in this process, with this home, workspace and model.

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
        return treadle_command("app-server", *(arguments or ("--listen", "stdio://")))

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


class HarnessClient:
    """Plain JSON objects in and out, over the connection that the SDK has to a server in its process. Everything that
    the server sends of its own accord is in `messages`, oldest first.

    Args:
        server: The server to talk to.
        answer: Decides about requests of the server: a function of the request that returns the result, or None to
            leave it open (`reply` answers it later).
    """

    def __init__(self, server: AppServer, answer: Answerer | None = None) -> None:
        self.server = server
        self.messages: list[Json] = []
        self.answer = answer
        self._news = asyncio.Event()
        self._waiters: dict[int, asyncio.Future[Json]] = {}
        self._numbers = itertools.count(1)
        self._channel = DirectChannel(self._received)
        server.accept(self._channel, must_not_lose=True)

    async def request(self, method: str, params: Mapping[str, Any]) -> Json:
        """The result. Raises `RpcError`.

        Args:
            method: The method, such as `thread/start`.
            params: Its params, with the names of the wire.
        """
        if self._channel.closed:
            raise RpcError(INVALID_REQUEST, _CLOSED)
        number = next(self._numbers)
        waiter: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._waiters[number] = waiter
        try:
            self._send({"id": number, "method": method, "params": params})
            # The connection may end first: with the server, or by `close`.
            ended = asyncio.ensure_future(self._channel.wait_closed())
            awaited: set[asyncio.Future[Any]] = {waiter, ended}
            try:
                await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            finally:
                ended.cancel()
            if not waiter.done():
                raise RpcError(INVALID_REQUEST, _CLOSED)
            return waiter.result()
        finally:
            del self._waiters[number]

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
        """What the server has sent so far.

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
            error = {"code": result.code, "message": result.message, "data": result.data}
            self._send({"id": request["id"], "error": error})
        else:
            self._send({"id": request["id"], "result": result})

    def close(self) -> None:
        """End the connection."""
        self._channel.close()

    def _send(self, message: Json) -> None:
        self._channel.deliver(json.dumps(message).encode())

    def _received(self, frame: bytes) -> None:
        message: Json = json.loads(frame)
        if "method" not in message:
            self._replied(message)
            return
        self.messages.append(message)
        self._news.set()
        if "id" not in message or self.answer is None:
            return
        try:
            result = self.answer(message)
        except Exception:  # of the test; the server is not to suffer from it
            logger.exception("the answer to %s failed; the client is disconnected", message["method"])
            self.close()
            return
        if result is not None:
            self.reply(message, result)

    def _replied(self, message: Json) -> None:
        waiter = self._waiters.get(message["id"])
        if waiter is None or waiter.done():
            return
        if "error" in message:
            error = message["error"]
            waiter.set_exception(RpcError(error["code"], error["message"], error.get("data")))
        else:
            waiter.set_result(message["result"])
