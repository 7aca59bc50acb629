"""From traffic to comparable events: what changes from run to run gets a name or a mask, the rest stays as it is.

Owns what counts as volatile (ids, times, process ids, paths, versions, the vendor's catalogs) and how messages are
sorted into streams: one per connection and thread, in order. Both the recording and the live run go through it, so it
must treat them alike. Does not compare.
"""

from __future__ import annotations

import base64
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from interop.replay.recording import Json, Line
from interop.replay.scenario import Places

_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_URL: Final = re.compile(r"http://127\.0\.0\.1:\d+")
_LISTING: Final = re.compile(r"^([d-])[rwx-]{9}.* (\S+)$", re.MULTILINE)
_TOTAL: Final = re.compile(r"^total \d+$", re.MULTILINE)
_NUMBER: Final = re.compile(r"\d+")
_RIPGREP: Final = re.compile(r"^.*\brg: .+$", re.MULTILINE)  # not every machine has it, and its words differ

_TIMES: Final = re.compile(
    r"(created|updated|recency|started|completed|emitted|modified|sectionEntered)At(Ms)?|durationMs"
)
_CONSTANT_MASKS: Final = {
    "userAgent": "<user agent>",
    "cliVersion": "<version>",
    "version": "<version>",
    "sha": "<sha>",
}
_TURN_KEYS: Final = frozenset({"turnId", "rootTurnId", "beforeTurnId", "lastTurnId"})
_CATALOGS: Final = frozenset({"model/list", "skills/list"})

# The order of these relative to the answer of `turn/start` is not promised, so they make a stream of their own.
_BESIDE: Final = frozenset({"warning", "thread/settings/updated", "mcpServer/startupStatus/updated"})
_MERGED: Final = {
    "item/agentMessage/delta": "delta",
    "item/reasoning/summaryTextDelta": "delta",
    "item/reasoning/textDelta": "delta",
    "item/plan/delta": "delta",
    "command/exec/outputDelta": "deltaBase64",
}
NOTHING_ASKED: Final = "(nothing asked)"
OUTPUT_DELTA: Final = "item/commandExecution/outputDelta"


@dataclass(frozen=True, slots=True)
class Event:
    """A message, masked. `label` is what two runs are aligned by."""

    method: str
    label: str
    body: Json


@dataclass
class Traffic:
    """All events of a run by stream, and the output that was streamed, by item."""

    streams: dict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))
    output: dict[str, str] = field(default_factory=lambda: defaultdict(str))


def events_of(lines: Sequence[Line], places: Places | None, unordered_output: Sequence[str] = ()) -> Traffic:
    """Mask a run. `places` are the folders of a live one; `unordered_output` are items that write to two pipes."""
    methods = list(_with_methods(lines))
    masker = _Masker(places, _thread_names(methods), frozenset(unordered_output))
    traffic = Traffic()
    by_stream: dict[str, list[tuple[Line, str, str | None]]] = defaultdict(list)
    for line, method, thread in methods:
        if line.is_vendor or line.from_client:
            continue
        beside = " beside" if method in _BESIDE and not line.is_response else ""
        by_stream[f"{line.conn} {masker.thread(thread)}{beside}".strip()].append((line, method, thread))
    for stream, messages in sorted(by_stream.items()):
        for line, method, thread in messages:
            body = masker.body(line, method, thread)
            if method == OUTPUT_DELTA:
                traffic.output[f"{stream} {body['params'].get('itemId')}"] += str(body["params"].get("delta"))
                continue
            _append(traffic.streams[stream], Event(method, _label(line, method, body), body))
    return traffic


def _append(events: list[Event], event: Event) -> None:
    """Add an event; a delta is joined to the one before it when they are of one item."""
    key = _MERGED.get(event.method)
    last = events[-1] if events else None
    if key is None or last is None or last.label != event.label:
        events.append(event)
        return
    params = last.body["params"]
    joined = _join(str(params[key]), str(event.body["params"][key]), encoded=key == "deltaBase64")
    events[-1] = Event(last.method, last.label, {**last.body, "params": {**params, key: joined}})


def _join(one: str, other: str, *, encoded: bool) -> str:
    if not encoded:
        return one + other
    return base64.b64encode(base64.b64decode(one) + base64.b64decode(other)).decode()


def _with_methods(lines: Sequence[Line]) -> Iterator[tuple[Line, str, str | None]]:
    """Each line with the method it belongs to and its thread: a response has those of its request."""
    asked: dict[tuple[str, object], list[Line]] = defaultdict(list)
    for line in lines:
        if line.from_client and line.is_request:
            asked[line.conn, line.message["id"]].append(line)
        if line.from_client or not line.is_response:
            yield line, line.method, line.thread_id
            continue
        waiting = asked[line.conn, line.message.get("id")]
        request = waiting.pop(0) if waiting else None
        if request is None:
            yield line, NOTHING_ASKED, None
        elif str(line.message.get("error", {}).get("message", "")).startswith("Invalid request"):
            yield line, request.method, None  # refused before anybody looked for the thread
        elif request.method in ("thread/start", "thread/fork"):
            yield line, request.method, line.thread_id or request.thread_id
        else:
            yield line, request.method, request.thread_id


