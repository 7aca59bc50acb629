"""A client of the exec-server that shares no code with ours: JSON by the standard library over `websockets`.

It sends what it is told to, right or wrong, and keeps what arrives in the order in which it arrived.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect, unix_connect

from system.server_process import DEADLINE_S

Json: TypeAlias = dict[str, Any]


class RawClient:
    """`events` are the notifications so far, in wire order."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.events: list[Json] = []
        self.session_id = ""
        self.info: Json = {}
        self._replies: list[Json] = []
        self._next_id = 0

    # --- messages ---

    def send(self, message: object) -> None:
        self.socket.send(json.dumps(message))

    def request(self, method: str, params: object = None, **more: object) -> int:
        """Send a request and do not wait; its id."""
        self._next_id += 1
        message: Json = {"id": self._next_id, "method": method, **more}
        if params is not None:
            message["params"] = params
        self.send(message)
        return self._next_id

    def receive(self, deadline_s: float = DEADLINE_S) -> Json:
        """The next message, whatever it is."""
        frame = self.socket.recv(deadline_s)
        assert isinstance(frame, str), "the server sends text"
        message = json.loads(frame)
        assert isinstance(message, dict)
        assert "jsonrpc" not in message
        if "method" in message:
            self.events.append(message)
        return message

    def reply_to(self, request_id: int | str) -> Json:
        """The answer to a request; what arrives in between is kept."""
        for index, reply in enumerate(self._replies):
            if reply["id"] == request_id:
                return self._replies.pop(index)
        while True:
            message = self.receive()
            if "method" in message:
                continue
            if message["id"] == request_id:
                return message
            self._replies.append(message)

    def forget_replies(self) -> None:
        """Drop the answers that came for requests which nobody asks about any more."""
        self._replies.clear()

    def call(self, method: str, params: object = None) -> Json:
        """The result of a request."""
        reply = self.reply_to(self.request(method, params))
        assert "result" in reply, reply
        result = reply["result"]
        assert isinstance(result, dict)
        return result

    def failure(self, method: str, params: object = None) -> tuple[int, str]:
        """Code and text of the error that a request is answered with."""
        return error_of(self.reply_to(self.request(method, params)))

    def answer_to_raw(self, frame: str | bytes) -> Json:
        """Send a frame as it is; the next message that is no notification."""
        self.socket.send(frame)
        while "method" in (message := self.receive()):
            pass
        return message

    def is_dropped(self) -> bool:
        """Whether the server ends the connection; fails when it stays open and silent."""
        try:
            while True:
                self.receive()
        except ConnectionClosed:
            return True

    # --- handshake ---

    def initialize(self, resume: str | None = None) -> Json:
        """Only the request; sets `session_id` and `info`."""
        params: Json = {"clientName": "raw"} if resume is None else {"clientName": "raw", "resumeSessionId": resume}
        result = self.call("initialize", params)
        self.session_id, self.info = result["sessionId"], result["environmentInfo"]
        return result

    def handshake(self, resume: str | None = None) -> RawClient:
        self.initialize(resume)
        self.send({"method": "initialized", "params": {}})
        return self

    # --- processes ---

    def start(self, process_id: str, argv: Sequence[str], cwd: Path, **more: object) -> Json:
        return self.call("process/start", start_params(process_id, argv, cwd, **more))

    def write(self, process_id: str, data: bytes, write_id: str) -> str:
        params = {"processId": process_id, "chunk": base64.b64encode(data).decode(), "writeId": write_id}
        status = self.call("process/write", params)["status"]
        assert isinstance(status, str)
        return status

    def wait_for(self, method: str, process_id: str) -> Json:
        """The params of the first such notification, which may have come already."""
        seen = 0
        while True:
            for event in self.events[seen:]:
                if event["method"] == method and event["params"]["processId"] == process_id:
                    params = event["params"]
                    assert isinstance(params, dict)
                    return params
            seen = len(self.events)
            message = self.receive()
            if "method" not in message:
                self._replies.append(message)

    def wait_for_output(self, process_id: str, text: bytes) -> None:
        """Until `text` is in what the process has written."""
        while text not in self.output(process_id):
            message = self.receive()
            if "method" not in message:
                self._replies.append(message)

    def story(self, process_id: str) -> list[Json]:
        """All events of a process in wire order, up to its close."""
        self.wait_for("process/closed", process_id)
        return [event for event in self.events if event["params"]["processId"] == process_id]

    def exit_code(self, process_id: str) -> int:
        code = self.wait_for("process/exited", process_id)["exitCode"]
        assert isinstance(code, int)
        return code

    def output(self, process_id: str) -> bytes:
        """What has been pushed so far, both streams."""
        return b"".join(
            base64.b64decode(event["params"]["chunk"])
            for event in self.events
            if event["method"] == "process/output" and event["params"]["processId"] == process_id
        )

    def run(self, process_id: str, argv: Sequence[str], cwd: Path, **more: object) -> tuple[int, bytes]:
        """Start, wait for the close; exit code and output."""
        self.start(process_id, argv, cwd, **more)
        self.story(process_id)
        return self.exit_code(process_id), self.output(process_id)


@contextmanager
def connected(
    url: str, *, headers: Mapping[str, str] | None = None, max_queue: int | None = None
) -> Iterator[RawClient]:
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
    with opened as socket:
        yield RawClient(socket)


def start_params(process_id: str, argv: Sequence[str], cwd: Path, **more: object) -> Json:
    """Params of `process/start`; `more` by their wire names."""
    return {
        "processId": process_id,
        "argv": list(argv),
        "cwd": cwd.as_uri(),
        "env": {"PATH": "/usr/local/bin:/usr/bin:/bin"},
        "tty": False,
        **more,
    }


def error_of(reply: Json) -> tuple[int, str]:
    assert "error" in reply, reply
    error = reply["error"]
    assert set(error) == {"code", "message"}
    return error["code"], error["message"]


def numbers(story: Sequence[Json]) -> list[int]:
    return [event["params"]["seq"] for event in story]
