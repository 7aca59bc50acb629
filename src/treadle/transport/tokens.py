"""The tokens of a listener: files that only their owner can read, and tokens with names.

It owns who may read such a file, and whose token it is that somebody presents. What a name stands for, it does not
know: that is the business of whom the listener serves.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from treadle.errors import TreadleError

# What can be guessed by trying is no token for a port that other machines reach.
MIN_TOKEN: Final = 16
_MAX_FILE: Final = 1 << 20


class TokenFileError(TreadleError):
    """The file cannot be used: `why`, and what to `do`."""

    def __init__(self, path: str, why: str, do: str = "") -> None:
        super().__init__(f"{path} cannot be used: {why}")
        self.path = path
        self.why = why
        self.do: str = do or f"umask 077; openssl rand -hex 32 > {path}"


def read_private(path: str) -> str:
    """The text of a file that is this user's or root's, and for nobody else to read or change."""
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            status = os.fstat(file.fileno())
            text = file.read(_MAX_FILE)
    except (OSError, UnicodeDecodeError) as error:
        why = f"it cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}"
        raise TokenFileError(path, why) from None
    if status.st_uid not in (0, os.geteuid()):
        raise TokenFileError(path, f"it belongs to another user (id {status.st_uid})")
    if status.st_mode & 0o077:
        mend = f"chmod 600 {path}, and change the token if others may have read it"
        raise TokenFileError(path, f"its mode is {status.st_mode & 0o777:04o}: other users can read or change it", mend)
    return text


def read_token(path: str) -> str:
    """The token in a file of its own."""
    token = read_private(path).strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise TokenFileError(path, "it must hold one word of printable ASCII")
    return token


class NamedToken(Struct, frozen=True):
    """Who has the token with this SHA-256, or a certificate with this name, or both where both are given."""

    name: str
    digest: str | None = None
    certificate: str | None = None
    metrics: bool = False
    """Whether it may read `/metrics`, which names all others."""

    def __repr__(self) -> str:
        return f"NamedToken(name={self.name!r})"


def find(tokens: Iterable[NamedToken], given: str | None, certificate: str | None) -> NamedToken | None:
    """Whose token was given, by a client with this certificate. Who gives none is known by the certificate alone."""
    digest = None if given is None else hashlib.sha256(given.encode("latin-1")).hexdigest()
    found = None
    for token in tokens:
        if token.digest is None:
            fits = digest is None and token.certificate is not None
        else:
            fits = digest is not None and hmac.compare_digest(token.digest, digest)
        if fits and token.certificate in (None, certificate):
            found = token
    return found
