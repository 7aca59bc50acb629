"""The offline model: no network and no key, but real tool calls.

It plays a script: look around, write a note, read it, sign it, report. Who asks for an output schema gets a small value
that fits instead. The model is stateless: everything it knows is in the request, so the same request always gets the
same answer.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Iterator, Mapping
from itertools import count
from types import TracebackType
from typing import Any, Final, Self

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
**To use a real model**, run `treadle login`, or set `OPENAI_API_KEY` or `ANTHROPIC_API_KEY`, or name a provider in
`$TREADLE_HOME/config.toml` (`~/.treadle/config.toml` when neither TREADLE_HOME nor CODEX_HOME is set):

```toml
model = "<model>"
model_provider = "mine"

[model_providers.mine]
base_url = "https://<host>/v1"
env_key = "<VARIABLE_WITH_YOUR_KEY>"
```"""
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


class OfflineStream:
    """A `ModelStream` that plays a script as events are requested."""

    def __init__(self, model: OfflineModel, request: ModelRequest) -> None:
        self._model = model
        self._events: Iterator[ModelEvent] = play(request)

    def __aiter__(self) -> Self:
        return self

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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def play(request: ModelRequest) -> Iterator[ModelEvent]:
    """The whole response to a request."""
    from hashlib import blake2b  # loaded with the first turn

    encoded = [msgspec.json.encode(item) for item in request.input]
    view = _View(request, [_entry(one) for one in encoded])
    key = (request.prompt_cache_key or "").encode("utf-8", "surrogatepass")
    # A part of ids that differs between the requests of a thread and between threads.
    mark = blake2b(b"\n".join(encoded) + b"\0" + key, digest_size=8).hexdigest()
    yield Created(f"resp_offline_{mark}")
    written = 0
    calls = view.next_calls() if request.output_schema is None else []
    for number, (name, text) in enumerate(calls):
        free = view.tools[name]
        item_id = f"{'ctc' if free else 'fc'}_offline_{mark}_{number}"
        kind = {"type": "custom_tool_call", "input": text} if free else {"type": "function_call", "arguments": text}
        raw = msgspec.json.encode({**kind, "id": item_id, "call_id": f"call_offline_{mark}_{number}", "name": name})
        call = read_item(Raw(raw), item_id)
        yield ItemStarted(call)
        yield ItemDone(call)
        written += len(raw)
    if not calls:
        text = view.answer() if request.output_schema is None else view.fitting(request.output_schema)
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
    output: Raw = Raw()

    @property
    def text(self) -> str:
        content = self.content
        return "\n".join(part.text for part in content if part.text) if isinstance(content, list) else content or ""


def _entry(encoded: bytes) -> _Entry:
    try:
        return msgspec.json.decode(encoded, type=_Entry)
    except msgspec.ValidationError:
        return _Entry(type="unknown")


