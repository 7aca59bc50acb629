"""The providers of a configuration: those in `[model_providers]`, overlaid on the built-in ones.

It owns which there are, and what is wrong with the one in use. `treadle.llm` parses the tables. A bad table that is not
in use is only a warning, because a file may be older or newer than we are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from treadle.config.known_keys import IGNORED_IN_PROVIDER, SILENT_IN_PROVIDER
from treadle.config.layers import Layers
from treadle.config.model_choice import ModelChoice
from treadle.config.overrides import KeyPath
from treadle.config.problems import ConfigError, ConfigWarning, kind_of
from treadle.llm.known_providers import KNOWN, OFFLINE, OPENAI, known_provider, laid_over
from treadle.llm.provider import ProviderConfig, ProviderConfigError, read_provider


class Providers(Struct):
    """All usable providers by id. `errors` are about the one in use; `ignored` are its keys that we do not read.
    `unusable` says why a correctly configured provider still cannot be used.
    """

    usable: dict[str, ProviderConfig] = {}
    errors: list[ConfigError] = []
    unusable: ConfigError | None = None
    warnings: list[ConfigWarning] = []
    ignored: list[KeyPath] = []


def read_providers(layers: Layers, tables: Any, choice: ModelChoice, openai_base_url: str | None) -> Providers:
    found = Providers()
    if not isinstance(tables, Mapping):
        found.errors.append(
            layers.error(("model_providers",), f"found {kind_of(tables)}, allowed is a table of tables")
        )
        return found
    found.usable = {name: provider for name in KNOWN if (provider := known_provider(name)) is not None}
    tables = _with_openai_url(tables, openai_base_url)
    for provider_id, table in tables.items():
        _read(found, layers, provider_id, table, choice.provider)
    if not found.errors:
        found.unusable = _unusable(found, layers, choice)
    return found


def _with_openai_url(tables: Mapping[str, Any], url: str | None) -> Mapping[str, Any]:
    own = tables.get(OPENAI, {})
    return tables if url is None or not isinstance(own, Mapping) else {**tables, OPENAI: {"base_url": url, **own}}


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
        problem = f"there is no provider `{used}`; add a table [model_providers.{used}], or choose one of {ids}"
    return layers.error(("model_provider",), problem)


def _read(found: Providers, layers: Layers, provider_id: str, table: Any, used: str) -> None:
    path = ("model_providers", provider_id)
    problems: list[tuple[KeyPath, str]] = []
    if not isinstance(table, Mapping):
        found.usable.pop(provider_id, None)
        problems = [(path, f"found {kind_of(table)}, allowed is a table")]
    else:
        try:
            found.usable.pop(provider_id, None)  # not the built-in one where another was meant
            found.usable[provider_id] = provider = read_provider(provider_id, laid_over(provider_id, table))
            _sort_keys(found, layers, provider, is_used=provider_id == used)
        except ProviderConfigError as error:
            problems = [(path if key is None else (*path, key), problem) for key, problem in error.problems]
    for place, problem in problems:
        if place[1:] == (OPENAI, "base_url") and not layers.has(place):
            place = ("openai_base_url",)
        if provider_id == used:
            found.errors.append(layers.error(place, problem))
        else:
            text = f"the provider `{provider_id}` cannot be used: {place[-1]}: {problem}"
            found.warnings.append(layers.warning(place, text))


def _sort_keys(found: Providers, layers: Layers, provider: ProviderConfig, *, is_used: bool) -> None:
    for key in provider.unknown_keys:
        path = ("model_providers", provider.id, key)
        if key not in IGNORED_IN_PROVIDER | SILENT_IN_PROVIDER:
            text = f"the key `{key}` of a provider is not known; it is ignored"
            found.warnings.append(layers.warning(path, text))
        elif key in IGNORED_IN_PROVIDER and is_used:
            found.ignored.append(path)
