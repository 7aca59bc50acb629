"""A server as a command: its arguments, the token of its listener, and the lines that give its address.

Plain argparse, since other programs start servers and wait for them. A WebSocket listener on loopback gets a secret
even if none was asked for: other users, and sandboxed commands that have network access, can reach the port too.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Protocol, TextIO, cast

from treadle.cli import SERVE
from treadle.cli.streams import REFUSED, write
from treadle.errors import TreadleError, needs_linux

if TYPE_CHECKING:
    from treadle.transport import Address
    from treadle.transport.tls import TlsFiles
    from treadle.transport.tokens import TokenFileError

_CONFIG_HELP = "a setting that goes before those of config.toml; may be given again, also before the command"


class ServerModule(Protocol):
    """What the module of a server provides."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def run_server(name: str, words: Sequence[str]) -> int:
    """Read the words and serve; gives the exit code."""
    parser = server_parser(name)
    arguments = parser.parse_args(words)
    if getattr(arguments, "tls_cert", None) and arguments.listen.startswith("stdio"):
        parser.error("--tls-cert is for a wss:// listener, and this one is standard input and output")
    try:
        if (missing := needs_linux(f"treadle {name}")) is not None:
            from treadle.cli.problem import Problem  # only on other systems

            raise Problem(missing, code=REFUSED)
        return cast(ServerModule, import_module(SERVE[name].module)).run(arguments)
    except TreadleError as error:
        # Only when the start fails.
        from treadle.cli.problem import report
        from treadle.config import ConfigError

        code = report(name, error)
        return REFUSED if isinstance(error, ConfigError) else code


def server_parser(name: str) -> argparse.ArgumentParser:
    """The parser of a server's words."""
    summary = SERVE[name].summary
    parser = _Parser(
        prog=f"treadle {name}",
        description=f"{summary[0].upper()}{summary[1:]}.",
        # With a fixed width argparse need not load what finds out the terminal's.
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=100),
    )
    parser.add_argument(
        "-c",
        "--config",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="config_overrides",
        help=argparse.SUPPRESS if name == "exec-server" else _CONFIG_HELP,  # which the exec-server refuses
    )
    cast(ServerModule, import_module(SERVE[name].module)).add_arguments(parser)
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        help="what is logged, to standard error (default: TREADLE_LOG, else warning)",
    )
    return parser


class _Parser(argparse.ArgumentParser):
    """A parser whose help and complaints are written as all output is: a failure to write them is reported."""

    def error(self, message: str) -> NoReturn:
        # Only when the words are wrong.
        from treadle.cli.problem import Problem, report

        usage = " ".join(self.format_usage().split())
        problem = Problem(message, why=usage, do=f"{self.prog} --help", code=REFUSED)
        raise SystemExit(report(self.prog.removeprefix("treadle "), problem))

    def _print_message(self, message: str, file: object = None) -> None:
        stream = cast("TextIO | None", file or sys.stderr)
        if message and stream is not None:
            write(stream, message)


# --- the listener ---


class ListenerToken(NamedTuple):
    """The token of a listener. `file` is the user's file with it; None if we generated the token."""

    value: str | None
    file: str | None


def add_listener_arguments(parser: argparse.ArgumentParser, *aliases: str) -> None:
    """Add the options for the token and the certificate."""
    parser.add_argument(
        "--tls-cert",
        metavar="FILE",
        help="certificate of a wss:// listener, as PEM, with those of its issuers behind it",
    )
    parser.add_argument(
        "--tls-key", metavar="FILE", help="its key, for nobody else to read; both files are read again when they change"
    )
    parser.add_argument(
        "--tls-client-ca",
        metavar="FILE",
        help="issuers of certificates that clients must show at a wss:// listener, as PEM; a token is needed as well, "
        "unless a tokens file says that the certificate is enough",
    )
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--token-file",
        *aliases,
        metavar="FILE",
        help="file with the token that clients must present; required when listening on anything but loopback "
        "(default for ws:// on loopback: a new one, which the URL that is printed contains)",
    )
    group.add_argument(
        "--no-token",
        action="store_true",
        help="let everyone in who reaches the port on loopback: all users of the machine, and sandboxed commands",
    )


def listener_token(address: Address, arguments: argparse.Namespace) -> ListenerToken:
    """The token that the options ask for. Raises `Problem` for a file that is unsafe or has none."""
    # Only when listening.
    from treadle.secrets import learn
    from treadle.transport.listener_secret import new_secret

    token: str | None = None
    if arguments.token_file:
        token = token_in(arguments.token_file)
    elif address.scheme in ("ws", "wss") and address.is_loopback and not arguments.no_token:
        token = new_secret()
        learn([token])
    return ListenerToken(token, arguments.token_file or None)


def listener_tls(arguments: argparse.Namespace) -> TlsFiles | None:
    """The certificate that the options name. Raises `Problem` for files that cannot be used."""
    if arguments.tls_cert is None and arguments.tls_key is None and arguments.tls_client_ca is None:
        return None
    # Only for listeners that have one.
    from treadle.cli.problem import Problem
    from treadle.transport.address import ListenError
    from treadle.transport.tls import TlsFiles

    both = "--tls-cert FILE --tls-key FILE"
    if arguments.tls_cert is None or arguments.tls_key is None:
        raise Problem("--tls-cert and --tls-key go together", do=both, code=REFUSED)
    try:
        return TlsFiles(arguments.tls_cert, arguments.tls_key, arguments.tls_client_ca)
    except ListenError as error:
        raise Problem("the certificate cannot be used", why=str(error), do=f"{both}, both in PEM form") from None


def token_in(path: str) -> str:
    """The token in a file that the command line names. Raises `Problem` for one that is unsafe or has none."""
    # Only when listening.
    from treadle.secrets import learn
    from treadle.transport.tokens import TokenFileError, read_token

    try:
        token = read_token(path)
    except TokenFileError as error:
        raise token_problem(error) from None
    learn([token])
    return token


def token_problem(error: TokenFileError) -> TreadleError:
    from treadle.cli.problem import Problem  # only when the start fails

    return Problem(f"the token file {error.path} cannot be used", why=error.why, do=error.do)


@contextmanager
def listening_at(address: Address, token: ListenerToken, home: str | None) -> Iterator[tuple[str, str]]:
    """The URL for clients, and a line for people. While the block runs, the file that the line names contains the
    token."""
    # Only when listening.
    from treadle.transport import Address
    from treadle.transport.listener_secret import SecretError, write_secret

    if token.file is not None:
        path = os.path.abspath(os.path.expanduser(token.file))
        yield address.url, f"{address}, with the token in {path}"
        return
    if token.value is None:
        yield address.url, f"{address}{', for everyone on this machine' if address.scheme != 'unix' else ''}"
        return
    url = Address(address.scheme, address.host, address.port, f"/{token.value}").url
    if home is None:
        yield url, f"{address}; its token is in the URL only, for want of a home"
        return
    try:
        secret = write_secret(home, address, token.value)
    except SecretError as error:
        yield url, f"{address}; its token is in the URL only: {error}"
        return
    try:
        yield url, f"{address}, with the token in {secret.path}"
    finally:
        secret.remove()
