"""Which addresses are public: those that a request may go to which somebody else has thought out.

A page that an agent reads names other pages, and may name services of this machine or of its network. So a name is
looked up once, all its addresses have to be public, and the connection is made to one of these: another answer to a
second look (DNS rebinding) changes nothing.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Collection
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address
from typing import Final, TypeAlias

# RFC 6890 and what came after it. Not `is_global`, whose answers depend on the version of Python.
_NOT_PUBLIC_4: Final = tuple(
    IPv4Network(network)
    for network in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24"),
        *("203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
        "168.63.129.16/32",  # Azure's services for a machine; the one of the others is link-local
    )
)
# Of IPv6 all that is global unicast, but for what only wraps an IPv4 address or stands in documentation. The wrappings
# of NAT64 (64:ff9b::) and mapped addresses (::ffff:) are not among it.
_UNICAST_6: Final = IPv6Network("2000::/3")
_NOT_PUBLIC_6: Final = tuple(
    IPv6Network(network) for network in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
)

Lookup: TypeAlias = Callable[[str, int], Awaitable[list[str]]]


class NotPublic(Exception):
    """A host has an address that is not public."""

    def __init__(self, host: str, address: str) -> None:
        super().__init__(f"{host} has the address {address}, which is not public")
        self.host = host
        self.address = address


def is_public(address: str) -> bool:
    """Whether the address is that of some other machine in the Internet. What is no address is not public."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    if isinstance(found, IPv4Address):
        return not any(found in network for network in _NOT_PUBLIC_4)
    return found in _UNICAST_6 and not any(found in network for network in _NOT_PUBLIC_6)


async def look_up(host: str, port: int) -> list[str]:
    """The addresses of a host, as the system knows them. Raises `OSError`."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


async def public_addresses(
    host: str, port: int, *, private_hosts: Collection[str] = (), lookup: Lookup = look_up
) -> list[str]:
    """The addresses of a host. Raises `NotPublic` if one of them is not public, unless it is among the
    `private_hosts`, and `OSError` if there is no such host."""
    addresses = await lookup(host, port)
    if host not in private_hosts:
        for address in addresses:
            if not is_public(address):
                raise NotPublic(host, address)
    return addresses
