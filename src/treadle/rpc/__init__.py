"""JSON-RPC, sans I/O: bytes in, messages out. The `jsonrpc` member is left out, unless the peer wants it.

It owns the format of messages, the guards against hostile ones, and matching replies to requests. It knows nothing of
sockets, methods or parameter types: those stay raw JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.internal_names import internal_name
from treadle.rpc.message import (
    Failure,
    Notification,
    Reply,
    Request,
    RequestId,
    decode,
    decode_lenient,
    encode_failure,
    encode_notification,
    encode_reply,
    encode_request,
)
from treadle.rpc.peer import Answer, RpcPeer

__all__ = [
    "Answer",
    "Failure",
    "Notification",
    "Reply",
    "Request",
    "RequestId",
    "RpcPeer",
    "decode",
    "decode_lenient",
    "encode_failure",
    "encode_notification",
    "encode_reply",
    "encode_request",
]


def __getattr__(name: str) -> object:
    return internal_name(__name__, name)


# fmt: off
# isort: off
if TYPE_CHECKING:  # for tests: see treadle.internal_names
    from treadle.rpc.message import ErrorBody, MAX_DEPTH, MAX_VALUES, decode_problem, is_too_deep
    from treadle.rpc.peer import UnmatchedAnswer
