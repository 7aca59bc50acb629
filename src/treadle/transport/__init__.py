"""How frames move: stdio, WebSocket over TCP and unix sockets, and an in-memory pair, all behind the same `Channel`."""

from treadle.transport.address import Address, AddressError
from treadle.transport.channel import Channel, ChannelStats, Receiver
from treadle.transport.link import Handler, RpcLink
from treadle.transport.memory import memory_pair

__all__ = [
    "Address",
    "AddressError",
    "Channel",
    "ChannelStats",
    "Handler",
    "Receiver",
    "RpcLink",
    "memory_pair",
]
