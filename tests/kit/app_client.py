"""`AppClient`: the test's client of the app-server. All that ours sends goes to the proof of the schema, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kit.transports import Transport, socket_to
from kit.wire_client import Json, WireClient
from schema_proof import heard


class AppClient(WireClient):
    """`ours` is false where the same is asked of another's server, which may say what our schema does not have."""

    def __init__(self, transport: Transport, *, ours: bool = True) -> None:
        super().__init__(transport)
        self._ours = ours
        self._methods: dict[int | str, str] = {}

    def send(self, message: object) -> None:
        if isinstance(message, dict) and "method" in message and "id" in message:
            self.expect(message["id"], message["method"])
        super().send(message)

    def expect(self, request_id: int | str, method: str) -> None:
        """For requests that are sent otherwise: what the reply to them answers."""
        self._methods[request_id] = method

    def arrived(self, message: Json) -> None:
        method = None if "method" in message else self._methods.pop(message["id"], None)
        if self._ours:
            heard(message, method)

    def call(self, method: str, params: object = None) -> Json:
        return super().call(method, {} if params is None else params)

    def failure(self, method: str, params: object = None) -> Json:
        """The error that a request is answered with."""
        return self.error(method, {} if params is None else params)

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
    """A connection without a handshake; see `socket_to`."""
    with socket_to(url, headers=headers, max_queue=max_queue) as socket:
        yield AppClient(socket)


@contextmanager
def joined(url: str, **capabilities: Any) -> Iterator[AppClient]:
    """A connection with its handshake done."""
    with connected(url) as client:
        client.initialize(**capabilities)
        yield client
