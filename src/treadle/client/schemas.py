"""JSON schemas of Python types, and parsing JSON into those types.

It owns the schema of a type that a model server is sent, the errors for values that do not fit, and `OutputType`, the
Python type that the final response of a turn is parsed into. msgspec does the work; pydantic models are recognised by
their methods, because pydantic is not a dependency. `tools` uses it too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, Never, TypeAlias, TypeVar, cast, overload

import msgspec
from msgspec import inspect as kinds

from treadle.client.sdk_errors import OutputError
from treadle.errors import ArgumentTypeError

Schema: TypeAlias = dict[str, Any]

WRAPPER: Final = "value"
"""The member that holds what is no object: model servers want an object at the root."""

_REF: Final = "#/$defs/"
_ONE: Final = ("items", "additionalProperties", "propertyNames")
_SEVERAL: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_NOISE: Final = frozenset({"title", "discriminator", "$defs"})
_LIMITS: Final = frozenset(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "pattern"}
    | {"minItems", "maxItems", "minLength", "maxLength"}
)
_STRICT: Final = _LIMITS | {"type", "description", "enum", "const"}
_FORMATS: Final = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
_JSON_TYPES: Final = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


class ShapeError(ValueError):
    """A value does not have the type: `place` says where (`$.items[0].price`), `problem` what was expected there."""

    def __init__(self, problem: str, place: str = "$") -> None:
        super().__init__(f"{place}: {problem}")
        self.problem = problem
        self.place = place


class NotJson(ShapeError):
    """A text is not JSON."""


def strict_schema(type_: Any) -> Schema:
    """The JSON schema of a type as model servers want it for structured output. Raises `TypeError` when there is none.

    The root is an object (what is none is wrapped, see `is_wrapped`), every object is closed and all its members are
    required, and only keywords that the servers know are used. A type that leaves open what is in it (`dict[str, int]`,
    `Any`, a bare `list`) cannot be strict.
    """
    (root,), defs = _plain([type_])
    root = _strict(root, getattr(type_, "__name__", "value"))
    if root.get("type") != "object":
        root = _closed({WRAPPER: root})
    defs = {name: _strict(schema, name) for name, schema in defs.items()}
    return {**root, "$defs": defs} if defs else root


def object_schema(members: Mapping[str, Any], required: Iterable[str]) -> Schema:
    """The schema of an object with members of these types and no others; raises `TypeError`."""
    schemas, defs = _plain(list(members.values()))
    properties = dict(zip(members, schemas, strict=True))
    root = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return {**root, "$defs": defs} if defs else root


def is_wrapped(type_: Any) -> bool:
    """Whether a strict schema has values of this type as the member `value` of an object."""
    (root,), _ = _plain([type_])
    return root.get("type") != "object"


def read(text: str, type_: Any) -> object:
    """The value that a JSON text is, unwrapped if the type is (see `is_wrapped`). Raises `ShapeError` or `NotJson`.

    Types are taken strictly: a string with digits is no number. Members of objects that are not known are ignored.
    """
    try:
        raw = msgspec.json.decode(text.encode("utf-8", "surrogatepass"), type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise NotJson(_lowered(str(error))) from None
    except RecursionError:
        raise NotJson("the JSON is nested too deeply") from None
    place = "$"
    if is_wrapped(type_) and bytes(raw).lstrip().startswith(b"{"):
        members = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        if WRAPPER not in members:
            raise ShapeError(f"object missing required field `{WRAPPER}`")
        raw, place = members[WRAPPER], f"$.{WRAPPER}"
    return _shaped(lambda: msgspec.json.decode(raw, type=type_, dec_hook=_from_json), place)


def convert(value: object, type_: Any) -> object:
    """The value of a type that plain values from JSON stand for; raises `ShapeError`."""
    return _shaped(lambda: msgspec.convert(value, type_, dec_hook=_from_json, str_keys=True), "$")


def is_model(type_: Any) -> bool:
    """Whether it is a model class of pydantic, or one that looks like it."""
    names = ("model_json_schema", "model_validate_json")
    return isinstance(type_, type) and all(callable(getattr(type_, name, None)) for name in names)


# --- reading ---------------------------------------------------------------------------------------------------------


def _shaped(produce: Callable[[], object], place: str) -> object:
    try:
        return produce()
    except msgspec.ValidationError as error:
        problem, _, where = str(error).rpartition(" - at ") if " - at `" in str(error) else (str(error), "", "$")
        inner = error.__cause__.place if isinstance(error.__cause__, ShapeError) else "$"
        problem = error.__cause__.problem if isinstance(error.__cause__, ShapeError) else problem
        # Of a key of a dict msgspec says "`key` in `$.prices`".
        where = where.replace("`", "").removeprefix("key in ")
        raise ShapeError(_lowered(problem), place + where[1:] + inner[1:]) from None
    except RecursionError:
        raise ShapeError("the value is nested too deeply", place) from None


def _from_json(type_: Any, value: object) -> object:
    """A value of a type that msgspec does not know; msgspec calls it."""
    if type_ is object:
        return value
    if is_model(type_):
        try:
            return type_.model_validate_json(msgspec.json.encode(value))
        except ValueError as error:
            raise _model_error(error) from None
    if _is_path(type_) and isinstance(value, str):
        return type_(value)
    raise ShapeError(f"expected {'`str`' if _is_path(type_) else f'`{type_.__name__}`'}, got `{type(value).__name__}`")


def _model_error(error: ValueError) -> ShapeError:
    """The first of the errors that pydantic lists."""
    listed = getattr(error, "errors", None)
    found = listed() if callable(listed) else ()
    if not found:
        return ShapeError(str(error))
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in found[0]["loc"])
    return ShapeError(found[0]["msg"], f"${''.join(steps)}")


def _is_path(type_: Any) -> bool:
    from pathlib import PurePath  # loaded when a schema is made

    return isinstance(type_, type) and issubclass(type_, PurePath)


def _lowered(text: str) -> str:
    """The text as the rest of a sentence; `JSON is malformed` stays."""
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


# --- schemas ---------------------------------------------------------------------------------------------------------


def _plain(types: list[Any]) -> tuple[list[Schema], dict[str, Schema]]:
    """Schemas in which only recursive types are references, and the definitions of those."""
    try:
        infos = kinds.multi_type_info(types)
        named: dict[Any, Any] = {}
        for info in infos:
            _collect(info, named)
        # Asked for by themselves, they show their names in the definitions.
        asked = [*types, *named]
        _, taken = msgspec.json.schema_components(asked, schema_hook=lambda _: {"type": "null"})
        models = _Models(taken)
        schemas, defs = msgspec.json.schema_components(asked, schema_hook=models.schema)
    except NameError as error:
        raise TypeError(f"an annotation cannot be resolved ({error}): define the type at module level") from error
    except KeyError as error:  # msgspec tells classes apart by their names
        raise TypeError(f"two classes have the name of {error}: rename one of them") from None
    for info, schema in zip(infos, schemas, strict=False):
        _add_hints(info, schema)
    for info, schema in zip(named.values(), schemas[len(infos) :], strict=True):
        _add_hints(info, defs[schema["$ref"].removeprefix(_REF)])
    return _inlined(list(schemas[: len(infos)]), {**defs, **models.defs})


class _Models:
    """Schemas of types that msgspec does not know. The definitions of a model move to the root, under a free name."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._done: dict[Any, Schema] = {}
        self.defs: dict[str, Schema] = {}

    def schema(self, type_: Any) -> Schema:
        if type_ is object:
            return {"title": "anything"}  # msgspec takes an empty one for none
        if _is_path(type_):
            return {"type": "string"}
        if not is_model(type_):
            raise TypeError(
                f"there is no JSON schema for `{type_.__name__}`: use plain types, a dataclass or a TypedDict"
            )
        if type_ not in self._done:
            schema = type_.model_json_schema()
            names: dict[str, str] = {}
            for name in schema.get("$defs", {}):
                free = name
                while free in self._taken:
                    free += "_"
                self._taken.add(free)
                names[name] = free
            for name, definition in schema.get("$defs", {}).items():
                self.defs[names[name]] = _renamed(definition, names)
            self._done[type_] = _renamed(schema, names)
        return dict(self._done[type_])


