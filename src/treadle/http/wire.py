"""One connection to a server, which carries one response after another: bytes out, a response in.

It owns the transport, the waiting for bytes, and its limits: silence, and how much lies unread. It does not connect and
does not know why it is asked.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final, cast

from treadle.http.http1 import ResponseHead, ResponseReader
from treadle.http.http_errors import NotHttp

# A reader that is slow slows down the server, not our memory.
MAX_UNREAD: Final = 1024 * 1024
# The event loop does it in its next round, except in the middle of a TLS handshake.
GIVE_BACK_S: Final = 1.0


class HungUp(Exception):
    """The connection ended, and the response with it. `began`: after at least a byte of it had come."""

    def __init__(self, *, began: bool) -> None:
        super().__init__("the connection ended")
        self.began = began


class Silence(Exception):
    """Nothing came, or nothing could be sent, for as long as one may wait."""


class Wire(asyncio.Protocol):
    """`send`, then `read_head`, then `read` until it gives nothing. One task at a time; `close` may come from any."""

    def __init__(self, idle_timeout_s: float) -> None:
        self._idle_timeout_s = idle_timeout_s
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._response: ResponseReader | None = None
        self._failure: NotHttp | None = None
        self._lost = False  # no more bytes will come
        self._waiter: asyncio.Future[bool] | None = None
        self._gone = self._loop.create_future()
        self._reading_paused = False
        self._writing_paused = False

    # --- the side of the user ----------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._lost and not self._transport.is_closing()

    @property
    def is_reusable(self) -> bool:
        """Whether the response has come to its end, read or not, and another request may follow."""
        response = self._response
        if self._transport is None or response is None or not (response.ended and response.reusable):
            return False
        return self.is_open and self._transport.get_write_buffer_size() == 0

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None, "not connected"
        return self._transport

    def send(self, request: bytes, *, tunnel: bool = False) -> None:
        """Hand it over; what the network does not take at once is sent while the response is waited for."""
        self._response = ResponseReader(tunnel=tunnel)
        self._resume()
        if self.is_open:  # otherwise reading will say why not
            self.transport.write(request)

    async def read_head(self) -> ResponseHead:
        response = self._asked()
        while self._writing_paused and not (response.began or self._lost):
            await self._wait()
        while response.head is None:
            self._check(response)
            await self._wait()
        return response.head

    async def read(self) -> bytes:
        """What has come of the body, without waiting when there is something; none at the end."""
        response = self._asked()
        while not response.unread:
            if response.ended:
                return b""
            self._check(response)
            await self._wait()
        self._resume()
        return response.take_body()

    def take_transport(self, transport: asyncio.Transport) -> None:
        """From now on it runs inside another one: TLS in a tunnel."""
        self._transport = transport
        self._response = None

    def rest(self) -> None:
        """Between two requests: what is left of the last response is given up."""
        self._resume()
        self._response = None

    def close(self) -> None:
        """At once; whoever waits for bytes gets `HungUp`."""
        self._lose()
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """After `close`, until the socket is given back."""
        if self._transport is not None:
            await asyncio.wait([self._gone], timeout=GIVE_BACK_S)

    # --- the side of the event loop ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one, but does not inherit from it

    def data_received(self, data: bytes) -> None:
        response = self._response
        if response is None or response.ended:
            self.close()  # nobody asked; whatever it is, it must not become the answer to the next request
            return
        try:
            response.receive_data(data)
        except NotHttp as error:
            self._failure = error
            self.close()
            return
        if response.unread > MAX_UNREAD and not self._reading_paused:
            self._reading_paused = True
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        response = self._response
        if response is not None and not self._lost:
            with suppress(NotHttp):  # too early, which `_lost` says too
                response.receive_eof()
        self._lose()

    def connection_lost(self, error: Exception | None) -> None:
        self._lose()
        if not self._gone.done():
            self._gone.set_result(None)

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._wake()

    # --- between the two ---------------------------------------------------------------------------------------------

    def _asked(self) -> ResponseReader:
        if self._response is None:
            raise RuntimeError("nothing was sent yet")
        return self._response

    def _check(self, response: ResponseReader) -> None:
        if self._failure is not None:
            raise self._failure
        if self._lost:
            raise HungUp(began=response.began)

    def _lose(self) -> None:
        """A response that is complete stays so."""
        self._lost = True
        self._wake()

    def _resume(self) -> None:
        if self._reading_paused:
            self._reading_paused = False
            if self.is_open:
                self.transport.resume_reading()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(True)

    async def _wait(self) -> None:
        """Until something has changed."""
        if self._waiter is not None:
            raise RuntimeError("two tasks read from one connection")
        waiter = self._waiter = self._loop.create_future()
        timer = self._loop.call_later(self._idle_timeout_s, _expire, waiter)
        try:
            if not await waiter:
                raise Silence
        finally:
            timer.cancel()
            self._waiter = None


def _expire(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(False)
