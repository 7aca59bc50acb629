"""What all structs of the app-server protocol share: their bases, unions that may grow, and decoding.

Two rules run through the package. What a server acts upon (params of requests, answers of a client) is *closed*: a
value outside the vocabulary is refused. What a client is told (results, notifications, requests of the server) is
*open*: a word or a variant of a newer server is kept as it came. `Open` marks a word, `OrUnknown` a union of structs.

Knows nothing of methods (see `registry`), of connections, or of what the structs mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    Self,
    TypeVar,
    Union,
    get_args,
    get_origin,
    overload,
)

import msgspec
from msgspec import UNSET, Meta, Struct

T = TypeVar("T")

JsonObject = Mapping[str, Any]
Unsigned = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Unsigned16 = Annotated[int, Meta(ge=0, le=2**16 - 1)]
Unsigned32 = Annotated[int, Meta(ge=0, le=2**32 - 1)]


class Wire(Struct, rename="camel", kw_only=True, frozen=True):
    """Base of everything on the wire: unknown members are ignored, members without a value are sent as null.

    A member that is left out rather than null has the default `UNSET`. Members named in `_hidden` may carry a secret:
    they are sent, and never shown.
    """

    _hidden: ClassVar[tuple[str, ...]] = ()

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        names = self.__struct_fields__
        return [(name, "…" if name in self._hidden else getattr(self, name)) for name in names]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    @classmethod
    def model_validate(cls, obj: object) -> Self:
        """From plain values with the names of the wire, or from an instance."""
        return obj if isinstance(obj, cls) else convert(obj, cls)

    def model_dump(self, *, by_alias: bool = False, mode: str = "python", exclude_none: bool = False) -> dict[str, Any]:
        """To plain values; `by_alias` gives the names of the wire. Both modes give the values that JSON has."""
        if mode not in ("python", "json"):
            raise ValueError(f"mode `{mode}` is not known; use `python` or `json`")
        return _dump_struct(self, by_alias, exclude_none)

    def model_dump_json(self, *, by_alias: bool = False, exclude_none: bool = False) -> str:
        return msgspec.json.encode(self.model_dump(by_alias=by_alias, exclude_none=exclude_none)).decode()


class Params(Wire, frozen=True, kw_only=True, omit_defaults=True):
    """Base of what a client sends: what it leaves at its default is not sent."""


class NoParams(Params, frozen=True, kw_only=True):
    """For methods that take none."""


class Empty(Wire, frozen=True, kw_only=True):
    """The result `{}`."""


class Member(Wire, frozen=True, kw_only=True):
    """Base of the structs of a union. `root` is there for code written for the official SDK, which wraps them."""

    @property
    def root(self) -> Self:
        return self


class Variant(Member, frozen=True, kw_only=True, tag_field="type"):
    """A struct of a union that is told apart by `type`."""

    @property
    def type(self) -> str:
        return str(self.__struct_config__.tag)


class Unknown(dict[str, Any]):
    """A struct of a union that we don't know: the object as it came, which is also how it is sent on."""

    @property
    def root(self) -> Self:
        return self

    @property
    def type(self) -> str | None:
        tag = self.get("type")
        return tag if isinstance(tag, str) else None

    def model_dump(self, *, by_alias: bool = False, mode: str = "python", exclude_none: bool = False) -> dict[str, Any]:
        """The object as it came, whatever is asked: what its members mean is not known."""
        return dict(self)

    def model_dump_json(self, *, by_alias: bool = False, exclude_none: bool = False) -> str:
        return msgspec.json.encode(self).decode()


class _Union(type):
    """The class of the runtime stand-ins for unions that msgspec cannot express; `isinstance` sees through them."""

    tags: Mapping[str, type[Struct]]
    keys: Mapping[str, type[Struct]]
    words: frozenset[str]
    unknown: type[Unknown] | None

    def __instancecheck__(cls, instance: object) -> bool:
        if isinstance(instance, str):
            return cls._admits(instance)
        structs = (*cls.tags.values(), *cls.keys.values())
        return isinstance(instance, structs if cls.unknown is None else (*structs, cls.unknown))

    def _admits(cls, word: str) -> bool:
        return word in cls.words or (bool(cls.words) and cls.unknown is not None)

    def read(cls, value: object) -> object:
        if isinstance(value, str) and cls._admits(value):
            return value
        if not isinstance(value, dict):
            raise ValueError(f"Expected `{cls.__name__}`, got another {type(value).__name__}")
        found = cls.tags.get(tag) if isinstance(tag := value.get("type"), str) else None
        if found is None:
            found = next((struct for key, struct in cls.keys.items() if key in value), None)
        if found is not None:
            return convert(value, found)
        if cls.unknown is None:
            raise ValueError(f"Expected `{cls.__name__}`, got an object that is none of its variants")
        return cls.unknown(value)


