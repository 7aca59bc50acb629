"""`treadle exec-server`: the exec-server as a program. It owns the process: signals, standard output, exit code."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from treadle.cli.own_process import closed_or_stopped, exit_with_deadline, start_logging, stop_on_signals, take_stdio
from treadle.cli.server_command import (
    ListenerToken,
    add_listener_arguments,
    listener_tls,
    listener_token,
    listening_at,
    token_in,
    token_problem,
)
from treadle.cli.streams import REFUSED, write_stdout
from treadle.errors import TreadleError
from treadle.transport import Address

if TYPE_CHECKING:
    from treadle.execution.server import ExecServer
    from treadle.execution.server.rights import Rights
    from treadle.transport.tokens import NamedToken

# 30 days. What is longer is a mistake, or a session that nobody will ever take up again.
MAX_DETACHED_S = 30 * 24 * 3600
DEFAULT_LISTEN = "ws://127.0.0.1:0"
# So often is looked whether somebody uses a server that ends by itself.
IDLE_LOOKS = 10
_EXAMPLES = """\
examples:
  treadle exec-server
      this user only, a free port; the first line printed is the URL for clients, with its secret
  treadle exec-server --listen ws://0.0.0.0:8765 --token-file ~/.treadle-token
      for other machines, who need the token; outside a private network with wss:// and a certificate
  treadle exec-server --listen wss://0.0.0.0:8765 --token-file token --tls-cert cert.pem --tls-key key.pem
      the same with TLS
  ssh HOST treadle exec-server --listen stdio://
      on another machine, over a connection that you have already
  ssh HOST treadle exec-server --attach NAME
      the same, but commands go on there when the connection is lost
  treadle exec-server --dial wss://HOST/executors --token-file token --name box --label gpu
      for an app-server, from a machine that nobody can connect to
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "--listen",
        metavar="URL",
        default=DEFAULT_LISTEN,
        help="ws://IP:PORT or wss://IP:PORT (port 0: a free one), unix:///PATH or stdio:// (default: %(default)s)",
    )
    add_listener_arguments(parser)
    parser.add_argument(
        "--tokens-file",
        metavar="FILE",
        help="several tokens with names and rights, in place of --token-file, as docs/exec-server.md describes them; "
        "for nobody else to read",
    )
    dialing = parser.add_argument_group("where nobody can connect to this machine")
    dialing.add_argument(
        "--dial",
        metavar="URL",
        help="connect to an app-server and serve it, in place of listening: wss://HOST/executors, with its token for "
        "executors in --token-file, and a certificate in --tls-cert and --tls-key if it wants one",
    )
    dialing.add_argument("--name", metavar="NAME", help="what this executor is called there (default: the host's name)")
    dialing.add_argument(
        "--label", metavar="WORD", action="append", default=[], help="what it can be chosen by; may be given again"
    )
    dialing.add_argument("--ca-file", metavar="FILE", help="issuers to trust, in place of those of the system, as PEM")
    dialing.add_argument(
        "--rights", metavar="NAME", help="the name in --tokens-file whose rights the app-server has (default: all)"
    )
    parser.add_argument(
        "--max-processes",
        metavar="N",
        type=_count,
        help="commands that run at a time, for all clients together, beside what a tokens file says of each",
    )
    parser.add_argument(
        "--exit-on-stdin-close",
        action="store_true",
        help="end when standard input ends, so that the server does not outlive the program that started it",
    )
    parser.add_argument(
        "--detached-s",
        metavar="SECONDS",
        type=_seconds,
        default=30.0,
        help="how long a session may wait for its client after the loss of a connection, at most 30 days; clients wish "
        "for less or more, and wait 30 s by themselves (default: 30)",
    )
    parser.add_argument(
        "--drain-s",
        metavar="SECONDS",
        type=_seconds,
        default=0.0,
        help="after the first SIGTERM or SIGINT take nothing new, and let commands go on for so long; a second signal "
        "ends them at once (default: 0)",
    )
    parser.add_argument(
        "--attach",
        metavar="NAME",
        help="in place of listening: be a connection to the server of this name and this user, on standard input and "
        "output; it is started when there is none, and goes on when the connection ends",
    )
    parser.add_argument("--stop", metavar="NAME", help="stop that server, with all that it runs")
    parser.add_argument("--idle-s", metavar="SECONDS", type=float, default=0.0, help=argparse.SUPPRESS)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1 << 20:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to {1 << 20}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= MAX_DETACHED_S:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 0 to {MAX_DETACHED_S}")
    return value


