"""What all structs of the app-server protocol share: their bases, words and unions that may grow, and decoding.

Two rules run through the package. What a server acts upon (params of requests, answers of a client) is *closed*: a
value outside the vocabulary is refused, and a word is read as a plain string. What a client receives (results,
notifications, requests of the server) is *open*: a word or a variant of a newer server stays as it came, and a `Word`
is read as its member. `Closed` and `Open` mark words, `OrUnknown` a union of structs.

Reading is msgspec's own as long as all variants are known; else it is done again by `tolerant`.

Knows nothing of methods (see `methods`), of connections, or of what the structs mean.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import cache
from itertools import chain
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
    cast,
    get_args,
    get_origin,
    overload,
)

import msgspec
from msgspec import UNSET, Meta, Struct, StructMeta

T = TypeVar("T")

JsonObject = Mapping[str, Any]
Unsigned = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Unsigned16 = Annotated[int, Meta(ge=0, le=2**16 - 1)]
Unsigned32 = Annotated[int, Meta(ge=0, le=2**32 - 1)]
Tokens = Annotated[int, Meta(ge=1, le=2**53)]
Dollars = Annotated[float, Meta(gt=0)]


class Word(StrEnum):
    """Base of the words of the protocol. An unknown word is read as a member that its class does not list."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        member = str.__new__(cls, value)
        member._name_ = member._value_ = value
        return member

    def __reduce_ex__(self, protocol: object) -> tuple[type[Self], tuple[str]]:
        """Pickle by value. Python 3.11.0 to 3.11.3 take the name, which an unknown word has not got."""
        return type(self), (self.value,)

    @property
    def root(self) -> Self:
        """The word itself, as structs of unions have it: some unions are of words and structs."""
        return self

    @classmethod
    def model_validate(cls, obj: object) -> Self:
        """A word from a string, also an unknown one. Some words are classes with a `root` in the official SDK."""
        return cls(cast(str, obj))


class _Fields:
    """Descriptor: the members of a struct by their names in Python."""

    def __get__(self, instance: object, owner: type[Struct]) -> dict[str, msgspec.structs.FieldInfo]:
        return {field.name: field for field in msgspec.structs.fields(owner)}


class Wire(Struct, rename="camel", kw_only=True, frozen=True):
    """Base of everything on the wire: unknown members are ignored, members without a value are sent as null.

    A member that is left out rather than null has the default `UNSET`. Members named in `_hidden` may carry a secret:
    they are sent, and never printed.
    """

    _hidden: ClassVar[tuple[str, ...]] = ()
    model_fields: ClassVar[_Fields] = _Fields()

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        names = self.__struct_fields__
        return [(name, "…" if name in self._hidden else getattr(self, name)) for name in names]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    @classmethod
    def model_validate(cls, obj: object) -> Self:
        """An instance from plain values with the names of the wire, or from an instance."""
        return obj if isinstance(obj, cls) else convert(obj, cls)

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self:
        """A copy with other values for some members, by their names in Python; they are not checked."""
        return msgspec.structs.replace(self, **(update or {}))

    def model_dump(self, *, by_alias: bool = False, mode: str = "python", exclude_none: bool = False) -> dict[str, Any]:
        """Plain values; `by_alias` gives the names of the wire. Both modes give the values that JSON has."""
        if mode not in ("python", "json"):
            raise ValueError(f"mode `{mode}` is not known; use `python` or `json`")
        return _dump_struct(self, by_alias, exclude_none)

    def model_dump_json(self, *, by_alias: bool = False, exclude_none: bool = False) -> str:
        return msgspec.json.encode(self.model_dump(by_alias=by_alias, exclude_none=exclude_none)).decode()


class Params(Wire, frozen=True, kw_only=True, omit_defaults=True):
    """Base of what a client sends: what it leaves at its default is not sent."""


class NoParams(Params, frozen=True, kw_only=True):
    """The params of methods that take none."""


class Empty(Wire, frozen=True, kw_only=True):
    """The result `{}`."""


class UnionMember(Wire, frozen=True, kw_only=True):
    """Base of the structs of a union. `root` is there for code written for the official SDK, which wraps them."""

    @property
    def root(self) -> Self:
        return self


