"""`Target`: what a URL means for a request: where to connect, and which path to request.

Simple URLs are parsed here. httpx2 handles the rest (dot segments, escaping, internationalised names), but takes a
tenth of a second to import.
"""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Final
from urllib.parse import unquote

from msgspec import Struct
from msgspec.structs import force_setattr

DEFAULT_PORTS: Final = {"http": 80, "https": 443}

# No escapes, no `.` that begins a segment, no name that could be an address but for a proper one.
_PLAIN: Final = re.compile(
    r"(?P<scheme>https?)://"
    r"(?P<host>127\.0\.0\.1|[a-z0-9.-]*[a-z][a-z0-9-]*)(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>(?:/(?!\.)[A-Za-z0-9._~!$&'()*+,;=:@-]*)+)"
    r"(?P<query>\?[A-Za-z0-9._~!$&'()*+,;=:@/?%-]*)?"
)


class BadUrl(Exception):
    """A URL that cannot be used. It may contain secrets, so the message does not quote it."""


class Target(Struct, frozen=True):
    """`host` is ASCII, without brackets; `port` is None for the scheme's default."""

    scheme: str
    host: str
    port: int | None
    path: bytes  # with the query
    user: str = ""
    password: str = ""
    # Made of the others, once for all the requests to a place: the port, as in a `Host` header, and as credentials.
    origin: tuple[str, str, int] = ("", "", 0)
    authority: bytes = b""
    basic: bytes | None = None

    def __post_init__(self) -> None:
        host = f"[{self.host}]" if ":" in self.host else self.host
        authority = host if self.port is None else f"{host}:{self.port}"
        force_setattr(self, "origin", (self.scheme, self.host, self.port or DEFAULT_PORTS[self.scheme]))
        force_setattr(self, "authority", authority.encode())
        if self.user or self.password:
            credentials = f"{self.user}:{self.password}".encode("utf-8", "surrogateescape")
            force_setattr(self, "basic", b"Basic " + b64encode(credentials))

    def __repr__(self) -> str:
        return f"Target({self.scheme!r}, {self.host!r}, {self.port!r})"

    @property
    def tunnel(self) -> bytes:
        """As in a CONNECT request, where the port is never left out."""
        return self.authority if self.port is not None else self.authority + b":%d" % self.origin[2]


def read_url(url: str) -> Target:
    """Raises `BadUrl`, also for a scheme other than http and https."""
    found = _PLAIN.fullmatch(url)
    if found is None or (found["query"] is not None and "%" in _without_escapes(found["query"])):
        return _read_any(url)
    return _target(found["scheme"], found["host"], int(found["port"] or 0), found["path"] + (found["query"] or ""))


def _read_any(url: str) -> Target:
    import httpx2  # only for unusual URLs: slow to load

    try:
        read = httpx2.URL(url)
    except (httpx2.InvalidURL, UnicodeError):
        raise BadUrl("the URL cannot be read") from None
    if read.scheme not in DEFAULT_PORTS or not read.raw_host:
        raise BadUrl("no http or https URL")
    user, _, password = read.userinfo.decode().partition(":")
    host, path = read.raw_host.decode(), read.raw_path.decode()
    return _target(read.scheme, host, read.port or 0, path, unquote(user), unquote(password))


def _target(scheme: str, host: str, port: int, path: str, user: str = "", password: str = "") -> Target:
    if not 0 <= port < 65536:
        raise BadUrl("a port that does not exist")
    given = port if port not in (0, DEFAULT_PORTS[scheme]) else None
    return Target(scheme, host, given, path.encode(), user, password)


def _without_escapes(query: str) -> str:
    return re.sub("%[0-9A-Fa-f]{2}", "", query)
