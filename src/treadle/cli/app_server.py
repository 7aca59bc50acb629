"""`treadle app-server`: the app-server as a program. It owns the process: signals, standard output, exit code."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys

from treadle.cli.process import exit_soon, read_token, refuse, start_logging, stop_on_signals, take_stdio
from treadle.errors import TreadleError
from treadle.server.app import AppServer
from treadle.transport import Address, AddressError, Channel

_NAME = "app-server"
_EXAMPLES = """\
examples:
  treadle app-server
      one client on standard input and output, as editors and SDKs start it
  treadle app-server --listen ws://127.0.0.1:4500
      several clients; the first line on standard output is the URL
  treadle -c model=gpt-5.5 -c model_provider=openai app-server --listen unix://
      a socket in the home, with settings from the command line
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "--listen",
        metavar="URL",
        default="stdio://",
        help="stdio://, ws://IP:PORT (port 0: a free one), unix://PATH, or unix:// for a socket in the home "
        "(default: %(default)s)",
    )
    parser.add_argument("--stdio", action="store_const", const="stdio://", dest="listen", help="same as stdio://")
    parser.add_argument(
        "--token-file",
        "--ws-token-file",
        metavar="FILE",
        help="file with the token that clients must present; required when listening on anything but loopback",
    )
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default=_level_of(os.environ.get("RUST_LOG", "")),
        help="what goes to standard error (default: warning)",
    )


def _level_of(rust_log: str) -> str:
    """Clients that start a Codex server set its log level this way."""
    return rust_log if rust_log in ("debug", "info", "error") else "warning"


def run(arguments: argparse.Namespace) -> int:
    start_logging(arguments.log_level)
    try:
        token = read_token(arguments.token_file) if arguments.token_file else None
        overrides = tuple(arguments.config_overrides)
        if arguments.listen in ("stdio://", "stdio"):
            return asyncio.run(_serve_stdio(overrides))
        return asyncio.run(_serve(arguments.listen, token, overrides))
    except AddressError as error:
        return refuse(_NAME, f"--listen {error}")
    except TreadleError as error:
        return refuse(_NAME, str(error))


async def _serve_stdio(overrides: tuple[str, ...]) -> int:
    """For one client, and as long as it is there: a turn that runs when it leaves is interrupted."""
    from treadle.transport.stdio import stdio_channel

    stop = stop_on_signals()
    reader, writer = take_stdio()
    async with AppServer(overrides=overrides) as server:
        channel = await stdio_channel(reader, writer, "stdio")
        server.accept(channel, must_not_lose=True)
        closed = asyncio.ensure_future(channel.wait_closed())
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait((closed, stopped), return_when=asyncio.FIRST_COMPLETED)
        for waiter in (closed, stopped):
            waiter.cancel()
    exit_soon()
    return 0


async def _serve(listen_on: str, token: str | None, overrides: tuple[str, ...]) -> int:
    """Until the first signal; then turns that run are waited for, until a second one."""
    from treadle.transport.listen import listen

    stop = stop_on_signals()
    async with AppServer(overrides=overrides) as server:
        address = _address(listen_on, server)
        listener = await listen(
            address, lambda channel: _accept(server, channel), token=token, health_paths=("/readyz", "/healthz")
        )
        print(listener.url, flush=True)
        print(f"treadle app-server listens on {listener.url}", file=sys.stderr)
        server.warm_up()
        await stop.wait()
        await listener.close()
        logging.getLogger(__name__).warning("waiting for running turns; a second signal ends them")
        await server.drain()
    exit_soon()
    return 0


def _address(listen_on: str, server: AppServer) -> Address:
    if listen_on == "unix://":
        folder = server.home_path / "app-server-control"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Address.parse(f"unix://{folder}/app-server-control.sock")
    return Address.parse(listen_on)


def _accept(server: AppServer, channel: Channel) -> None:
    server.accept(channel)
