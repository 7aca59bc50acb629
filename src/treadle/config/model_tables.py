"""`[models."NAME"]` in `config.toml`: what the user says about a model, overlaid on the catalogue.

It owns the keys of these tables and their validation. Prices are in dollars per million tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta, Struct

from treadle.config.layers import Layers
from treadle.config.overrides import KeyPath
from treadle.config.problems import ConfigError, ConfigWarning, kind_of
from treadle.llm.catalogue import KnownModel, Price

_Tokens: TypeAlias = Annotated[int, Meta(ge=1, le=2**53)]
_Dollars: TypeAlias = Annotated[float, Meta(ge=0, le=1e6)]


class ModelTable(Struct, frozen=True, kw_only=True):
    """`[models."NAME"]`, key by key; `docs/configuration.md` is made from it."""

    context_window: _Tokens | None = None
    """The size of its context window, in tokens."""
    output_limit: _Tokens | None = None
    """How long an answer may be, in tokens; it is sent with every request."""
    price_input: _Dollars | None = None
    """What a million tokens of input cost, in dollars. A price needs this one and `price_output`."""
    price_cached_input: _Dollars | None = None
    """What they cost when they come from the provider's cache."""
    price_cache_write: _Dollars | None = None
    """What it costs to write them to that cache."""
    price_output: _Dollars | None = None
    """What a million tokens of output cost, in dollars."""


_TYPES: Final[Mapping[str, Any]] = {field.name: field.type for field in msgspec.structs.fields(ModelTable)}
ALLOWED: Final[Mapping[Any, str]] = {
    _Tokens | None: "a whole number from 1",
    _Dollars | None: "a number of dollars from 0",
}


class Models(Struct):
    known: dict[str, KnownModel] = {}
    errors: list[ConfigError] = []
    warnings: list[ConfigWarning] = []


def read_models(layers: Layers, tables: Any) -> Models:
    """All that is said of models; what is wrong with it is told by its key."""
    found = Models()
    if not isinstance(tables, Mapping):
        found.errors.append(layers.error(("models",), f"found {kind_of(tables)}, allowed is a table of tables"))
        return found
    for name, table in tables.items():
        path = ("models", name)
        if isinstance(table, Mapping):
            found.known[name] = _read(found, layers, path, table)
        else:
            found.errors.append(layers.error(path, f"found {kind_of(table)}, allowed is a table"))
    return found


def _read(found: Models, layers: Layers, path: KeyPath, table: Mapping[str, Any]) -> KnownModel:
    said: dict[str, Any] = {}
    for key, value in table.items():
        place = (*path, key)
        if key not in _TYPES:
            names = ", ".join(_TYPES)
            text = f"the key `{key}` of a model is not known; it is ignored (there are {names})"
            found.warnings.append(layers.warning(place, text))
            continue
        try:
            said[key] = msgspec.convert(value, _TYPES[key])
        except msgspec.ValidationError:
            allowed = ALLOWED[_TYPES[key]]
            found.errors.append(layers.error(place, f"found {kind_of(value)}, allowed is {allowed}"))
    return KnownModel(
        context_window=said.get("context_window"),
        output_limit=said.get("output_limit"),
        price=_price(found, layers, path, said),
    )


def _price(found: Models, layers: Layers, path: KeyPath, said: Mapping[str, Any]) -> Price | None:
    """Half a price is none: the cost that it gives would be wrong and look right."""
    prices = {key.removeprefix("price_"): value for key, value in said.items() if key.startswith("price_")}
    if not prices:
        return None
    for key in ("input", "output"):
        if key not in prices:
            problem = f"it has a price, but no price_{key}; a price needs price_input and price_output"
            found.errors.append(layers.error(path, problem))
            return None
    return Price(**prices)
