"""The two SDKs that scenarios are played with, and what of each is not public: its wire, its server, its handlers.

A scenario is written for the official package. With ours the same text runs after changing the import, and nothing
else: that is what `load` does. Runs in the child interpreter, which has both packages on its path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal

Package = Literal["openai_codex", "treadle"]
OFFICIAL: Final = "openai_codex"
OURS: Final = "treadle"
Recorder = Callable[[Literal[">", "<"], dict[str, Any]], None]
Misfit = Callable[[str], None]

_SCENARIOS: Final = Path(__file__).with_name("scenarios")
_IMPORT: Final = re.compile(rf"^from {OFFICIAL}\b", re.MULTILINE)


@cache
def load(name: str, package: Package) -> ModuleType:
    """The scenarios of one file, for one of the SDKs."""
    path = _SCENARIOS / f"{name}.py"
    source = _IMPORT.sub(f"from {package}", path.read_text())
    module = ModuleType(f"interop.sdk.scenarios.{name}.{package}")
    exec(compile(source, path, "exec"), vars(module))
    return module


def public(package: Package) -> Any:
    return import_module(package)


def clients(package: Package) -> dict[str, Any]:
    """The classes below the public ones, which have other names with us."""
    if package == OURS:
        from treadle.client import AppServerClient, AsyncAppServerClient

        return {"Client": AppServerClient, "AsyncClient": AsyncAppServerClient}
    return {
        "Client": import_module("openai_codex.client").CodexClient,
        "AsyncClient": import_module("openai_codex.async_client").AsyncCodexClient,
    }


def answer_with(client: Any, approve: Callable[[str, dict[str, Any]], dict[str, Any]]) -> None:
    """Let a function answer the requests of the server."""
    if hasattr(client, "handlers"):
        client.handlers.raw = approve
    else:
        getattr(client, "_sync", client)._approval_handler = approve


def kill_server(client: Any) -> None:
    """End the server of a client as nobody should."""
    if hasattr(client, "_connection"):
        client._connection._child._process.kill()
    else:
        getattr(client, "_sync", client)._proc.kill()


def write(client: Any, message: dict[str, Any]) -> None:
    """Send a message that the client knows nothing of."""
    if hasattr(client, "_connection"):
        client._connection.send(json.dumps(message).encode())
    else:
        getattr(client, "_sync", client)._write_message(message)


def error_of(package: Package, answer: dict[str, Any]) -> Any:
    """What a client raises for such an answer."""
    if package == OURS:
        from treadle.client import rpc_error

        return rpc_error(**answer["error"])
    return import_module("openai_codex.errors").map_jsonrpc_error(**answer["error"])


def record_official(note: Recorder, misfit: Misfit) -> None:
    """Have every client of the official SDK in this process note what it sends and receives."""
    client = import_module("openai_codex.client").CodexClient
    unknown = import_module("openai_codex.models").UnknownNotification
    write, read, coerce = client._write_message, client._read_message, client._coerce_notification

    def written(self: Any, payload: dict[str, Any]) -> None:
        note(">", payload)
        write(self, payload)

    def was_read(self: Any) -> Any:
        message = read(self)
        note("<", message)
        return message

    def coerced(self: Any, method: str, params: object) -> Any:
        notification = coerce(self, method, params)
        if isinstance(notification.payload, unknown):
            misfit(method)
        return notification

    client._write_message, client._read_message, client._coerce_notification = written, was_read, coerced


def record_ours(note: Recorder, misfit: Misfit) -> None:
    """The same for ours, where a connection is opened."""
    from treadle.client import async_connection, connection

    open_blocking, open_async = connection.open_connection, async_connection.open_connection

    def opened(config: Any, sink: Any) -> Any:
        return _heard(open_blocking(config, _Ear(sink, note, misfit)), note)

    async def opened_async(config: Any, sink: Any) -> Any:
        return _heard(await open_async(config, _Ear(sink, note, misfit)), note)

    connection.open_connection = opened
    async_connection.open_connection = opened_async


def _heard(connection: Any, note: Recorder) -> Any:
    send = connection.send

    def sent(frame: bytes) -> None:
        note(">", json.loads(frame))
        send(frame)

    connection.send = sent
    return connection


class _Ear:
    """Notes what arrives and passes it on."""

    def __init__(self, sink: Any, note: Recorder, misfit: Misfit) -> None:
        self._sink = sink
        self._note = note
        self._misfit = misfit

    def frames_received(self, frames: list[bytes]) -> None:
        from treadle.client import UnknownNotification, make

        for message in map(json.loads, frames):
            self._note("<", message)
            if "method" in message and "id" not in message:
                notification = make(message["method"], message.get("params", {}))
                if isinstance(notification.payload, UnknownNotification):
                    self._misfit(message["method"])
        self._sink.frames_received(frames)

    def connection_ended(self, failure: Any) -> None:
        self._sink.connection_ended(failure)
