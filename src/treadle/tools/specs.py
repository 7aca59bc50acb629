"""How a tool is described to a model (members of `tools` in a request of the Responses API), and how the arguments that
a model wrote are read.

Owns the form. What is said of our own tools stands with each of them; what clients say of theirs is passed on. Unknown
members of arguments are ignored: models invent some.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Raw

from treadle.errors import TreadleError
from treadle.protocol.app.item_parts import (
    DynamicToolNamespaceTool,
    DynamicToolSpec,
    FunctionDynamicToolSpec,
    NamespaceDynamicToolSpec,
)
from treadle.rpc.message import TOO_DEEP, is_too_deep

Schema: TypeAlias = Mapping[str, Any]


# The names of `treadle.agent.tools.built_in.BUILT_IN` (a test compares them), where a client can have them without what
# the tools need.
_BUILT_IN_NAMES: Final = frozenset(
    {
        "exec_command",
        "write_stdin",
        "apply_patch",
        "update_plan",
        "request_user_input",
        "view_image",
        "get_goal",
        "create_goal",
        "update_goal",
    }
)
# Those that only some settings bring: a client may well have functions of these names, which go before ours.
WEB_TOOLS: Final = frozenset({"web_search", "web_fetch"})


def built_in_names() -> frozenset[str]:
    """What a model calls our own tools: a client's tool of the same name would take its place."""
    return _BUILT_IN_NAMES | WEB_TOOLS


def function_spec(
    name: str, description: str, properties: Mapping[str, Schema], *, required: Sequence[str] = ()
) -> Raw:
    """A tool that is called with JSON arguments."""
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
    return _raw(_function(name, description, parameters))


def free_text_spec(name: str, description: str, *, lark: str) -> Raw:
    """A tool whose input is free text, of a form that the grammar describes."""
    form = {"type": "grammar", "syntax": "lark", "definition": lark}
    return _raw({"type": "custom", "name": name, "description": description, "format": form})


def with_environment_id(spec: Raw) -> Raw:
    """The same tool for a thread with several environments, one of which a call can name: by an argument, or in a
    patch by a line."""
    tool = msgspec.json.decode(spec)
    properties = tool.get("parameters", {}).get("properties", {})
    if tool["name"] != "apply_patch":
        properties["environment_id"] = text("Environment id from <environment_context>. Default: the primary one.")
        return _raw(tool)
    hint = " The line `*** Environment ID: ID` after the first says in which environment; without it, the primary one."
    tool["description"] += hint
    if "format" in tool:
        grammar = tool["format"]["definition"]
        begin = 'begin: "*** Begin Patch" LF'
        tool["format"]["definition"] = grammar.replace(begin, f'{begin} ("*** Environment ID: " PATH LF)?')
    return _raw(tool)


def dynamic_spec(spec: DynamicToolSpec) -> Raw:
    """A tool that the client runs, or a namespace of them."""
    match spec:
        case NamespaceDynamicToolSpec():
            tools = [_client_function(tool) for tool in spec.tools]
            return _raw({"type": "namespace", "name": spec.name, "description": spec.description, "tools": tools})
        case FunctionDynamicToolSpec():
            return _raw(_client_function(spec))


def _client_function(tool: FunctionDynamicToolSpec | DynamicToolNamespaceTool) -> Schema:
    return _function(tool.name, tool.description, tool.input_schema)


def _function(name: str, description: str, parameters: Any) -> Schema:
    return {
        "type": "function",
        "name": name,
        "description": description,
        # Strict would make every parameter required.
        "strict": False,
        "parameters": parameters,
    }


def _raw(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))


# --- parameters ------------------------------------------------------------------------------------------------------


def text(description: str, *, words: Sequence[str] = ()) -> Schema:
    return {"type": "string", "description": description} | ({"enum": list(words)} if words else {})


def number(description: str) -> Schema:
    return {"type": "integer", "description": description}


def flag(description: str) -> Schema:
    return {"type": "boolean", "description": description}


T = TypeVar("T")
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}  # by the structs of the tools: a model cannot add to it


class ToolInputError(TreadleError):
    """A tool was called wrongly. The message goes to the model, so it says what to do instead."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def parse_arguments(raw: str, wanted: type[T]) -> T:
    """The arguments in the JSON that a model wrote; raises `ToolInputError`, which is its answer.

    No text at all is an empty object: models leave it out where nothing is required.
    """
    if wanted not in _decoders:
        _decoders[wanted] = msgspec.json.Decoder(wanted)
    data = raw.encode("utf-8", "surrogatepass") or b"{}"
    if is_too_deep(data):
        raise ToolInputError(f"failed to parse function arguments: {TOO_DEEP}")
    try:
        # A lone surrogate has no UTF-8; the decoder then says that the text is not valid.
        value: T = _decoders[wanted].decode(data)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ToolInputError(f"failed to parse function arguments: {error}") from None
    return value
