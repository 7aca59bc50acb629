"""`treadle app-server`: the app-server as a program. It owns the process: signals, standard output, exit code."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from treadle.cli.own_process import (
    closed_or_stopped,
    exit_with_deadline,
    reload_on_hangup,
    start_logging,
    stop_on_signals,
    take_stdio,
    use_one_malloc_arena,
)
from treadle.cli.server_command import add_listener_arguments, listener_tls, listener_token, listening_at, token_in
from treadle.cli.streams import REFUSED, write_stderr, write_stdout

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from treadle.cli.early_initialize import EarlyInitialize
    from treadle.cli.mcp_sessions import McpSessions
    from treadle.cli.mcp_threads import ThreadTools
    from treadle.server.app import AppServer
    from treadle.server.executors import Executors
    from treadle.transport import Address, Channel
    from treadle.transport.websocket import Head

_EXAMPLES = """\
examples:
  treadle app-server
      one client on standard input and output, as editors and SDKs start it
  treadle app-server --listen ws://127.0.0.1:4500
      several clients of this user; the first line on standard output is the URL, with its secret
  treadle -c model=gpt-5.5 -c model_provider=openai app-server --listen unix://
      a socket in the home, with settings from the command line
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "--listen",
        metavar="URL",
        default="stdio://",
        help="stdio://, ws://IP:PORT or wss://IP:PORT (port 0: a free one), unix://PATH, or unix:// for a socket in "
        "the home (default: %(default)s)",
    )
    parser.add_argument("--stdio", action="store_const", const="stdio://", dest="listen", help="same as stdio://")
    add_listener_arguments(parser, "--ws-token-file")
    parser.add_argument(
        "--executors-token-file",
        metavar="FILE",
        help="file with the token of executors that dial this server (`treadle exec-server --dial`), another one than "
        "that of clients (default: none may)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve; gives the exit code."""
    overrides = tuple(arguments.config_overrides)
    if overrides:
        # A wrong `-c` is reported before the first answer: a client should not hear from a server that was
        # started wrongly. With a broken file the server serves, and reports it to its clients.
        from treadle.config import ConfigError, find_home, load_config  # only when there are overrides to check

        try:
            load_config(find_home(os.environ), overrides=overrides)
        except ConfigError as error:
            if error.blames("-c"):
                raise
    if arguments.listen in ("stdio://", "stdio") and arguments.executors_token_file is not None:
        from treadle.cli.problem import Problem  # only when the words are wrong

        raise Problem("--executors-token-file is for a server that listens", do="--listen wss://…", code=REFUSED)
    if arguments.listen in ("stdio://", "stdio"):
        # One client, served as long as it is there: a turn that runs when it leaves is interrupted.
        # `--help` and listening do not need these.
        from treadle.cli.early_initialize import answer_initialize
        from treadle.config.home_files import home_name

        home = home_name(os.environ)
        reader, writer = take_stdio()
        early = answer_initialize(reader, writer, home)

        import asyncio  # after `initialize` was answered: this takes most of the start

        _start_logging(arguments.log_level, overrides)
        return asyncio.run(_serve_stdio(early, reader, writer, overrides))

    import asyncio  # `--help` does without it

    use_one_malloc_arena()
    _start_logging(arguments.log_level, overrides)
    return asyncio.run(_serve(arguments, overrides))


def _start_logging(given: str | None, overrides: tuple[str, ...]) -> None:
    """Log at the level of the command line, else of the environment. Clients that start a Codex server set its level
    by `RUST_LOG`."""
    rust_log = os.environ.get("RUST_LOG", "")
    start_logging(rust_log if rust_log in ("debug", "info", "error") else "warning", given, overrides)


async def _serve_stdio(early: EarlyInitialize, reader: int, writer: int, overrides: tuple[str, ...]) -> int:
    # After `initialize` was answered.
    from treadle.server.app import AppServer
    from treadle.transport.stdio import stdio_channel

    stop = stop_on_signals()
    async with AppServer(overrides=overrides) as server:
        reload_on_hangup(server.load_config, stop)
        channel = await stdio_channel(reader, writer, "stdio")
        if early.unread:
            channel.data_received(early.unread)
        server.accept(channel, must_not_lose=True, identity=early.identity)
        await closed_or_stopped(channel, stop)
    exit_with_deadline()
    return 0


async def _serve(arguments: argparse.Namespace, overrides: tuple[str, ...]) -> int:
    """Serve until the first signal; then wait for turns that run, until a second signal."""
    # Only when listening: it loads websockets.
    from treadle.server.app import AppServer
    from treadle.transport import Address
    from treadle.transport.listen import listen
    from treadle.transport.listener_secret import new_secret

    stop = stop_on_signals()
    executors = _executors(arguments)
    async with AppServer(overrides=overrides) as server:
        server.executors = executors

        def accept(channel: Channel) -> None:
            server.accept(channel)

        threads: ThreadTools | None = None
        sessions: McpSessions | None = None

        def mcp(head: Head, lost: Callable[[], None]) -> asyncio.Protocol:
            nonlocal threads, sessions
            if sessions is None or threads is None:
                # With the first MCP client.
                from treadle.cli.mcp_sessions import McpSessions
                from treadle.cli.mcp_threads import ThreadTools
                from treadle.client import CodexConfig

                own = CodexConfig(
                    url=inner.url, token=inner.access.token, client_name="treadle_mcp_server", request_timeout=None
                )
                threads = ThreadTools(own, lambda: server.latest_config.mcp_model_approvals)
                sessions = McpSessions(threads)
            return sessions.exchange(head, lost)

        _ = server.home_path  # a home that cannot be used is reported now, not to the first client
        reload_on_hangup(server.load_config, stop)
        address = _address(arguments.listen, server)
        token, tls = listener_token(address, arguments), listener_tls(arguments)
        listener = await listen(
            address,
            accept,
            token=token.value,
            health_paths=("/readyz", "/healthz"),
            any_path=True,
            text_only=True,
            http=("/mcp", mcp),
            metrics=lambda: (*server.gauges(), *executors.gauges()),
            tls=tls,
            dial_in=executors,
        )
        # Where MCP clients are served from: ourselves, and our own certificate need not be for this address.
        inner = listener if tls is None else await listen(Address("ws", "127.0.0.1"), accept, token=new_secret())
        with listening_at(listener.address, token, str(server.home_path)) as (url, line):
            write_stderr(f"treadle app-server listens on {line}")
            write_stdout(url)
            server.warm_up()
            server.refresh_config()
            if server.config_error is None:
                write_stderr(f"treadle app-server: model {server.config.chosen}")
            await stop.wait()
            listener.drain()
            if server.is_busy:
                write_stderr("treadle app-server: waiting for running turns; a second signal ends them")
            await server.drain()
            await executors.close()
            if sessions is not None and threads is not None:
                await sessions.close()
                await threads.close()
            for each in {listener, inner}:
                await each.close()
    exit_with_deadline()
    return 0


def _executors(arguments: argparse.Namespace) -> Executors:
    """Those that dial this server: none without a token for them. Raises `Problem` for one that cannot be used."""
    from treadle.server.executors import Executors  # only when listening

    if arguments.executors_token_file is None:
        return Executors(None)
    from treadle.transport.tokens import MIN_TOKEN

    token = token_in(arguments.executors_token_file)
    if len(token) < MIN_TOKEN or (arguments.token_file and token == token_in(arguments.token_file)):
        from treadle.cli.problem import Problem  # only when the start fails

        why = f"it has less than {MIN_TOKEN} characters, or is that of clients"
        do = f"umask 077; openssl rand -hex 32 > {arguments.executors_token_file}"
        raise Problem("the token for executors cannot be used", why=why, do=do)
    return Executors(token)


def _address(listen_on: str, server: AppServer) -> Address:
    from treadle.transport import Address  # only when listening: it loads websockets

    if listen_on == "unix://":
        folder = server.home_path / "app-server-control"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            from treadle.cli.problem import Problem  # only when the start fails

            raise Problem(f"cannot make {folder}", why=str(error.strerror), do="--listen unix://PATH") from None
        return Address.parse(f"unix://{folder}/app-server-control.sock")
    return Address.parse(listen_on)