class _View:
    """What the model sees in a request: the last user message, the tools, and its own calls since, with their outputs.

    `tools` maps each name to whether the tool takes free text. `planning`: it is to propose a plan instead of working.
    """

    def __init__(self, request: ModelRequest, items: list[_Entry]) -> None:
        asked = max((n for n, item in enumerate(items) if (item.type, item.role) == ("message", "user")), default=-1)
        self._user_text = items[asked].text if asked >= 0 else ""
        self._planning = any(item.role == "developer" and _PLAN_TAG in item.text for item in items)
        self._parallel = request.parallel_tool_calls
        tools = [_entry(msgspec.json.encode(tool)) for tool in request.tools]
        self.tools = {
            one.name: one.type == "custom" for one in tools if one.type in ("function", "custom") and one.name
        }
        since = items[asked + 1 :]
        outputs = {item.call_id: _output(item.output) for item in since if item.type.endswith("_call_output")}
        self._done = [
            (item.name, item.input or item.arguments, outputs[item.call_id])
            for item in since
            if item.type in ("function_call", "custom_tool_call") and item.call_id in outputs
        ]

    def next_calls(self) -> list[tuple[str, str]]:
        """The calls that come next, as names and inputs; none when it is time to answer."""
        # Without the note there is nothing to read or to sign.
        if any(name == "apply_patch" and not output.startswith("Success") for name, _, output in self._done):
            return []
        calls = self._script()[len(self._done) :]
        # The plan is not worth a request of its own where it can travel with the first real call.
        return calls[: 2 if self._parallel and calls and calls[0][0] == "update_plan" else 1]

    def _script(self) -> list[tuple[str, str]]:
        """All calls from the first to the last, as far as they are known: the name of the note depends on the files."""
        listed = next((output for _, text, output in self._done if text == _LOOK), "")
        files = [line for line in listed.split("\n") if line.strip()]
        note = next(name for n in count(1) if (name := f"treadle-offline-{n}.md") not in files)
        head = "+# A note of Treadle's offline model\n+\n+Asked: "
        asked = f"{_shorten(self._user_text) or '(nothing)'}\n+Files seen: {len(files)}\n+{_UNSIGNED}"
        read = f"cat {note}" if "apply_patch" in self.tools else "pwd"
        acts = [
            ("exec_command", _LOOK),
            ("apply_patch", self._patch(f"Add File: {note}\n{head}{asked}")),
            ("exec_command", json.dumps({"cmd": read, "login": False})),  # what a profile prints is not for the tour
            ("apply_patch", self._patch(f"Update File: {note}\n@@\n-{_UNSIGNED}\n+Signed: Treadle")),
        ]
        steps = [(step, act) for step, act in zip(_STEPS, acts, strict=True) if act[0] in self.tools]
        if self._planning:
            return [act for _, act in steps[:1] if act[1] == _LOOK]
        if "update_plan" not in self.tools or not steps:
            return [act for _, act in steps]
        calls = []
        for current in range(len(steps) + 1):  # the plan while a step is worked on; ticked off after the last one
            plan = [
                {"step": step, "status": "completed" if n < current else "pending" if n > current else "in_progress"}
                for n, (step, _) in enumerate(steps)
            ]
            calls.append(("update_plan", json.dumps({"explanation": "A tour of the tools.", "plan": plan})))
            calls += [act for _, act in steps[current : current + 1]]
        return calls

    def _patch(self, change: str) -> str:
        patch = f"*** Begin Patch\n*** {change}\n*** End Patch\n"
        return patch if self.tools.get("apply_patch") else json.dumps({"input": patch}, ensure_ascii=False)

    def answer(self) -> str:
        """The report at the end of the tour."""
        parts = [_ABOUT.format(_shorten(self._user_text) or "(nothing)")]
        seen = []
        for name, text, output in self._done:
            lines = [line.strip() for line in output.splitlines() if line.strip()] or ["(no output)"]
            if lines[0].startswith("Success") and lines[1:]:
                lines = lines[1:]  # which files
            command = re.search(r'"cmd": ?"(.*?)"', text)
            title = _shorten(command[1] if command else text) if name == "exec_command" else name
            if name != "update_plan":
                seen.append(f"- `{title}`: {_shorten(' · '.join(lines))}")
        if seen:
            parts += ["Everything else is real. I made these calls, and saw:\n", *seen, ""]
        parts.append(_REAL_MODEL)
        if self._planning:
            parts.append(_PROPOSAL.format("\n".join(f"{n}. {step}" for n, step in enumerate(_STEPS, start=1))))
        return "\n".join(parts)

    def fitting(self, schema: object) -> str:
        """A value for an output schema, with what the request is about for its texts. That is the last paragraph: what
        comes first tells the model how. A line that ends with a colon introduces what the user wrote."""
        *_, words = re.split(r"\n\s*\n", self._user_text.strip())
        heading, _, said = words.partition("\n")
        words = said if said and heading.rstrip().endswith(":") else words
        plain = msgspec.json.decode(msgspec.json.encode(schema))
        return json.dumps(schema_value(plain, _shorten(words)), ensure_ascii=False)


def _output(raw: Raw) -> str:
    """The output of a call: text, or parts of it, without the lines about it that a tool may put before; anything else
    as its JSON."""
    try:
        value = msgspec.json.decode(raw, type=str | list[_Content])
    except msgspec.DecodeError:
        return bytes(raw).decode()
    output = value if isinstance(value, str) else "\n".join(part.text for part in value)
    before, mark, after = output.partition("Output:\n")
    return after if mark and (not before or before.endswith("\n")) else output


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARS else line[: SHOWN_CHARS - 1] + "…"


