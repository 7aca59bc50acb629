"""Models and providers of a configuration: which model answers, and what the user's tables say of them.

- `choose_model`: which model answers, at which provider, and why; from what was named and which keys exist. The offline
  model is used when it is named, or when nothing is named and there is no key: never in place of another one.
- `read_providers`: `[model_providers]` over the built-in ones, which `treadle.llm` parses.
- `read_models`: `[models."NAME"]`, over the catalogue. Prices are in dollars per million tokens.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta, Struct

from treadle.config.file_settings import IGNORED_IN_PROVIDER, SILENT_IN_PROVIDER
from treadle.config.layers import FoundKey, KeyPath, Layers
from treadle.config.problems import ConfigError, ConfigWarning, kind_of
from treadle.llm.catalogue import KnownModel, Price
from treadle.llm.known_providers import (
    ANTHROPIC,
    ANTHROPIC_KEY_VARIABLE,
    KNOWN,
    OFFLINE,
    OPENAI,
    OPENAI_KEY_VARIABLE,
    default_model,
    known_provider,
    laid_over,
)
from treadle.llm.provider import PROVIDER_KEYS, ProviderConfig, ProviderConfigError, read_provider

# --- which model answers ---

NO_MODEL: Final = (
    f"it is false, and only the offline model could answer: set {OPENAI_KEY_VARIABLE} or {ANTHROPIC_KEY_VARIABLE}, run "
    "`treadle login PROVIDER`, or name a model_provider and a model"
)
_CLAUDE: Final = "claude-"
# The providers that can be asked with nothing but a key.
_USABLE: Final = tuple(name for name, known in KNOWN.items() if known.model and known.table.get("env_key"))


class ModelChoice(Struct, frozen=True):
    """A model and its provider. `model` is empty if the provider has no default; `because` is why this provider."""

    model: str
    provider: str
    because: str = ""

    def __str__(self) -> str:
        return f"{self.model} ({self.provider}, because {self.because})" if self.because else self.model


def find_key(home: Path, environ: Mapping[str, str]) -> FoundKey:
    """The provider that there is a key for. A key in the environment goes before a login: whoever sets it means this
    run."""
    for provider, variable in ((OPENAI, OPENAI_KEY_VARIABLE), (ANTHROPIC, ANTHROPIC_KEY_VARIABLE)):
        if environ.get(variable, "").strip():
            return FoundKey(provider, f"{variable} is set")
    if os.path.exists(home / "auth.json"):
        from treadle.config.login import Login  # only when there is a login file

        if Login(home).auth_mode() == "apikey":
            return FoundKey(OPENAI, "you are logged in")
    if os.path.exists(home / "keys.json"):
        from treadle.config.login import StoredKeys  # only when keys are stored

        stored = StoredKeys(home).providers()
        for provider in (name for name in _USABLE if name in stored):
            return FoundKey(provider, f"you are logged in to {provider}")
    return FoundKey()


def choose_model(
    model: str | None, provider: str | None, found: FoundKey, *, named_by: str = "it was named", gateway: bool = False
) -> ModelChoice:
    """The model that answers, from what was named (None: nobody named it) and what there is a key for.

    A model without a provider is OpenAI's, key or not: without one the request fails and says what is missing. Only a
    model of Claude's name is Anthropic's, unless the requests for OpenAI go to a gateway, which may have it.

    Args:
        model: The model.
        provider: The provider.
        found: What there is a key for.
        named_by: Who named the provider.
        gateway: Whether OpenAI's place is taken by another server.
    """
    if provider == OFFLINE:
        return ModelChoice(OFFLINE, OFFLINE, named_by)
    if provider is not None:
        return ModelChoice(model or default_model(provider) or "", provider, named_by)
    if model is None:
        return ModelChoice(default_model(found.provider) or "", found.provider, found.because)
    if model == OFFLINE:
        return ModelChoice(OFFLINE, OFFLINE, "that model was named")
    if model.startswith(_CLAUDE) and not gateway:
        return ModelChoice(model, ANTHROPIC, "the model is one of Claude's")
    return ModelChoice(model, OPENAI, "a model was named and no provider")


# --- [model_providers] ---


class Providers(Struct):
    """The usable providers by id. `errors` are about the one in use; `ignored` are its keys that we do not read.
    `unusable` says why a correctly configured provider still cannot be used.
    """

    usable: dict[str, ProviderConfig] = {}
    errors: list[ConfigError] = []
    unusable: ConfigError | None = None
    warnings: list[ConfigWarning] = []
    ignored: list[KeyPath] = []


def read_providers(layers: Layers, tables: Any, choice: ModelChoice, openai_base_url: str | None) -> Providers:
    """The providers: those of the tables over the built-in ones. A bad table that is not in use is only a warning,
    because a file may be older or newer than we are."""
    found = Providers()
    if not isinstance(tables, Mapping):
        found.errors.append(
            layers.error(("model_providers",), f"found {kind_of(tables)}, allowed is a table of tables")
        )
        return found
    found.usable = {name: provider for name in KNOWN if (provider := known_provider(name)) is not None}
    own = tables.get(OPENAI, {})
    if openai_base_url is not None and isinstance(own, Mapping):
        tables = {**tables, OPENAI: {"base_url": openai_base_url, **own}}
    for provider_id, table in tables.items():
        _read_provider(found, layers, provider_id, table, is_used=provider_id == choice.provider)
    if not found.errors:
        found.unusable = _unusable(found, layers, choice)
    return found


def _unusable(found: Providers, layers: Layers, choice: ModelChoice) -> ConfigError | None:
    used = choice.provider
    if used == OFFLINE or (used in found.usable and choice.model):
        return None
    if used in found.usable:
        problem = f"`{used}` has no model of its own; set model to the name of yours, as in -c model=NAME"
        return layers.error(("model",), problem)
    missing = KNOWN[used].missing if used in KNOWN else None
    if missing is not None:
        problem = f"`{used}` has to be told where your server is: add a table [model_providers.{used}] with {missing}"
    else:
        ids = ", ".join(f"`{name}`" for name in sorted({*found.usable, *KNOWN, OFFLINE}))
        table = f"[model_providers.{used}] with its base_url"
        problem = f"there is no provider `{used}`; add a table {table}, or choose one of {ids}"
    return layers.error(("model_provider",), problem)


def _read_provider(found: Providers, layers: Layers, provider_id: str, table: Any, *, is_used: bool) -> None:
    path = ("model_providers", provider_id)
    problems: list[tuple[KeyPath, str]] = []
    if not isinstance(table, Mapping):
        found.usable.pop(provider_id, None)
        problems = [(path, f"found {kind_of(table)}, allowed is a table")]
    else:
        try:
            found.usable.pop(provider_id, None)  # not the built-in one where another was meant
            found.usable[provider_id] = read_provider(provider_id, laid_over(provider_id, table))
        except ProviderConfigError as error:
            problems = [(path if key is None else (*path, key), problem) for key, problem in error.problems]
        for key in sorted(table.keys() - PROVIDER_KEYS):
            if key not in IGNORED_IN_PROVIDER | SILENT_IN_PROVIDER:
                found.warnings.append(layers.unknown((*path, key), PROVIDER_KEYS))
            elif key in IGNORED_IN_PROVIDER and is_used and table[key] is not False:
                found.ignored.append((*path, key))
    for place, problem in problems:
        if place[1:] == (OPENAI, "base_url") and not layers.has(place):
            place = ("openai_base_url",)
        if is_used:
            found.errors.append(layers.error(place, problem))
        else:
            text = f"the provider `{provider_id}` cannot be used: {place[-1]}: {problem}"
            found.warnings.append(layers.warning(place, text))


# --- [models."NAME"] ---

_Tokens: TypeAlias = Annotated[int, Meta(ge=1, le=2**53)]
_Dollars: TypeAlias = Annotated[float, Meta(ge=0, le=1e6)]


class ModelTable(Struct, frozen=True, kw_only=True):
    """`[models."NAME"]`, key by key; `docs/configuration.md` is made from it."""

    context_window: _Tokens | None = None
    """The size of its context window, in tokens."""
    output_limit: _Tokens | None = None
    """How long an answer may be, in tokens; it is sent with every request."""
    tool_search: bool | None = None
    """Whether it knows the search for tools of the Responses API (`tool_search`). Others get a function for that."""
    price_input: _Dollars | None = None
    """What a million tokens of input cost, in dollars. A price needs this one and `price_output`."""
    price_cached_input: _Dollars | None = None
    """What a million tokens of input cost when they come from the provider's cache."""
    price_cache_write: _Dollars | None = None
    """What it costs to write a million tokens of input to that cache."""
    price_output: _Dollars | None = None
    """What a million tokens of output cost, in dollars."""