class _Tagged(StructMeta):
    """The class of structs with a tag: they are made with or without it, as the models of the official SDK are."""

    if not TYPE_CHECKING:  # checkers know the members from the fields

        def __call__(cls, *args, **members):
            if "type" in members:
                given, tag = members.pop("type"), cls.__struct_config__.tag
                if given != tag:
                    raise ValueError(f"`type` of {cls.__name__} is always {tag!r}, not {given!r}: leave it out")
            return super().__call__(*args, **members)


class Variant(UnionMember, metaclass=_Tagged, frozen=True, kw_only=True, tag_field="type"):
    """A struct of a union that is told apart by `type`."""

    if TYPE_CHECKING:
        type: str = ""
    else:

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
        """The object as it came, whatever the arguments: what its members mean is not known."""
        return dict(self)

    def model_dump_json(self, *, by_alias: bool = False, exclude_none: bool = False) -> str:
        return msgspec.json.encode(self).decode()


class _Union(type):
    """The class of the runtime stand-ins for unions that may grow, or that msgspec cannot express.

    `isinstance` sees through them, and they can be called like the root models of the official SDK. One that is
    `native` has a `__supertype__`, through which msgspec sees a union of structs: it reads those that it knows.
    """

    tags: Mapping[str, type[Struct]]
    keys: Mapping[str, type[Struct]]
    words: frozenset[str]
    word: type[Word] | None
    unknown: type[Unknown] | None
    native: bool

    def __call__(cls, root: Any) -> Any:
        return root

    def __instancecheck__(cls, instance: object) -> bool:
        if isinstance(instance, str):
            return cls._admits(instance)
        structs = (*cls.tags.values(), *cls.keys.values())
        return isinstance(instance, structs if cls.unknown is None else (*structs, cls.unknown))

    def _admits(cls, word: str) -> bool:
        return word in cls.words or (bool(cls.words) and cls.unknown is not None)

    def model_validate(cls, obj: object) -> Any:
        """From plain values with the names of the wire, or from an instance."""
        return obj if isinstance(obj, cls) and not isinstance(obj, str) else convert(obj, cls)

    def read(cls, value: object) -> object:
        if isinstance(value, str) and cls._admits(value):
            return value if cls.word is None else cls.word(value)
        if not isinstance(value, dict):
            raise msgspec.ValidationError(f"Expected `{cls.__name__}`, got another {type(value).__name__}")
        found = cls.tags.get(tag) if isinstance(tag := value.get("type"), str) else None
        if found is None:
            found = next((struct for key, struct in cls.keys.items() if key in value), None)
        if found is not None:
            return convert(value, found)
        if cls.unknown is None:
            raise msgspec.ValidationError(f"Expected `{cls.__name__}`, got an object that is none of its variants")
        return cls.unknown(value)


def union(name: str, members: Iterable[Any], unknown: type[Unknown] | None = Unknown) -> Any:
    """A type that decodes to one of `members`, else to `unknown`; without `unknown` the union is closed.

    Structs without a tag are told apart by their first member. An open union with words admits every string.
    """
    members = tuple(members)
    structs = [member for member in members if isinstance(member, type) and issubclass(member, Struct)]
    tagged = [struct for struct in structs if struct.__struct_config__.tag is not None]
    word = next((member for member in members if isinstance(member, type) and issubclass(member, Word)), None)
    literals = (get_args(member) for member in members if get_origin(member) is Literal)
    # Of a single struct msgspec does not demand the tag.
    native = unknown is not None and len(members) == len(tagged) > 1
    return _Union(
        name,
        (),
        {
            "tags": {str(struct.__struct_config__.tag): struct for struct in tagged},
            "keys": {struct.__struct_encode_fields__[0]: struct for struct in structs if struct not in tagged},
            "words": frozenset(word or chain.from_iterable(literals)),
            "word": word,
            "unknown": unknown,
            "native": native,
            **({"__supertype__": Union[tuple(tagged)]} if native else {}),  # noqa: UP007 - of a tuple
        },
    )


if TYPE_CHECKING:
    Open = Union[T, str]  # noqa: UP007 - mypy takes no bare type variable on the left of `|`
    Closed = Union[T, str]  # noqa: UP007
    OrUnknown = Union[T, Unknown]  # noqa: UP007