def _renamed(schema: Schema, names: Mapping[str, str]) -> Schema:
    found = _each(schema, lambda inner, _: _renamed(inner, names))
    found.pop("$defs", None)
    if "$ref" in found:
        found["$ref"] = _REF + names[found["$ref"].removeprefix(_REF)]
    return found


def _collect(info: Any, named: dict[Any, Any]) -> None:
    """The classes in a type that have fields, which are those that msgspec defines apart."""
    if (cls := getattr(info, "cls", None)) is not None and hasattr(info, "fields"):
        if cls in named:
            return
        named[cls] = info
    for inner in _inner(info):
        _collect(inner, named)


def _inner(info: Any) -> list[Any]:
    fields = [field.type for field in getattr(info, "fields", ())]
    several = [*getattr(info, "types", ()), *getattr(info, "item_types", ())]
    single = [getattr(info, name) for name in ("type", "item_type", "key_type", "value_type") if hasattr(info, name)]
    return [*fields, *several, *single]


def _add_hints(info: Any, schema: Schema) -> None:
    """Add what msgspec leaves out: that a text is a date, and what the members of a named tuple are called."""
    if "$ref" in schema:
        return
    if isinstance(info, kinds.Metadata):
        _add_hints(info.type, schema)
    elif isinstance(info, kinds.DateTimeType | kinds.TimeType) and info.tz is None:
        schema.setdefault("format", "date-time" if isinstance(info, kinds.DateTimeType) else "time")
    elif isinstance(info, kinds.UnionType):
        for kind in info.types:
            for option in schema["anyOf"]:
                if option.get("type") == _json_type(kind):
                    _add_hints(kind, option)
    elif "prefixItems" in schema:
        fields = getattr(info, "fields", ())
        if fields:
            schema.setdefault("description", f"In this order: {', '.join(field.encode_name for field in fields)}.")
        # A tag comes before the fields.
        for kind, inner in zip(reversed(_inner(info)), reversed(schema["prefixItems"]), strict=False):
            _add_hints(kind, inner)
    elif hasattr(info, "fields"):
        for field in info.fields:
            _add_hints(field.type, schema["properties"][field.encode_name])
    else:
        for name, key in (("item_type", "items"), ("value_type", "additionalProperties")):
            if hasattr(info, name) and key in schema:
                _add_hints(getattr(info, name), schema[key])


