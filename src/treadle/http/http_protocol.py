"""`HttpProtocol`: one open socket as an asyncio protocol: request bytes out, one response after another in.

It owns the transport, waiting for bytes, the idle timeout, and the limit on unread data. Opening the socket and
deciding what to send is `http_connection`'s job.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final, cast

from treadle.http.http1 import ResponseHead, ResponseReader
from treadle.http.http_errors import ConnectionLost, IdleTimeout, NotHttp

# Above this reading pauses: a slow consumer slows the server down instead of filling memory.
MAX_UNREAD: Final = 1024 * 1024
# Closing takes one round of the event loop, but can take longer in the middle of a TLS handshake.
RELEASE_S: Final = 1.0


class HttpProtocol(asyncio.Protocol):
    """Call `send`, `read_head`, then `read` until it returns nothing. For one task at a time; any task may `close`."""

    def __init__(self, idle_timeout_s: float) -> None:
        self._idle_timeout_s = idle_timeout_s
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._response: ResponseReader | None = None
        self._failure: NotHttp | None = None
        self._lost = False  # no more bytes will arrive
        self._waiter: asyncio.Future[bool] | None = None
        self._gone = self._loop.create_future()
        self._reading_paused = False
        self._writing_paused = False

    # --- for the connection ------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._lost and not self._transport.is_closing()

    @property
    def is_reusable(self) -> bool:
        """Whether the response is complete, read or not, and another request may follow."""
        response = self._response
        if self._transport is None or response is None or not (response.ended and response.reusable):
            return False
        return self.is_open and self._transport.get_write_buffer_size() == 0

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None, "not connected"
        return self._transport

    def send(self, request: bytes, *, tunnel: bool = False) -> None:
        """Queue the request; what the socket does not take at once is written while we wait for the response."""
        self._response = ResponseReader(tunnel=tunnel)
        self._resume()
        if self.is_open:  # otherwise `read_head` raises
            self.transport.write(request)

    async def read_head(self) -> ResponseHead:
        response = self._current()
        while self._writing_paused and not (response.began or self._lost):
            await self._wait()
        while response.head is None:
            self._check(response)
            await self._wait()
        return response.head

    async def read(self) -> bytes:
        """The body bytes that have arrived, waiting only if there are none; empty at the end."""
        response = self._current()
        while not response.unread:
            if response.ended:
                return b""
            self._check(response)
            await self._wait()
        self._resume()
        return response.take_body()

    def take_transport(self, transport: asyncio.Transport) -> None:
        """Switch to the transport of TLS inside a proxy tunnel."""
        self._transport = transport
        self._response = None

    def discard_response(self) -> None:
        """Between two requests: drop what is left of the last response."""
        self._resume()
        self._response = None

    def close(self) -> None:
        """Immediately; a task waiting for bytes gets `ConnectionLost`."""
        self._lose()
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """After `close`: wait until the socket is released."""
        if self._transport is not None:
            await asyncio.wait([self._gone], timeout=RELEASE_S)

    # --- called by the event loop ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from asyncio.Transport

    def data_received(self, data: bytes) -> None:
        response = self._response
        if response is None or response.ended:
            self.close()  # unsolicited bytes must never be taken for the next response
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
            with suppress(NotHttp):  # truncated; `_lost` reports that
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

    # --- internal state ----------------------------------------------------------------------------------------------

    def _current(self) -> ResponseReader:
        if self._response is None:
            raise RuntimeError("nothing was sent yet")
        return self._response

    def _check(self, response: ResponseReader) -> None:
        if self._failure is not None:
            raise self._failure
        if self._lost:
            raise ConnectionLost(began=response.began)

    def _lose(self) -> None:
        """No more bytes. A response that is already complete stays readable."""
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
        """Until bytes arrive, the write buffer drains or the connection ends."""
        if self._waiter is not None:
            raise RuntimeError("two tasks read from one connection")
        waiter = self._waiter = self._loop.create_future()
        timer = self._loop.call_later(self._idle_timeout_s, _expire, waiter)
        try:
            if not await waiter:
                raise IdleTimeout
        finally:
            timer.cancel()
            self._waiter = None


def _expire(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(False)
