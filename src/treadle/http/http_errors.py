"""What can go wrong with an HTTP request, and why a connection could not be made: errors of the system and of TLS,
classified.

OpenSSL's own message is used for certificate errors that are not in the tables; it quotes nothing secret. What the user
should do about a `FailureReason` is decided by the caller.
"""

from __future__ import annotations

import errno
import re
import socket
import sys
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from treadle.errors import TreadleError

if TYPE_CHECKING:
    from treadle.http.target import HttpTarget


class HttpUnusable(TreadleError):
    """The client is closed or misconfigured; the message says what to do."""


class NotHttp(Exception):
    """The server sent something that is not an HTTP response, or one that we cannot read."""


class ConnectFailed(Exception):
    """No connection to the server, or to the `proxy` in between. `tls_problem` says why TLS rejected the server."""

    def __init__(
        self, reason: FailureReason, *, proxy: HttpTarget | None = None, tls_problem: str | None = None
    ) -> None:
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


FailureReason: TypeAlias = Literal[
    "refused", "unknown_name", "no_lookup", "no_network", "timed_out", "hung_up", "tls", "other"
]

# In order of precedence: if one address refused, the network itself works.
_ERRNOS: Final[tuple[tuple[FailureReason, frozenset[int]], ...]] = (
    ("refused", frozenset({errno.ECONNREFUSED})),
    ("hung_up", frozenset({errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE})),
    ("timed_out", frozenset({errno.ETIMEDOUT})),
    (
        "no_network",
        frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.EADDRNOTAVAIL}),
    ),
)
_ERRNO: Final = re.compile(r"\[Errno (\d+)\]")
# Looked up by name, because not every system defines all of them.
_UNKNOWN_NAME: Final = frozenset(
    getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY") if hasattr(socket, name)
)

_TRUST: Final = (
    "if you trust it, set the environment variable SSL_CERT_FILE to a PEM file with the certificate of its issuer"
    " and start again"
)
# Keyed by OpenSSL error codes (X509_V_ERR_…).
_CERTIFICATES: Final = {
    2: ("is from an issuer that is not known here", _TRUST),
    9: ("is not valid yet", "look at the clocks of both machines"),
    10: ("has expired", "it has to be renewed there; also look at the clock of this machine"),
    18: ("is self-signed", _TRUST),
    19: ("is self-signed, or that of its issuer is", _TRUST),
    20: ("is from an issuer that is not known here", _TRUST),
    21: ("comes without that of its issuer", _TRUST),
    62: ("is for another host name", "correct base_url, or use the name in the certificate"),
    64: ("is for another address", "correct base_url, or use the name in the certificate"),
}
# How OpenSSL reports the reply of a server that does not speak TLS.
_NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"})


def connect_failure_of(error: OSError) -> FailureReason:
    """Why a connection could not be made."""
    if isinstance(error, socket.gaierror):
        return "unknown_name" if error.errno in _UNKNOWN_NAME else "no_lookup"
    if type(error).__module__ == "ssl":
        return "tls"
    if error.errno is None and isinstance(error, TimeoutError):
        return "timed_out"
    # A host with several addresses fails with several errors, of which asyncio keeps only the text.
    found = {error.errno, *map(int, _ERRNO.findall(str(error)))}
    return next((reason for reason, numbers in _ERRNOS if numbers & found), "other")


def tls_problem_of(error: OSError) -> str | None:
    """What TLS holds against the server and what to do about it; None if it is not about TLS, or may be temporary."""
    ssl = sys.modules.get("ssl")  # not loaded: TLS was not involved
    if ssl is None or not isinstance(error, ssl.SSLError):
        return None
    if isinstance(error, ssl.SSLCertVerificationError):
        is_so, advice = _CERTIFICATES.get(error.verify_code, (f"is refused ({error.verify_message})", _TRUST))
        return f"the certificate of the model server {is_so}; {advice}"
    if getattr(error, "reason", None) in _NO_TLS:  # some lack the attribute
        return "the model server does not speak TLS; is its base_url http:// rather than https://?"
    return None
