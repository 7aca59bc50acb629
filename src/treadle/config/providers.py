"""The providers of a configuration: those of `[model_providers]`, and the two that are built in.

Owns which there are, and what is wrong with the one in use. A table is read by `treadle.llm`; a bad one that is not
used is a warning, because a file may be older or newer than we are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from treadle.config.known_keys import IGNORED_IN_PROVIDER, SILENT_IN_PROVIDER
from treadle.config.layers import Layers
from treadle.config.model_choice import OFFLINE, OPENAI
from treadle.config.overrides import KeyPath, merge
from treadle.config.problems import ConfigError, ConfigWarning, kind_of
from treadle.llm.provider import ProviderConfig, ProviderConfigError, read_provider

_OPENAI_URL: Final = "https://api.openai.com/v1"


class Providers(Struct):
    """All usable providers by id. `errors` are about the one in use; `ignored` are keys of it that we do not read."""

    usable: dict[str, ProviderConfig] = {}
    errors: list[ConfigError] = []
    warnings: list[ConfigWarning] = []
    ignored: list[KeyPath] = []


def read_providers(layers: Layers, tables: Any, used: str, openai_base_url: str | None) -> Providers:
    found = Providers()
    if not isinstance(tables, Mapping):
        found.errors.append(
            layers.error(("model_providers",), f"found {kind_of(tables)}, allowed is a table of tables")
        )
        return found
    built_in = {"name": "OpenAI", "base_url": openai_base_url or _OPENAI_URL, "requires_openai_auth": True}
    for provider_id, table in merge({OPENAI: built_in}, tables).items():
        _read(found, layers, provider_id, table, used)
    if used != OFFLINE and used not in found.usable and not found.errors:
        ids = ", ".join(f"`{name}`" for name in sorted({*found.usable, OFFLINE}))
        problem = f"there is no provider `{used}`; add a table [model_providers.{used}], or choose one of {ids}"
        found.errors.append(layers.error(("model_provider",), problem))
    return found


def _read(found: Providers, layers: Layers, provider_id: str, table: Any, used: str) -> None:
    path = ("model_providers", provider_id)
    problems: list[tuple[KeyPath, str]] = []
    if not isinstance(table, Mapping):
        problems = [(path, f"found {kind_of(table)}, allowed is a table")]
    else:
        try:
            found.usable[provider_id] = provider = read_provider(provider_id, table)
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
