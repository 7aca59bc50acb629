"""The offline model: no network and no key, but real tool calls.

It plays a script: look around, write a note, read it, sign it, report. Who asks for an output schema gets a small value
that fits instead. The model is stateless: everything it knows is in the request, so the same request always gets the
same answer.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from functools import reduce
from itertools import count
from operator import getitem
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from treadle.llm.model import (
    Completed,
    Created,
    ItemDone,
    ItemStarted,
    ModelError,
    ModelEvent,
    ModelRequest,
    TextDelta,
    TokenUsage,
)
from treadle.llm.output_items import read_item

# About a line: few enough events to be cheap, enough to see a text grow.
DELTA_CHARS: Final = 24
# Of an output, or of what the user wrote, in a report: the beginning is enough to recognise it.
SHOWN_CHARS: Final = 160

_UNSIGNED: Final = "Signed: not yet"
_LOOK: Final = '{"cmd": "ls -1", "login": false}'
_STEPS: Final = ("See which files are here", "Write a small note", "Read it back", "Sign it")
_ABOUT: Final = (
    "I am Treadle's offline model: a fixed script without a language model behind it, so I cannot work on what you"
    " asked.\n\nYou asked: {}\n"
)
_REAL_MODEL: Final = """\
**To use a real model**, run `treadle login`, or set `OPENAI_API_KEY` or `ANTHROPIC_API_KEY`. For a server of your own,
run `treadle config init --provider mine --base-url https://<host>/v1 --wire-api chat --model <model>`. The settings are
in `$TREADLE_HOME/config.toml` (`~/.treadle/config.toml` when neither TREADLE_HOME nor CODEX_HOME is set)."""
_PLAN_TAG: Final = "<proposed_plan>"
_PROPOSAL: Final = f"\n{_PLAN_TAG}\n# A tour of the tools\n\n{{}}\n</proposed_plan>"


class OfflineModel:
    """A `Model` without any dependencies."""

    def __init__(self) -> None:
        self.closed: bool = False

    def stream(self, request: ModelRequest) -> OfflineStream:
        return OfflineStream(self, request)

    async def close(self) -> None:
        self.closed = True


class OfflineStream(AsyncIterator[ModelEvent], AbstractAsyncContextManager["OfflineStream"]):
    """A `ModelStream` that plays a script as events are requested."""

    def __init__(self, model: OfflineModel, request: ModelRequest) -> None:
        self._model = model
        self._events: Iterator[ModelEvent] = play(request)

    async def __anext__(self) -> ModelEvent:
        # A real model makes others wait for the network; this one must let them run all the same.
        await asyncio.sleep(0)
        for event in self._events:
            if self._model.closed:
                self._events = iter(())
                raise ModelError("the offline model is closed; make a new one")
            return event
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self._events = iter(())

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def play(request: ModelRequest) -> Iterator[ModelEvent]:
    """The whole response to a request."""
    from hashlib import blake2b  # loaded with the first turn

    encoded = [msgspec.json.encode(item) for item in request.input]
    tour = _Tour(request, [_entry(one) for one in encoded])
    key = (request.prompt_cache_key or "").encode("utf-8", "surrogatepass")
    # A part of ids that differs between the requests of a thread and between threads.
    mark = blake2b(b"\n".join(encoded) + b"\0" + key, digest_size=8).hexdigest()
    yield Created(f"resp_offline_{mark}")
    written = 0
    calls = tour.next_calls() if request.output_schema is None else []
    for number, (name, text) in enumerate(calls):
        free = tour.tools[name]
        item_id = f"{'ctc' if free else 'fc'}_offline_{mark}_{number}"
        kind = {"type": "custom_tool_call", "input": text} if free else {"type": "function_call", "arguments": text}
        raw = msgspec.json.encode({**kind, "id": item_id, "call_id": f"call_offline_{mark}_{number}", "name": name})
        call = read_item(Raw(raw), item_id)
        yield ItemStarted(call)
        yield ItemDone(call)
        written += len(raw)
    if not calls:
        text = tour.report() if request.output_schema is None else tour.fitting(request.output_schema)
        item_id = f"msg_offline_{mark}"
        message = {"type": "message", "id": item_id, "role": "assistant", "content": []}
        yield ItemStarted(read_item(Raw(msgspec.json.encode(message)), item_id))
        for start in range(0, len(text), DELTA_CHARS):
            yield TextDelta(item_id, text[start : start + DELTA_CHARS])
        raw = msgspec.json.encode({**message, "content": [{"type": "output_text", "text": text, "annotations": []}]})
        yield ItemDone(read_item(Raw(raw), item_id))
        written = len(raw)
    # No tokenizer: four bytes are about one token.
    read, wrote = sum(map(len, encoded)) // 4, written // 4
    usage = TokenUsage(input_tokens=read, output_tokens=wrote, total_tokens=read + wrote)
    yield Completed(f"resp_offline_{mark}", usage)


class _Content(Struct):
    text: str = ""


class _Entry(Struct):
    """An input item, or a tool."""

    type: str = "message"
    role: str = ""
    content: list[_Content] | str | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    input: str = ""
    output: list[_Content] | str | None = None

    @property
    def text(self) -> str:
        """What a message says, or what a call gave."""
        found = self.content or self.output or ""
        return found if isinstance(found, str) else "\n".join(part.text for part in found if part.text)


def _entry(encoded: bytes) -> _Entry:
    try:
        return msgspec.json.decode(encoded, type=_Entry)
    except msgspec.ValidationError:
        return _Entry(type="unknown")


class _Tour:
    """What there is to be seen in a request: the last user message, the tools, and the model's calls since, with their
    outputs. `tools` maps each name to whether the tool takes free text."""

    def __init__(self, request: ModelRequest, items: list[_Entry]) -> None:
        asked = max((n for n, item in enumerate(items) if (item.type, item.role) == ("message", "user")), default=-1)
        self._user_text = items[asked].text if asked >= 0 else ""
        # It is to propose a plan instead of working.
        self._planning = any(item.role == "developer" and _PLAN_TAG in item.text for item in items)
        self._parallel = request.parallel_tool_calls
        tools = [_entry(msgspec.json.encode(tool)) for tool in request.tools]
        self.tools = {one.name: one.type == "custom" for one in tools if one.type in ("function", "custom")}
        since = items[asked + 1 :]
        outputs = {item.call_id: item.text for item in since if item.type.endswith("_call_output")}
        self._done = [
            # Before the output, a tool may say how long it took.
            (item.name, item.input or item.arguments, outputs[item.call_id].rpartition("\nOutput:\n")[2])
            for item in since
            if item.type in ("function_call", "custom_tool_call") and item.call_id in outputs
        ]

    def next_calls(self) -> list[tuple[str, str]]:
        """The calls that come next, as names and inputs; none when it is time to report. A note is only written where
        it is known which files are there, and only looked at when it was written."""
        failed = any(name == "apply_patch" and not output.startswith("Success") for name, _, output in self._done)
        if failed or "exec_command" not in self.tools:
            return []
        listed = next((output for _, text, output in self._done if text == _LOOK), "")
        files = [line for line in listed.split("\n") if line.strip()]
        note = next(name for n in count(1) if (name := f"treadle-offline-{n}.md") not in files)
        asked = f"Asked: {_shorten(self._user_text) or '(nothing)'}\n+Files seen: {len(files)}"
        write = self._patch(f"Add File: {note}\n+# A note of Treadle's offline model\n+\n+{asked}\n+{_UNSIGNED}")
        read = json.dumps({"cmd": f"cat {note}", "login": False})  # what a profile prints is not for the tour
        sign = self._patch(f"Update File: {note}\n@@\n-{_UNSIGNED}\n+Signed: Treadle")
        acts = [("exec_command", _LOOK), ("apply_patch", write), ("exec_command", read), ("apply_patch", sign)]
        acts = acts if "apply_patch" in self.tools else acts[:1]  # it is not offered to who is to plan
        done = len(self._done)
        if "update_plan" not in self.tools:
            return acts[done : done + 1]
        # Before each act the plan, and once more when all is done.
        current, acting = divmod(done, 2)
        if acting or current > len(acts):
            return acts[current : current + 1] if acting else []
        states = ["completed"] * current + ["in_progress"] + ["pending"] * len(acts)
        plan = [{"step": step, "status": state} for step, state, _ in zip(_STEPS, states, acts, strict=False)]
        update = ("update_plan", json.dumps({"explanation": "A tour of the tools.", "plan": plan}))
        # The plan is not worth a request of its own where it can travel with the next act.
        return [update, *(acts[current : current + 1] if self._parallel else ())]

    def _patch(self, change: str) -> str:
        patch = f"*** Begin Patch\n*** {change}\n*** End Patch\n"
        return patch if self.tools.get("apply_patch") else json.dumps({"input": patch}, ensure_ascii=False)

    def report(self) -> str:
        """The answer at the end of the tour."""
        parts = [_ABOUT.format(_shorten(self._user_text) or "(nothing)")]
        seen = []
        for name, text, output in self._done:
            lines = output.removeprefix("Success. Updated the following files:\n").split("\n")
            command = re.search(r'"cmd": ?"(.*?)"', text)
            if name != "update_plan":
                shown = _shorten(" · ".join(filter(None, map(str.strip, lines))))
                seen.append(f"- `{command[1] if command else name}`: {shown or '(no output)'}")
        if seen:
            parts += ["Everything else is real. I made these calls, and saw:\n", *seen, ""]
        parts.append(_REAL_MODEL)
        if self._planning:
            parts.append(_PROPOSAL.format("\n".join(f"{n}. {step}" for n, step in enumerate(_STEPS, start=1))))
        return "\n".join(parts)

    def fitting(self, schema: object) -> str:
        """A value for an output schema. Its texts are the last paragraph of what the user says: what the request is
        about, after how it is to be answered."""
        words = self._user_text.strip().rpartition("\n\n")[2].removeprefix("User prompt:\n")
        plain = msgspec.json.decode(msgspec.json.encode(schema))
        return json.dumps(schema_value(plain, _shorten(words)), ensure_ascii=False)


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARS else line[: SHOWN_CHARS - 1] + "…"


# --- values for schemas ----------------------------------------------------------------------------------------------

# A schema may refer to itself without an end, or ask for any number of items.
_MAX_DEPTH: Final = 12
_MAX_VALUES: Final = 10_000
_MAX_LENGTH: Final = 100
_FORMATS: Final = {"date": "2000-01-01", "date-time": "2000-01-01T00:00:00Z", "time": "00:00:00Z"}


def schema_value(schema: Any, words: str) -> Any:
    """A small value for a JSON Schema of ordinary keywords, with these words for its texts: types, enumerations,
    members, items, lower limits, lengths, the first alternative, and `$ref` into the schema itself. Null for others."""
    values = count()

    def value(part: Any, depth: int = 0) -> Any:
        if depth > _MAX_DEPTH or next(values) > _MAX_VALUES:
            return None
        if "$ref" in part:
            return value(reduce(getitem, part["$ref"].split("/")[1:], schema), depth + 1)
        if options := part.get("anyOf") or part.get("oneOf"):
            return value(options[0], depth + 1)
        if "const" in part or "enum" in part:
            return part["const"] if "const" in part else part["enum"][0]
        kinds = part.get("type", "object" if "properties" in part else "null")
        match kinds if isinstance(kinds, str) else kinds[0]:
            case "object":
                members = {name: {} for name in part.get("required", ())} | part.get("properties", {})
                return {name: value(member, depth + 1) for name, member in members.items()}
            case "array":
                least = min(part.get("minItems", 0), _MAX_LENGTH)
                return [value(part.get("items", {}), depth + 1) for _ in range(least)]
            case "string":
                text = (words or "offline model")[: part.get("maxLength")]
                return _FORMATS.get(part.get("format")) or text.ljust(min(part.get("minLength", 0), _MAX_LENGTH), ".")
            case "integer" | "number":
                return max(0, part.get("minimum", 0))
            case "boolean":
                return False
        return None

    try:
        return value(schema)
    except (TypeError, ValueError, AttributeError, LookupError):
        return None
