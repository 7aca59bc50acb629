"""`treadle exec-server`: the exec-server as a program. It owns the process: signals, standard output, exit code."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys

from treadle.errors import TreadleError
from treadle.execution.server import ExecServer
from treadle.transport import Address, AddressError

EXIT_PATIENCE_S = 2.0

_EXAMPLES = """\
examples:
  treadle exec-server
      this machine only, a free port; the first line printed is the URL for clients
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
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="file with the token that clients must present; required when listening on anything but loopback",
    )
    parser.add_argument(
        "--exit-on-stdin-close",
        action="store_true",
        help="end when standard input ends, so that the server does not outlive the program that started it",
    )
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="warning",
        help="what goes to standard error (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    logging.basicConfig(
        level=arguments.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    try:
        address = Address.parse("stdio://" if arguments.listen == "stdio" else arguments.listen)
        token = _read_token(arguments.token_file) if arguments.token_file else None
        if address.scheme == "stdio":
            return asyncio.run(_serve_stdio())
        return asyncio.run(_serve(address, token, arguments.exit_on_stdin_close))
    except AddressError as error:
        return _refuse(f"--listen {error}")
    except TreadleError as error:
        return _refuse(str(error))


def _refuse(text: str) -> int:
    print(f"treadle exec-server: {text}", file=sys.stderr)
    return 1


def _read_token(path: str) -> str:
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            token = file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise TreadleError(f"cannot read the token file {path}: {error}") from None
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise TreadleError(
            f"the token file {path} must hold one word of printable ASCII, such as `openssl rand -hex 32` makes"
        )
    return token


async def _serve(address: Address, token: str | None, exit_on_stdin_close: bool) -> int:
    from treadle.transport.listen import listen

    stop = _stop_on_signals()
    if exit_on_stdin_close:
        _stop_on_eof(stop)
    async with ExecServer() as server:
        listener = await listen(address, server.accept, token=token)
        print(listener.url, flush=True)
        server.prepare()
        await stop.wait()
        await listener.close()
    _exit_soon()
    return 0


async def _serve_stdio() -> int:
    from treadle.transport.stdio import stdio_channel

    stop = _stop_on_signals()
    # Nothing but messages may reach standard output: what a library prints goes to standard error.
    reader, writer = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    async with ExecServer() as server:
        channel = await stdio_channel(reader, writer, "stdio")
        server.accept(channel)
        closed = asyncio.ensure_future(channel.wait_closed())
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait((closed, stopped), return_when=asyncio.FIRST_COMPLETED)
        for waiter in (closed, stopped):
            waiter.cancel()
    _exit_soon()
    return 0


def _exit_soon() -> None:
    """Python waits for its worker threads, and one may hang in a file system: not for ever."""
    asyncio.get_running_loop().call_later(EXIT_PATIENCE_S, os._exit, 0)


def _stop_on_signals() -> asyncio.Event:
    """The first SIGTERM or SIGINT ends the server and its processes in order; a second one at once."""
    stop = asyncio.Event()

    def requested() -> None:
        if stop.is_set():
            os._exit(1)  # the helper process sees it and kills what is left
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, requested)
    return stop


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
