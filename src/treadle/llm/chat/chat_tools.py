"""The tools of the Chat Completions API, in which everything is a function.

It owns the mapping from our tools to functions and back: a namespace becomes part of the name, and a free-text tool
becomes a function with one string parameter.

`ChatCallIds` makes ids of tool calls of any provider valid for this one and unique within a request.
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


class ChatTool(Struct, frozen=True):
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


class _CustomFormat(Struct):
    type: str = ""
    syntax: str = ""
    definition: str = ""


class _Spec(Struct):
    type: str = ""
    name: str = ""
    description: str | None = None
    parameters: Raw = Raw()
    strict: bool | None = None
    format: _CustomFormat | None = None
    tools: list[_Spec] = []


_spec = msgspec.json.Decoder(_Spec)


class ChatToolNames:
    """The tools of a request under their names in the API.

    Tools that a provider runs itself (`web_search`, …) are left out: this API has none.
    """

    def __init__(self, tools: Sequence[JsonObject]) -> None:
        self.functions: list[FunctionTool] = []
        self._tools: dict[str, ChatTool] = {}
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

    def tool(self, name: str) -> ChatTool:
        """The tool that the model means; one that was never offered keeps the model's name."""
        return self._tools.get(name) or ChatTool(None, name, False)

    def _add(self, spec: _Spec, namespace: str | None) -> None:
        if spec.type not in ("function", "custom") or not spec.name or (namespace, spec.name) in self._names:
            return
        name = _name(namespace, spec.name)
        if name in self._tools:
            name = _unlike(namespace, spec.name)
        self._names[namespace, spec.name] = name
        self._tools[name] = ChatTool(namespace, spec.name, spec.type == "custom")
        description = spec.description or ""
        if spec.type == "custom":
            description += "\nPut the whole of it, as it is, into the one argument `input`."
            if spec.format is not None and spec.format.definition:
                description += f" It follows this {spec.format.syntax} grammar:\n{spec.format.definition}"
            function = Function(name, description, _ONE_TEXT)
        else:
            parameters = spec.parameters if bytes(spec.parameters) not in (b"", b"null") else _NO_PARAMETERS
            function = Function(name, description, parameters, bool(spec.strict))
        self.functions.append(FunctionTool(function))


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


_VALID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NINE: Final = re.compile(r"[A-Za-z0-9]{9}")


class ChatCallIds:
    """The ids of one request. The same history always gets the same ids, so that the provider's cache still matches.

    Args:
        nine: Whether the server wants exactly nine letters and digits.
    """

    def __init__(self, *, nine: bool = False) -> None:
        self._nine = nine
        self._used: set[str] = set()

    def take(self, call_id: str) -> str:
        """A valid id for the next call, its own where possible."""
        valid = (_NINE if self._nine else _VALID).fullmatch(call_id)
        taken = call_id if valid else self._made(call_id, 0)
        count = 0
        while taken in self._used:
            count += 1
            taken = self._made(call_id, count)
        self._used.add(taken)
        return taken

    def _made(self, call_id: str, count: int) -> str:
        mark = sha256(f"{count}\0{call_id}".encode("utf-8", "replace")).hexdigest()
        return mark[:9] if self._nine else f"call_{mark[:24]}"
