"""The body of a request to the Messages API.

It owns everything besides the conversation: tools, thinking, output schema, and cache breakpoints. `messages` writes
the conversation.

`Traits` are how the models of this API differ, as far as a request depends on it: looked up by name; nothing is
fetched.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct, structs

from treadle.llm.anthropic.blocks import (
    WEB_SEARCH,
    AnthropicToolNames,
    CacheControl,
    ImageBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    tool_names,
)
from treadle.llm.anthropic.failure import AS_BUDGET, NO_CACHE, NO_THINKING, NO_THOUGHTS, SCHEMA_AS_TEXT
from treadle.llm.anthropic.messages import AnthropicMessage, read_history
from treadle.llm.catalogue import known_model
from treadle.llm.model import JsonObject, ModelRequest
from treadle.llm.wire_api import Asking

Thinking: TypeAlias = Literal["adaptive", "budget", "never", "unknown"]

_VERSION: Final = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
# Most tokens of an answer by an unknown model: enough for a long patch, and still less than the
# context of what people run at home.
_UNKNOWN_OUTPUT: Final = 16_384


class Traits(Struct, frozen=True):
    """What requests to a model depend on.

    Args:
        max_output: The most tokens of a response, thinking included, for models that the catalogue does not list.
        thinking: How thinking is requested: adaptive, with a budget, or not at all.
        schemas: Whether output can be constrained to a JSON schema.
        xhigh: Whether it accepts this effort.
    """

    max_output: int
    thinking: Thinking
    schemas: bool = True
    xhigh: bool = False


# What each of them since 4.5 can write.
_SINCE_4_5: Final = 64_000
_NEWEST: Final = Traits(_SINCE_4_5, "adaptive", xhigh=True)
_UNKNOWN: Final = Traits(_UNKNOWN_OUTPUT, "unknown")
# From which version on: the first that is not newer than the model's holds.
_BY_VERSION: Final = (
    ((4, 7), _NEWEST),
    ((4, 6), Traits(_SINCE_4_5, "adaptive")),
    ((4, 5), Traits(_SINCE_4_5, "budget")),
    # Before 4.5 the sum of prompt and `max_tokens` must fit into the context: all they can write would leave no room.
    ((3, 7), Traits(32_000, "budget", schemas=False)),
    ((3, 5), Traits(8_192, "never", schemas=False)),
    ((0, 0), Traits(4_096, "never", schemas=False)),
)


def traits_of(model: str) -> Traits:
    """What a model can do; its name may be that of a gateway, such as `anthropic/claude-opus-4.6`."""
    if "claude" not in model:
        return _UNKNOWN
    found = _VERSION.search(model)
    if found is None:
        return _NEWEST
    version = int(found[1]), int(found[2] or 0)
    return next(traits for since, traits in _BY_VERSION if version >= since)


def output_limit(model: str) -> int:
    """Most tokens of an answer, thoughts included: every request must have it."""
    return known_model(model).output_limit or traits_of(model).max_output


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


class _WebSearch(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The search that the server runs itself."""

    type: str | None = None
    name: str | None = None
    allowed_domains: list[str] = []
    user_location: dict[str, str] | None = None
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
    system: list[TextBlock] = []
    tools: list[_Tool | _WebSearch] = []
    tool_choice: _ToolChoice | None = None
    thinking: _Thinking | None = None
    output_config: _OutputConfig | None = None
    messages: list[AnthropicMessage]


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
        history.system.insert(0, TextBlock(text=request.instructions))
    tools = list(_tools(names))
    schema = request.output_schema
    if schema is not None and (not traits.schemas or SCHEMA_AS_TEXT in quirks):
        written = _encoder.encode(schema).decode()
        asked = "Your final answer is JSON that fits this schema, and nothing else, without a code fence:"
        history.system.append(TextBlock(text=f"{asked}\n{written}"))
        schema = None
    # How thinking is asked for.
    kind, effort = traits.thinking, request.reasoning_effort
    if kind == "unknown":  # what a server refuses is found out by asking
        sent = effort is not None and NO_THINKING not in quirks
        kind = ("budget" if AS_BUDGET in quirks else "adaptive") if sent else "never"
    if effort == "none" or (kind == "budget" and (effort is None or not _may_think(history.messages))):
        kind = "never"
    # A conversation with calls is refused without tools, also where none may be called any more.
    choice = None
    if not tools and history.called:
        choice = _ToolChoice(type="none")
    elif tools and not request.parallel_tool_calls:
        choice = _ToolChoice(type="auto", disable_parallel_tool_use=True)
    body = _Body(
        model=request.model,
        max_tokens=limit,
        stream=True,
        system=history.system,
        tools=tools or [_Tool(name=name, input_schema=_ANY_INPUT) for name in dict.fromkeys(history.called)],
        tool_choice=choice,
        thinking=_thinking(kind, traits, request, limit),
        output_config=_output_config(kind, traits, request, schema),
        messages=history.messages,
    )
    if NO_CACHE in quirks:
        return _encoder.encode(body)
    # Up to four places are marked for the cache, the most there may be. The first order stays when the others change;
    # all orders; and the last two messages of the user: the one is where the request before this one ended, the other
    # where this one does.
    if body.system:
        body.system[0].cache_control = body.system[-1].cache_control = CacheControl()
    elif body.tools:
        body.tools[-1] = structs.replace(body.tools[-1], cache_control=CacheControl())  # others have the same tools
    said = [message for message in body.messages if message.role == "user"]
    for message in said[-2:]:
        block = message.content[-1]
        if isinstance(block, TextBlock | ImageBlock | ToolResultBlock):
            block.cache_control = CacheControl()
    return _encoder.encode(body)


