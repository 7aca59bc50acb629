"""Tool names and call ids as this API accepts them: letters, digits, `_` and `-`, with a maximum length.

`ToolNames` maps the name that the model uses back to a tool; a namespace becomes a prefix of the name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import Raw, Struct

from treadle.llm.model import JsonObject

MAX_NAME: Final = 64
_VALID: Final = re.compile(r"[a-zA-Z0-9_-]+")
_OTHER: Final = re.compile(r"[^a-zA-Z0-9_-]")
_HASH: Final = 8


class Tool(Struct):
    """As in a request to the Responses API."""

    type: str = ""
    name: str = ""
    description: str | None = None
    parameters: Raw = Raw()
    format: Raw = Raw()
    tools: list[Tool] = []


class Named(Struct, frozen=True):
    """A tool and its name on the wire."""

    wire: str
    tool: Tool
    namespace: str | None = None


_tool = msgspec.json.Decoder(Tool)


def valid(text: str, limit: int = MAX_NAME) -> str:
    """The same if it is valid; else one that stays different from others, and is the same every time."""
    if len(text) <= limit and _VALID.fullmatch(text):
        return text
    return _OTHER.sub("_", text)[: limit - _HASH - 1] + "_" + _short_hash(text)


def wire_name(namespace: str | None, name: str) -> str:
    return valid(name if namespace is None else f"{namespace}__{name}")


class ToolNames:
    """The tools of a request that this API can offer, in order. Use `tool_names` to make one."""

    def __init__(self, specs: Sequence[bytes]) -> None:
        self.all: dict[str, Named] = {}
        for spec in specs:
            tool = _read(spec)
            if tool.type == "namespace":
                for inner in tool.tools:
                    self._add(tool.name, inner)
            else:
                self._add(None, tool)
        self._wires = {(named.namespace, named.tool.name): named.wire for named in self.all.values()}

    def wire(self, namespace: str | None, name: str) -> str:
        """What the model calls it, also if it is not offered any more."""
        return self._wires.get((namespace, name)) or wire_name(namespace, name)

    def _add(self, namespace: str | None, tool: Tool) -> None:
        if tool.type not in ("function", "custom") or not tool.name:
            return  # what a provider runs itself is another one's
        wire = wire_name(namespace, tool.name)
        if wire in self.all:  # `a__b` beside `b` of the namespace `a`
            wire = f"{wire[: MAX_NAME - _HASH - 1]}_{_short_hash(f'{namespace}/{tool.name}')}"
        self.all.setdefault(wire, Named(wire, tool, namespace))


class CallIds:
    """Ids for the calls of a history: valid and unique."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def take(self, call_id: str) -> str:
        wanted = valid(call_id)
        taken, number = wanted, 1
        while taken in self._used:
            number += 1
            taken = f"{wanted[: MAX_NAME - 8]}_{number}"
        self._used.add(taken)
        return taken


def _short_hash(text: str) -> str:
    from hashlib import sha256  # only for names that are too long

    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]


def _read(spec: bytes) -> Tool:
    try:
        return _tool.decode(spec)
    except (msgspec.DecodeError, RecursionError):
        return Tool()


def tool_names(specs: Sequence[JsonObject]) -> ToolNames:
    """They are the same for many requests, so they are read once."""
    return _tool_names(tuple(bytes(spec) if isinstance(spec, Raw) else msgspec.json.encode(spec) for spec in specs))


_tool_names = lru_cache(maxsize=8)(ToolNames)
