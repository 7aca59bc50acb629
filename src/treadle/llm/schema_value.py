"""A small value that fits a JSON Schema, for a model that only pretends to think.

It owns the way from a schema to a value. It knows what schemas for answers are made of: types, enumerations, bounds,
members, items, `$ref` into the schema itself, and alternatives. A schema that contradicts itself, or that only a
regular expression can satisfy, gets a value of the right type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

MAX_DEPTH: Final = 32  # of a schema that refers to itself without an end
MAX_ITEMS: Final = 1000
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_FORMATS: Final = {
    "date": "2000-01-01",
    "date-time": "2000-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "email": "nobody@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "192.0.2.1",
    "hostname": "example.com",
}


def schema_value(schema: Any, words: str) -> Any:
    """A value that fits, with these words where there is room for a text; null for what is no schema."""
    return _Maker(schema, words).make(schema, 0)


class _Maker:
    def __init__(self, root: Any, words: str) -> None:
        self._root = root
        self._words = words

    def make(self, schema: Any, depth: int) -> Any:
        schema = self._plain(schema, depth)
        if not isinstance(schema, Mapping):
            return None
        if "const" in schema:
            return schema["const"]
        choices = schema.get("enum")
        if isinstance(choices, list) and choices:
            return next((choice for choice in choices if _is_of_type(choice, schema)), choices[0])
        return self._of_type(_kind(schema), schema, depth + 1)

    def _plain(self, schema: Any, depth: int) -> Any:
        """Without references and alternatives: all that the chosen ones say, in one table."""
        for _ in range(MAX_DEPTH):
            if not isinstance(schema, Mapping):
                return schema
            rest = {key: value for key, value in schema.items() if key not in ("$ref", "anyOf", "oneOf", "allOf")}
            parts = [part for part in self._parts(schema, depth) if isinstance(part, Mapping)]
            if not parts:
                return rest
            for part in parts:
                rest = _joined(rest, part)
            schema = rest
        return {}

    def _parts(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        parts = [self._find(schema["$ref"])] if "$ref" in schema else []
        if isinstance(schema.get("allOf"), list):
            parts += schema["allOf"]
        for key in ("anyOf", "oneOf"):
            choices = schema.get(key)
            if isinstance(choices, list) and choices:
                parts.append(self._choose(choices, depth))
        return parts

    def _choose(self, choices: Sequence[Any], depth: int) -> Any:
        """The first one; but deep down the simplest, because the first may be the one that it is part of."""
        if depth <= 2:
            return next((one for one in choices if one != {"type": "null"}), choices[0])
        return min(choices, key=lambda one: isinstance(one, Mapping) and ("$ref" in one or "properties" in one))

    def _find(self, reference: Any) -> Any:
        """What a `$ref` into the same schema stands for; nothing for any other."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return {}
        found = self._root
        for part in reference.removeprefix("#").split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or key not in found:
                return {}
            found = found[key]
        return found

    def _of_type(self, kind: str | None, schema: Mapping[str, Any], depth: int) -> Any:
        match kind:
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "string":
                return _text(schema, self._words)
            case "integer" | "number":
                return _number(schema, whole=kind == "integer")
            case "boolean":
                return False
        return None

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        """All members near the top, deep down only those that must be there."""
        members = schema.get("properties")
        known: Mapping[str, Any] = members if isinstance(members, Mapping) else {}
        required = [name for name in _list(schema, "required") if isinstance(name, str)]
        others = schema.get("additionalProperties", {})
        names = dict.fromkeys([*(known if depth < 4 else ()), *required])
        if depth > MAX_DEPTH:
            return {}
        return {name: self.make(known.get(name, others), depth) for name in names if known.get(name) is not False}

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        first, least = _list(schema, "prefixItems"), _count(schema, "minItems")
        if depth > MAX_DEPTH or not least:
            return []
        items = schema.get("items", {})
        made = [self.make(first[n] if n < len(first) else items, depth) for n in range(min(least, MAX_ITEMS))]
        return _distinct(made, self._plain(items, depth)) if schema.get("uniqueItems") is True else made


