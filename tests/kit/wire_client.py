"""`WireClient`: a client for tests that sends what it is told to, right or wrong, and keeps all that arrives.

Blocking, over any `Transport`. What it says to which server is for `app_client` and `exec_client`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeAlias

from websockets.sync.client import ClientConnection

from kit.transports import Gone, Socket, Transport

Json: TypeAlias = dict[str, Any]


class WireClient:
    """`told` is everything that was not a reply, in wire order: notifications and requests of the server."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.told: list[Json] = []
        self._replies: dict[int | str, Json] = {}
        self._next_id = 0

    @property
    def socket(self) -> ClientConnection:
        """For what only a WebSocket can do."""
        assert isinstance(self.transport, Socket)
        return self.transport.connection

    def send(self, message: object) -> None:
        self.transport.send(json.dumps(message))

    def request(self, method: str, params: object = None, **more: object) -> int:
        """Send a request and do not wait; its id."""
        self._next_id += 1
        message: Json = {"id": self._next_id, "method": method, **more}
        self.send(message if params is None else {**message, "params": params})
        return self._next_id

    def receive(self) -> Json:
        """The next message, whatever it is."""
        message = json.loads(self.transport.receive())
        assert isinstance(message, dict)
        assert "jsonrpc" not in message
        if "method" in message:
            self.told.append(message)
        else:
            self._replies[message["id"]] = message
        self.arrived(message)
        return message

    def arrived(self, message: Json) -> None:
        """For those who want to see every message."""

    def reply_to(self, request_id: int | str) -> Json:
        """The answer to a request; what arrives in between is kept."""
        while request_id not in self._replies:
            self.receive()
        return self._replies.pop(request_id)

    def has_reply(self, request_id: int | str) -> bool:
        """Whether it has come, and nobody has asked for it yet."""
        return request_id in self._replies

    def forget_replies(self) -> None:
        """Drop the answers that came for requests which nobody asks about any more."""
        self._replies.clear()

    def result_of(self, request_id: int | str) -> Json:
        reply = self.reply_to(request_id)
        assert "result" in reply, reply
        result = reply["result"]
        assert isinstance(result, dict)
        return result

    def call(self, method: str, params: object = None) -> Json:
        """The result of a request."""
        return self.result_of(self.request(method, params))

    def error(self, method: str, params: object = None) -> Json:
        """The error that a request is answered with."""
        reply = self.reply_to(self.request(method, params))
        assert "error" in reply, reply
        error: Json = reply["error"]
        return error

    def answer_to_raw(self, frame: str | bytes) -> Json:
        """Send a frame as it is; the next message that is no notification."""
        self.socket.send(frame)
        while "method" in (message := self.receive()):
            pass
        return self._replies.pop(message["id"])

    def wait_for(self, method: str, fits: Callable[[Json], bool] = lambda _: True) -> Json:
        """The first message of a method whose params fit, which may have come already."""
        seen = 0
        while True:
            for message in self.told[seen:]:
                if message["method"] == method and fits(message["params"]):
                    return message
            seen = len(self.told)
            self.receive()

    def until(self, condition: Callable[[], object]) -> None:
        """Receive until the condition holds."""
        while not condition():
            self.receive()

    def of(self, *methods: str) -> list[Json]:
        return [message for message in self.told if message["method"] in methods]

    def params_of(self, method: str) -> list[Json]:
        return [message["params"] for message in self.of(method)]

    def read_to_end(self) -> None:
        """Everything that the server still has to say, until it ends the connection; fails when it stays open."""
        try:
            while True:
                self.receive()
        except Gone:
            return
