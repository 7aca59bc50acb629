"""Why there is no connection to a server: the errors of the system, told apart.

Owns the table. What is to be done about it depends on who asks, and is said there.
"""

from __future__ import annotations

import errno
import re
import socket
from typing import Final, Literal, TypeAlias

Reason: TypeAlias = Literal[
    "refused", "unknown_name", "no_lookup", "no_network", "timed_out", "hung_up", "tls", "other"
]

# The first that is among the errors counts: where one address refuses, the network is there.
_ERRNOS: Final[tuple[tuple[Reason, frozenset[int]], ...]] = (
    ("refused", frozenset({errno.ECONNREFUSED})),
    ("hung_up", frozenset({errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE})),
    ("timed_out", frozenset({errno.ETIMEDOUT})),
    (
        "no_network",
        frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.EADDRNOTAVAIL}),
    ),
)
_ERRNO: Final = re.compile(r"\[Errno (\d+)\]")
# By their names, because not every system has all of them.
_UNKNOWN_NAME: Final = frozenset(
    getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY") if hasattr(socket, name)
)


def reason_of(error: OSError) -> Reason:
    """What kept a connection from being made."""
    if isinstance(error, socket.gaierror):
        return "unknown_name" if error.errno in _UNKNOWN_NAME else "no_lookup"
    if type(error).__module__ == "ssl":
        return "tls"
    if error.errno is None and isinstance(error, TimeoutError):
        return "timed_out"
    # For a name with several addresses there are several errors, and asyncio keeps only their texts.
    found = {error.errno, *map(int, _ERRNO.findall(str(error)))}
    return next((reason for reason, numbers in _ERRNOS if numbers & found), "other")
