"""Reading what msgspec refused, member by member: a variant that an open union doesn't know stays as it came.

Slow, and needed only for messages of a newer server; a struct in which all is known is still read by msgspec at once.
Owns no types.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import FieldInfo

from treadle.protocol.app import base


def read(value: object, wanted: Any) -> Any:
    """Read plain values; raises `msgspec.ValidationError` if they are wrong in what is known."""
    if isinstance(wanted, base._Union) and wanted.native:
        return value if isinstance(value, Struct) and isinstance(value, wanted) else wanted.read(value)
    if _is_struct(wanted) and isinstance(value, dict) and is_open(wanted):
        config = wanted.__struct_config__
        if config.tag_field is not None and value.get(config.tag_field, config.tag) != config.tag:
            base.convert_strictly(value, wanted)  # which refuses it, in the usual words
        rest = msgspec.structs.asdict(base.convert_strictly(value, _closed_part(wanted)))
        members = {key: member for key, member in rest.items() if member is not UNSET}
        for field in _open_fields(wanted):
            if field.encode_name in value:
                members[field.name] = _part(value[field.encode_name], field.type, f".{field.encode_name}")
            elif field.required:
                raise msgspec.ValidationError(f"Object missing required field `{field.encode_name}`")
        return wanted(**members)
    origin, inner = get_origin(wanted), get_args(wanted)
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_part(each, inner[0], f"[{number}]") for number, each in enumerate(value))
    if origin is Mapping and isinstance(value, dict):
        return {name: _part(each, inner[1], "[...]") for name, each in value.items()}
    choices = [each for each in inner if is_open(each)] if origin in (Union, UnionType) else []
    if value is not None and len(choices) == 1:
        return read(value, choices[0])
    return base.convert_strictly(value, wanted)


def is_open(wanted: Any) -> bool:
    """Whether a type has something in it that has to be read here, and not by msgspec."""
    if isinstance(wanted, base._Union):
        return wanted.native
    if _is_struct(wanted):
        return bool(_open_fields(wanted))
    return any(is_open(each) for each in get_args(wanted))


def _part(value: object, wanted: Any, step: str) -> Any:
    """Read a part; an error then names the whole path from the outside, as msgspec does."""
    try:
        return base.convert(value, wanted) if _is_struct(wanted) else read(value, wanted)
    except msgspec.ValidationError as error:
        message = str(error)
        text, found, path = message.rpartition(" - at `$")
        where = f"{text} - at `${step}{path}" if found else f"{message} - at `${step}`"
        raise msgspec.ValidationError(where) from None


def _is_struct(wanted: Any) -> bool:
    return isinstance(wanted, type) and issubclass(wanted, Struct)


@cache
def _open_fields(wanted: type[Struct]) -> tuple[FieldInfo, ...]:
    return tuple(field for field in msgspec.structs.fields(wanted) if is_open(field.type))


@cache
def _closed_part(wanted: type[Struct]) -> type[Struct]:
    """A struct of the other members, for msgspec to read at once; what is left out is `UNSET`."""
    fields = [field for field in msgspec.structs.fields(wanted) if not is_open(field.type)]
    return msgspec.defstruct(
        wanted.__name__,
        [
            (each.name, each.type) if each.required else (each.name, Union[each.type, UnsetType], UNSET)  # noqa: UP007
            for each in fields
        ],
        rename={each.name: each.encode_name for each in fields},
        kw_only=True,
    )
