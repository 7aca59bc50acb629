"""The model of the soak: it makes the calls that the last message of the user lists, and looks at commands that still
run until they have ended. What it is given back is what `told` finds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from treadle.testing import MockModel, RecordedRequest, Reply, ToolCall

Step = dict[str, Any]
MARK: Final = "DO:"
MOST_LOOKS: Final = 60
LOOK_MS: Final = 5_000
_RUNNING: Final = re.compile(r"^Process running with session ID (\d+)$", re.MULTILINE)


class SoakModel(MockModel):
    def __init__(self) -> None:
        self.last: dict[str, RecordedRequest] = {}  # of each thread
        super().__init__(on_empty=self._play)

    def told(self, thread: str, name: str) -> list[str]:
        """What the model was answered for a call, and for each look at what it had started."""
        request = self.last.get(thread)
        found = {} if request is None else request.tool_outputs
        return [text for call, text in found.items() if call.partition("~")[0] == name]

    def _play(self, request: RecordedRequest) -> Reply:
        self.last[request.header("thread-id") or ""] = request
        with self._changed:
            self._requests.clear()  # each holds a whole conversation
        texts = request.input_texts("user")
        steps = next((text for text in reversed(texts) if text.startswith(MARK)), None)
        call = None if steps is None else _next(json.loads(steps[len(MARK) :]), request)
        return self.reply_message("done") if call is None else self.reply_calls(call)


def _next(steps: Sequence[Step], request: RecordedRequest) -> ToolCall | None:
    outputs = request.tool_outputs
    sessions: dict[str, int | None] = {}
    for call, text in outputs.items():
        name, (head, said, _) = call.partition("~")[0], text.partition("\nOutput:\n")
        found = _RUNNING.search(head)
        if said or name not in sessions or text.startswith("there is no session"):
            sessions[name] = None if found is None else int(found[1])
    for step in steps:
        name = step["id"]
        if name in outputs:
            continue
        if step["tool"] == "write_stdin":
            session = sessions.get(name.partition("~")[0])
            if session is None:  # it was not started, or has ended
                continue
            return ToolCall("write_stdin", {**step["args"], "session_id": session}, name)
        return ToolCall(step["tool"], step["args"], name)
    for name in (step["id"] for step in steps):
        session = sessions.get(name)
        looks = sum(call.startswith(f"{name}~") for call in outputs)
        if session is not None and looks < MOST_LOOKS:
            args = {"session_id": session, "yield_time_ms": LOOK_MS, "max_output_tokens": 1_000_000}
            return ToolCall("write_stdin", args, f"{name}~look{looks}")
    return None
