"""`ScriptedModel`: a mock model that plays a generator of the test.

The generator yields replies (calls of tools, or a final text) and is sent the outputs of its calls. A script that fails
makes the request fail, and the test too (`check`).
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from typing import TypeAlias

from treadle.testing import MockModel, RecordedRequest, ToolCall, item_events, sse_reply, stream
from treadle.testing import Reply as WireReply

Reply: TypeAlias = Sequence[ToolCall] | str
Script: TypeAlias = Generator[Reply, list[str], None]


def exec_command(cmd: str, *, tty: bool = False, yield_time_ms: int = 30_000) -> ToolCall:
    return ToolCall("exec_command", {"cmd": cmd, "tty": tty, "yield_time_ms": yield_time_ms})


def outside_the_sandbox(cmd: str) -> ToolCall:
    arguments = {"cmd": cmd, "sandbox_permissions": "require_escalated", "justification": "May I do this?"}
    return ToolCall("exec_command", arguments)


def write_stdin(session_id: int, chars: str, *, yield_time_ms: int = 1000) -> ToolCall:
    return ToolCall("write_stdin", {"session_id": session_id, "chars": chars, "yield_time_ms": yield_time_ms})


def apply_patch(patch: str) -> ToolCall:
    return ToolCall("apply_patch", patch, custom=True)


def replies(*steps: Reply) -> Script:
    """A script that does not look at the outputs."""
    for step in steps:  # noqa: UP028 - `yield from` would send the outputs on to the iterator of a tuple
        yield step


class ScriptedModel(MockModel):
    """`outputs` are the tool outputs in the order of the calls."""

    def __init__(self) -> None:
        self.script: Script = replies("nothing to do")
        self.outputs: list[str] = []
        self.failures: list[Exception] = []
        self._called: list[str] = []
        self._lock = threading.Lock()  # guards the script: a generator runs once at a time
        super().__init__(on_empty=self._play)

    def check(self) -> None:
        """Raise what went wrong on the side of the model; the agent program only saw an error status."""
        if self.failures:
            raise self.failures[0]
        assert self.requests(), "the agent program never asked the model"

    def _play(self, request: RecordedRequest) -> WireReply | str:
        with self._lock:
            try:
                reply = self._step(request)
            except Exception as error:
                self.failures.append(error)
                raise
            if isinstance(reply, str):
                self._called = []
                return reply
            number = len(self.requests())
            self._called = [f"call_{number}_{index}" for index in range(len(reply))]
            items = [call.item(call_id) for call, call_id in zip(reply, self._called, strict=True)]
            events = [event for index, item in enumerate(items) for event in item_events(item, index)]
            return sse_reply(stream(f"resp_{number}", events, items, None))

    def _step(self, request: RecordedRequest) -> Reply:
        if not self._called:
            return next(self.script)
        outputs = [request.tool_outputs[call_id] for call_id in self._called]
        self.outputs += outputs
        return self.script.send(outputs)
