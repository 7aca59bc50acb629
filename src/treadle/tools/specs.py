"""How a tool is described to a model: members of `tools` in a request of the Responses API.

Owns the form. What is said of our own tools stands with each of them; what clients say of theirs is passed on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw

from treadle.protocol.app.dynamic_tools import (
    DynamicToolNamespaceTool,
    DynamicToolSpec,
    FunctionDynamicToolSpec,
    NamespaceDynamicToolSpec,
)

Schema: TypeAlias = Mapping[str, Any]


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