def _joined(one: Mapping[str, Any], two: Mapping[str, Any]) -> dict[str, Any]:
    """What both say: members and requirements of both, the narrower of two bounds."""
    joined = {**one, **two}
    for key in one.keys() & two.keys():
        joined[key] = _both(key, one[key], two[key])
    return joined


def _both(key: str, one: Any, two: Any) -> Any:
    match key:
        case "properties" if isinstance(one, Mapping) and isinstance(two, Mapping):
            return {**one, **two}
        case "required" | "allOf" if isinstance(one, list) and isinstance(two, list):
            return [*one, *two]
        case "minimum" | "exclusiveMinimum" | "minLength" | "minItems" if _is_number(one) and _is_number(two):
            return max(one, two)
        case "maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" if _is_number(one) and _is_number(two):
            return min(one, two)
        case "enum" if isinstance(one, list) and isinstance(two, list):
            return [value for value in one if value in two] or two
    return two


def _kind(schema: Mapping[str, Any]) -> str | None:
    """The type; where several are allowed, one that says something. What has no type shows it by its keywords."""
    named = schema.get("type")
    if isinstance(named, list):
        return next((kind for kind in named if isinstance(kind, str) and kind != "null"), None)
    if isinstance(named, str):
        return named
    for key, kind in (("properties", "object"), ("required", "object"), ("items", "array"), ("minLength", "string")):
        if key in schema:
            return kind
    return None


def _is_of_type(value: Any, schema: Mapping[str, Any]) -> bool:
    named = schema.get("type")
    kinds = named if isinstance(named, list) else [named] if isinstance(named, str) else list(_TYPES)
    return any(
        isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
        for kind in kinds
        if kind in _TYPES
    )


def _text(schema: Mapping[str, Any], words: str) -> str:
    formatted = _FORMATS.get(str(schema.get("format")))
    if formatted is not None:
        return formatted
    least, most = _count(schema, "minLength"), schema.get("maxLength")
    text = words or "offline model"
    if isinstance(most, int) and len(text) > most:
        cut = text[: most + 1].rpartition(" ")[0] or text[:most]
        text = cut if len(cut) >= least else text[:most]
    return text if len(text) >= least else text + "." * (min(least, 100_000) - len(text))


def _number(schema: Mapping[str, Any], *, whole: bool) -> int | float:
    """Zero, or what is allowed next to it."""
    low, high = _bound(schema, "minimum", "exclusiveMinimum", max), _bound(schema, "maximum", "exclusiveMaximum", min)
    step: Any = schema.get("multipleOf")
    unit = step if _is_number(step) and step > 0 else 1 if whole else None
    value: int | float = 0
    if low is not None and value <= low:
        value = _first_above(low, unit, low == schema.get("exclusiveMinimum"), high)
    elif high is not None and value >= high:
        value = -_first_above(-high, unit, high == schema.get("exclusiveMaximum"), None if low is None else -low)
    return int(value) if whole and float(value).is_integer() else value


def _first_above(low: float, unit: float | None, beyond: bool, high: float | None) -> float:
    if unit is None:
        return low if not beyond else low + 1 if high is None else (low + high) / 2
    steps = math.ceil(low / unit)
    return (steps + 1) * unit if beyond and steps * unit <= low else steps * unit


def _bound(schema: Mapping[str, Any], name: str, exclusive: str, narrower: Any) -> float | None:
    given = [schema[key] for key in (name, exclusive) if _is_number(schema.get(key))]
    return narrower(given) if given else None


def _distinct(values: list[Any], items: Any) -> list[Any]:
    """Where items must differ: other choices, texts and numbers, as far as that goes."""
    choices = _list(items, "enum") if isinstance(items, Mapping) else []
    if len(choices) >= len(values):
        return choices[: len(values)]
    return [_varied(value, n) for n, value in enumerate(values)]


def _varied(value: Any, n: int) -> Any:
    if isinstance(value, str):
        return f"{value} {n + 1}" if n else value
    return value + n if _is_number(value) else value


def _list(schema: Mapping[str, Any], key: str) -> list[Any]:
    value = schema.get(key)
    return value if isinstance(value, list) else []


def _count(schema: Mapping[str, Any], key: str) -> int:
    value = schema.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
