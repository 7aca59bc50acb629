"""Where a server is: `ws://HOST:PORT[/SECRET]`, `wss://HOST[:PORT]`, `unix://PATH`, `stdio://`.

The path of a WebSocket address may be its listener's secret. So `str(address)`, and every message about one, shows an
ellipsis instead; only `Address.url` is complete.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Literal

from msgspec import Struct

from treadle.errors import TreadleError

Scheme = Literal["ws", "wss", "unix", "stdio"]
_DEFAULT_PORTS = {"ws": 80, "wss": 443}
_AUTHORITY = re.compile(r"(?:\[(?P<ipv6>[^\[\]?#]+)\]|(?P<host>[^\[\]:?#]+))(?::(?P<port>[0-9]{0,5}))?")

_SHOWN = re.compile(r"(?P<scheme>\w+://)?(?:[^/?#]*@)?(?P<authority>[^/?#@]*)(?P<rest>.*)", re.DOTALL)


def shown_url(text: str) -> str:
    """An address as it may be shown, whatever it is: a path may be a secret, except to a socket on this machine."""
    found = _SHOWN.fullmatch(text)
    if found is None or found["scheme"] in ("unix://", "stdio://") or (not found["scheme"] and not found["authority"]):
        return text
    hidden = "/…" if found["rest"].strip("/") else ""
    return f"{found['scheme'] or ''}{found['authority']}{hidden}"


class AddressError(TreadleError):
    """The text is not an address that we understand."""


class ListenError(TreadleError):
    """The address cannot be listened on; the message says why and what to do."""


class Address(Struct, frozen=True):
    scheme: Scheme
    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> Address:
        scheme, separator, rest = text.partition("://")
        if scheme == "stdio" and not rest:
            return cls("stdio")
        if scheme == "unix" and separator:
            if not rest.startswith("/"):
                raise AddressError(f"{text!r}: a unix socket needs an absolute path, like unix:///run/treadle.sock")
            return cls("unix", path=rest)
        if scheme in _DEFAULT_PORTS and separator:
            if not text.isprintable() or " " in text:  # it becomes part of a request head
                raise AddressError(f"{shown_url(text)!r}: an address holds no spaces and no control characters")
            authority, _, path = rest.partition("/")
            if "@" in authority:
                raise AddressError("an address carries no user or password: pass the token separately")
            parts = _AUTHORITY.fullmatch(authority)
            if parts is None or int(parts["port"] or 0) > 65535:
                raise AddressError(
                    f"{shown_url(text)!r}: expected HOST:PORT after the scheme, like ws://127.0.0.1:8765"
                )
            host, port = parts["ipv6"] or parts["host"], int(parts["port"] or _DEFAULT_PORTS[scheme])
            return cls("ws" if scheme == "ws" else "wss", host, port, f"/{path}")
        raise AddressError(
            f"{shown_url(text)!r} is not an address: use ws://HOST:PORT, wss://HOST, unix:///PATH or stdio://"
        )

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.scheme in ("unix", "stdio") or self.host in ("localhost", "127.0.0.1"):
            return True

        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """Whole, for whoever connects."""
        if self.scheme == "unix":
            return f"unix://{self.path}"
        if self.scheme == "stdio":
            return "stdio://"
        return f"{self.scheme}://{self.authority}{'' if self.path in ('', '/') else self.path}"

    def __str__(self) -> str:
        return shown_url(self.url)

    def __repr__(self) -> str:
        return f"Address({str(self)!r})"
