"""What the servers share when they listen: the token options, and announcing the address.

A WebSocket listener on loopback gets a secret even if none was asked for: other users, and sandboxed commands that have
network access, can reach the port too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from treadle.cli.server_process import read_token

if TYPE_CHECKING:
    import argparse

    from treadle.transport import Address


class ListenerToken(NamedTuple):
    """The token of a listener. `file` is where the user keeps it; None if we generated it."""

    value: str | None
    file: str | None


def add_token_arguments(parser: argparse.ArgumentParser, *aliases: str) -> None:
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
    # Only when listening.
    from treadle.secrets import learn
    from treadle.transport.listener_secret import new_secret

    token: str | None = None
    if arguments.token_file:
        token = read_token(arguments.token_file)
    elif address.scheme == "ws" and address.is_loopback and not arguments.no_token:
        token = new_secret()
    learn([token] if token else [])
    return ListenerToken(token, arguments.token_file or None)


@contextmanager
def announced(address: Address, token: ListenerToken, home: str | None) -> Iterator[tuple[str, str]]:
    """The URL for clients, and a line for people. While the block runs, the file it names contains the token."""
    # Only when listening.
    from treadle.transport import Address
    from treadle.transport.listener_secret import SecretError, write_secret

    if token.value is None or token.file is not None:
        yield address.url, f"{address}{_remark(address, token)}"
        return
    url = Address("ws", address.host, address.port, f"/{token.value}").url
    if home is None:
        yield url, f"{address}; its token is in the URL only, for want of a home"
        return
    try:
        kept = write_secret(home, address, token.value)
    except SecretError as error:
        yield url, f"{address}; its token is in the URL only: {error}"
        return
    try:
        yield url, f"{address}, with the token in {kept.path}"
    finally:
        kept.remove()


def _remark(address: Address, token: ListenerToken) -> str:
    if token.file is not None:
        return f", with the token in {os.path.abspath(os.path.expanduser(token.file))}"
    return ", for everyone on this machine" if address.scheme == "ws" else ""
