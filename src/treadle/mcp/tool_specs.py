"""How the tools of MCP servers are described to a model, and which tool a model means. Pure.

`ToolNames` owns the names, both ways. A server is a namespace `mcp__SERVER`, in which a tool is a function. Where an
API has no namespaces, both become one name `mcp__SERVER__TOOL`: so the two together have at most 64 characters, those
that every provider takes, and no two tools have the same. A name that had to be changed for that ends in a hash of what
it was, and is the same every time, because histories and caches hold on to it.

`model_schema` makes of a server's JSON schema one that every provider takes: a small subset, of bounded depth and size.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec import Raw

from treadle.mcp.mcp_messages import ToolInfo
from treadle.rpc.message import is_too_deep

MAX_NAME: Final = 64
_MAX_NAMESPACE: Final = 36  # leaves 26 characters to the functions
_JOINT: Final = "__"
_PREFIX: Final = "mcp__"
_HASH: Final = 8
_BAD_LETTERS: Final = re.compile(r"[^A-Za-z0-9_]")
_SEPARATORS: Final = re.compile(r"[^A-Za-z0-9]+")


# --- names ------------------------------------------------------------------------------------------------------------


class ToolNames:
    """What a model calls the tools of some servers.

    Args:
        servers: The names of the tools of each server, as the servers and the settings have them.
        prefix: What every namespace begins with.
    """

    def __init__(self, servers: Mapping[str, Iterable[str]], *, prefix: str = _PREFIX) -> None:
        self._prefix = prefix
        self._namespaces = _unlike_names(prefix, servers, _MAX_NAMESPACE, {})
        self._functions: dict[tuple[str, str], str] = {}
        self._exact: dict[str, tuple[str, str]] = {}  # by namespace and function, joined
        for server in sorted(servers):
            joint = self._namespaces[server] + _JOINT
            # Taken may be `a__b` of the server `x`, for `b` of the server `x__a`.
            for tool, name in _unlike_names(joint, servers[server], MAX_NAME, self._exact).items():
                self._functions[server, tool] = name.removeprefix(joint)
                self._exact[name] = (server, tool)
        self._loose: dict[str, tuple[str, str] | None] = {}  # None where several tools are spelled so
        for name, target in self._exact.items():
            spelled = _spelled(name)
            self._loose[spelled] = None if spelled in self._loose else target

    def namespace(self, server: str) -> str:
        return self._namespaces[server]

    def function(self, server: str, tool: str) -> str:
        return self._functions[server, tool]

    def flat(self, server: str, tool: str) -> str:
        """The name of a tool with its server in it, where there are no namespaces."""
        return f"{self._namespaces[server]}{_JOINT}{self._functions[server, tool]}"

    def find(self, namespace: str | None, name: str) -> tuple[str, str] | None:
        """The server and the tool that a call means, as they call themselves; None when it means none of them.

        Models, and servers between us and them, join the two parts in their own ways: `mcp__S` and `T`, `mcp__S__T`,
        `mcp__S.T`, the namespace twice, or without `mcp__`. What is not exact must be unmistakable.
        """
        whole = name if namespace is None else f"{namespace}{_JOINT}{name}"
        if (found := self._exact.get(whole)) is not None:
            return found
        spellings = [_spelled(whole)]
        if namespace is not None:
            spellings += [_spelled(name), _spelled(self._prefix + whole)]
        for spelled in spellings:
            if spelled.startswith(_spelled(self._prefix)) and (found := self._loose.get(spelled)) is not None:
                return found
        return None


def _spelled(name: str) -> str:
    """The same for all ways to join the parts of a name."""
    return _SEPARATORS.sub("_", name)


def _unlike_names(prefix: str, wanted: Iterable[str], limit: int, taken: Container[str]) -> dict[str, str]:
    """A valid name for each, of at most `limit` characters, and no two the same. What is valid as it is has the first
    right to its name; others that would have the same name all get a hash."""
    plain = {each: _BAD_LETTERS.sub("_", each) for each in sorted(set(wanted))}
    counts = Counter(plain.values())
    names: dict[str, str] = {}
    used: set[str] = set()
    for each in sorted(plain, key=lambda each: plain[each] != each):
        name, attempt = prefix + plain[each], 0
        usable = each != "" and (plain[each] == each or counts[plain[each]] == 1)
        while not usable or len(name) > limit or name in used or name in taken:
            mark = sha256(f"{each}\0{attempt}".encode("utf-8", "replace")).hexdigest()[:_HASH]
            name = f"{(prefix + plain[each])[: limit - _HASH - 1]}_{mark}"
            usable, attempt = True, attempt + 1
        names[each] = name
        used.add(name)
    return names


# --- specifications ---------------------------------------------------------------------------------------------------

# Far more than any tool needs, so that a server cannot fill every request.
_MAX_DESCRIPTION: Final = 10_000
_MAX_SCHEMA: Final = 32 * 1024
# Of a schema as the server has it. One that is larger is not small enough without its descriptions either.
_MAX_READ: Final = 4 * _MAX_SCHEMA


def namespace_spec(
    names: ToolNames,
    server: str,
    instructions: str | None,
    tools: Iterable[ToolInfo],
    *,
    deferred: bool = False,
) -> Raw:
    """All tools of a server, as a member of `tools` in a request of the Responses API.

    Args:
        names: What the model calls them.
        server: The server.
        instructions: What the server says of itself.
        tools: What it offers.
        deferred: Whether they are the answer of a search.
    """
    namespace = names.namespace(server)
    functions = {names.function(server, tool.name): tool for tool in tools}
    spec = {
        "type": "namespace",
        "name": namespace,
        "description": _shortened(instructions or "") or f"Tools in the {namespace} namespace.",
        "tools": [_function(name, functions[name], deferred) for name in sorted(functions)],
    }
    return Raw(msgspec.json.encode(spec))


def _function(name: str, tool: ToolInfo, deferred: bool) -> dict[str, object]:
    return {
        "type": "function",
        "name": name,
        "description": _shortened(tool.description or ""),
        "strict": False,  # strict would make every parameter required
        **({"defer_loading": True} if deferred else {}),
        "parameters": model_schema(tool.input_schema),
    }


def _shortened(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()  # a lone surrogate has no UTF-8
    return text if len(text) <= _MAX_DESCRIPTION else text[: _MAX_DESCRIPTION - 1] + "…"


# --- schemas ----------------------------------------------------------------------------------------------------------

_MAX_LEVELS: Final = 32
_ARGUMENT: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_TYPES: Final = ("object", "array", "string", "number", "integer", "boolean", "null")
_ANY: Final = {"type": "string"}  # what stands for a schema that allows everything, as the real program has it
_COMBINATIONS: Final = ("anyOf", "oneOf", "allOf")
_DEFINITIONS: Final = ("$defs", "definitions")
_OF_OBJECTS: Final = frozenset({"properties", "required", "additionalProperties", "patternProperties", *_DEFINITIONS})
_OF_ARRAYS: Final = frozenset({"items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"})
_OF_NUMBERS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})


def model_schema(given: Raw | bytes) -> dict[str, Any]:
    """The schema of a tool's arguments as every provider takes it: an object with `properties`.

    Validation stays with the server: what only narrows a value (`pattern`, `minimum`, …) is left out.
    """
    schema = _decoded(given)
    for described in (True, False):
        made = _whole(schema, described=described)
        if len(msgspec.json.encode(made)) <= _MAX_SCHEMA:
            break
    else:
        return {"type": "object", "properties": {}}
    names = _argument_names(made["properties"])
    if names:
        made["properties"] = {names.get(name, name): value for name, value in made["properties"].items()}
        if "required" in made:
            made["required"] = [names.get(name, name) for name in made["required"]]
    return made


def real_arguments(given: Raw | bytes, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that a model wrote, by the names that the tool has for them."""
    schema = _decoded(given)
    declared = schema.get("properties")
    if isinstance(declared, dict) and declared.keys() >= arguments.keys():
        return arguments  # nearly always
    names = {made: name for name, made in _argument_names(_whole(schema, described=False)["properties"]).items()}
    return {names.get(name, name): value for name, value in arguments.items()}


