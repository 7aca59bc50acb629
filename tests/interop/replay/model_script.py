"""`ModelScript`: the model's part of a scenario, as replies for `treadle.testing.MockModel`.

Owns the compact form of replies (explained at the head of `scenarios.toml`) and the gates that hold one back until the
client has seen something. The recordings hold no model traffic: the scripts were inferred from the items it caused.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from interop.replay.recording import Json
from interop.replay.scenario import Places
from treadle.testing import RecordedRequest, Reply

USAGE: Final = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 2},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 1},
    "total_tokens": 15,
}
FOREVER: Final = "forever"

_SESSION: Final = re.compile(r"session ID (\d+)")


class ModelScript:
    """Answers the requests of one scenario; a function for `MockModel(on_empty=...)`. Thread-safe."""

    def __init__(self, replies: Sequence[Sequence[Json]], places: Places, usage: Sequence[int] = ()) -> None:
        self._waiting = list(replies)
        self._usage: Json = dict(USAGE)
        if usage:
            self._usage = {"input_tokens": usage[0], "output_tokens": usage[1], "total_tokens": sum(usage)}
        self._places = places
        self._gates: dict[str, threading.Event] = {}
        self._guard = threading.Lock()  # the two lists and the gates
        self.unscripted = 0

    def __call__(self, request: RecordedRequest) -> Reply:
        with self._guard:
            steps = self._take(request)
            if steps is None:
                self.unscripted += 1
                return _plain(500, {"error": {"message": "the script has no reply for this request"}})
        return self._reply(steps, request)

    @property
    def unused(self) -> int:
        with self._guard:
            return len(self._waiting)

    def release(self, what: str) -> None:
        """Something happened that replies may be held for: the id of an answered request, `turn 2`, or `hang up A`."""
        self._gate(what).set()

    def _gate(self, what: str) -> threading.Event:
        with self._guard:
            return self._gates.setdefault(what, threading.Event())

    def _take(self, request: RecordedRequest) -> Sequence[Json] | None:
        for index, steps in enumerate(self._waiting):
            wanted = next((step["when"] for step in steps if "when" in step), None)
            if wanted is None or any(text.endswith(wanted) for text in request.input_texts("user")):
                return self._waiting.pop(index)
        return None

    def _reply(self, steps: Sequence[Json], request: RecordedRequest) -> Reply:
        frames = [_frame({"type": "response.created", "response": _response("in_progress")})]
        output: list[Json] = []
        gate: threading.Event | None = None
        gate_after = 0
        for step in steps:
            if "http" in step:
                return _plain(step["http"], step.get("body", {"error": {"message": "no"}}))
            if "cut" in step:
                return _stream(frames, gate, gate_after)
            if "failed" in step or "incomplete" in step:
                return _stream([*frames, _frame(_ending(step))], gate, gate_after)
            if "when" in step:
                continue
            events = [] if set(step) == {"hold"} else self._events(step, len(output), request, output)
            frames += [_frame(event) for event in events]
            if "hold" in step:
                held = str(step["hold"])
                gate = threading.Event() if held == FOREVER else self._gate(held)
                gate_after = len(frames) - (1 if events else 0)  # an item is held before it is finished
        done = {**_response("completed"), "output": output, "usage": self._usage}
        return _stream([*frames, _frame({"type": "response.completed", "response": done})], gate, gate_after)

    def _events(self, step: Json, index: int, request: RecordedRequest, output: list[Json]) -> list[Json]:
        return list(self._item_events(step, index, request, output))

    def _item_events(self, step: Json, index: int, request: RecordedRequest, output: list[Json]) -> Iterator[Json]:
        item, pieces = self._item(step, request)
        kind = _DELTAS.get(item["type"])
        bare = {"type": item["type"], "id": item["id"], "role": "assistant", "content": [], "summary": []}
        opened = bare if kind or isinstance(step.get("search"), str) else item
        if not step.get("whole"):
            yield {"type": "response.output_item.added", "output_index": index, "item": opened}
        if kind and "think" in step:
            part = {"type": "response.reasoning_summary_part.added", "item_id": item["id"], "summary_index": 0}
            yield {**part, "output_index": index, "part": {"type": "summary_text", "text": ""}}
        for piece in pieces:
            place = {"item_id": item["id"], "output_index": index, "content_index": 0, "summary_index": 0}
            yield {"type": kind, "delta": piece, **place}
        if not step.get("open"):
            output.append(item)
            yield {"type": "response.output_item.done", "output_index": index, "item": item}

    def _item(self, step: Json, request: RecordedRequest) -> tuple[Json, Sequence[str]]:
        if "say" in step:
            pieces = _pieces(step["say"])
            text = step.get("text", "".join(pieces))
            content = [{"type": "output_text", "text": text, "annotations": []}]
            item: Json = {"type": "message", "id": step["id"], "role": "assistant", "content": content}
            if "phase" in step:
                item["phase"] = step["phase"]
            return item, [] if step.get("whole") else pieces
        if "think" in step:
            summary = [{"type": "summary_text", "text": "".join(step["think"])}]
            return {"type": "reasoning", "id": step["id"], "summary": summary}, step["think"]
        if "patch" in step:
            common = {"name": "apply_patch", "input": self._places.live(step["patch"])}
            return {"type": "custom_tool_call", "id": f"ctc_{step['id']}", "call_id": step["id"], **common}, []
        if "search" in step:
            search = step["search"]
            action = {"type": "search", "query": search} if isinstance(search, str) else search
            return {"type": "web_search_call", "id": step["id"], "status": "completed", "action": action}, []
        arguments = self._arguments(step["args"], request)
        common = {"name": step["call"], "arguments": arguments}
        if "namespace" in step:
            common["namespace"] = step["namespace"]
        return {"type": "function_call", "id": f"fc_{step['id']}", "call_id": step["id"], **common}, []

    def _arguments(self, arguments: Mapping[str, Any] | str, request: RecordedRequest) -> str:
        text = self._places.live(arguments if isinstance(arguments, str) else json.dumps(arguments))
        if '"$session"' not in text:
            return text
        numbers = _SESSION.findall("\n".join(request.tool_outputs.values()))
        return text.replace('"$session"', numbers[-1] if numbers else "-1")


_DELTAS: Final = {"message": "response.output_text.delta", "reasoning": "response.reasoning_summary_text.delta"}


def _pieces(said: str | Sequence[str]) -> list[str]:
    """A plain text is streamed in two halves, as it was when the recordings were made."""
    if not isinstance(said, str):
        return list(said)
    half = len(said) // 2
    return [piece for piece in (said[:half], said[half:]) if piece]


def _ending(step: Json) -> Json:
    if "failed" in step:
        return {"type": "response.failed", "response": {**_response("failed"), "error": step["failed"]}}
    details = {"reason": step["incomplete"]}
    return {"type": "response.incomplete", "response": {**_response("incomplete"), "incomplete_details": details}}


def _response(status: str) -> Json:
    return {"id": "resp_1", "object": "response", "status": status, "output": []}


def _frame(event: Json) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _stream(frames: Sequence[bytes], gate: threading.Event | None, gate_after: int) -> Reply:
    headers = {"Content-Type": "text/event-stream"}
    return Reply(headers=headers, frames=tuple(frames), gate=gate, gate_after=gate_after)


def _plain(status: int, body: Json) -> Reply:
    headers = {"Content-Type": "application/json"}
    return Reply(status=status, streamed=False, headers=headers, frames=(json.dumps(body).encode(),))
