"""`Line` and how recordings are read: the traffic of one server as both sides saw it, recorded or live.

Owns the file format (JSON lines, see the README beside the recordings) and the questions that do not depend on a
scenario: what kind of message it is, which thread it belongs to, whether it is the vendor's own business.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

Json: TypeAlias = dict[str, Any]

DATA: Final = Path(__file__).resolve().parents[2] / "data" / "app_replay"
RECORDINGS: Final = DATA / "recordings"

# About the vendor's account, fleet and deprecations: no client of ours needs them, no server of ours sends them.
VENDOR_METHODS: Final = frozenset(
    {"remoteControl/status/changed", "account/rateLimits/updated", "thread/readState/changed"}
)
VENDOR_TEXTS: Final = {
    "warning": ("message", "Model metadata for "),
    "deprecationNotice": ("summary", "Full-history hydration is deprecated"),
}

_REPEATED: Final = re.compile(r"<(.)\*(\d+)>")  # `<y*1000>`: a recording need not hold a megabyte of one letter
_LINES: Final = re.compile(r"<lines\*(\d+)>")  # nor so many numbered lines


@dataclass(frozen=True, slots=True)
class Line:
    """One message. `raw` is what a client sent that is no JSON-RPC message, or is spelt in a special way.

    A line with `hang_up` is no message: there the client closed its connection.
    """

    conn: str
    from_client: bool
    message: Json
    raw: str | None = None
    hang_up: bool = False

    @property
    def method(self) -> str:
        return str(self.message.get("method", ""))

    @property
    def params(self) -> Json:
        params = self.message.get("params")
        return params if isinstance(params, dict) else {}

    @property
    def is_response(self) -> bool:
        return "method" not in self.message and ("result" in self.message or "error" in self.message)

    @property
    def is_request(self) -> bool:
        return "method" in self.message and isinstance(self.message.get("id"), int | str)

    @property
    def is_vendor(self) -> bool:
        """True for what is left out of every comparison."""
        if self.from_client or self.is_response:
            return False
        if self.method in VENDOR_METHODS:
            return True
        key, start = VENDOR_TEXTS.get(self.method, ("", ""))
        return bool(key) and str(self.params.get(key, "")).startswith(start)

    @property
    def thread_id(self) -> str | None:
        """The thread that the message names, if it names one."""
        found = self.params.get("threadId")
        if found is None:
            for holder in (self.params, self.message.get("result")):
                thread = holder.get("thread") if isinstance(holder, dict) else None
                if isinstance(thread, dict):
                    found = thread.get("id")
                    break
        return found if isinstance(found, str) else None

    @property
    def children(self) -> list[str]:
        """The threads that it tells of as those of sub-agents."""
        told = self.item if self.item.get("type") == "collabAgentToolCall" else {}
        return [child for child in told.get("receiverThreadIds", ()) if isinstance(child, str)]

    @property
    def item(self) -> Json:
        item = self.params.get("item")
        return item if isinstance(item, dict) else {}


def load(name: str) -> list[Line]:
    """A recording by its name."""
    text = (RECORDINGS / f"{name}.jsonl").read_text(encoding="utf-8")
    return [_line(json.loads(row)) for row in text.splitlines() if row]


def received(conn: str, text: str) -> Line:
    """What a live server sent."""
    message = json.loads(text)
    if not isinstance(message, dict):
        raise ValueError(f"the server sent JSON that is no object: {text[:200]}")
    return Line(conn, False, message)


def _line(row: Mapping[str, Any]) -> Line:
    message = _expand(row["msg"])
    raw = message.get("_raw")
    if raw is not None:
        message = _object_of(raw)
    return Line(row.get("conn", ""), row["dir"] == "c2s", message, raw, row.get("hang_up", False))


def _object_of(raw: str) -> Json:
    try:
        value = json.loads(raw)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _expand(value: Any) -> Any:
    if isinstance(value, str):
        if lines := _LINES.fullmatch(value):
            return "".join(f"line {number:07}\n" for number in range(int(lines[1])))
        repeated = _REPEATED.fullmatch(value)
        return repeated[1] * int(repeated[2]) if repeated else value
    if isinstance(value, list):
        return [_expand(part) for part in value]
    if isinstance(value, dict):
        return {key: _expand(part) for key, part in value.items()}
    return value
