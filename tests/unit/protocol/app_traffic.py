"""Recorded traffic of the real app-server (0.166), cut down to one message of each shape.

Paths, ports and long texts were replaced; see the spec of the app-server for what the scenarios are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from treadle.protocol.app import METHODS, NOTIFICATIONS, SERVER_REQUESTS

DATA = Path(__file__).parents[2] / "data"

Kind = Literal["params", "result", "notification", "asked", "answer"]


class Recorded(NamedTuple):
    """One message. `refused` is the error that the real server answered to these params."""

    where: str
    kind: Kind
    method: str
    value: Any
    refused: str | None = None


def traffic() -> list[Recorded]:
    files = sorted((DATA / "app_transcripts").glob("*.jsonl"))
    return [message for file in files for message in _messages(file)]


def _messages(file: Path) -> Iterator[Recorded]:
    open_requests: dict[tuple[object, bool, object], Recorded] = {}
    for number, line in enumerate(file.read_text().splitlines(), 1):
        row = json.loads(line)
        message, by_client, where = row["msg"], row["dir"] == "c2s", f"{file.stem}:{number}"
        if "method" in message and "id" not in message:
            if not by_client:
                yield Recorded(where, "notification", message["method"], message["params"])
        elif "method" in message:
            kind: Kind = "params" if by_client else "asked"
            request = Recorded(where, kind, message["method"], message.get("params"))
            open_requests[row.get("conn"), by_client, message["id"]] = request
        else:
            request = open_requests.pop((row.get("conn"), not by_client, message["id"]))
            yield request._replace(refused=message["error"]["message"] if "error" in message else None)
            if "result" in message:
                yield Recorded(where, "answer" if by_client else "result", request.method, message["result"])


def struct_of(message: Recorded) -> Any:
    """The type that our registry has for it."""
    match message.kind:
        case "params":
            return METHODS[message.method].params
        case "result":
            return METHODS[message.method].result
        case "notification":
            return NOTIFICATIONS[message.method]
        case "asked":
            return SERVER_REQUESTS[message.method].params
        case "answer":
            return SERVER_REQUESTS[message.method].result