# --- values for schemas ----------------------------------------------------------------------------------------------

_MAX_DEPTH: Final = 32  # of a schema that refers to itself without an end
_MAX_VALUES: Final = 10_000  # of one that asks for more and more
_FORMATS: Final = {
    "date": "2000-01-01",
    "date-time": "2000-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "email": "nobody@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def schema_value(schema: Any, words: str) -> Any:
    """A small value that fits a JSON Schema of ordinary keywords, with these words for its texts: types, enumerations,
    members, items, lengths, bounds, formats, alternatives, and `$ref` into the schema itself. Null for what is no
    schema."""
    try:
        return _SchemaValue(schema, words).make(schema, 0)
    except (TypeError, ValueError, AttributeError, KeyError):
        return None


class _SchemaValue:
    def __init__(self, root: Any, words: str) -> None:
        self._root = root
        self._words = words or "offline model"
        self._budget = iter(range(_MAX_VALUES))

    def make(self, schema: Any, depth: int) -> Any:
        schema = self._flat(schema, depth)
        if "const" in schema or schema.get("enum"):
            return schema["const"] if "const" in schema else schema["enum"][0]
        kinds = schema.get("type", "object" if "properties" in schema or "required" in schema else "null")
        match kinds if isinstance(kinds, str) else next((kind for kind in kinds if kind != "null"), "null"):
            case "object":
                members = schema.get("properties", {})
                # All members near the top, deep down only those that must be there.
                names = dict.fromkeys([*(members if depth < 4 else ()), *schema.get("required", ())])
                return {name: self.make(members.get(name, {}), depth + 1) for name in names}
            case "array":
                wanted = zip(range(schema.get("minItems", 0)), self._budget)  # noqa: B905 (as many as there may be)
                return [self.make(schema.get("items", {}), depth + 1) for _ in wanted]
            case "string":
                least, most, text = schema.get("minLength", 0), schema.get("maxLength"), self._words
                if most is not None and len(text) > most:
                    cut = text[: most + 1].rpartition(" ")[0]
                    text = cut if cut and len(cut) >= least else text[:most]
                return _FORMATS.get(schema.get("format")) or text.ljust(min(least, _MAX_VALUES), ".")
            case "integer" | "number" as kind:
                # Zero, or what is allowed next to it.
                low = max(schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf) + 1)
                high = min(schema.get("maximum", math.inf), schema.get("exclusiveMaximum", math.inf) - 1)
                value: float = max(low, min(0, high))
                step: float = schema.get("multipleOf", 1 if kind == "integer" else 0)
                above = math.ceil(value / step) * step if step else value
                return above if above <= high else math.floor(value / step) * step
            case "boolean":
                return False
        return None

    def _flat(self, schema: Any, depth: int) -> dict[str, Any]:
        """The schema without references and alternatives: all that the chosen ones say, in one table. Nothing of what
        is too deep, or too much."""
        if not isinstance(schema, Mapping) or depth > _MAX_DEPTH or next(self._budget, None) is None:
            return {}
        flat = {key: value for key, value in schema.items() if key not in ("$ref", "anyOf", "oneOf", "allOf")}
        parts = [*schema.get("allOf", ())]
        if "$ref" in schema:
            part = self._root if schema["$ref"].startswith("#") else {}
            for step in schema["$ref"].split("/")[1:]:
                part = part.get(step.replace("~1", "/").replace("~0", "~"), {})
            parts.append(part)
        for choices in (schema[key] for key in ("anyOf", "oneOf") if key in schema):
            # The first alternative; but deep down the simplest, because the first may be the one that it is part of.
            choices = [one if isinstance(one, Mapping) else {} for one in choices]  # `true` allows everything
            simple = sorted(choices, key=lambda one: "$ref" in one or "properties" in one) if depth > 2 else choices
            parts.append(next((one for one in simple if depth > 2 or one != {"type": "null"}), {}))
        for part in (self._flat(part, depth + 1) for part in parts):
            merged = {
                "properties": {**flat.get("properties", {}), **part.get("properties", {})},
                "required": [*flat.get("required", ()), *part.get("required", ())],
            }
            flat |= part | {key: value for key, value in merged.items() if value}
        return flat
