"""Connecting: from an address to a `Channel`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import cast

from treadle.errors import ChannelClosed
from treadle.transport.address import Address
from treadle.transport.listener_secret import resolve_address
from treadle.transport.sockets import set_nodelay
from treadle.transport.stream import StreamChannel
from treadle.transport.websocket import WebSocketFramer
from treadle.transport.websocket_handshake import BadRequest, Upgrade, split_head


async def connect(
    address: Address,
    *,
    token: str | None = None,
    deadline_s: float = 10.0,
    environ: Mapping[str, str] | None = None,
) -> StreamChannel:
    """Open a WebSocket channel; raises `ChannelClosed` with the reason.

    Without a token, that of a listener on this machine is looked up in the home, which `environ` names (None: this
    process's).
    """
    address, token, advice = resolve_address(address, token, os.environ if environ is None else environ)
    place = (address.authority, address.path) if address.scheme in ("ws", "wss") else ("localhost", "/")
    upgrade = Upgrade.new(*place, token, advice)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(deadline_s):
            if address.scheme == "unix":
                _, opening = await loop.create_unix_connection(lambda: _Opening(upgrade, str(address)), address.path)
            elif address.scheme in ("ws", "wss"):
                _, opening = await loop.create_connection(
                    lambda: _Opening(upgrade, str(address)),
                    address.host,
                    address.port,
                    ssl=True if address.scheme == "wss" else None,
                )
            else:
                raise ChannelClosed(f"cannot connect to {address}: use ws://, wss:// or unix://, or a command line")
            try:
                return await opening.opened
            except BaseException:
                opening.give_up()
                raise
    except TimeoutError:
        raise ChannelClosed(f"cannot connect to {address}: no answer within {deadline_s:g} s") from None
    except OSError as error:
        raise ChannelClosed(f"cannot connect to {address}: {error.strerror or error}") from None
    except UnicodeError:
        raise ChannelClosed(f"cannot connect to {address}: that is no host name") from None


class _Opening(asyncio.Protocol):
    """A connection until the server has accepted the upgrade."""

    def __init__(self, upgrade: Upgrade, peer: str) -> None:
        self._upgrade = upgrade
        self._peer = peer
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self.opened: asyncio.Future[StreamChannel] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        set_nodelay(transport.get_extra_info("socket"))
        transport.write(self._upgrade.request())

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            split = split_head(self._buffer)
            if split is None:
                return
            self._upgrade.check(*split)
        except (BadRequest, ChannelClosed) as error:
            self._fail(ChannelClosed(f"{self._peer}: {error}"))
            return
        transport = self._transport
        assert transport is not None
        channel = StreamChannel(WebSocketFramer(client=True), self._peer, keepalive=True)
        transport.set_protocol(channel)
        channel.connection_made(transport)
        if split[1]:
            channel.data_received(split[1])
        if self.opened.done():  # the caller gave up in the meantime
            transport.abort()
        else:
            self.opened.set_result(channel)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(ChannelClosed(f"{self._peer}: the connection ended during the handshake"))

    def give_up(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, error: ChannelClosed) -> None:
        if not self.opened.done():
            self.opened.set_exception(error)
            self.opened.exception()  # seen: a caller whose time is up before it has the connection never looks
        self.give_up()
