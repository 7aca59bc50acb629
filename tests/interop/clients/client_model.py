"""`ClientModel`: the model of the scenarios in which a real client drives a server.

Like every `EngineModel` it does what the prompt says, so scenarios that run at the same time do not take each other's
answers. Owns what such clients ask for besides: text in pieces, and answers that fit a schema.
"""

from __future__ import annotations

import json
import re
import uuid
from typing import Any, Final

from treadle.testing import EngineModel, RecordedRequest, Reply, Usage, message_events, message_item, sse_reply, stream

TITLE: Final = "Say hello"
FIRST: Final = "first piece, "
SECOND: Final = "second piece"
PLAN: Final = "# The plan\n\n- one step"
FINDING: Final = "The first line is wrong"
_STREAM: Final = re.compile(r"STREAM:(\w+)$")
_FINDING: Final = re.compile(r"FINDING:(\S+)$")


class ClientModel(EngineModel):
    """An `EngineModel` that knows four things more.

    PLAN                a plan for the user, as models write it in plan mode
    FINDING:path        the answer of a reviewer, with one finding in the first line of this file
    STREAM:name         a message in two pieces; the second waits until the test calls `open_gate("name")`
    a JSON schema       is answered with a value that fits it: a title, or the verdict of a reviewer, who denies a
                        command that has the word `forbidden` in it
    """

    def _reply(self, request: RecordedRequest, number: int) -> Reply:
        wanted = (request.json.get("text") or {}).get("format") or {}
        if "schema" in wanted:
            return _message(json.dumps(_fitting(wanted["schema"], request)))
        prompt = (request.last_user_text or "").rstrip()
        if found := _FINDING.search(prompt):
            return _message(json.dumps(_review(found[1])))
        if prompt.endswith("PLAN"):
            return _message(f"Here it is.\n<proposed_plan>\n{PLAN}\n</proposed_plan>\n")
        if found := _STREAM.search(prompt):
            self._prompted(found[0])
            gate = self._gate(found[1])
            return _message(FIRST + SECOND, deltas=[FIRST, SECOND], gate=gate, gate_after=3)
        return super()._reply(request, number)


def _message(text: str, *, deltas: list[str] | None = None, **timing: Any) -> Reply:
    name = uuid.uuid4().hex
    item = message_item(f"msg_{name}", text, None)
    events = list(message_events(item, deltas or [text], 0))
    return sse_reply(stream(f"resp_{name}", events, [item], Usage(input_tokens=11, output_tokens=7)), **timing)


def _review(path: str) -> dict[str, Any]:
    place = {"absolute_file_path": path, "line_range": {"start": 1, "end": 1}}
    finding = {"title": FINDING, "body": "It says so.", "confidence_score": 0.9, "priority": 1, "code_location": place}
    return {
        "findings": [finding],
        "overall_correctness": "patch is incorrect",
        "overall_explanation": "One thing is wrong.",
        "overall_confidence_score": 0.8,
    }


def _fitting(schema: dict[str, Any], request: RecordedRequest) -> dict[str, Any]:
    """All members of the schema, with the words that its readers look for."""
    denied = "forbidden" in json.dumps(request.input)
    known = {
        "title": TITLE,
        "outcome": "deny" if denied else "allow",
        "risk_level": "high" if denied else "low",
        "user_authorization": "low" if denied else "high",
        "rationale": "the mock model has looked at it",
    }
    return {name: known.get(name, _any_value(member)) for name, member in schema["properties"].items()}


def _any_value(schema: dict[str, Any]) -> Any:
    kind = schema.get("type")
    return {"string": "text", "number": 1, "integer": 1, "boolean": True, "array": [], "object": {}}.get(str(kind))
