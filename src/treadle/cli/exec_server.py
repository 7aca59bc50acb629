"""`treadle exec-server`: the exec-server as a program. It owns the process: signals, standard output, exit code."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os

from treadle.cli.own_process import exit_with_deadline, start_logging, stop_on_signals, take_stdio
from treadle.cli.server_command import ListenerToken, add_token_arguments, listener_token, listening_at
from treadle.cli.streams import REFUSED, write_stdout
from treadle.errors import TreadleError
from treadle.execution.server import ExecServer
from treadle.transport import Address

_EXAMPLES = """\
examples:
  treadle exec-server
      this user only, a free port; the first line printed is the URL for clients, with its secret
  treadle exec-server --listen ws://0.0.0.0:8765 --token-file ~/.treadle-token
      for other machines, who need the token; put TLS in front of it outside a private network
  ssh HOST treadle exec-server --listen stdio://
      on another machine, over a connection that you have already
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "--listen",
        metavar="URL",
        default="ws://127.0.0.1:0",
        help="ws://IP:PORT (port 0: a free one), unix:///PATH or stdio:// (default: %(default)s)",
    )
    add_token_arguments(parser)
    parser.add_argument(
        "--exit-on-stdin-close",
        action="store_true",
        help="end when standard input ends, so that the server does not outlive the program that started it",
    )
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        help="what is logged (default: TREADLE_LOG, else warning)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve; gives the exit code."""
    try:
        if arguments.config_overrides:
            # Not ignored: whoever gives a setting relies on it. Loaded only when there is one.
            from treadle.cli.problem import Problem
            from treadle.secrets import shown_setting

            raise Problem(
                f"-c {shown_setting(arguments.config_overrides[0])} means nothing to an exec-server",
                why="it has no settings: what a command may do is said by the client that starts it",
                do="the same -c with the client, and `treadle exec-server --help` for what can be chosen here",
                code=REFUSED,
            )
        start_logging("warning", arguments.log_level)
        address = Address.parse("stdio://" if arguments.listen == "stdio" else arguments.listen)
        if address.scheme == "stdio":
            return asyncio.run(_serve_stdio())
        return asyncio.run(_serve(address, listener_token(address, arguments), arguments.exit_on_stdin_close))
    except TreadleError as error:
        from treadle.cli.problem import report  # only when the start fails

        return report("exec-server", error)


async def _serve(address: Address, token: ListenerToken, exit_on_stdin_close: bool) -> int:
    # Only when listening: it loads websockets.
    from treadle.transport.listen import listen
    from treadle.transport.listener_secret import home_path

    stop = stop_on_signals()
    if exit_on_stdin_close:
        _stop_on_eof(stop)
    async with ExecServer() as server:
        listener = await listen(address, server.accept, token=token.value)
        with listening_at(listener.address, token, home_path(os.environ)) as (url, line):
            # Not on standard error, which often is that of the program that started us.
            write_stdout(f"{url}\ntreadle exec-server listens on {line}")
            server.prepare()
            await stop.wait()
            listener.drain()
            await server.close()
            await listener.close()
    exit_with_deadline()
    return 0


async def _serve_stdio() -> int:
    from treadle.transport.stdio import stdio_channel  # not needed when listening

    stop = stop_on_signals()
    reader, writer = take_stdio()
    async with ExecServer() as server:
        channel = await stdio_channel(reader, writer, "stdio")
        server.accept(channel)
        closed = asyncio.ensure_future(channel.wait_closed())
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait((closed, stopped), return_when=asyncio.FIRST_COMPLETED)
        for waiter in (closed, stopped):
            waiter.cancel()
    exit_with_deadline()
    return 0


def _stop_on_eof(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def readable() -> None:
        with contextlib.suppress(OSError):
            if os.read(0, 4096):
                return
        loop.remove_reader(0)
        stop.set()

    try:
        loop.add_reader(0, readable)
    except OSError:  # a file, /dev/null or nothing at all: nobody is there to close it
        stop.set()
