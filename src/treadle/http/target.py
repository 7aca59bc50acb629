"""`HttpTarget`: what a URL means for a request: where to connect, and which path to request.

Simple URLs are parsed here. httpx2 handles the rest (dot segments, escaping, internationalised names), but takes a
tenth of a second to import.

Which proxy to use for a target comes from `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`. The rules are
httpx2's, so that we behave like other Python programs on the machine: the most specific rule wins, `NO_PROXY` accepts
names, addresses, networks and whole URLs, and loopback is not special. Nothing is connected here.
"""

from __future__ import annotations

import os
import re
import sys
from base64 import b64encode
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import unquote

from msgspec import Struct
from msgspec.structs import force_setattr

from treadle.http.http_errors import HttpUnusable

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network

    Network: TypeAlias = IPv4Network | IPv6Network


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


class HttpTarget(Struct, frozen=True):
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
        """Host and port as in a CONNECT request, where the port is never left out."""
        return self.authority if self.port is not None else self.authority + b":%d" % self.origin[2]


def read_url(url: str) -> HttpTarget:
    """Raises `BadUrl`, also for a scheme other than http and https."""
    found = _PLAIN.fullmatch(url)
    if found is None or (found["query"] is not None and "%" in re.sub("%[0-9A-Fa-f]{2}", "", found["query"])):
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
    return _target(found["scheme"], found["host"], int(found["port"] or 0), found["path"] + (found["query"] or ""))


def _target(scheme: str, host: str, port: int, path: str, user: str = "", password: str = "") -> HttpTarget:
    if not 0 <= port < 65536:
        raise BadUrl("a port that does not exist")
    given = port if port not in (0, DEFAULT_PORTS[scheme]) else None
    return HttpTarget(scheme, host, given, path.encode(), user, password)


_KINDS: Final = ("http", "https", "all")
_RULE: Final = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<host>\[[^\]@]*\]|[^\[\]:/@?#\s]*)(?::(?P<port>[0-9]*))?(?P<prefix>/.*)?"
)


class ProxyRule(Struct, frozen=True):
    """Matching targets use `proxy`, or connect directly if it is None. Empty fields match everything."""

    scheme: str
    host: str
    port: int | None
    network: Network | None
    proxy: str | None

    def matches(self, target: HttpTarget) -> bool:
        if self.scheme and self.scheme != target.scheme:
            return False
        if self.port is not None and self.port != target.port:
            return False
        if self.network is not None:
            try:
                return ip_address(target.host) in self.network
            except ValueError:
                return False
        pattern, host = self.host, target.host
        if pattern.startswith("*."):
            return host.endswith(pattern[1:]) and len(host) >= len(pattern)
        if pattern.startswith("*"):
            return host == pattern[1:] or host.endswith("." + pattern[1:])
        return not pattern or host == pattern

    @property
    def rank(self) -> tuple[int, int, int, int, int]:
        """The first that matches is the one; a port is most specific, then a name, then the smallest network."""
        kind = 1 if self.network is not None else 0 if self.host else 2
        size = self.network.num_addresses if self.network is not None else 0
        length = len(self.host) if self.network is None else 0
        return (self.port is None, kind, size, -length, -len(self.scheme))


def may_be_set() -> bool:
    """Whether a look at the proxies is worth the loading of what reads them."""
    return sys.platform in ("darwin", "win32") or any(name[-6:].lower() == "_proxy" for name in os.environ)


def proxy_for(target: HttpTarget) -> HttpTarget | None:
    """The proxy that the environment names now. Raises `HttpUnusable` for one that cannot be used."""
    from urllib.request import getproxies  # only when a proxy variable is set

    for rule in sorted(read_rules(getproxies()), key=lambda rule: rule.rank):
        if rule.matches(target):
            return None if rule.proxy is None else _read_proxy(rule.proxy)
    return None


def read_rules(settings: Mapping[str, str]) -> list[ProxyRule]:
    """From a proxy by kind (`http`, `https`, `all`), and the list of exceptions under `no`."""
    exceptions = [entry.strip() for entry in settings.get("no", "").split(",")]
    if "*" in exceptions:
        return []
    # A later entry for the same URLs replaces an earlier one.
    wanted: dict[str, str | None] = {
        f"{kind}://": settings[kind] if "://" in settings[kind] else f"http://{settings[kind]}"
        for kind in _KINDS
        if settings.get(kind)
    }
    wanted |= {_pattern(entry): None for entry in exceptions if entry}
    found = [_read_rule(pattern, proxy) for pattern, proxy in wanted.items()]
    return [rule for rule in found if rule is not None]


def _pattern(entry: str) -> str:
    """An entry of `NO_PROXY` as a URL, where `*name` is the name and all below it, and `*.name` what is below."""
    address, slash, prefix = entry.partition("/")
    if "://" in entry:
        return entry
    if _is_address(address, 6):
        return f"all://[{address}]{slash}{prefix}"
    if _is_address(address, 4) or entry.startswith("[") or entry.lower() == "localhost":
        return f"all://{entry}"
    if slash:
        return ""
    return f"all://{entry}" if entry.startswith("*.") else f"all://*{entry}"


def _read_rule(pattern: str, proxy: str | None) -> ProxyRule | None:
    """The rule that an entry stands for; None for one that makes no sense: like everyone, we overlook it."""
    found = _RULE.fullmatch(pattern)
    if found is None:
        return None
    scheme, host = found["scheme"].lower(), _ascii(found["host"].lower().strip("[]"))
    prefix = (found["prefix"] or "").removeprefix("/")
    network = None
    if prefix and (_is_address(host, 4) or _is_address(host, 6)):
        if not prefix.isdecimal():
            return None
        try:
            network = ip_network(f"{host}/{prefix}", strict=False)
        except ValueError:
            return None
    port = int(found["port"]) if found["port"] else None
    return ProxyRule("" if scheme == "all" else scheme, "" if host == "*" else host, port, network, proxy)


def _ascii(host: str) -> str:
    """The host in ASCII: of a name in another script, what stands in a target."""
    if host.isascii():
        return host
    star = host[: len(host) - len(host.lstrip("*."))]
    try:
        return star + host[len(star) :].encode("idna").decode()
    except UnicodeError:
        return host


def _is_address(text: str, version: int) -> bool:
    try:
        return ip_address(text).version == version
    except ValueError:
        return False


def _read_proxy(url: str) -> HttpTarget:
    if url.partition("://")[0].lower().startswith("socks"):
        raise HttpUnusable(
            "the environment asks for a SOCKS proxy, which is not supported; set HTTPS_PROXY to an HTTP proxy"
        )
    try:
        return read_url(url if "/" in url.partition("://")[2] else url + "/")
    except BadUrl:
        raise HttpUnusable(
            "the proxy in the environment (HTTP_PROXY, HTTPS_PROXY or ALL_PROXY) is no http or https URL; correct it"
        ) from None
