"""What can go wrong between a request and its response. Error texts never quote content: it may be secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.errors import TreadleError

if TYPE_CHECKING:
    from treadle.http.connect_failure import FailureReason
    from treadle.http.target import Target


class HttpUnusable(TreadleError):
    """The client is closed or misconfigured; the message says what to do."""


class NotHttp(Exception):
    """The server sent something that is not an HTTP response, or one that we cannot read."""


class ConnectFailed(Exception):
    """No connection to the server, or to the `proxy` in between. `tls_problem` says why TLS rejected the server."""

    def __init__(self, reason: FailureReason, *, proxy: Target | None = None, tls_problem: str | None = None) -> None:
        super().__init__("no connection")
        self.reason = reason
        self.proxy = proxy
        self.tls_problem = tls_problem


class ProxyRefused(Exception):
    """The proxy refused to open a tunnel."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status


class ConnectionLost(Exception):
    """The connection ended before the response did. `began` is true if at least one byte had arrived."""

    def __init__(self, *, began: bool) -> None:
        super().__init__("the connection ended")
        self.began = began


class IdleTimeout(Exception):
    """Nothing was received, or nothing could be sent, for the whole idle timeout."""
