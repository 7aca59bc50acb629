"""The body of a request to the Messages API.

It owns everything besides the conversation: tools, thinking, output schema, and cache breakpoints. `messages` writes
the conversation.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, structs

from treadle.llm.anthropic.blocks import CacheControl, Image, RedactedThought, Text, Thought, ToolResult
from treadle.llm.anthropic.messages import History, Message, read_history
from treadle.llm.anthropic.names import Named, ToolNames, tool_names
from treadle.llm.anthropic.traits import Thinking, Traits, output_limit, traits_of
from treadle.llm.anthropic.unsupported import AS_BUDGET, NO_CACHE, NO_THINKING, NO_THOUGHTS, SCHEMA_AS_TEXT
from treadle.llm.model import JsonObject, ModelRequest
from treadle.llm.wire_api import Asking

_BUDGETS: Final = {"minimal": 1_024, "low": 4_096, "medium": 10_000, "high": 20_000, "xhigh": 30_000, "max": 30_000}
_LEAST_BUDGET: Final = 1_024  # the API takes no less
_ROOM_TO_ANSWER: Final = 1_024
_ANY_INPUT: Final[dict[str, object]] = {"type": "object", "properties": {}}
_FREE_TEXT: Final[dict[str, object]] = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The whole input, as it is."}},
    "required": ["input"],
}


class _Tool(Struct, frozen=True, omit_defaults=True, kw_only=True):
    name: str
    description: str | None = None
    input_schema: Raw | dict[str, object]
    cache_control: CacheControl | None = None


class _ToolChoice(Struct, omit_defaults=True, kw_only=True):
    type: str | None = None
    disable_parallel_tool_use: bool = False


class _Thinking(Struct, omit_defaults=True, kw_only=True):
    type: str | None = None
    budget_tokens: int | None = None
    display: str | None = None


class _Format(Struct, tag_field="type", tag="json_schema"):
    schema: object


class _OutputConfig(Struct, omit_defaults=True, kw_only=True):
    effort: str | None = None
    format: _Format | None = None


class _Body(Struct, omit_defaults=True, kw_only=True):
    model: str
    max_tokens: int
    stream: bool
    system: list[Text] = []
    tools: list[_Tool] = []
    tool_choice: _ToolChoice | None = None
    thinking: _Thinking | None = None
    output_config: _OutputConfig | None = None
    messages: list[Message]


class _Grammar(Struct):
    syntax: str = ""
    definition: str = ""


_encoder = msgspec.json.Encoder()


def encode_body(request: ModelRequest, asking: Asking) -> bytes:
    """JSON for `POST …/messages`."""
    quirks = asking.quirks
    traits = traits_of(request.model)
    limit = request.max_output_tokens or output_limit(request.model)
    names = tool_names(request.tools)
    history = read_history(request.input, request.model, names, thoughts=NO_THOUGHTS not in quirks)
    if request.instructions and request.instructions.strip():
        history.system.insert(0, Text(text=request.instructions))
    tools = list(_tools(names))
    schema = request.output_schema
    if schema is not None and (not traits.schemas or SCHEMA_AS_TEXT in quirks):
        history.system.append(Text(text=_schema_as_text(schema)))
        schema = None
    kind = _thinking_kind(traits, request, history, quirks)
    body = _Body(
        model=request.model,
        max_tokens=limit,
        stream=True,
        system=history.system,
        tools=tools or _tools_of(history),
        tool_choice=_tool_choice(request, history, tools),
        thinking=_thinking(kind, traits, request, limit),
        output_config=_output_config(kind, traits, request, schema),
        messages=history.messages,
    )
    if NO_CACHE not in quirks:
        _mark_prefix(body)
    return _encoder.encode(body)


# --- tools -----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def _tools(names: ToolNames) -> tuple[_Tool, ...]:
    return tuple(_tool(named) for named in names.all.values())


def _tool(named: Named) -> _Tool:
    tool = named.tool
    if tool.type == "custom":
        return _Tool(name=named.wire, description=_with_grammar(tool.description, tool.format), input_schema=_FREE_TEXT)
    return _Tool(name=named.wire, description=tool.description or None, input_schema=_object_schema(tool.parameters))


def _with_grammar(description: str | None, given: Raw) -> str | None:
    try:
        grammar = msgspec.json.decode(given, type=_Grammar) if bytes(given) else _Grammar()
    except msgspec.DecodeError:
        grammar = _Grammar()
    if not grammar.definition:
        return description
    return f"{description or ''}\n\nThe input keeps to this grammar ({grammar.syntax}):\n{grammar.definition}".strip()


def _object_schema(parameters: Raw) -> Raw | dict[str, object]:
    """The API takes only objects."""
    if not bytes(parameters):
        return _ANY_INPUT
    try:
        schema = msgspec.json.decode(parameters)
    except (msgspec.DecodeError, RecursionError):
        return _ANY_INPUT
    if not isinstance(schema, dict):
        return _ANY_INPUT
    return parameters if schema.get("type") == "object" else {**schema, "type": "object"}


def _tools_of(history: History) -> list[_Tool]:
    """A conversation with calls is refused without tools, also where none may be called any more."""
    return [_Tool(name=name, input_schema=_ANY_INPUT) for name in dict.fromkeys(history.called)]


def _tool_choice(request: ModelRequest, history: History, tools: list[_Tool]) -> _ToolChoice | None:
    if not tools:
        return _ToolChoice(type="none") if history.called else None
    return None if request.parallel_tool_calls else _ToolChoice(type="auto", disable_parallel_tool_use=True)


# --- thinking and output ---------------------------------------------------------------------------------------------


def _thinking_kind(traits: Traits, request: ModelRequest, history: History, quirks: frozenset[str]) -> Thinking:
    kind, effort = traits.thinking, request.reasoning_effort
    if kind == "unknown":  # what a server refuses is found out by asking
        told = effort is not None and NO_THINKING not in quirks
        kind = ("budget" if AS_BUDGET in quirks else "adaptive") if told else "never"
    if effort == "none" or (kind == "budget" and (effort is None or not _may_think(history.messages))):
        return "never"
    return kind


def _may_think(messages: list[Message]) -> bool:
    """With a budget, calls and their results must follow a thought: those of another model have none."""
    first: Message | None = None  # answer since the user said something
    for message in reversed(messages):
        if message.role == "assistant":
            first = message
        elif not any(isinstance(block, ToolResult) for block in message.content):
            break
    return first is None or isinstance(first.content[0], Thought | RedactedThought)


def _thinking(kind: Thinking, traits: Traits, request: ModelRequest, limit: int) -> _Thinking | None:
    if kind == "budget":
        budget = _BUDGETS.get(request.reasoning_effort or "", _BUDGETS["medium"])
        most = limit - _ROOM_TO_ANSWER
        return _Thinking(type="enabled", budget_tokens=min(budget, most)) if most >= _LEAST_BUDGET else None
    if kind != "adaptive":
        return None
    shown = traits.thinking == "adaptive" and request.reasoning_summary not in (None, "none")
    return _Thinking(type="adaptive", display="summarized" if shown else None)


def _output_config(
    kind: Thinking, traits: Traits, request: ModelRequest, schema: JsonObject | None
) -> _OutputConfig | None:
    effort = None
    if kind == "adaptive" or (traits.thinking == "adaptive" and request.reasoning_effort is not None):
        effort = _effort(request.reasoning_effort, traits)
    if effort is None and schema is None:
        return None
    return _OutputConfig(effort=effort, format=None if schema is None else _Format(_closed(_plain(schema))))


def _effort(effort: str | None, traits: Traits) -> str | None:
    if effort in ("none", "minimal"):
        return "low"
    return "max" if effort == "xhigh" and traits.thinking == "adaptive" and not traits.xhigh else effort


def _schema_as_text(schema: JsonObject) -> str:
    written = _encoder.encode(schema).decode()
    return f"Your final answer is JSON that fits this schema, and nothing else, without a code fence:\n{written}"


def _plain(schema: JsonObject) -> Any:
    return msgspec.json.decode(schema if isinstance(schema, Raw) else _encoder.encode(schema))


def _closed(schema: Any) -> Any:
    """With no other members than those named: the API wants that said for every object."""
    if isinstance(schema, list):
        return [_closed(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    if closed.get("type") == "object" and isinstance(closed.get("properties"), dict):
        closed.setdefault("additionalProperties", False)
    return closed


# --- cache -----------------------------------------------------------------------------------------------------------


def _mark_prefix(body: _Body) -> None:
    """Up to four places, the most there may be. The first order stays when the others change; all orders; and the last
    two messages of the user: the one is where the request before this one ended, the other where this one does."""
    if body.system:
        body.system[0].cache_control = body.system[-1].cache_control = CacheControl()
    elif body.tools:
        body.tools[-1] = structs.replace(body.tools[-1], cache_control=CacheControl())  # others have the same tools
    said = [message for message in body.messages if message.role == "user"]
    for message in said[-2:]:
        block = message.content[-1]
        if isinstance(block, Text | Image | ToolResult):
            block.cache_control = CacheControl()
