"""The vocabulary of the app-server: params, results, notifications and requests of both sides, without behaviour.

The structs are in modules by noun (`threads`, `turns`, `items`, …), which are loaded when they are needed; here are the
tables of methods and what reads and writes the structs. Names are those of the Codex protocol.
"""

from treadle.protocol.app.base import Unknown, Wire, convert, decode, decoder, encode
from treadle.protocol.app.methods import Method
from treadle.protocol.app.registry import (
    CLIENT_NOTIFICATIONS,
    METHODS,
    NOTIFICATIONS,
    SERVER_REQUESTS,
    UnknownNotification,
    read_notification,
)

__all__ = [
    "CLIENT_NOTIFICATIONS",
    "METHODS",
    "NOTIFICATIONS",
    "SERVER_REQUESTS",
    "Method",
    "Unknown",
    "UnknownNotification",
    "Wire",
    "convert",
    "decode",
    "decoder",
    "encode",
    "read_notification",
]
