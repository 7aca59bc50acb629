"""Which proxy to use for a target, from `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`.

The rules are httpx2's, so that we behave like other Python programs on the machine: the most specific rule wins,
`NO_PROXY` accepts names, addresses, networks and whole URLs, and loopback is not special. Nothing is connected here.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from treadle.http.http_errors import HttpUnusable
from treadle.http.target import BadUrl, Target, read_url

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network

    Network: TypeAlias = IPv4Network | IPv6Network

_KINDS: Final = ("http", "https", "all")
_RULE: Final = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<host>\[[^\]@]*\]|[^\[\]:/@?#\s]*)(?::(?P<port>[0-9]*))?(?P<prefix>/.*)?"
)


class Rule(Struct, frozen=True):
    """Matching targets use `proxy`, or connect directly if it is None. Empty fields match everything."""

    scheme: str
    host: str
    port: int | None
    network: Network | None
    proxy: str | None

    def matches(self, target: Target) -> bool:
        if self.scheme and self.scheme != target.scheme:
            return False
        if self.port is not None and self.port != target.port:
            return False
        if self.network is not None:
            return _is_in(target.host, self.network)
        return _names(self.host, target.host)

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


def proxy_for(target: Target) -> Target | None:
    """By the environment as it is now. Raises `HttpUnusable` for a proxy that cannot be used."""
    from urllib.request import getproxies  # only when a proxy variable is set

    for rule in sorted(read_rules(getproxies()), key=lambda rule: rule.rank):
        if rule.matches(target):
            return None if rule.proxy is None else _read_proxy(rule.proxy)
    return None


def read_rules(settings: Mapping[str, str]) -> list[Rule]:
    """From a proxy by kind (`http`, `https`, `all`), and the list of exceptions under `no`."""
    exceptions = [entry.strip() for entry in settings.get("no", "").split(",")]
    if "*" in exceptions:
        return []
    # A later entry for the same URLs replaces an earlier one.
    wanted: dict[str, str | None] = {
        f"{kind}://": _with_scheme(settings[kind]) for kind in _KINDS if settings.get(kind)
    }
    wanted |= {_pattern(entry): None for entry in exceptions if entry}
    found = [_read_rule(pattern, proxy) for pattern, proxy in wanted.items()]
    return [rule for rule in found if rule is not None]


def _with_scheme(proxy: str) -> str:
    return proxy if "://" in proxy else f"http://{proxy}"


def _pattern(entry: str) -> str:
    """An entry of `NO_PROXY` as a URL, where `*name` is the name and all below it."""
    address, slash, prefix = entry.partition("/")
    if "://" in entry:
        return entry
    if _is_address(address, 6):
        return f"all://[{address}]{slash}{prefix}"
    if _is_address(address, 4) or entry.startswith("[") or entry.lower() == "localhost":
        return f"all://{entry}"
    return f"all://*{entry}" if not slash else ""


def _read_rule(pattern: str, proxy: str | None) -> Rule | None:
    """None for an entry that makes no sense: like everyone, we overlook it."""
    found = _RULE.fullmatch(pattern)
    if found is None:
        return None
    scheme, host = found["scheme"].lower(), _ascii(found["host"].lower().strip("[]"))
    prefix = (found["prefix"] or "").removeprefix("/")
    network = None
    if prefix and (_is_address(host, 4) or _is_address(host, 6)):
        network = _network(host, prefix)
        if network is None:
            return None
    port = int(found["port"]) if found["port"] else None
    return Rule("" if scheme == "all" else scheme, "" if host == "*" else host, port, network, proxy)


def _ascii(host: str) -> str:
    """Of a name in another script, what stands in a target."""
    if host.isascii():
        return host
    star = host[: len(host) - len(host.lstrip("*."))]
    try:
        return star + host[len(star) :].encode("idna").decode()
    except UnicodeError:
        return host


def _network(host: str, prefix: str) -> Network | None:
    try:
        return ip_network(f"{host}/{prefix}", strict=False) if prefix.isdecimal() else None
    except ValueError:
        return None


def _is_address(text: str, version: int) -> bool:
    try:
        return ip_address(text).version == version
    except ValueError:
        return False


def _is_in(host: str, network: Network) -> bool:
    try:
        return ip_address(host) in network
    except ValueError:
        return False


def _names(pattern: str, host: str) -> bool:
    if pattern.startswith("*."):
        return host.endswith(pattern[1:]) and len(host) >= len(pattern)
    if pattern.startswith("*"):
        return host == pattern[1:] or host.endswith("." + pattern[1:])
    return not pattern or host == pattern


def _read_proxy(url: str) -> Target:
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
