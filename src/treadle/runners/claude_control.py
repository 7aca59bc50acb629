"""The control protocol of `claude`: how it gets its prompt, and how it asks questions if there is someone to answer.
Pure.

Both sides write one JSON object per line. Its questions are `control_request`s with an id; each must be answered, or
claude waits forever.
"""

from __future__ import annotations

from typing import Any

import msgspec

from treadle.runners.engine import ApprovalAnswer, ApprovalAsk, Output, Reply, RunRequest, Withdrawn, plain_prompt


def prompt(request: RunRequest) -> bytes:
    """The prompt as text, or as a message when questions are to be answered after it."""
    if not asks(request):
        return plain_prompt(request)
    hello = {"type": "control_request", "request_id": "initialize", "request": {"subtype": "initialize", "hooks": None}}
    text = request.prompt.encode("utf-8", "replace").decode()  # half a surrogate pair has no JSON
    return _line(hello) + _line({"type": "user", "message": {"role": "user", "content": text}})


def asks(request: RunRequest) -> bool:
    """Whether somebody answers questions."""
    return request.options.approve is not None


def question(message: dict[str, Any]) -> Output:
    """What claude wants to know: whether it may use a tool, or something that nobody here can tell it."""
    id, request = str(message["request_id"]), message.get("request") or {}
    if request.get("subtype") == "can_use_tool":
        given = request.get("input")
        return ApprovalAsk(
            id=id, tool=str(request["tool_name"]), input=given if isinstance(given, dict) else {}, detail=request
        )
    refusal = f"{request.get('subtype')} is not supported"
    return Reply(_response({"subtype": "error", "request_id": id, "error": refusal}))


def withdrawal(message: dict[str, Any]) -> Output:
    """claude does not want to know any more."""
    return Withdrawn(str(message["request_id"]))


def answer(ask: ApprovalAsk, said: ApprovalAnswer) -> bytes:
    """What is written for a decision."""
    decision: dict[str, Any]
    if said.allow:
        decision = {"behavior": "allow", "updatedInput": ask.input if said.input is None else dict(said.input)}
    else:
        decision = {"behavior": "deny", "message": said.message or f"The user does not allow {ask.tool} here."}
    return _response({"subtype": "success", "request_id": ask.id, "response": decision})


def _response(response: dict[str, Any]) -> bytes:
    return _line({"type": "control_response", "response": response})


def _line(message: dict[str, Any]) -> bytes:
    return msgspec.json.encode(message) + b"\n"
