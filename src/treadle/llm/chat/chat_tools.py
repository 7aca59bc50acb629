"""The tools of the Chat Completions API, in which everything is a function.

It owns the mapping from our tools to functions and back: a namespace becomes part of the name, and a free-text tool
becomes a function with one string parameter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

import msgspec
from msgspec import Raw, Struct

from treadle.llm.model import JsonObject

MAX_NAME: Final = 64
_BAD_LETTERS: Final = re.compile(r"[^A-Za-z0-9_-]")
_HASH: Final = 8

_NO_PARAMETERS: Final = Raw(b'{"type":"object","properties":{}}')
_ONE_TEXT: Final = Raw(
    b'{"type":"object","properties":{"input":{"type":"string","description":"The whole input, as plain text."}},'
    b'"required":["input"],"additionalProperties":false}'
)


class Tool(Struct, frozen=True):
    """Which of our tools a function stands for."""

    namespace: str | None
    name: str
    is_custom: bool


class Function(Struct, omit_defaults=True):
    name: str
    description: str = ""
    parameters: Raw = Raw()
    strict: bool = False


class FunctionTool(Struct):
    function: Function
    type: str = "function"


class _Format(Struct):
    type: str = ""
    syntax: str = ""
    definition: str = ""


class _Spec(Struct):
    type: str = ""
    name: str = ""
    description: str | None = None
    parameters: Raw = Raw()
    strict: bool | None = None
    format: _Format | None = None
    tools: list[_Spec] = []


_spec = msgspec.json.Decoder(_Spec)


class ToolNames:
    """The tools of a request under their names in the API.

    Tools that a provider runs itself (`web_search`, …) are left out: this API has none.
    """

    def __init__(self, tools: Sequence[JsonObject]) -> None:
        self.functions: list[FunctionTool] = []
        self._tools: dict[str, Tool] = {}
        self._names: dict[tuple[str | None, str], str] = {}
        for tool in tools:
            spec = _spec.decode(as_raw(tool))
            if spec.type == "namespace":
                for member in spec.tools:
                    self._add(member, spec.name)
            else:
                self._add(spec, None)

    def name_of(self, namespace: str | None, name: str) -> str:
        """What a tool is called there; also one that is no longer offered."""
        return self._names.get((namespace, name)) or _name(namespace, name)

    def tool(self, name: str) -> Tool:
        """The tool that the model means; one that was never offered keeps the model's name."""
        return self._tools.get(name) or Tool(None, name, False)

    def _add(self, spec: _Spec, namespace: str | None) -> None:
        if spec.type not in ("function", "custom") or not spec.name or (namespace, spec.name) in self._names:
            return
        name = _name(namespace, spec.name)
        if name in self._tools:
            name = _unlike(namespace, spec.name)
        self._names[namespace, spec.name] = name
        self._tools[name] = Tool(namespace, spec.name, spec.type == "custom")
        self.functions.append(FunctionTool(_function(spec, name)))


def _function(spec: _Spec, name: str) -> Function:
    description = spec.description or ""
    if spec.type == "custom":
        return Function(name, description + _grammar(spec.format), _ONE_TEXT)
    parameters = spec.parameters if bytes(spec.parameters) not in (b"", b"null") else _NO_PARAMETERS
    return Function(name, description, parameters, bool(spec.strict))


def _grammar(form: _Format | None) -> str:
    told = "\nPut the whole of it, as it is, into the one argument `input`."
    if form is None or not form.definition:
        return told
    return f"{told} It follows this {form.syntax} grammar:\n{form.definition}"


def _name(namespace: str | None, name: str) -> str:
    whole = name if namespace is None else f"{namespace}__{name}"
    if 0 < len(whole) <= MAX_NAME and not _BAD_LETTERS.search(whole):
        return whole
    return _unlike(namespace, name)


def _unlike(namespace: str | None, name: str) -> str:
    """A valid name that no other tool has."""
    whole = name if namespace is None else f"{namespace}__{name}"
    mark = sha256(f"{namespace}\0{name}".encode("utf-8", "replace")).hexdigest()[:_HASH]
    return f"{_BAD_LETTERS.sub('_', whole)[: MAX_NAME - _HASH - 1]}_{mark}"


def free_text(arguments: str) -> str:
    """What the model wrote for a tool of free text; models that forget the JSON around it are understood."""
    try:
        read = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return arguments
    if isinstance(read, str):
        return read
    if isinstance(read, dict):
        text = read.get("input", next(iter(read.values())) if len(read) == 1 else None)
        if isinstance(text, str):
            return text
    return arguments


def as_raw(item: JsonObject) -> Raw | bytes:
    return item if isinstance(item, Raw) else msgspec.json.encode(item)