def _thread_names(methods: Sequence[tuple[Line, str, str | None]]) -> dict[str, str]:
    """Threads are called by the order in which they were asked for, those of sub-agents by that in which they began."""
    started = [line for line, method, _ in methods if line.is_response and method in ("thread/start", "thread/fork")]
    found = sorted((int(line.message["id"]), line.conn, line.thread_id or "") for line in started if line.thread_id)
    names = {thread: f"thread-{number}" for number, (_, _, thread) in enumerate(found, 1)}
    children = dict.fromkeys(child for line, _, _ in methods if not line.from_client for child in line.children)
    return names | {child: f"child-{number}" for number, child in enumerate(children, 1)}


class _Masker:
    """Masks one run. Names are given in the order in which streams are read, so that it is the same in every run."""

    def __init__(self, places: Places | None, names: dict[str, str], unordered_output: frozenset[str]) -> None:
        self._places = places
        self._unordered_output = unordered_output
        self._names = names
        self._count: Counter[str] = Counter()
        self._requests: dict[int | str, str] = {}
        self._hostname = _hostname() if places else None

    def thread(self, thread_id: str | None) -> str:
        if thread_id is None:
            return "connection"
        return self._names.get(thread_id, "unknown thread")

    def body(self, line: Line, method: str, thread: str | None) -> Json:
        scope = self.thread(thread)
        turn = line.params.get("turnId")
        if isinstance(turn, str):
            scope = self._turn(turn, scope)
        message = {key: value for key, value in line.message.items() if key != "method"}
        if "id" in message:
            message["id"] = "" if line.is_response else self._request(message["id"])
        if method in _CATALOGS and "result" in message:
            message["result"] = _catalog(message["result"])
        masked = self._value(message, "", scope)
        assert isinstance(masked, dict)
        return masked

    def _request(self, request_id: int | str) -> str:
        return self._requests.setdefault(request_id, f"request-{len(self._requests) + 1}")

    def _turn(self, turn_id: str, scope: str) -> str:
        thread = scope.partition("/")[0]
        return self._name(turn_id, f"{thread}/turn")

    def _name(self, identifier: str, kind: str) -> str:
        if identifier not in self._names:
            self._count[kind] += 1
            self._names[identifier] = f"{kind}-{self._count[kind]}"
        return self._names[identifier]

    def _value(self, value: Any, key: str, scope: str) -> Any:
        if key.startswith("readState"):
            return "<read marks>"  # the vendor's; they must not be the first to name a turn
        if isinstance(value, dict):
            return self._object(value, key, scope)
        if isinstance(value, list):
            return [self._value(part, key, scope) for part in value]
        if value is None or isinstance(value, bool):
            return value
        if _TIMES.fullmatch(key):
            return "<time>"
        if key == "requestId":
            return self._request(value)
        return self._text(value, key, scope) if isinstance(value, str) else value

    def _object(self, value: Json, key: str, scope: str) -> Json:
        if key in ("turn", "turns") and isinstance(value.get("id"), str):
            scope = self._turn(value["id"], scope)
        masked = {self._names.get(name, name): self._value(part, name, scope) for name, part in value.items()}
        if value.get("id") in self._unordered_output and isinstance(masked.get("aggregatedOutput"), str):
            masked["aggregatedOutput"] = "".join(sorted(masked["aggregatedOutput"].splitlines(keepends=True)))
        return masked

    def _text(self, text: str, key: str, scope: str) -> str:
        if key in _CONSTANT_MASKS:
            return _CONSTANT_MASKS[key]
        if key.endswith("Cursor"):
            return "<cursor>"
        if key == "processId" and _NUMBER.fullmatch(text):
            return "<process>"
        if key == "path" and text.endswith(".jsonl"):
            return "<rollout>"
        if key in _TURN_KEYS and _UUID.fullmatch(text):
            return self._turn(text, scope)
        if self._places is not None:
            text = self._places.recorded(text)
            text = text.replace(f"{self._hostname}\n", "<hostname>\n") if key in _OUTPUTS else text
        text = _RIPGREP.sub("rg: <cannot>", text) if key in _OUTPUTS else text
        text = _TOTAL.sub("total <n>", _LISTING.sub(r"\1 \2", _URL.sub("<url>", text)))
        return _UUID.sub(self._namer(f"{scope}/id"), text)

    def _namer(self, kind: str) -> Callable[[re.Match[str]], str]:
        return lambda found: self._name(found[0], kind)


_OUTPUTS: Final = frozenset({"aggregatedOutput", "delta"})


def _hostname() -> str:
    return os.uname().nodename


def _catalog(result: Any) -> Any:
    """A catalog is the vendor's; how its entries are made is ours too."""
    if not isinstance(result, dict) or not isinstance(result.get("data"), list):
        return result
    names = {name for entry in result["data"] if isinstance(entry, dict) for name in entry}
    return {**result, "data": dict.fromkeys(sorted(names), "<catalog>")}


def _label(line: Line, method: str, body: Json) -> str:
    if line.is_response:
        outcome = f"{method} → {'error' if 'error' in body else 'result'}"
        return outcome if method == NOTHING_ASKED else f"{outcome} {line.message.get('id')}"
    params = body.get("params") or {}
    item = params.get("item") or {}
    status = params.get("status")
    words = [item.get("type"), item.get("id"), params.get("itemId"), params.get("processId")]
    words.append((params.get("run") or {}).get("id"))
    if method == "thread/status/changed" and isinstance(status, dict):
        words += [status.get("type"), *status.get("activeFlags", [])]
    if method == "error":
        words.append("will retry" if params.get("willRetry") else "final")
    return " ".join([method, *(str(word) for word in words if word)])
