"""`McpClient`: an MCP client of `treadle mcp-server`, that knows nothing of the protocol but its lines."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from kit.processes import DEADLINE_S
from treadle.own_python import treadle_command

ELICITATION: Final[Mapping[str, Any]] = {"elicitation": {}}


class McpClient:
    """Everything that arrived is in `messages`, oldest first."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.messages: list[Any] = []
        self._arrived: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._number = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._arrived.put(line)
        self._arrived.put(b"")

    # --- saying ---

    def send(self, message: Mapping[str, Any]) -> None:
        self.send_line(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def send_line(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: Mapping[str, Any] | None = None) -> int:
        """Send a request; gives its id."""
        self._number += 1
        self.send({"id": self._number, "method": method, **({} if params is None else {"params": params})})
        return self._number

    def call(self, tool: str, arguments: Mapping[str, Any], token: str | None = None) -> int:
        meta = {} if token is None else {"_meta": {"progressToken": token}}
        return self.ask("tools/call", {"name": tool, "arguments": arguments, **meta})

    # --- hearing ---

    def wait(self, wanted: Callable[[Any], Any]) -> Any:
        """The first message of all that is wanted."""
        seen = 0
        while True:
            for message in self.messages[seen:]:
                if wanted(message):
                    return message
            seen = len(self.messages)
            try:
                line = self._arrived.get(timeout=DEADLINE_S)
            except queue.Empty:
                raise AssertionError(f"the server is silent; it has said {self.messages}") from None
            assert line, f"the server has ended; it has said {self.messages}"
            message = json.loads(line)
            assert message["jsonrpc"] == "2.0"
            self.messages.append(message)

    def answer(self, request_id: int) -> Any:
        """The answer to a request: a result or an error."""
        return self.wait(lambda it: it.get("id") == request_id and "method" not in it)

    def result(self, request_id: int) -> Any:
        answer = self.answer(request_id)
        assert "result" in answer, answer
        return answer["result"]

    def run(self, tool: str, arguments: Mapping[str, Any], token: str | None = None) -> Any:
        return self.result(self.call(tool, arguments, token))

    def asked(self, method: str = "elicitation/create") -> Any:
        """The request of the server."""
        return self.wait(lambda it: it.get("method") == method and "id" in it)

    def told(self, method: str) -> list[Any]:
        """The params of the notifications that have arrived."""
        return [it["params"] for it in self.messages if it.get("method") == method and "id" not in it]

    def shake_hands(self, version: str = "2025-06-18", capabilities: Mapping[str, Any] | None = None) -> Any:
        params = {
            "protocolVersion": version,
            "capabilities": {} if capabilities is None else capabilities,
            "clientInfo": {"name": "tests", "version": "1"},
        }
        result = self.result(self.ask("initialize", params))
        self.send({"method": "notifications/initialized"})
        return result

    def hang_up(self) -> int:
        """End the input; gives the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(DEADLINE_S)


@contextmanager
def mcp_client(cwd: Path, env: Mapping[str, str], log: Path, *words: str) -> Iterator[McpClient]:
    """A client of a server of its own, which has not shaken hands yet."""
    command: Sequence[str] = treadle_command("mcp-server", *words)
    with log.open("ab") as errors:
        process = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
        )
    try:
        yield McpClient(process)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):  # it has not read all that we said
                stream.close()