def _argument_names(properties: Mapping[str, object]) -> dict[str, str]:
    """What a model calls the arguments whose names Anthropic refuses (`$filter`), and with them the whole request."""
    odd = [name for name in properties if not _ARGUMENT.fullmatch(name)]
    return _unlike_names("", odd, MAX_NAME, properties) if odd else {}


def _decoded(given: Raw | bytes) -> dict[str, Any]:
    with suppress(msgspec.DecodeError, UnicodeError):
        if len(bytes(given)) <= _MAX_READ and not is_too_deep(bytes(given)):
            return msgspec.json.decode(given, type=dict[str, Any])
    return {}


def _whole(schema: dict[str, Any], *, described: bool) -> dict[str, Any]:
    """Providers take no reference and no alternatives at the top: a model gets the properties of all of them."""
    writer = _Writer(schema, described=described)
    made = writer.schema(schema, 0)
    properties: dict[str, Any] = made.get("properties", {})
    branches = [branch for key in _COMBINATIONS for branch in made.pop(key, ())]
    if "$ref" in made:
        _, group, name = made.pop("$ref").split("/")
        branches.append(made[group][name])
        if "required" in made[group][name]:
            made.setdefault("required", made[group][name]["required"])
    for branch in branches:
        for name, value in branch.get("properties", {}).items():
            properties.setdefault(name, value)
    for key in ("enum", "items"):
        made.pop(key, None)
    return {**made, "type": "object", "properties": properties}