def _json_type(info: Any) -> str:
    """The JSON type of an option of a union: msgspec allows one of each in it."""
    while isinstance(info, kinds.Metadata):
        info = info.type
    if hasattr(info, "item_type") or hasattr(info, "item_types"):
        return "array"
    if isinstance(info, kinds.DictType):
        return "object"
    return "string" if isinstance(info, kinds.DateTimeType | kinds.TimeType) else "another"


def _each(schema: Schema, visit: Callable[[Schema, str], Schema]) -> Schema:
    """A copy in which every schema inside is what `visit` makes of it, given the step that leads there."""
    found: Schema = {}
    for key, value in schema.items():
        if key in ("properties", "patternProperties"):
            found[key] = {name: visit(inner, f".{name}") for name, inner in value.items()}
        elif key in _SEVERAL:
            found[key] = [visit(inner, "[]" if key == "prefixItems" else "") for inner in value]
        elif key in _ONE and isinstance(value, dict):
            found[key] = visit(value, "[]")
        else:
            found[key] = value
    return found


def _inlined(schemas: list[Schema], defs: Mapping[str, Schema]) -> tuple[list[Schema], dict[str, Schema]]:
    """Schemas without references, except in recursive types: not every server follows references."""
    recursive: dict[str, Schema | None] = {}

    def inlined(schema: Schema, active: frozenset[str]) -> Schema:
        schema = {key: value for key, value in schema.items() if key not in _NOISE}
        if "$ref" in schema:
            name = schema["$ref"].removeprefix(_REF)
            if name in active:
                recursive.setdefault(name, None)
                return schema
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            return {**inlined(defs[name], active | {name}), **rest}
        if "enum" in schema and "type" not in schema:
            types = sorted({_JSON_TYPES[type(value)] for value in schema["enum"]})
            schema["type"] = types[0] if len(types) == 1 else types
        return _each(schema, lambda inner, _: inlined(inner, active))

    roots = [inlined(schema, frozenset()) for schema in schemas]
    while open_names := [name for name, schema in recursive.items() if schema is None]:
        for name in open_names:
            recursive[name] = inlined(defs[name], frozenset({name}))
    return roots, {name: schema for name, schema in recursive.items() if schema is not None}


