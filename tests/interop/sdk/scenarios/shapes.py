"""The shape of an SDK: its names, how they are called, what their values have. Plain values, to be compared."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from typing import Any, Final, get_args

from interop.sdk.package import OFFICIAL, clients, public
from interop.sdk.stage import Stage

_NO_DEFAULT: Final = "required"
_CONTEXTS: Final = ("__enter__", "__exit__", "__aenter__", "__aexit__")


async def described(stage: Stage) -> Any:
    sdk = public(stage.package)
    types = import_module(f"{stage.package}.types")
    named = {**{name: getattr(sdk, name) for name in sdk.__all__}, **clients(stage.package)}
    return {
        "names": sorted(sdk.__all__),
        "types": sorted(types.__all__),
        "parameters": dict(_signatures(named, sdk.__version__)),
        "kinds": {name: _kind(found) for name, found in _members(named)},
        "words": {name: _words(found) for name, found in named.items() if _is(found, Enum)},
        "bases": {name: _bases(found) for name, found in named.items() if isinstance(found, type)},
        "attributes": {name: _attributes(found) for name, found in named.items() if isinstance(found, type)},
        "fields": _models(types) if stage.package == OFFICIAL else _structs(types),
    }


def _members(named: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What can be called or read: functions, classes, and what classes have for everyone."""
    for name, found in named.items():
        if inspect.isfunction(found):
            yield name, found
        elif isinstance(found, type) and not _is(found, Enum):
            yield name, found
            for member, value in inspect.getmembers_static(found):
                is_ours = not member.startswith("_") or member in _CONTEXTS
                if is_ours and (inspect.isfunction(value) or isinstance(value, property)):
                    yield f"{name}.{member}", value


def _signatures(named: dict[str, Any], version: str) -> Iterator[tuple[str, list[list[str]]]]:
    for name, found in _members(named):
        if isinstance(found, property) or name.endswith("__"):
            continue  # not called by anyone's code
        try:
            signature = inspect.signature(found)
        except ValueError:
            continue  # an exception that takes what all of them take
        yield (
            name,
            [
                [each.name, each.kind.description, _default(each.default, version)]
                for each in signature.parameters.values()
                if each.name != "self"
            ],
        )


def _default(value: Any, version: str) -> str:
    if value is inspect.Parameter.empty:
        return _NO_DEFAULT
    return "VERSION" if value == version else repr(value)


def _kind(found: Any) -> str:
    if isinstance(found, property):
        return "property"
    if inspect.iscoroutinefunction(found):
        return "coroutine"
    if inspect.isasyncgenfunction(found):
        return "asynchronous generator"
    if inspect.isgeneratorfunction(found):
        return "generator"
    return "class" if isinstance(found, type) else "function"


def _words(found: type[Enum]) -> dict[str, Any]:
    return {member.name: member.value for member in found}


def _bases(found: type) -> list[str]:
    return [base.__name__ for base in found.__mro__[1:] if base is not object]


def _attributes(found: Any) -> list[str]:
    """What an object of it has besides methods, as far as its class says so."""
    fields = dataclasses.fields(found) if dataclasses.is_dataclass(found) else ()
    names = {*(field.name for field in fields), *getattr(found, "__slots__", ())}
    return sorted(name for name in names if not name.startswith("_"))


def _is(found: Any, kind: type) -> bool:
    return isinstance(found, type) and issubclass(found, kind)


def _models(types: Any) -> dict[str, list[str]]:
    """The fields of all models that the public ones lead to; models of one `root` have none of their own."""
    found: dict[str, list[str]] = {}

    def follow(annotation: Any) -> None:
        if hasattr(annotation, "model_fields"):
            if annotation.__name__ not in found:
                fields = annotation.model_fields
                found[annotation.__name__] = [name for name in fields if name != "root"]
                for field in fields.values():
                    follow(field.annotation)
        elif _is(annotation, Enum):
            found[annotation.__name__] = []
        else:
            for part in get_args(annotation):
                follow(part)

    for name in types.__all__:
        follow(getattr(types, name))
    return found


def _structs(types: Any) -> dict[str, list[str]]:
    return {
        name: [*getattr(found, "__struct_fields__", ()), *(["type"] if hasattr(found, "type") else [])]
        for name, found in ((name, getattr(types, name)) for name in types.__all__)
    }