class _Writer:
    """`described`: whether what is inside keeps its descriptions."""

    def __init__(self, root: dict[str, Any], *, described: bool) -> None:
        self._described = described
        self._defined = {
            f"#/{group}/{name}"
            for group in _DEFINITIONS
            if isinstance(root.get(group), dict)
            for name in root[group]
            if "/" not in name and "~" not in name
        }

    def schema(self, given: object, level: int) -> dict[str, Any]:
        if not isinstance(given, dict) or level > _MAX_LEVELS:
            return dict(_ANY)
        made: dict[str, Any] = {}
        reference = given.get("$ref")
        if isinstance(reference, str) and reference in self._defined:
            made["$ref"] = reference
        combined = {
            key: [self.schema(each, level + 1) for each in given[key]]
            for key in _COMBINATIONS
            if isinstance(given.get(key), list) and given[key]
        }
        enum = given["enum"] if isinstance(given.get("enum"), list) and given["enum"] else None
        if enum is None and "const" in given:
            enum = [given["const"]]
        kind = _kind(given, enum)
        if kind is None and not combined and "$ref" not in made:
            kind = "string"
        if kind is not None:
            made["type"] = kind
        if isinstance(given.get("description"), str) and (self._described or level == 0):
            made["description"] = given["description"]
        if enum is not None:
            made["enum"] = enum
        kinds = kind if isinstance(kind, list) else [kind]
        if "array" in kinds:
            made["items"] = self._items(given, level)
        properties = given.get("properties")
        if "object" in kinds or isinstance(properties, dict):
            made["properties"] = self._each(properties, level)
        required = given.get("required")
        if isinstance(required, list) and (names := [name for name in required if isinstance(name, str)]):
            made["required"] = names
        others = given.get("additionalProperties")
        if isinstance(others, bool):
            made["additionalProperties"] = others
        elif isinstance(others, dict):
            made["additionalProperties"] = self.schema(others, level + 1)
        made |= combined
        if level == 0:
            made |= {key: self._each(given[key], level) for key in _DEFINITIONS if isinstance(given.get(key), dict)}
        return made

    def _each(self, given: object, level: int) -> dict[str, Any]:
        if not isinstance(given, dict):
            return {}
        return {name: self.schema(each, level + 1) for name, each in given.items()}

    def _items(self, given: dict[str, Any], level: int) -> dict[str, Any]:
        items = given.get("items")
        if isinstance(items, dict):
            return self.schema(items, level + 1)
        tuples = items if isinstance(items, list) else given.get("prefixItems")
        if not isinstance(tuples, list) or not tuples:
            return dict(_ANY)
        return {"anyOf": [self.schema(each, level + 1) for each in tuples]}


def _kind(given: dict[str, Any], enum: Sequence[object] | None) -> str | list[str] | None:
    """The type, as given, or as the other members tell it."""
    kind = given.get("type")
    if isinstance(kind, str) and kind in _TYPES:
        return kind
    if isinstance(kind, list) and (kinds := [each for each in kind if isinstance(each, str) and each in _TYPES]):
        return kinds
    if enum is not None:
        kinds = sorted({_kind_of(value) for value in enum})
        return kinds[0] if len(kinds) == 1 else kinds
    if not _OF_OBJECTS.isdisjoint(given):
        return "object"
    if not _OF_ARRAYS.isdisjoint(given):
        return "array"
    return "number" if not _OF_NUMBERS.isdisjoint(given) else None


def _kind_of(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"
