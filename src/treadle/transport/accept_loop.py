"""`AcceptLoop`: accepts connections from a listening socket a few at a time, and copes with running out of descriptors.

In that case asyncio's own accept loop logs a traceback for every attempt, a hundred at a time. This one logs it once,
makes room and retries a little later. It does not know what the connections are for.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
from collections.abc import Callable
from http import HTTPStatus

from treadle.transport.websocket_handshake import response

logger: logging.Logger = logging.getLogger(__name__)

# Accepted per iteration of the event loop, so that the first bytes of earlier connections are read in between.
AT_ONCE = 16
# How often to check whether waiting connections may be accepted: nothing notifies us when a handshake completes.
LOOK_AGAIN_S = 0.005
RETRY_S = 0.1
MAX_RETRY_S = 1.0
# A shortage that lasts or comes back is logged this often.
LOG_EVERY_S = 60.0
_SHORTAGE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class AcceptLoop:
    """`accepted` receives every connection and owns it. `wait_s` says how long to delay the next accept. `make_room` is
    called when descriptors run out; it returns whether some will be free soon.
    """

    def __init__(
        self,
        sock: socket.socket,
        accepted: Callable[[socket.socket], None],
        wait_s: Callable[[], float],
        make_room: Callable[[], bool],
    ) -> None:
        self._sock = sock
        self._accepted = accepted
        self._wait_s = wait_s
        self._make_room = make_room
        self._loop = asyncio.get_running_loop()
        self._retry_s = RETRY_S
        self._retry: asyncio.TimerHandle | None = None
        self._logged_at = -LOG_EVERY_S
        self._spare: int | None = None
        """A spare descriptor: closing it lets us accept and reject a connection when there are no others."""
        self._begin()

    def close(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._sock)
        self._give_up_spare()
        self._sock.close()

    def _begin(self) -> None:
        self._retry = None
        self._take_spare()
        self._loop.add_reader(self._sock, self._ready)

    def _ready(self) -> None:
        for _ in range(AT_ONCE):
            wait_s = self._wait_s()
            if wait_s > 0:
                self._pause(min(wait_s, LOOK_AGAIN_S))
                return
            try:
                connection, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _SHORTAGE:
                    self._back_off(error)
                    return
                continue  # the client was gone before we accepted
            self._retry_s = RETRY_S
            connection.setblocking(False)
            self._accepted(connection)

    def _back_off(self, error: OSError) -> None:
        now = self._loop.time()
        if now - self._logged_at >= LOG_EVERY_S:
            self._logged_at = now
            logger.warning(
                "connections have to wait: %s; when that lasts, raise the limit of open files (ulimit -n)",
                error.strerror,
            )
        if not self._make_room():
            self._reject_some()
        self._pause(self._retry_s)
        self._retry_s = min(2 * self._retry_s, MAX_RETRY_S)

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._sock)
        self._retry = self._loop.call_later(seconds, self._begin)

    def _reject_some(self) -> None:
        """Tell those that have waited longest, instead of leaving them hanging. Each descriptor is
        reused for the next.
        """
        self._give_up_spare()
        for _ in range(AT_ONCE):
            try:
                connection, _ = self._sock.accept()
            except OSError:  # none left, or another process took the descriptor
                break
            reject(connection, HTTPStatus.SERVICE_UNAVAILABLE, "the server has no file descriptors left; try again")
        self._take_spare()

    def _take_spare(self) -> None:
        if self._spare is None:
            with contextlib.suppress(OSError):  # no spare until next time
                self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _give_up_spare(self) -> None:
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None


def reject(connection: socket.socket, status: HTTPStatus, text: str) -> None:
    """Answer without reading the request, and close."""
    with connection, contextlib.suppress(OSError):
        connection.setblocking(False)
        connection.send(response(status, text))
        connection.shutdown(socket.SHUT_WR)
        # Closing with unread input would reset the connection and lose the answer.
        connection.recv(1 << 16)
