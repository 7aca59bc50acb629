"""Matches replies to the requests that this side made."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from msgspec import Raw

from treadle.errors import OVERLOADED, MalformedMessage, RpcError
from treadle.rpc.message import Notification, Params, Reply, Request, decode, encode_request

T = TypeVar("T")


class Answer(NamedTuple, Generic[T]):
    """One of our requests was answered; `token` is what the caller passed to `request`."""

    token: T
    result: Raw | RpcError


class RpcPeer(Generic[T]):
    """One end of a conversation. `token` is whatever the caller wants back with the answer, such as a future."""

    def __init__(self, *, untrusted: bool = False, max_pending: int = 1024, jsonrpc: bool = False) -> None:
        self._untrusted = untrusted
        self._jsonrpc = jsonrpc
        self._max_pending = max_pending
        self._next_id = 0
        self._pending: dict[int, T] = {}

    @property
    def last_id(self) -> int:
        """The id of the newest request."""
        return self._next_id

    @property
    def pending(self) -> int:
        """How many requests have no answer yet."""
        return len(self._pending)

    def request(self, method: str, params: Params | None, token: T, traceparent: str = "") -> bytes:
        """The frame of a new request."""
        if len(self._pending) >= self._max_pending:
            raise RpcError(OVERLOADED, f"{self._max_pending} requests are waiting for an answer: retry later")
        self._next_id += 1
        frame = encode_request(self._next_id, method, params, traceparent, jsonrpc=self._jsonrpc)
        self._pending[self._next_id] = token
        return frame

    def receive(self, frame: bytes) -> Request | Notification | Answer[T]:
        """Read one frame; raises `MalformedMessage`, also for an answer to a request that was never made."""
        message = decode(frame, untrusted=self._untrusted)
        if isinstance(message, Request | Notification):
            return message
        if not isinstance(message.id, int) or message.id not in self._pending:
            raise UnmatchedAnswer(f"an answer to a request that was not made (id {message.id!r})")
        token = self._pending.pop(message.id)
        if isinstance(message, Reply):
            return Answer(token, message.result)
        error = message.error
        return Answer(token, RpcError(error.code, error.message, error.data))

    def forget(self, request_id: int) -> T | None:
        """Stop waiting for the answer to a request; when it comes, it is one that was not asked for."""
        return self._pending.pop(request_id, None)

    def awaits(self, request_id: int | str) -> bool:
        return request_id in self._pending

    def drain(self) -> list[T]:
        """The conversation is over: all tokens that will never be answered."""
        tokens = list(self._pending.values())
        self._pending.clear()
        return tokens


class UnmatchedAnswer(MalformedMessage):
    """The peer answered something that was not asked, so it does not speak our protocol."""
