"""Which app-server a runtime starts, and how it gets the provider, the key and the address. Pure.

The key only goes into the environment of the server: everybody can read a command line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from treadle.arguments import text
from treadle.client.codex_config import CodexConfig
from treadle.errors import ArgumentValueError
from treadle.llm.known_providers import KNOWN, OPENAI, OPENAI_KEY_VARIABLE, laid_over

KEY_VARIABLE: Final = "TREADLE_HOST_API_KEY"


def server_config(
    config: CodexConfig | None, *, provider: str | None, api_key: str | None, base_url: str | None
) -> CodexConfig:
    """The caller's own server, or Treadle's as a child; with the provider that was named."""
    given = {"provider": provider, "api_key": api_key, "base_url": base_url}
    named = {name: text(name, value) for name, value in given.items() if value is not None}
    if config is not None and named:
        _check_reachable(config, next(iter(named)))
    is_ours = config is None or config.codex_bin is None
    settings = _settings(named, is_ours=is_ours) if named else ()
    variables = {KEY_VARIABLE: named["api_key"]} if "api_key" in named else {}
    if config is None:
        words = [word for setting in settings for word in ("--config", setting)]
        command = (sys.executable, "-m", "treadle", *words, "app-server", "--listen", "stdio://")
        return CodexConfig(launch_args_override=command, env={"NO_COLOR": "1", **variables})
    overrides = (*config.config_overrides, *settings)
    return replace(config, config_overrides=overrides, env={**(config.env or {}), **variables} or None)


def login_advice(config: CodexConfig | None, *, provider: str | None, has_key: bool) -> str:
    """What to do when a server says that nobody is logged in.

    Args:
        config: The caller's own server, if it is one.
        provider: The provider that was named, if one was.
        has_key: Whether the runtime was given a key for it.
    """
    if has_key:
        return "Pass another api_key: this one is not accepted."
    if config is not None and config.codex_bin is not None:
        return "Log in again with `codex login`, or give an API key that is valid; then try again."
    if config is not None and (config.url is not None or config.launch_args_override is not None):
        return "Log in again where the server runs (`codex login`, or the key of its provider); then try again."
    known = KNOWN.get(provider or OPENAI)
    variable = OPENAI_KEY_VARIABLE if known is None else known.table.get("env_key", OPENAI_KEY_VARIABLE)
    return f"Set {variable} (or what config.toml names) to a key that is accepted, or pass api_key=…; then try again."


def _check_reachable(config: CodexConfig, name: str) -> None:
    if config.url is not None or config.launch_args_override is not None:
        where = "url" if config.url is not None else "launch_args_override"
        problem = f"{name} cannot be given to a server that is named by CodexConfig.{where}: set it in its config.toml"
        raise ArgumentValueError(name, problem)


def _settings(named: Mapping[str, str], *, is_ours: bool) -> tuple[str, ...]:
    provider = named.get("provider", OPENAI)
    table = {"base_url": named["base_url"]} if "base_url" in named else {}
    if "api_key" in named:
        table["env_key"] = KEY_VARIABLE
    hidden: tuple[str, ...] = ()
    if not is_ours and table:
        # The real codex does not let its own providers be changed, and does not know all that we know. By the name
        # `OpenAI` it would take any server for one that can do what OpenAI's can.
        called = {"name": provider} if "base_url" in table else {}
        hidden = (f'shell_environment_policy.set.{KEY_VARIABLE}=""',) if "api_key" in named else ()
        table = {"name": provider, **laid_over(provider, table), **called}
        provider = f"treadle_{provider}"
    elif provider not in KNOWN and table:
        table = {"name": provider, **table}
    return (
        f"model_provider={_toml(provider)}",
        *(f"model_providers.{provider}.{key}={_toml(value)}" for key, value in table.items()),
        *hidden,  # from commands; ours hides it by itself
    )


def _toml(value: Any) -> str:
    """A JSON string or boolean is a TOML one."""
    return json.dumps(value)
