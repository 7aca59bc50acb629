"""Why there is no connection, from the errors of the system."""

from __future__ import annotations

import errno
import socket
import ssl

import pytest

from treadle.http import FailureReason, connect_failure_of


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "x"), "refused"),
        (OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 1), [Errno 111] Connect …"), "refused"),
        (
            OSError("Multiple exceptions: [Errno 101] Unreachable, [Errno 111] Connect call failed"),
            "refused",
        ),
        (OSError(errno.ENETUNREACH, "x"), "no_network"),
        (OSError(errno.EHOSTUNREACH, "x"), "no_network"),
        (socket.gaierror(socket.EAI_NONAME, "x"), "unknown_name"),
        (socket.gaierror(socket.EAI_AGAIN, "x"), "no_lookup"),
        (TimeoutError(), "timed_out"),
        (TimeoutError(errno.ETIMEDOUT, "x"), "timed_out"),
        (ConnectionResetError(errno.ECONNRESET, "x"), "hung_up"),
        (ssl.SSLError(1, "x"), "tls"),
        (OSError("something"), "other"),
        (OSError(errno.EACCES, "x"), "other"),
    ],
)
def test_reasons(error: OSError, reason: FailureReason) -> None:
    assert connect_failure_of(error) == reason