else:

    class Open(Generic[T]):
        """`Open[SomeWord]` or `Open[Literal[…]]`: one of these words, or one that we don't know yet."""

        def __class_getitem__(cls, words):
            if isinstance(words, type):
                return words
            return Annotated[str, Meta(extra={"words": get_args(words)})]

    class Closed(Generic[T]):
        """`Closed[SomeWord]`, or `Closed[Literal[SomeWord.a, …]]` for some of its members: the plain strings."""

        def __class_getitem__(cls, words):
            return Literal[tuple(word.value for word in get_args(words) or words)]

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


_natives: dict[Any, msgspec.json.Decoder[Any]] = {}  # by types that the program names: a peer cannot add to it
_making = threading.RLock()


def native_decoder(wanted: Any) -> msgspec.json.Decoder[Any]:
    """The one decoder of a type, which refuses variants that we don't know; `decode` does not."""
    # msgspec looks into the structs of a type when it first meets them, and crashes when two threads do so at once.
    with _making:
        native = _natives.get(wanted)
        if native is None:
            native = _natives[wanted] = msgspec.json.Decoder(wanted, dec_hook=_hook)
        return native


@overload
def decode(raw: bytes | msgspec.Raw, wanted: type[T]) -> T: ...
@overload
def decode(raw: bytes | msgspec.Raw, wanted: Any) -> Any: ...
def decode(raw: bytes | msgspec.Raw, wanted: Any) -> Any:
    """Read JSON; raises `msgspec.ValidationError`, which names the member, or `msgspec.DecodeError`."""
    native = _natives.get(wanted) or native_decoder(wanted)
    try:
        return native.decode(raw)
    except msgspec.ValidationError:
        from treadle.protocol.app import tolerant  # which needs this module

        if not tolerant.is_open(wanted):
            raise
        return tolerant.read(msgspec.json.decode(raw), wanted)


@overload
def convert(value: object, wanted: type[T]) -> T: ...
@overload
def convert(value: object, wanted: Any) -> Any: ...
def convert(value: object, wanted: Any) -> Any:
    """Read plain values, as JSON would have been read; raises `msgspec.ValidationError`."""
    try:
        return convert_strictly(value, wanted)
    except msgspec.ValidationError:
        from treadle.protocol.app import tolerant  # likewise

        if not tolerant.is_open(wanted):
            raise
        return tolerant.read(value, wanted)


def convert_strictly(value: object, wanted: Any) -> Any:
    """Read plain values as `convert` does, except that an open union whose structs have tags refuses unknown ones."""
    if wanted not in _natives:
        native_decoder(wanted)
    return msgspec.convert(value, wanted, dec_hook=_hook)


encode: Callable[[object], bytes] = msgspec.json.encode


def _dump_struct(value: Struct, by_alias: bool, exclude_none: bool) -> dict[str, Any]:
    config = value.__struct_config__
    members: dict[str, Any] = {} if config.tag is None else {str(config.tag_field): config.tag}
    names = value.__struct_encode_fields__ if by_alias else value.__struct_fields__
    for field, name in zip(value.__struct_fields__, names, strict=True):
        member = getattr(value, field)
        if member is UNSET or (exclude_none and member is None):
            continue
        if exclude_none and isinstance(value, Params):
            # A param at its default is as if it were not given: it is not sent either.
            at = value.__struct_fields__.index(field) - len(value.__struct_fields__) + len(value.__struct_defaults__)
            if at >= 0 and value.__struct_defaults__[at] == member:
                continue
        members[name] = _dump(member, by_alias, exclude_none)
    return members


def _dump(value: object, by_alias: bool, exclude_none: bool) -> Any:
    if isinstance(value, Word):
        return value.value
    if isinstance(value, Struct):
        return _dump_struct(value, by_alias, exclude_none)
    if isinstance(value, Unknown):
        return dict(value)
    if isinstance(value, tuple | list):
        return [_dump(member, by_alias, exclude_none) for member in value]
    if isinstance(value, Mapping):
        return {name: _dump(member, by_alias, exclude_none) for name, member in value.items()}
    return value
