"""`AgentsModel`: a mock model for several agents at a time. Each follows the script in the last message that it got:
`DO:` and a JSON list of what it answers, step by step.

A step is a text (also as `{"text": …}`), a call (`{"call": NAME, "args": {…}}`), or a list of calls. `$1` in arguments
is the id of the first sub-agent that the agent has started, and `{"hold": NAME, "say": TEXT}` is said when the test
opens that gate.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from typing import Any, TypeAlias

from treadle.testing import MockModel, RecordedRequest, Reply, ToolCall, Usage

Step: TypeAlias = "str | dict[str, Any] | list[dict[str, Any]]"
NOTIFICATION = "<subagent_notification>"


def do(*steps: Step) -> str:
    return f"DO:{json.dumps(steps)}"


def spawn(*steps: Step, **more: Any) -> dict[str, Any]:
    return {"call": "multi_agent_v1__spawn_agent", "args": {"message": do(*steps), **more}}


def call(name: str, **args: Any) -> dict[str, Any]:
    return {"call": f"multi_agent_v1__{name}", "args": args}


def wait(*targets: str, timeout_ms: int = 60_000) -> dict[str, Any]:
    return call("wait_agent", targets=targets, timeout_ms=timeout_ms)


def notifications(request: RecordedRequest) -> list[dict[str, Any]]:
    """What the model was told of ends, in the history of a request."""
    texts = (text for text in request.input_texts("user") if text.startswith(NOTIFICATION))
    return [json.loads(text.splitlines()[1]) for text in texts]


class AgentsModel(MockModel):
    def __init__(self, *, usage: Usage | None = None) -> None:
        self.gates: dict[str, threading.Event] = defaultdict(threading.Event)
        self._usage = usage
        super().__init__(on_empty=self._play)

    def close(self) -> None:
        for gate in self.gates.values():
            gate.set()
        super().close()

    def of(self, thread_id: str) -> list[RecordedRequest]:
        """The requests of one thread."""
        return [request for request in self.requests() if request.header("thread-id") == thread_id]

    def _play(self, request: RecordedRequest) -> Reply | str:
        items = request.input
        scripts = {at: _script(item) for at, item in enumerate(items) if item.get("role") == "user"}
        begun = max((at for at, script in scripts.items() if script), default=None)
        if begun is None:
            return self.reply_message("done", usage=self._usage)
        done = sum(item.get("type") == "function_call" or item.get("role") == "assistant" for item in items[begun:])
        steps, _ = json.JSONDecoder().raw_decode(scripts[begun])
        for step in steps:
            calls = step if isinstance(step, list) else [step]
            if done:
                done -= len(calls)
                continue
            if isinstance(step, str) or "text" in calls[0]:
                return self.reply_message(step if isinstance(step, str) else calls[0]["text"], usage=self._usage)
            if "hold" in calls[0]:
                gate = self.gates[calls[0]["hold"]]
                return self.reply_message(calls[0]["say"], gate=gate, usage=self._usage)
            made = [ToolCall(_name(each), _filled(each["args"], items), each.get("id")) for each in calls]
            return self.reply_calls(*made, usage=self._usage)
        return self.reply_message("done", usage=self._usage)


def _script(item: dict[str, Any]) -> str:
    """The last one in a message: where an API takes no two messages of a user in a row they are parts of one."""
    content = item.get("content")
    texts = [content] if isinstance(content, str) else [part.get("text", "") for part in content or ()]
    return next((text.removeprefix("DO:") for text in reversed(texts) if text.startswith("DO:")), "")


def _name(step: dict[str, Any]) -> str:
    """Of a recorded call, with its namespace."""
    return f"{step['ns']}__{step['call']}" if "ns" in step else str(step["call"])


def _filled(args: dict[str, Any], items: list[dict[str, Any]]) -> dict[str, Any]:
    """The arguments with the ids of agents in their places; those in the script of another agent stay."""
    outputs = (str(item.get("output")) for item in items if str(item.get("type")).endswith("_output"))
    ids = [json.loads(output)["agent_id"] for output in outputs if output.startswith('{"agent_id"')]

    def filled(value: Any) -> Any:
        if isinstance(value, list):
            return [filled(each) for each in value]
        if isinstance(value, str) and value.startswith("$"):
            return ids[int(value[1:]) - 1]
        return value

    return {name: filled(value) for name, value in args.items()}
