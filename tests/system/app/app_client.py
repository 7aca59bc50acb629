"""A client of the app-server that shares no code with it: JSON lines over pipes, or JSON over `websockets`.

It keeps everything that arrives, in the order of the wire, and hands it to the proof of the schema. The program is in
`app_program`.
"""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, Final, Protocol, TypeAlias

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect, unix_connect

from schema_proof import heard

Json: TypeAlias = dict[str, Any]

# Generous: it is met only when something hangs.
DEADLINE_S: Final = 30.0


class Gone(Exception):
    """The server has ended the connection."""


class Road(Protocol):
    def send(self, text: str) -> None: ...

    def receive(self) -> str:
        """The next message; raises `Gone` at the end."""


class Pipes:
    """Standard input and output of a child."""

    def __init__(self, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self._stdin = stdin
        self._fd = stdout.fileno()
        self._buffer = b""

    def send(self, text: str) -> None:
        self._stdin.write(text.encode() + b"\n")
        self._stdin.flush()

    def receive(self) -> str:
        end = time.monotonic() + DEADLINE_S
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._fd], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"the server is silent; it began to write {self._buffer[:200]!r}"
            data = os.read(self._fd, 1 << 20)
            if not data:
                raise Gone
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()


class Socket:
    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    def send(self, text: str) -> None:
        self.connection.send(text)

    def receive(self) -> str:
        try:
            frame = self.connection.recv(DEADLINE_S)
        except ConnectionClosed:
            raise Gone from None
        assert isinstance(frame, str), "the server sends text"
        return frame


class AppClient:
    """`told` is everything that was not a reply, in wire order: notifications and requests of the server."""

    def __init__(self, road: Road) -> None:
        self.road = road
        self.told: list[Json] = []
        self._replies: dict[int | str, Json] = {}
        self._methods: dict[int | str, str] = {}
        self._next_id = 0

    # --- messages ---

    def send(self, message: Json) -> None:
        if "method" in message and "id" in message:
            self.expect(message["id"], message["method"])
        self.road.send(json.dumps(message))

    def expect(self, request_id: int | str, method: str) -> None:
        """For requests that are sent otherwise: what the reply to them answers."""
        self._methods[request_id] = method

    def request(self, method: str, params: Mapping[str, Any] | None = None) -> int:
        """Send a request and do not wait; its id."""
        self._next_id += 1
        message: Json = {"id": self._next_id, "method": method}
        self.send(message if params is None else {**message, "params": params})
        return self._next_id

    def receive(self) -> Json:
        """The next message, whatever it is."""
        message: Json = json.loads(self.road.receive())
        assert isinstance(message, dict)
        if "method" in message:
            self.told.append(message)
            heard(message)
        else:
            heard(message, self._methods.pop(message["id"], None))
            self._replies[message["id"]] = message
        return message

    def reply_to(self, request_id: int | str) -> Json:
        while request_id not in self._replies:
            self.receive()
        return self._replies.pop(request_id)

    def has_reply(self, request_id: int | str) -> bool:
        """Whether it has come, and nobody has asked for it yet."""
        return request_id in self._replies

    def call(self, method: str, params: Mapping[str, Any] | None = None) -> Json:
        """The result of a request."""
        reply = self.reply_to(self.request(method, {} if params is None else params))
        assert "result" in reply, reply
        result: Json = reply["result"]
        return result

    def failure(self, method: str, params: Mapping[str, Any] | None = None) -> Json:
        """The error that a request is answered with."""
        reply = self.reply_to(self.request(method, {} if params is None else params))
        assert "error" in reply, reply
        error: Json = reply["error"]
        return error

    def read_to_end(self) -> None:
        """Everything that the server still has to say, until it ends the connection."""
        try:
            while True:
                self.receive()
        except Gone:
            return

    def wait_for(self, method: str, fits: Callable[[Json], bool] = lambda _: True) -> Json:
        """The first message of a method whose params fit, which may have come already."""
        seen = 0
        while True:
            for message in self.told[seen:]:
                if message["method"] == method and fits(message["params"]):
                    return message
            seen = len(self.told)
            self.receive()

    def of(self, *methods: str) -> list[Json]:
        return [message for message in self.told if message["method"] in methods]

    def answer(self, asked: Json, result: Mapping[str, Any]) -> None:
        self.send({"id": asked["id"], "result": result})

    # --- the usual ---

    def initialize(self, name: str = "raw", **capabilities: Any) -> Json:
        params: Json = {"clientInfo": {"name": name, "version": "1"}}
        if capabilities:
            params["capabilities"] = capabilities
        result = self.call("initialize", params)
        self.send({"method": "initialized"})
        return result

    def start_thread(self, **params: Any) -> str:
        thread_id: str = self.call("thread/start", params)["thread"]["id"]
        return thread_id

    def begin(self, thread: str, text: str = "go", **params: Any) -> str:
        """Start a turn; its id."""
        given = {"threadId": thread, "input": [{"type": "text", "text": text}], **params}
        turn_id: str = self.call("turn/start", given)["turn"]["id"]
        return turn_id

    def turn_end(self, turn_id: str) -> Json:
        done = self.wait_for("turn/completed", lambda params: params["turn"]["id"] == turn_id)
        turn: Json = done["params"]["turn"]
        return turn

    def run(self, thread: str, text: str = "go") -> Json:
        return self.turn_end(self.begin(thread, text))

    def turns(self, thread: str) -> list[Json]:
        """As `thread/read` has them."""
        read = self.call("thread/read", {"threadId": thread, "includeTurns": True})
        turns: list[Json] = read["thread"]["turns"]
        return turns


@contextmanager
def connected(
    url: str, *, headers: Mapping[str, str] | None = None, max_queue: int | None = None
) -> Iterator[AppClient]:
    """A connection without a handshake. With `max_queue` it reads no further when so many messages wait."""
    if url.startswith("unix://"):
        opened = unix_connect(url.removeprefix("unix://"), compression=None, max_size=None, max_queue=max_queue)
    else:
        opened = connect(
            url,
            additional_headers=dict(headers or {}),
            compression=None,
            max_size=None,
            max_queue=max_queue,
            proxy=None,
            open_timeout=DEADLINE_S,
        )
    with opened as connection:
        yield AppClient(Socket(connection))


@contextmanager
def joined(url: str, **capabilities: Any) -> Iterator[AppClient]:
    """A connection with its handshake done."""
    with connected(url) as client:
        client.initialize(**capabilities)
        yield client
