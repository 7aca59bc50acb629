"""How frames move: stdio, WebSocket over TCP and unix sockets, and an in-memory pair, all behind the same `Channel`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.internal_names import internal_name
from treadle.transport.address import Address, AddressError
from treadle.transport.channel import Channel, ChannelStats, Receiver, memory_pair
from treadle.transport.link import Handler, RpcLink

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


def __getattr__(name: str) -> object:
    return internal_name(__name__, name)


# fmt: off
# isort: off
if TYPE_CHECKING:  # for tests: see treadle.internal_names
    from treadle.transport.address import ListenError, shown_url
    from treadle.transport.channel import LoopOwner
    from treadle.transport.listen import Listener, MAX_CONNECTIONS
    from treadle.transport.listener_secret import FOLDER, SecretError, SecretFile, new_secret, write_secret
    from treadle.transport.sockets import Peer, ResolvedAddress, connect, peer_of, resolve_address
    from treadle.transport.stdio import LineFramer, stdio_channel
    from treadle.transport.stream import BATCH, DEAD_AFTER_S, Framer, KEEPALIVE_S, StreamChannel
    from treadle.transport.tls import TlsFiles
    from treadle.transport.tokens import NamedToken, TokenFileError, find
    from treadle.transport.websocket import AccessControl, BadRequest, Head, MAX_FRAME, MAX_HEAD, METRICS, Upgrade
    from treadle.transport.websocket import WebSocketFramer, split_head
