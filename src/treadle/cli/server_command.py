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

if TYPE_CHECKING:
    from treadle.errors import TreadleError
    from treadle.transport import Address

_CONFIG_HELP = "a setting that goes before those of config.toml; may be given again, also before the command"


class ServerModule(Protocol):
    """What the module of a server provides."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def run_server(name: str, words: Sequence[str]) -> int:
    """Read the words and serve; gives the exit code."""
    arguments = server_parser(name).parse_args(words)
    return cast(ServerModule, import_module(SERVE[name].module)).run(arguments)


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


def add_token_arguments(parser: argparse.ArgumentParser, *aliases: str) -> None:
    """Add the options `--token-file` and `--no-token`."""
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
        token = _read_token(arguments.token_file)
    elif address.scheme == "ws" and address.is_loopback and not arguments.no_token:
        token = new_secret()
    learn([token] if token else [])
    return ListenerToken(token, arguments.token_file or None)


def _read_token(path: str) -> str:
    def unusable(why: str, do: str = "") -> TreadleError:
        from treadle.cli.problem import Problem  # only when the start fails

        do = do or f"umask 077; openssl rand -hex 32 > {path}"
        return Problem(f"the token file {path} cannot be used", why=why, do=do)

    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            status = os.fstat(file.fileno())
            token = file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise unusable(f"it cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}") from None
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise unusable("it must hold one word of printable ASCII")
    if status.st_uid not in (0, os.geteuid()):
        raise unusable(f"it belongs to another user (id {status.st_uid})")
    if status.st_mode & 0o077:
        mend = f"chmod 600 {path}, and change the token if others may have read it"
        raise unusable(f"its mode is {status.st_mode & 0o777:04o}: other users can read or change it", mend)
    return token


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
        yield address.url, f"{address}{', for everyone on this machine' if address.scheme == 'ws' else ''}"
        return
    url = Address("ws", address.host, address.port, f"/{token.value}").url
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