def union(name: str, members: Iterable[Any], unknown: type[Unknown] | None = Unknown) -> Any:
    """A type that decodes to one of `members`, else to `unknown`; without `unknown` the union is closed.

    Structs without a tag are told apart by their first member. An open union with a literal admits every string.
    """
    members = tuple(members)
    structs = [member for member in members if isinstance(member, type) and issubclass(member, Struct)]
    tagged = [struct for struct in structs if struct.__struct_config__.tag is not None]
    return _Union(
        name,
        (),
        {
            "tags": {str(struct.__struct_config__.tag): struct for struct in tagged},
            "keys": {struct.__struct_encode_fields__[0]: struct for struct in structs if struct not in tagged},
            "words": frozenset(
                word for literal in members if get_origin(literal) is Literal for word in get_args(literal)
            ),
            "unknown": unknown,
        },
    )


if TYPE_CHECKING:
    Open = Union[T, str]  # noqa: UP007 - mypy takes no bare type variable on the left of `|`
    OrUnknown = Union[T, Unknown]  # noqa: UP007
else:

    class Open(Generic[T]):
        """`Open[Literal[…]]`: one of these words, or one that we don't know yet."""

        def __class_getitem__(cls, words):
            return Annotated[str, Meta(extra={"words": get_args(words)})]

    class OrUnknown(Generic[T]):
        """`OrUnknown[A | B]`: one of these structs, or `Unknown`."""

        @classmethod
        @cache
        def __class_getitem__(cls, wanted):
            members = get_args(wanted) or (wanted,)
            return union(" | ".join(getattr(member, "__name__", "str") for member in members), members)


def _hook(wanted: type, value: object) -> object:
    if not isinstance(wanted, _Union):
        raise NotImplementedError(f"no way to decode `{wanted}`")
    try:
        return wanted.read(value)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None  # msgspec adds the path of the union to this one only


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}  # by types that the program names: a peer cannot add to it


def decoder(wanted: type[T]) -> msgspec.json.Decoder[T]:
    """The one decoder of a type."""
    if wanted not in _decoders:
        _decoders[wanted] = msgspec.json.Decoder(wanted, dec_hook=_hook)
    return _decoders[wanted]


@overload
def decode(raw: bytes | msgspec.Raw, wanted: type[T]) -> T: ...
@overload
def decode(raw: bytes | msgspec.Raw, wanted: Any) -> Any: ...
def decode(raw: bytes | msgspec.Raw, wanted: Any) -> Any:
    """Read JSON; raises `msgspec.ValidationError`, which names the member, or `msgspec.DecodeError`."""
    return decoder(wanted).decode(raw)


@overload
def convert(value: object, wanted: type[T]) -> T: ...
@overload
def convert(value: object, wanted: Any) -> Any: ...
def convert(value: object, wanted: Any) -> Any:
    """Read plain values, as JSON would have been read; raises `msgspec.ValidationError`."""
    return msgspec.convert(value, wanted, dec_hook=_hook)


def encode(value: object) -> bytes:
    return msgspec.json.encode(value)


def _dump_struct(value: Struct, by_alias: bool, exclude_none: bool) -> dict[str, Any]:
    config = value.__struct_config__
    members: dict[str, Any] = {} if config.tag is None else {str(config.tag_field): config.tag}
    names = value.__struct_encode_fields__ if by_alias else value.__struct_fields__
    for field, name in zip(value.__struct_fields__, names, strict=True):
        member = getattr(value, field)
        if member is not UNSET and not (exclude_none and member is None):
            members[name] = _dump(member, by_alias, exclude_none)
    return members


def _dump(value: object, by_alias: bool, exclude_none: bool) -> Any:
    if isinstance(value, Struct):
        return _dump_struct(value, by_alias, exclude_none)
    if isinstance(value, Unknown):
        return dict(value)
    if isinstance(value, tuple | list):
        return [_dump(member, by_alias, exclude_none) for member in value]
    if isinstance(value, Mapping):
        return {name: _dump(member, by_alias, exclude_none) for name, member in value.items()}
    return value