_TYPES: Final[Mapping[str, Any]] = {field.name: field.type for field in msgspec.structs.fields(ModelTable)}
ALLOWED: Final[Mapping[Any, str]] = {
    _Tokens | None: "a whole number from 1",
    _Dollars | None: "a number of dollars from 0",
    bool | None: "true or false",
}


class UserModels(Struct):
    """What the tables say, and what is wrong with them."""

    known: dict[str, KnownModel] = {}
    errors: list[ConfigError] = []
    warnings: list[ConfigWarning] = []


def read_models(layers: Layers, tables: Any) -> UserModels:
    """All that the tables say of models."""
    found = UserModels()
    if not isinstance(tables, Mapping):
        found.errors.append(layers.error(("models",), f"found {kind_of(tables)}, allowed is a table of tables"))
        return found
    for name, table in tables.items():
        path = ("models", name)
        if isinstance(table, Mapping):
            found.known[name] = _read_model(found, layers, path, table)
        else:
            found.errors.append(layers.error(path, f"found {kind_of(table)}, allowed is a table"))
    return found


def _read_model(found: UserModels, layers: Layers, path: KeyPath, table: Mapping[str, Any]) -> KnownModel:
    values: dict[str, Any] = {}
    for key, value in table.items():
        place = (*path, key)
        if key not in _TYPES:
            found.warnings.append(layers.unknown(place, _TYPES))
            continue
        try:
            values[key] = msgspec.convert(value, _TYPES[key])
        except msgspec.ValidationError:
            allowed = ALLOWED[_TYPES[key]]
            found.errors.append(layers.error(place, f"found {kind_of(value)}, allowed is {allowed}"))
    prices = {key.removeprefix("price_"): value for key, value in values.items() if key.startswith("price_")}
    missing = next((key for key in ("input", "output") if prices and key not in prices), None)
    if missing is not None:  # half a price is none: the cost that it gives would be wrong and look right
        problem = f"it has a price, but no price_{missing}; a price needs price_input and price_output"
        found.errors.append(layers.error(path, problem))
    return KnownModel(
        context_window=values.get("context_window"),
        output_limit=values.get("output_limit"),
        price=Price(**prices) if prices and missing is None else None,
        tool_search=values.get("tool_search"),
    )
