"""Which providers there are, which of them have a key, and where it is. A key itself is never in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from treadle.config import Config, ConfigError, Login, built_in_config, load_config
from treadle.config.stored_keys import StoredKeys, find_credential
from treadle.llm.known_providers import KNOWN, OFFLINE, OPENAI, OPENAI_KEY_VARIABLE
from treadle.llm.provider import ProviderConfig


class ProviderKey(Struct, frozen=True, kw_only=True):
    """A provider as `treadle login status` shows it.

    Args:
        provider: Its name.
        source: In what its key is: an environment `variable`, a `file` of the home, or `config` itself. None: no key.
        where: The name of the variable, the file, or the key of `config.toml`.
        needs_key: Whether it has to have one.
        used: Whether it is the one that answers.
    """

    provider: str
    source: Literal["variable", "file", "config"] | None = None
    where: str | None = None
    needs_key: bool = True
    used: bool = False


def usable_settings(home: Path, overrides: Sequence[str] = ()) -> Config:
    """The settings; with a file that cannot be used, or a model that cannot, those with nothing configured: whoever
    is about to mend it must be able to."""
    try:
        return load_config(home, overrides=overrides).config
    except ConfigError:
        return built_in_config(home)


def provider_keys(config: Config, environ: Mapping[str, str]) -> list[ProviderKey]:
    """Every provider that can be asked, and every one that a key is kept for."""
    used = config.chosen.provider
    login = Login(config.home)
    listed = [_of(provider, login, environ, used) for provider in config.providers.values()]
    kept = StoredKeys(config.home)
    others = (name for name in kept.providers() if name not in config.providers)
    listed += [ProviderKey(provider=name, source="file", where=str(kept.path), used=name == used) for name in others]
    return listed


def provider_names(config: Config) -> list[str]:
    """The providers that a key can be kept for."""
    return [*KNOWN, *(name for name in config.providers if name not in KNOWN and name != OFFLINE)]


def needs_key(provider: ProviderConfig) -> bool:
    return provider.env_key is not None or provider.requires_openai_auth


def key_variable(name: str, config: Config) -> str | None:
    """The environment variable that has the key of a provider, when it is set."""
    provider = config.providers.get(name)
    if provider is None:
        return KNOWN[name].table.get("env_key") if name in KNOWN else None
    return provider.env_key or (OPENAI_KEY_VARIABLE if name == OPENAI and provider.requires_openai_auth else None)


def _of(provider: ProviderConfig, login: Login, environ: Mapping[str, str], used: str) -> ProviderKey:
    found = find_credential(provider, login, environ)
    return ProviderKey(
        provider=provider.id,
        source=None if found is None else found.kind,
        where=None if found is None else found.where,
        needs_key=needs_key(provider),
        used=provider.id == used,
    )
