"""The app-server in the process of a command: `check_turn` checks the settings before a turn is run with them,
`open_client` gives the SDK's client of the server to commands that do one thing and end.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from treadle.cli.problem import Problem, model_problem
from treadle.cli.streams import REFUSED, write_stderr
from treadle.client import AsyncAppServerClient, CodexConfig
from treadle.client.async_connection import AsyncLocalConnection
from treadle.config import Config, Login, find_home, load_config
from treadle.config.login import key_source
from treadle.llm import ModelError
from treadle.llm.provider import endpoint
from treadle.pages.safe_text import printable
from treadle.server import AppServer


def check_turn(command: str, overrides: Iterable[str], model: str | None, *, strict: bool = False) -> Config:
    """The settings, for a command that runs a turn. Raises `ConfigError`; and `Problem` when there is no key for the
    model, with `strict` also when there is something to warn of."""
    loaded = load_config(find_home(os.environ), overrides=overrides)
    if strict and loaded.warnings:
        why = "\n".join(str(warning) for warning in loaded.warnings)
        do = "treadle config check, or the same again without --strict-config"
        raise Problem("something in the settings has no effect", why=why, do=do, code=REFUSED)
    for warning in loaded.warnings:
        write_stderr(printable(f"treadle {command}: warning: {warning}"))
    config = loaded.config
    choice = config.model_choice(model, None)
    provider = config.providers.get(choice.provider)
    if provider is not None:
        try:
            endpoint(provider, "", {}, login_key=key_source(provider, Login(config.home), os.environ))
        except ModelError as error:
            raise model_problem(error, provider, f"{choice.model or 'the model'} cannot be asked") from None
    return config


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