def _strict(schema: Schema, place: str) -> Schema:
    """The schema with the keywords that model servers know, and nothing left open; `place` is for the error."""
    if "allOf" in schema and len(schema["allOf"]) == 1:
        schema = {**schema["allOf"][0], **{key: value for key, value in schema.items() if key != "allOf"}}
    about = {"description": schema["description"]} if "description" in schema else {}
    if "$ref" in schema:
        reference = {"$ref": schema["$ref"]}
        return {"anyOf": [reference], **about} if about else reference
    if options := schema.get("anyOf", schema.get("oneOf")):
        return {"anyOf": [_strict(option, place) for option in options], **about}
    found = {key: value for key, value in schema.items() if key in _STRICT}
    if schema.get("type") == "object":
        if "properties" not in schema:
            _refuse(place, "a dict with any keys", "use a dataclass, or a list of objects that have a key and a value")
        found |= _closed({name: _strict(inner, f"{place}.{name}") for name, inner in schema["properties"].items()})
    elif schema.get("type") == "array":
        found |= _strict_array(schema, place)
    elif not found.keys() & {"type", "enum", "const"}:
        _refuse(place, "any value", "give it a type")
    form = schema.get("format", schema.get("contentEncoding"))
    if form in _FORMATS:
        found["format"] = form
    elif form is not None:
        found.setdefault("description", f"As {form}.")
    return found


def _closed(members: Mapping[str, Schema]) -> Schema:
    return {"type": "object", "properties": members, "required": list(members), "additionalProperties": False}


def _strict_array(schema: Schema, place: str) -> Schema:
    if "prefixItems" in schema:
        options: list[Schema] = []
        for inner in schema["prefixItems"]:
            option = _strict(inner, f"{place}[]")
            if option not in options:
                options.append(option)
        count = len(schema["prefixItems"])
        return {"items": options[0] if len(options) == 1 else {"anyOf": options}, "minItems": count, "maxItems": count}
    if not schema.get("items"):
        _refuse(place, "a list of anything", "say what is in it, as in list[str]")
    return {"items": _strict(schema["items"], f"{place}[]")}


def _refuse(place: str, what: str, instead: str) -> Never:
    raise TypeError(f"`{place}` can be {what}, which structured output does not allow: {instead}")


# --- output types -----------------------------------------------------------------------------------------------------

T = TypeVar("T")

_FENCED: Final = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n`]*\n(.*?)\1[ \t]*\r?$", re.DOTALL | re.MULTILINE)
_SHOWN: Final = 80  # an error repeats at most this much of a response


class OutputType(Generic[T]):
    """A type for the final response: a dataclass, msgspec struct, TypedDict, NamedTuple or pydantic model, or plain.

    Raises `ArgumentTypeError` for a type that model servers cannot be held to, such as `dict[str, int]`.
    """

    __slots__ = ("schema", "wanted")

    wanted: type[T]
    """The Python type."""
    schema: dict[str, Any]
    """Its JSON schema, for the `outputSchema` of a turn. What is no object is the member `value` of one."""

    @overload
    def __init__(self, type_: type[T]) -> None: ...
    @overload
    def __init__(self: OutputType[Any], type_: Any) -> None: ...
    def __init__(self, type_: Any) -> None:
        self.wanted = type_
        try:
            self.schema = strict_schema(type_)
        except Exception as error:  # of msgspec, of pydantic, or of a class that is looked into
            raise ArgumentTypeError("output_type", f"output_type cannot be used: {error}") from error

    def __repr__(self) -> str:
        return f"OutputType({_name(self.wanted)})"

    def read(self, text: str | None) -> T:
        """The value in a final response, also if it is inside a Markdown fence. Raises `OutputError`."""
        name = _name(self.wanted)
        if text is None:
            raise OutputError(f"the turn has no final response to read as {name}; see how it ended", None)
        try:
            try:
                return cast(T, read(text, self.wanted))
            except NotJson:
                fenced = _FENCED.findall(text)
                if len(fenced) != 1:  # with several it would be a guess which one is meant
                    raise
                return cast(T, read(fenced[0][1], self.wanted))
        except NotJson as error:
            start = repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
            problem = f"the final response is no JSON, so no {name}: {error.problem}; it is {start}"
            raise OutputError(problem, text) from None
        except ShapeError as error:
            raise OutputError(f"the final response is no {name}: at {error.place}: {error.problem}", text) from None


def _name(type_: Any) -> str:
    return type_.__name__ if isinstance(type_, type) and not hasattr(type_, "__args__") else str(type_)