def run(arguments: argparse.Namespace) -> int:
    """Serve; gives the exit code."""
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
    if arguments.attach is not None or arguments.stop is not None:
        from treadle.cli import exec_attach  # a pipe needs nothing else of this module

        return exec_attach.stop(arguments.stop) if arguments.attach is None else exec_attach.attach(arguments.attach)
    start_logging("warning", arguments.log_level)
    if arguments.dial is not None:
        return asyncio.run(_dial(arguments))
    for name in ("name", "label", "ca_file", "rights"):
        if getattr(arguments, name):
            raise _wrong(f"--{name.replace('_', '-')} is for --dial", do="--dial wss://HOST/executors")
    if arguments.tokens_file is not None and (arguments.token_file is not None or arguments.no_token):
        raise _wrong("--tokens-file is in place of --token-file and --no-token", do="one of them")
    address = Address.parse("stdio://" if arguments.listen == "stdio" else arguments.listen)
    if address.scheme == "stdio":
        if arguments.tokens_file is not None:
            text = "--tokens-file is for a listener, and this one is standard input and output"
            raise _wrong(text, do="--listen ws://127.0.0.1:0")
        return asyncio.run(_serve_stdio(arguments))
    return asyncio.run(_serve(address, arguments))


async def _serve(address: Address, arguments: argparse.Namespace) -> int:
    # Only when listening: it loads websockets.
    from treadle.execution.server import ExecServer
    from treadle.transport.listen import listen
    from treadle.transport.listener_secret import home_path

    stop = stop_on_signals()
    home = home_path(os.environ)
    with _clients(arguments, home) as (rights, named):
        token = ListenerToken(None, arguments.tokens_file) if named else listener_token(address, arguments)
        tls = listener_tls(arguments)
        if arguments.exit_on_stdin_close:
            _stop_on_eof(stop)
        async with ExecServer(
            detached_s=arguments.detached_s, rights=rights, max_processes=arguments.max_processes
        ) as server:
            gauges = server.sessions.gauges
            listener = await listen(address, server.accept, token=token.value, named=named, metrics=gauges, tls=tls)
            with listening_at(listener.address, token, home) as (url, line):
                # Not on standard error, which often is that of the program that started us.
                write_stdout(f"{url}\ntreadle exec-server listens on {line}")
                server.prepare()
                await _stopped_or_idle(server, stop, arguments.idle_s)
                listener.drain(resuming=True)
                await server.drain(arguments.drain_s)
                listener.drain()
                await server.close()
                await listener.close()
    exit_with_deadline()
    return 0


