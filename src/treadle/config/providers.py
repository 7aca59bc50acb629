"""The providers of a configuration: those of `[model_providers]`, and the two that are built in.

Owns which there are and which one is in use. A table is read by `treadle.llm`; a bad one that is not used is a
warning, because a file may be older or newer than we are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from treadle.config.known_keys import UNUSED_IN_PROVIDER
from treadle.config.layers import Layers
from treadle.config.overrides import merge
from treadle.config.problems import ConfigWarning, kind_of
from treadle.llm.provider import ProviderConfig, ProviderConfigError, read_provider

OFFLINE: Final = "offline"
OPENAI: Final = "openai"
_OPENAI_URL: Final = "https://api.openai.com/v1"


def read_providers(
    layers: Layers, tables: Any, used: str, openai_base_url: str | None
) -> tuple[dict[str, ProviderConfig], list[ConfigWarning]]:
    """All usable providers by id; raises `ConfigError` when the one in use is not among them."""
    if not isinstance(tables, Mapping):
        raise layers.error(("model_providers",), f"found {kind_of(tables)}, allowed is a table of tables")
    built_in = {"name": "OpenAI", "base_url": openai_base_url or _OPENAI_URL, "requires_openai_auth": True}
    providers: dict[str, ProviderConfig] = {}
    warnings: list[ConfigWarning] = []
    for provider_id, table in merge({OPENAI: built_in}, tables).items():
        problem = None if isinstance(table, Mapping) else f"found {kind_of(table)}, allowed is a table"
        if problem is None:
            try:
                providers[provider_id] = read_provider(provider_id, table)
                warnings += _unknown(layers, providers[provider_id])
                continue
            except ProviderConfigError as error:
                problem = str(error).removeprefix(f"model_providers.{provider_id}: ")
        path = ("model_providers", provider_id) if provider_id in tables else ("openai_base_url",)
        if provider_id == used:
            raise layers.error(path, problem)
        warnings.append(layers.warning(path, f"the provider `{provider_id}` cannot be used: {problem}"))
    if used != OFFLINE and used not in providers:
        ids = ", ".join(f"`{name}`" for name in sorted({*providers, OFFLINE}))
        problem = f"there is no provider `{used}`; add a table [model_providers.{used}], or choose one of {ids}"
        raise layers.error(("model_provider",), problem)
    return providers, warnings


def _unknown(layers: Layers, provider: ProviderConfig) -> list[ConfigWarning]:
    return [
        layers.warning(
            ("model_providers", provider.id, key), f"the key `{key}` of a provider is not known; it is ignored"
        )
        for key in provider.unknown_keys
        if key not in UNUSED_IN_PROVIDER
    ]
