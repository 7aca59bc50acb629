"""`compare`: two runs of one scenario, as a list of findings.

Owns the alignment of two streams and the walk through the members of a pair. Which findings are all right it does not
know: `differences` does.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Final, Literal, TypeAlias

from interop.replay.mask import Event, Traffic

Kind: TypeAlias = Literal["missing", "extra", "changed", "moved"]
MAX_SHOWN: Final = 160


@dataclass(frozen=True, slots=True)
class Finding:
    """One difference. Without a path it is about the whole message, else about one member of it."""

    stream: str
    method: str
    label: str
    kind: Kind
    path: str = ""
    recorded: Any = None
    live: Any = None

    def __str__(self) -> str:
        match self.kind:
            case "missing":
                sides = f"      - {_short(self.recorded)}"
            case "extra":
                sides = f"      + {_short(self.live)}"
            case "moved":
                sides = "      is at another place in the order"
            case _:
                sides = f"      - {_short(self.recorded)}\n      + {_short(self.live)}"
        what = f"{self.kind} {self.path or 'message'}"
        return f"  [{self.stream}] {self.label}\n    {what}\n{sides}"


def compare(recorded: Traffic, live: Traffic) -> list[Finding]:
    """Everything that differs, stream by stream, in the order of the recording."""
    findings: list[Finding] = []
    for stream in sorted({*recorded.streams, *live.streams}):
        findings += _streams(stream, recorded.streams.get(stream, []), live.streams.get(stream, []))
    findings += _outputs(live)
    return findings


def _streams(stream: str, recorded: Sequence[Event], live: Sequence[Event]) -> Iterator[Finding]:
    matcher = SequenceMatcher(
        None, [event.label for event in recorded], [event.label for event in live], autojunk=False
    )
    gone: list[Event] = []
    new: list[Event] = []
    for tag, start, stop, live_start, live_stop in matcher.get_opcodes():
        if tag == "equal":
            for one, other in zip(recorded[start:stop], live[live_start:live_stop], strict=True):
                yield from _members(stream, one, one.body, other.body)
            continue
        gone += recorded[start:stop]
        new += live[live_start:live_stop]
    yield from _unpaired(stream, gone, new)


def _unpaired(stream: str, gone: Sequence[Event], new: Sequence[Event]) -> Iterator[Finding]:
    left = list(new)
    for event in gone:
        twin = next((other for other in left if other.label == event.label), None)
        if twin is None:
            yield Finding(stream, event.method, event.label, "missing", recorded=event.body)
            continue
        left.remove(twin)
        yield Finding(stream, event.method, event.label, "moved")
        yield from _members(stream, event, event.body, twin.body)
    for event in left:
        yield Finding(stream, event.method, event.label, "extra", live=event.body)


def _members(stream: str, event: Event, recorded: Any, live: Any, path: str = "") -> Iterator[Finding]:
    def found(kind: Kind, where: str, old: Any = None, new: Any = None) -> Finding:
        return Finding(stream, event.method, event.label, kind, where, old, new)

    if isinstance(recorded, dict) and isinstance(live, dict):
        for key in [*recorded, *(key for key in live if key not in recorded)]:
            where = f"{path}.{key}" if path else key
            if key not in live:
                yield found("missing", where, recorded[key])
            elif key not in recorded:
                yield found("extra", where, new=live[key])
            else:
                yield from _members(stream, event, recorded[key], live[key], where)
    elif isinstance(recorded, list) and isinstance(live, list) and _ids(recorded) != _ids(live):
        yield from _elements(found, stream, event, recorded, live, path)
    elif isinstance(recorded, list) and isinstance(live, list) and len(recorded) == len(live):
        for index, (old, new) in enumerate(zip(recorded, live, strict=True)):
            yield from _members(stream, event, old, new, f"{path}.{index}")
    elif recorded != live or type(recorded) is not type(live):
        yield found("changed", path, recorded, live)


def _elements(
    found: Callable[..., Finding], stream: str, event: Event, recorded: list[Any], live: list[Any], path: str
) -> Iterator[Finding]:
    """Lists of things with ids: each is compared with its namesake. Those that are left are told by their place."""
    olds, news = _ids(recorded), _ids(live)
    if not (recorded and live) or None in (*olds, *news):
        yield found("changed", path, recorded, live)
        return
    both = [name for name in olds if name in news]
    if both != [name for name in news if name in olds]:
        yield found("moved", path)
    for index, (name, old) in enumerate(zip(olds, recorded, strict=True)):
        if name in news:
            yield from _members(stream, event, old, live[news.index(name)], f"{path}.{index}")
        else:
            yield found("missing", f"{path}.{index}", old)
    for index, (name, new) in enumerate(zip(news, live, strict=True)):
        if name not in olds:
            yield found("extra", f"{path}.{index}", new=new)


def _ids(values: list[Any]) -> list[Any]:
    return [value.get("id") if isinstance(value, dict) else None for value in values]


def _outputs(live: Traffic) -> Iterator[Finding]:
    """Streamed output is best effort, but what is streamed must be part of the whole."""
    whole = {
        f"{stream} {event.body['params']['item']['id']}": event.body["params"]["item"].get("aggregatedOutput") or ""
        for stream, events in live.streams.items()
        for event in events
        if event.method == "item/completed" and event.body["params"]["item"].get("type") == "commandExecution"
    }
    for key, text in live.output.items():
        if key in whole and text not in whole[key] and Counter(text.splitlines()) - Counter(whole[key].splitlines()):
            method = "item/commandExecution/outputDelta"
            yield Finding(key.rpartition(" ")[0], method, method, "changed", "params.delta", whole[key], text)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}… ({len(text)} characters)"
