"""A model server for tests: speaks the Responses API (SSE) and plays a script.

Owns the wire format towards the agent program. What the model "says" is a generator of the test: it yields replies
(tool calls, or a final text) and is sent the outputs of its calls. A script that fails makes the request fail, and the
test too (`check`).
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias, cast


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool: JSON arguments, or the free text of a custom tool."""

    name: str
    arguments: dict[str, str | int | bool] | str


Reply: TypeAlias = Sequence[Call] | str
Script: TypeAlias = Generator[Reply, list[str], None]
Json: TypeAlias = dict[str, Any]


def exec_command(cmd: str, *, tty: bool = False, yield_time_ms: int = 30_000) -> Call:
    return Call("exec_command", {"cmd": cmd, "tty": tty, "yield_time_ms": yield_time_ms})


def write_stdin(session_id: int, chars: str, *, yield_time_ms: int = 1000) -> Call:
    return Call("write_stdin", {"session_id": session_id, "chars": chars, "yield_time_ms": yield_time_ms})


def apply_patch(patch: str) -> Call:
    return Call("apply_patch", patch)


def replies(*steps: Reply) -> Script:
    """A script that does not look at the outputs."""
    for step in steps:  # noqa: UP028 - `yield from` would send the outputs on to the iterator of a tuple
        yield step


@dataclass
class MockModel:
    """The server. `requests` holds every body received, `outputs` the tool outputs in the order of the calls."""

    script: Script = field(default_factory=lambda: replies("nothing to do"))
    requests: list[Json] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._ids = itertools.count(1)
        self._pending: list[str] = []
        self._lock = threading.Lock()  # guards the script: a generator runs once at a time
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self) -> MockModel:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def check(self) -> None:
        """Raise what went wrong on the side of the model; the agent program only saw an error status."""
        if self.failures:
            raise self.failures[0]
        assert self.requests, "the agent program never asked the model"

    def answer(self, body: Json) -> list[Json]:
        """The output items for one request."""
        with self._lock:
            self.requests.append(body)
            try:
                return self._play(body)
            except BaseException as error:
                self.failures.append(error)
                raise

    def _play(self, body: Json) -> list[Json]:
        if self._pending:
            by_call = {item["call_id"]: item for item in body["input"] if item["type"].endswith("_call_output")}
            outputs = [_text(by_call[call_id]["output"]) for call_id in self._pending]
            self.outputs += outputs
            reply = self.script.send(outputs)
        else:
            reply = next(self.script)
        if isinstance(reply, str):
            self._pending = []
            return [_message(reply, next(self._ids))]
        items = [_call_item(call, next(self._ids)) for call in reply]
        self._pending = [item["call_id"] for item in items]
        return items


def _text(output: str | list[Json]) -> str:
    if isinstance(output, str):
        return output
    return "".join(part.get("text", "") for part in output)


def _message(text: str, number: int) -> Json:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": content}


def _call_item(call: Call, number: int) -> Json:
    common: Json = {"call_id": f"call_{number}", "name": call.name, "status": "completed"}
    if isinstance(call.arguments, str):
        return {"type": "custom_tool_call", "id": f"ctc_{number}", "input": call.arguments, **common}
    return {"type": "function_call", "id": f"fc_{number}", "arguments": json.dumps(call.arguments), **common}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, model: MockModel) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.model = model

    def handle_error(self, request: object, client_address: object) -> None:
        """What matters is in `failures`; an agent program that hangs up is no concern of ours."""


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._send(200, "application/json", b'{"object":"list","data":[],"models":[]}')

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.path.endswith("/responses"):
            self._send(404, "application/json", b"{}")
            return
        try:
            items = cast(_Server, self.server).model.answer(body)
        except BaseException as error:
            self._send(400, "application/json", json.dumps({"error": {"message": repr(error)}}).encode())
            return
        self._send(200, "text/event-stream", b"".join(_event(event) for event in _events(items)))

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _events(items: list[Json]) -> Generator[Json, None, None]:
    response: Json = {"id": "resp_1", "object": "response", "status": "in_progress", "output": []}
    yield {"type": "response.created", "response": response}
    for index, item in enumerate(items):
        yield {"type": "response.output_item.added", "output_index": index, "item": item}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    yield {
        "type": "response.completed",
        "response": {**response, "status": "completed", "output": items, "usage": usage},
    }


def _event(event: Json) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