# --- tools -----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def _tools(names: AnthropicToolNames) -> tuple[_Tool | _WebSearch, ...]:
    tools: list[_Tool | _WebSearch] = []
    for named in names.all.values():
        tool = named.tool
        schema: Raw | dict[str, object] = _FREE_TEXT
        if tool.type == "custom":
            description = tool.description
            try:
                grammar = msgspec.json.decode(tool.format, type=_Grammar) if bytes(tool.format) else _Grammar()
            except msgspec.DecodeError:
                grammar = _Grammar()
            if grammar.definition:
                rule = f"The input keeps to this grammar ({grammar.syntax}):\n{grammar.definition}"
                description = f"{description or ''}\n\n{rule}".strip()
        else:
            description, schema = tool.description or None, _object_schema(tool.parameters)
        tools.append(_Tool(name=named.wire, description=description, input_schema=schema))
    search = names.web_search
    if search is not None and WEB_SEARCH not in names.all:  # two tools of one name are refused
        domains = search.filters.allowed_domains if search.filters is not None else []
        kind = "web_search_20250305"
        tools.append(
            _WebSearch(type=kind, name=WEB_SEARCH, allowed_domains=domains, user_location=search.user_location)
        )
    return tuple(tools)


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


# --- thinking and output ---------------------------------------------------------------------------------------------


def _may_think(messages: list[AnthropicMessage]) -> bool:
    """With a budget, calls and their results must follow a thought: those of another model have none."""
    first: AnthropicMessage | None = None  # answer since the last user message
    for message in reversed(messages):
        if message.role == "assistant":
            first = message
        elif not any(isinstance(block, ToolResultBlock) for block in message.content):
            break
    return first is None or isinstance(first.content[0], ThinkingBlock | RedactedThinkingBlock)


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
        effort = request.reasoning_effort
        if effort in ("none", "minimal"):
            effort = "low"
        elif effort == "xhigh" and traits.thinking == "adaptive" and not traits.xhigh:
            effort = "max"
    if effort is None and schema is None:
        return None
    if schema is None:
        return _OutputConfig(effort=effort)
    plain = msgspec.json.decode(schema if isinstance(schema, Raw) else _encoder.encode(schema))
    return _OutputConfig(effort=effort, format=_Format(_closed(plain)))


def _closed(schema: Any) -> Any:
    """The schema without other members than those named: the API requires that for every object."""
    if isinstance(schema, list):
        return [_closed(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    if closed.get("type") == "object" and isinstance(closed.get("properties"), dict):
        closed.setdefault("additionalProperties", False)
    return closed