async def _dial(arguments: argparse.Namespace) -> int:
    from treadle.execution.server import ExecServer
    from treadle.execution.server.dialing import Dialer, host_name
    from treadle.transport.listener_secret import home_path

    address = Address.parse(arguments.dial)
    if address.scheme not in ("ws", "wss") or not (address.scheme == "wss" or address.is_loopback):
        # Whoever answers can run commands here: it must be known who that is.
        raise _wrong(f"--dial {address}: other machines are dialed by wss:// alone", do="--dial wss://HOST/executors")
    if arguments.token_file is None or arguments.listen != DEFAULT_LISTEN:
        raise _wrong("--dial needs --token-file, and does not listen", do="--dial URL --token-file FILE, no --listen")
    if (arguments.tokens_file is None) is not (arguments.rights is None):
        raise _wrong("--tokens-file and --rights go together with --dial", do="--tokens-file FILE --rights NAME")
    stop = stop_on_signals()
    if arguments.exit_on_stdin_close:
        _stop_on_eof(stop)
    with _clients(arguments, home_path(os.environ)) as (rights, _):
        if rights is not None and arguments.rights not in rights:
            raise _wrong(
                f"--rights {arguments.rights}: {arguments.tokens_file} has no such name", do="one of its names"
            )
        async with ExecServer(
            detached_s=arguments.detached_s, rights=rights, max_processes=arguments.max_processes
        ) as server:
            dialer = Dialer(
                server,
                address,
                token=token_in(arguments.token_file),
                name=arguments.name or host_name(),
                labels=arguments.label,
                rights=arguments.rights or "",
                ca_file=arguments.ca_file,
                cert_file=arguments.tls_cert,
                key_file=arguments.tls_key,
            )
            server.prepare()
            write_stdout(f"treadle exec-server dials {address} as {dialer.name}")
            dialing = asyncio.create_task(dialer.run())
            stopped = asyncio.create_task(stop.wait())
            await asyncio.wait((dialing, stopped), return_when=asyncio.FIRST_COMPLETED)
            if not dialing.done():
                # Clients come back over new connections meanwhile.
                await server.drain(arguments.drain_s)
                dialing.cancel()
            stopped.cancel()
            await asyncio.wait((dialing, stopped))
            await server.close()
    exit_with_deadline()
    if not dialing.cancelled():
        dialing.result()  # it ends by an error alone
    return 0


def _wrong(what: str, do: str) -> TreadleError:
    from treadle.cli.problem import Problem  # only when the words are wrong

    return Problem(what, do=do, code=REFUSED)


@contextlib.contextmanager
def _clients(
    arguments: argparse.Namespace, home: str | None
) -> Iterator[tuple[dict[str, Rights] | None, tuple[NamedToken, ...]]]:
    """What the tokens file says, if there is one: rights by name, and the tokens. Raises `Problem` when it cannot be
    used. Control groups for limits are there meanwhile."""
    if arguments.tokens_file is None:
        yield None, ()
        return
    # Only with such a file.
    from treadle.cli.problem import Problem
    from treadle.execution.process_limits import ControlGroups, NoControlGroups
    from treadle.execution.server.tokens_file import apply_groups, load_rights
    from treadle.transport.tokens import TokenFileError

    try:
        hidden = tuple(filter(None, (home, arguments.tls_key, arguments.token_file)))
        rights, named = load_rights(arguments.tokens_file, hidden=hidden, dials=arguments.dial is not None)
        groups = apply_groups(rights, ControlGroups.of_this_process)
    except TokenFileError as error:
        raise token_problem(error) from None
    except NoControlGroups as error:
        do = "leave them out, or give the server a control group of its own (systemd: Delegate=yes)"
        raise Problem("the limits in the tokens file cannot be kept", why=str(error), do=do) from None
    try:
        yield rights, named
    finally:
        if groups is not None:
            groups.close()


async def _serve_stdio(arguments: argparse.Namespace) -> int:
    # `--help` does without the first, and who listens without the second.
    from treadle.execution.server import ExecServer
    from treadle.transport.stdio import stdio_channel

    stop = stop_on_signals()
    reader, writer = take_stdio()
    async with ExecServer(max_processes=arguments.max_processes) as server:
        channel = await stdio_channel(reader, writer, "stdio")
        server.accept(channel)
        await closed_or_stopped(channel, stop)
        if stop.is_set():
            await server.drain(arguments.drain_s)
    exit_with_deadline()
    return 0


async def _stopped_or_idle(server: ExecServer, stop: asyncio.Event, idle_s: float) -> None:
    """Wait for a signal, or until nobody has used the server for so many seconds; 0 is for ever."""
    unused = 0
    while not stop.is_set() and unused < IDLE_LOOKS:
        unused = 0 if server.used else unused + 1
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), idle_s / IDLE_LOOKS if idle_s else None)


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
