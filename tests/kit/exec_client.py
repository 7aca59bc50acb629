"""`ExecClient`: the test's client of the exec-server, and the params and answers that it is about."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from kit.transports import Transport, socket_to
from kit.wire_client import Json, WireClient


class ExecClient(WireClient):
    """`session_id` and `info` are those of the handshake."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self.session_id = ""
        self.info: Json = {}

    def failure(self, method: str, params: object = None) -> tuple[int, str]:
        """Code and text of the error that a request is answered with."""
        return error_of(self.reply_to(self.request(method, params)))

    def is_dropped(self) -> bool:
        """Whether the server ends the connection; fails when it stays open and silent."""
        self.read_to_end()
        return True

    # --- handshake ---

    def initialize(self, resume: str | None = None) -> Json:
        """Only the request; sets `session_id` and `info`."""
        params: Json = {"clientName": "raw"} if resume is None else {"clientName": "raw", "resumeSessionId": resume}
        result = self.call("initialize", params)
        self.session_id, self.info = result["sessionId"], result["environmentInfo"]
        return result

    def handshake(self, resume: str | None = None) -> Self:
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

    def wait_for_process(self, method: str, process_id: str) -> Json:
        """The params of the first such notification, which may have come already."""
        params: Json = self.wait_for(method, lambda params: params["processId"] == process_id)["params"]
        return params

    def wait_for_output(self, process_id: str, text: bytes) -> None:
        """Until `text` is in what the process has written."""
        while text not in self.output(process_id):
            self.receive()

    def story(self, process_id: str) -> list[Json]:
        """All events of a process in wire order, up to its close."""
        self.wait_for_process("process/closed", process_id)
        return [event for event in self.told if event["params"]["processId"] == process_id]

    def exit_code(self, process_id: str) -> int:
        code = self.wait_for_process("process/exited", process_id)["exitCode"]
        assert isinstance(code, int)
        return code

    def output(self, process_id: str) -> bytes:
        """What has been pushed so far, both streams."""
        return b"".join(
            base64.b64decode(event["params"]["chunk"])
            for event in self.of("process/output")
            if event["params"]["processId"] == process_id
        )

    def run(self, process_id: str, argv: Sequence[str], cwd: Path, **more: object) -> tuple[int, bytes]:
        """Start, wait for the close; exit code and output."""
        self.start(process_id, argv, cwd, **more)
        self.story(process_id)
        return self.exit_code(process_id), self.output(process_id)


@contextmanager
def connected(
    url: str, *, headers: Mapping[str, str] | None = None, max_queue: int | None = None
) -> Iterator[ExecClient]:
    """A connection without a handshake; see `socket_to`."""
    with socket_to(url, headers=headers, max_queue=max_queue) as socket:
        yield ExecClient(socket)


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
    assert set(error) - {"data"} == {"code", "message"}
    return error["code"], error["message"]


def numbers(story: Sequence[Json]) -> list[int]:
    return [event["params"]["seq"] for event in story]
