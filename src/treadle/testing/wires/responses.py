"""Requests of the Responses API (`POST /v1/responses`). Its replies are what `treadle.testing.replies` makes."""

from __future__ import annotations

from typing import Any

from treadle.testing.wires.script import Event


def items(body: Event) -> list[Event]:
    value = body.get("input", [])
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    return [item for item in value if isinstance(item, dict)]


def tool_names(body: Event) -> list[str]:
    """A tool without a name goes by its type."""
    return [str(tool.get("name", tool.get("type"))) for tool in dicts(body.get("tools"))]


def effort(body: Event) -> Any:
    return at(body, "reasoning", "effort")


def output_schema(body: Event) -> Any:
    return at(body, "text", "format", "schema")


def at(value: Any, *names: str) -> Any:
    """What is there, going down by these names; None where the way ends."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def dicts(value: object) -> list[dict[str, Any]]:
    """The objects in a list; none in anything else."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
