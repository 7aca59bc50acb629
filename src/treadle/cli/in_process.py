"""`open_client`: the SDK's client of an app-server in this process, for commands that do one thing and end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from treadle.client import AsyncAppServerClient, CodexConfig
from treadle.client.async_connection import AsyncLocalConnection
from treadle.server import AppServer


@asynccontextmanager
async def open_client(
    name: str, settings: Sequence[str], *, cwd: str | None = None, approval_handler: Any = None
) -> AsyncIterator[AsyncAppServerClient]:
    """A client that is connected and has shaken hands.

    Args:
        name: The name of the client, such as `treadle_exec`.
        settings: Settings as `key=value`.
        cwd: The working directory of threads that name none.
        approval_handler: An async function that answers the requests of the server.
    """
    config = CodexConfig(
        config_overrides=settings,
        cwd=cwd,
        client_name=name,
        client_title=name.replace("_", " ").capitalize(),
        request_timeout=None,  # the server is this process: when it is slow, giving up would not help
    )
    client = AsyncAppServerClient(config, approval_handler)
    try:
        await client.start()
        await client.initialize()
        yield client
    finally:
        await client.close()


def server_of(client: AsyncAppServerClient) -> AppServer:
    """The server behind a client, for the few things that the protocol has no request for."""
    connection = client._connection
    assert isinstance(connection, AsyncLocalConnection)
    return connection.server.app_server
