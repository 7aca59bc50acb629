"""The providers: whether those in use have a key; and, if it is asked for, whether they answer a tiny request."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

from treadle.cli.checkup.check import Check
from treadle.cli.model_problem import remedy
from treadle.cli.setup.provider_keys import ProviderKey, key_variable, provider_keys
from treadle.cli.setup.tiny_request import ask_tiny
from treadle.config import Config, ConfigError, Login
from treadle.config.stored_keys import StoredKeys
from treadle.llm import ModelError


async def check_providers(config: Config, *, online: bool) -> AsyncIterator[Check]:
    """The one in use first, then those that somebody has configured or has a key for."""
    for problem in _unreadable(config):
        yield problem
    if config.is_offline:
        yield Check(
            "none: the offline model answers, with a fixed script", "skipped", "to use a real one: treadle login"
        )
    for key in sorted(provider_keys(config, os.environ), key=lambda key: not key.used):
        if key.used or key.source is not None or key.provider in config.document.get("model_providers", {}):
            has_key = _key_check(key, config)
            yield has_key
            if online and has_key.verdict == "ok" and key.provider in config.providers:
                yield await _online(key.provider, config)


def _unreadable(config: Config) -> list[Check]:
    login = Login(config.home)
    found = [] if (warning := login.warning()) is None else [Check(warning, "failed", "treadle login openai")]
    keys = StoredKeys(config.home)
    try:
        keys.check()
    except ConfigError as error:
        found.append(Check(str(error), "failed", f"mv {keys.path} {keys.path}.old; treadle login PROVIDER"))
    return found


def _key_check(key: ProviderKey, config: Config) -> Check:
    name = f"{key.provider} (in use)" if key.used else key.provider
    if key.provider not in config.providers:
        mend = f"treadle config set model_providers.{key.provider}.base_url URL, or: treadle logout {key.provider}"
        return Check(f"{name}: there is a key, but nobody says where its server is", "warning", mend)
    if key.source is not None:
        return Check(f"{name}: key in {key.where}")
    if not key.needs_key:
        return Check(f"{name}: needs no key")
    variable = key_variable(key.provider, config)
    mend = f"treadle login {key.provider}" + (f", or: export {variable}=…" if variable else "")
    return Check(f"{name}: there is no key", "failed" if key.used else "warning", mend)


async def _online(name: str, config: Config) -> Check:
    provider = config.providers[name]
    try:
        answer = await ask_tiny(provider, config)
    except ModelError as error:
        return Check(f"{name} does not answer: {error.message}", "failed", remedy(error, provider))
    return Check(f"{name}: {answer.what}", seconds=answer.seconds)
