"""JSON-RPC without the `jsonrpc` member, sans I/O: bytes in, messages out.

It owns the format of messages, the guards against hostile ones, and matching replies to requests. It knows nothing of
sockets, methods or parameter types: those stay raw JSON.
"""

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
