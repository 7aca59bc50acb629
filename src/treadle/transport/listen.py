"""Listening: `ws://IP:PORT`, `wss://IP:PORT` and `unix://PATH`, WebSocket on all.

It owns admission: a listener off loopback needs a token, a unix socket is checked for its peer's user, handshakes have
a time limit, and handshakes and connections a maximum. It does not know what is served.

    accept ─▶ handshake ─▶ channel          at most `MAX_CONNECTIONS` channels, or half of the descriptors
                 │                          at most half as many handshakes; then the next client waits unaccepted
                 ├─▶ refused                wrong token, no upgrade, one connection too many
                 ├─▶ timed out              after `HANDSHAKE_DEADLINE_S`
                 └─▶ evicted                once the maximum is reached and the oldest is `GRACE_S` old

A limit and a deadline alone would let 2,000 silent connections keep a client out for 5 to 6 s
(`test_listener_limits`, which allows 2.5). With eviction it takes half a second: the system holds `BACKLOG`
connections before the client's own, of which 512 are accepted every 0.25 s. The grace period is for a program that
opens hundreds of connections before it speaks on the first."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import logging
import os
import resource
import socket
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, cast

from msgspec import structs

from treadle.logs import audit
from treadle.logs.audit import RefusalLog
from treadle.logs.metrics import REFUSED, Gauge, render
from treadle.transport.address import Address, ListenError
from treadle.transport.channel import Channel
from treadle.transport.sockets import Peer, peer_of, set_nodelay, tcp_socket, unix_socket
from treadle.transport.stream import StreamChannel
from treadle.transport.tokens import MIN_TOKEN, NamedToken
from treadle.transport.websocket import (
    HANDED_OVER,
    METRICS,
    SHUTTING_DOWN,
    AccessControl,
    BadRequest,
    HandshakeAnswer,
    Head,
    WebSocketFramer,
    response,
    split_head,
)

if TYPE_CHECKING:
    from treadle.transport.tls import TlsFiles

__all__ = ["HANDSHAKE_DEADLINE_S", "MAX_CONNECTIONS", "ListenError", "Listener", "listen"]

# A client sends its request with the connection. This is for a slow line; bytes that drip in do not extend it.
HANDSHAKE_DEADLINE_S = 3.0
GRACE_S = 0.25
# Open connections. More than any use that we know of, and each costs a descriptor and its buffers. Where there are
# fewer descriptors, half of them stay free for what the connections are for: files, commands, models.
MAX_CONNECTIONS = 1024
# Accepted per iteration of the event loop, so that the first bytes of earlier connections are read in between.
AT_ONCE = 16
# How often to look whether a handshake has ended, while clients wait for that.
LOOK_AGAIN_S = 0.005
# How long to wait for a descriptor when there are none, and how often to log that.
RETRY_S = 0.1
LOG_SHORTAGE_S = 60.0
_CROWDED = HandshakeAnswer(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections have sent no request yet; try again")
_NO_DESCRIPTORS = "the server has no file descriptors left; try again"
_SHORTAGE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

logger: logging.Logger = logging.getLogger(__name__)


HttpHandler: TypeAlias = Callable[[Head, Callable[[], None]], asyncio.Protocol]
"""Makes the protocol that answers one request, and then ends its connection: it is given the head, and gets the body.
The function is to be called when the connection was lost."""


class DialIn(Protocol):
    """Others who connect, at a path and with a token of their own; without a token nobody. The query says who it is."""

    path: str
    token: str | None

    def refusal(self, query: str) -> HandshakeAnswer | None:
        """Why somebody is not taken; None if he is."""

    def accept(self, channel: Channel, query: str) -> None: ...


class Listener:
    """An open listener. `url` is what clients connect to, complete even if its path is the secret.

    It accepts by itself: asyncio's own loop logs a traceback for every attempt without a descriptor, a hundred at a
    time.
    """

    def __init__(
        self,
        sock: socket.socket,
        address: Address,
        access: AccessControl,
        accept: Callable[[Channel], None],
        text_only: bool,
        http: HttpHandler | None = None,
        metrics: Callable[[], Iterable[Gauge]] = tuple,
        tls: TlsFiles | None = None,
        dial_in: DialIn | None = None,
    ) -> None:
        self.address = address
        self.dial_in = dial_in
        self.access: AccessControl = access
        self.accept = accept
        self.text_only = text_only
        self.http = http
        self.metrics = metrics
        self.tls = tls
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.max_connections: int = (
            MAX_CONNECTIONS if files == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, files // 2)
        )
        self.open: set[object] = set()
        self.accepted: int = 0
        self.bytes: tuple[int, int] = (0, 0)
        """Received and sent, over connections that are closed."""
        self.handshakes: dict[_Handshake, float] = {}
        """Connections that are not upgraded yet, oldest first, with the loop time of their arrival."""
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._joining: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._spare: int | None = None
        """A descriptor to close when there are no others, so that a connection can be accepted and refused. Without it
        clients hang until their own deadlines (`test_listener_limits`)."""
        self._shortage_logged_at = -LOG_SHORTAGE_S
        self._refusals = RefusalLog(logger)
        self._resume()

    @property
    def url(self) -> str:
        return self.address.url

    async def close(self) -> None:
        """Accept no more. Open channels are not touched."""
        if self._pause is not None:
            self._pause.cancel()
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock)
            self._sock.close()
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
        for handshake in list(self.handshakes):
            handshake.abort()
        if self._joining:
            await asyncio.wait(self._joining)
        if self.address.scheme == "unix":
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.address.path)

    def gauges(self) -> Iterator[Gauge]:
        """What is true of its connections now, and of what it serves."""
        received, sent = self.bytes
        for channel in self.open:
            if isinstance(channel, StreamChannel):
                stats = channel.stats()
                received, sent = received + stats.bytes_in, sent + stats.bytes_out
        yield Gauge("treadle_connections", "Connections that are open.", len(self.open))
        yield Gauge("treadle_connections_total", "Connections that were accepted.", self.accepted)
        yield Gauge("treadle_received_bytes_total", "Received from clients.", received)
        yield Gauge("treadle_sent_bytes_total", "Sent to clients.", sent)
        yield from self.metrics()

    def drain(self, *, resuming: bool = False) -> None:
        """Answer health checks with 503, until `close`, and upgrade no more connections unless clients may resume."""
        self.access = structs.replace(self.access, draining=True, resuming=resuming)

    def log_refusal(self, peer: Peer, status: HTTPStatus | Literal["tls"], reason: str) -> None:
        """Count and log who was refused and why."""
        REFUSED.add(status if status == "tls" else str(status.value))
        fields = {"peer": peer.name, "user": peer.user, "reason": reason}
        self._refusals.add("a client was refused", "client refused", fields)

    def _resume(self) -> None:
        self._pause = None
        if self._spare is None:
            with contextlib.suppress(OSError):  # no spare until next time
                self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._loop.add_reader(self._sock, self._accept_some)

    def _pause_for(self, seconds: float) -> None:
        self._loop.remove_reader(self._sock)
        self._pause = self._loop.call_later(seconds, self._resume)

    def _accept_some(self) -> None:
        for _ in range(AT_ONCE):
            if len(self.handshakes) >= self.max_connections // 2 and not self._evict_slow():
                self._pause_for(LOOK_AGAIN_S)
                return
            try:
                connection, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _SHORTAGE:
                    self._wait_for_descriptors(error)
                    return
                continue  # the client was gone before we accepted
            connection.setblocking(False)
            self._accepted(connection)

    def _accepted(self, connection: socket.socket) -> None:
        try:
            peer = peer_of(connection)
        except OSError:  # it has gone already
            connection.close()
            return
        if peer.is_stranger:
            reason = "this socket is for the user that runs the server, and root"
            self.log_refusal(peer, HTTPStatus.FORBIDDEN, reason)
            _reject(connection, HTTPStatus.FORBIDDEN, reason)
            return
        handshake = _Handshake(self, peer, connection)
        self.handshakes[handshake] = self._loop.time()
        joining = self._loop.create_task(self._join(connection, handshake), name="handshake")
        self._joining.add(joining)
        joining.add_done_callback(self._joining.discard)

    async def _join(self, connection: socket.socket, handshake: _Handshake) -> None:
        try:
            set_nodelay(connection)
            if self.tls is None:
                await self._loop.connect_accepted_socket(lambda: handshake, connection)
            else:
                context = self.tls.context()
                await self._loop.connect_accepted_socket(
                    lambda: handshake, connection, ssl=context, ssl_handshake_timeout=HANDSHAKE_DEADLINE_S
                )
        except OSError as error:  # it has gone already, or does not speak TLS
            if self.tls is not None and not isinstance(error, ConnectionResetError):
                self.log_refusal(handshake.peer, "tls", f"no TLS: {error.strerror or error}")
            connection.close()
            handshake.connection_lost(None)

    def _evict_slow(self) -> bool:
        """Refuse the handshakes whose grace period is over; whether there were any."""
        until = self._loop.time() - GRACE_S
        slow = list(itertools.takewhile(lambda handshake: self.handshakes[handshake] <= until, self.handshakes))
        for handshake in slow:
            handshake.refuse(_CROWDED)
            handshake.abort()
        return bool(slow)

    def _wait_for_descriptors(self, error: OSError) -> None:
        now = self._loop.time()
        if now - self._shortage_logged_at >= LOG_SHORTAGE_S:
            self._shortage_logged_at = now
            logger.warning(
                "connections have to wait: %s; when that lasts, raise the limit of open files (ulimit -n)",
                error.strerror,
            )
        if self.handshakes:
            # Those that have just come may be about to speak: the shortage ends one way or the other.
            self._evict_slow()
        elif self._spare is not None:
            os.close(self._spare)
            self._spare = None
            for _ in range(AT_ONCE):  # those that have waited longest; each descriptor is used again for the next
                try:
                    connection, _ = self._sock.accept()
                except OSError:  # none left, or another process took the descriptor
                    break
                REFUSED.add(str(HTTPStatus.SERVICE_UNAVAILABLE.value))
                if self.tls is None:
                    _reject(connection, HTTPStatus.SERVICE_UNAVAILABLE, _NO_DESCRIPTORS)
                else:
                    connection.close()
        self._pause_for(RETRY_S)


async def listen(
    address: Address,
    accept: Callable[[Channel], None],
    *,
    token: str | None = None,
    health_paths: tuple[str, ...] = ("/readyz",),
    any_path: bool = False,
    text_only: bool = False,
    http: tuple[str, HttpHandler] | None = None,
    metrics: Callable[[], Iterable[Gauge]] = tuple,
    tls: TlsFiles | None = None,
    named: tuple[NamedToken, ...] = (),
    dial_in: DialIn | None = None,
) -> Listener:
    """Listen and call `accept` with every channel that passes the handshake.

    `any_path`: a WebSocket may be opened at every path that is not for health. `text_only`: binary messages are
    ignored. `http`: a path, and who answers the requests to it. `metrics`: what is true now of what is served, for
    `/metrics`. `tls`: the certificate, for `wss`. `named`: tokens with names, in place of one; a channel's `token_name`
    then says which. `dial_in`: others who connect, who are not given to `accept`.
    """
    access = AccessControl(token, health_paths, any_path, http_path=None if http is None else http[0], named=named)
    if dial_in is not None:
        access = structs.replace(access, dial_in_path=dial_in.path, dial_in_token=dial_in.token)
    if (tls is None) is (address.scheme == "wss"):
        raise ListenError(
            f"cannot listen on {address}: --tls-cert FILE and --tls-key FILE are for wss://, which needs both"
        )
    if address.scheme == "unix":
        sock = unix_socket(address.path)
    elif address.scheme not in ("ws", "wss"):
        raise ListenError(f"cannot listen on {address}: use ws://IP:PORT, wss://IP:PORT or unix://PATH")
    elif not address.is_loopback and not named and len(token or "") < MIN_TOKEN:
        what = "without a token" if token is None else f"with a token of less than {MIN_TOKEN} characters"
        raise ListenError(
            f"refusing to listen on {address.host} {what}: everyone who reaches the port could run commands. Make one "
            "with `umask 077; openssl rand -hex 32 > FILE` and pass --token-file FILE, or listen on 127.0.0.1"
        )
    else:
        # A name can stand for several addresses, each with a free port of its own.
        host = "127.0.0.1" if address.host == "localhost" else address.host
        sock = await tcp_socket(host, address.port)
        address = Address(address.scheme, host, sock.getsockname()[1], "/")
    if audit.log is not None:
        names = ", ".join(each.name for each in named) or None
        audit.log.record("listening", {"address": str(address), "token": audit.fingerprint(token), "tokens": names})
    return Listener(sock, address, access, accept, text_only, None if http is None else http[1], metrics, tls, dial_in)


class _Handshake(asyncio.Protocol):
    """A connection until its handshake is done; then the channel takes over the transport."""

    def __init__(self, listener: Listener, peer: Peer, connection: socket.socket) -> None:
        self._listener = listener
        self.peer = peer
        self._connection = connection
        self._buffer = b""
        self._answered = False
        self._aborted = False
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def abort(self) -> None:
        self._listener.handshakes.pop(self, None)
        self._aborted = True
        if self._transport is not None:
            self._transport.abort()
        else:  # TLS is not there yet, and fails at the end of the input; to cancel it may leave the transport open
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)

    def _expire(self) -> None:
        self.refuse(HandshakeAnswer(HTTPStatus.REQUEST_TIMEOUT, f"no request within {HANDSHAKE_DEADLINE_S:g} s"))
        self.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._aborted:
            self._transport.abort()
            return
        self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_DEADLINE_S, self._expire)

    def data_received(self, data: bytes) -> None:
        if self._answered:
            return
        self._buffer += data
        try:
            split = split_head(self._buffer)
        except BadRequest as error:
            self.refuse(HandshakeAnswer(HTTPStatus.BAD_REQUEST, str(error)))
            return
        if split is None:
            return
        head, rest = split
        certificate = None
        if self._listener.tls is not None and self._transport is not None:
            from treadle.transport.tls import name_of_client  # has been loaded with the files

            certificate = name_of_client(self._transport.get_extra_info("ssl_object"))
        answer = self._listener.access.answer(head, certificate)
        if answer is METRICS:
            answer = HandshakeAnswer(HTTPStatus.OK, render(self._listener.gauges()))
        dial_in, query = self._listener.dial_in if answer.dial_in else None, ""
        if dial_in is not None:
            query = head.start.partition("?")[2].rpartition(" ")[0]
            answer = dial_in.refusal(query) or answer
        limit = self._listener.max_connections
        if answer.status not in (HTTPStatus.SWITCHING_PROTOCOLS, HANDED_OVER.status):
            self.refuse(answer)
        elif len(self._listener.open) >= limit:
            text = f"{limit} connections are open, which is this server's limit; close one and try again"
            self.refuse(HandshakeAnswer(HTTPStatus.SERVICE_UNAVAILABLE, text))
        elif answer is HANDED_OVER:
            transport, listener = self._done(), self._listener
            assert listener.http is not None
            token = object()
            listener.open.add(token)
            protocol = listener.http(head, lambda: listener.open.discard(token))
            transport.set_protocol(protocol)
            protocol.connection_made(transport)
            protocol.data_received(rest)
        else:
            transport, listener = self._done(), self._listener
            transport.write(bytes(answer))
            framer = WebSocketFramer(client=False, text_only=listener.text_only)
            channel = _Admitted(framer, self.peer.name, listener)
            channel.token_name = answer.token_name
            transport.set_protocol(channel)
            channel.connection_made(transport)
            if rest:
                channel.data_received(rest)
            if dial_in is None:
                listener.accept(channel)
            else:
                dial_in.accept(channel, query)

    def connection_lost(self, error: Exception | None) -> None:
        self._listener.handshakes.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()

    def _done(self) -> asyncio.Transport:
        """The handshake is over: somebody else has the transport now."""
        assert self._transport is not None
        del self._listener.handshakes[self]
        if self._deadline is not None:
            self._deadline.cancel()
        return self._transport

    def refuse(self, answer: HandshakeAnswer) -> None:
        """Answer, and wait for the end of the connection, which counts until then: a peer need not take the answer."""
        if self._answered:
            return
        self._answered = True
        self._buffer = b""
        if answer.status != HTTPStatus.OK and answer is not SHUTTING_DOWN:
            self._listener.log_refusal(self.peer, answer.status, answer.text)
        if self._transport is not None:
            self._transport.write(bytes(answer))
            self._transport.close()


class _Admitted(StreamChannel):
    """A channel that counts against the limit for as long as it holds its descriptor."""

    def __init__(self, framer: WebSocketFramer, peer: str, listener: Listener) -> None:
        super().__init__(framer, peer, keepalive=True)
        self._listener = listener
        listener.open.add(self)
        listener.accepted += 1

    def connection_lost(self, error: Exception | None) -> None:
        listener = self._listener
        if self in listener.open:
            listener.open.remove(self)
            listener.bytes = listener.bytes[0] + self._bytes_in, listener.bytes[1] + self._bytes_out
        super().connection_lost(error)


def _reject(connection: socket.socket, status: HTTPStatus, text: str) -> None:
    """Answer without reading the request, and close."""
    with connection, contextlib.suppress(OSError):
        connection.setblocking(False)
        connection.send(response(status, text))
        connection.shutdown(socket.SHUT_WR)
        # Closing with unread input would reset the connection and lose the answer.
        connection.recv(1 << 16)
