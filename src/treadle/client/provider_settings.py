"""The model provider that is passed to `Codex` or to a host, as settings of a server that is started here.

A key only goes into the environment of the server: everybody can read a command line, and settings are shown.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from treadle.arguments import one_of, text
from treadle.client.codex_config import CodexConfig
from treadle.errors import ArgumentValueError
from treadle.llm.known_providers import KNOWN, OPENAI, laid_over
from treadle.llm.wire_api import is_wire_api, wire_api_names

KEY_VARIABLE: Final = "TREADLE_HOST_API_KEY"
_TABLE_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")


def with_provider(config: CodexConfig | None, **given: str | None) -> CodexConfig | None:
    """The config with what is not None of `provider`, `base_url`, `api_key`, `wire_api` and `model`. Raises
    `ArgumentError` for what cannot be used, and for a server that is not started here."""
    named = {name: text(name, value) for name, value in given.items() if value is not None}
    if not named:
        return config
    config = config or CodexConfig()
    for name, value in named.items():
        if not value:
            raise ArgumentValueError(name, f"{name} is empty: leave it out, or pass a text")
        if config.url is not None or config.launch_args_override is not None:
            where = "launch_args_override" if config.url is None else "url"
            problem = f"{name} cannot be given to a server that is named by CodexConfig.{where}"
            raise ArgumentValueError(name, f"{problem}: set it in its config.toml")
    if not _TABLE_NAME.fullmatch(named.get("provider", OPENAI)):
        problem = f"provider is a name of letters, digits, - and _, not {named['provider']!r}; an address is base_url"
        raise ArgumentValueError("provider", problem)
    if "wire_api" in named and not is_wire_api(named["wire_api"]):
        one_of("wire_api", named["wire_api"], wire_api_names())
    is_ours = config.codex_bin is None or os.path.basename(config.codex_bin) == "treadle"
    settings = _settings(named, is_ours=is_ours)
    variables = {KEY_VARIABLE: named["api_key"]} if "api_key" in named else {}
    return replace(
        config,
        config_overrides=(*config.config_overrides, *settings),
        env={**(config.env or {}), **variables} or None,
    )


def _settings(named: Mapping[str, str], *, is_ours: bool) -> tuple[str, ...]:
    model = [f"model={_toml(named['model'])}"] if "model" in named else []
    table: dict[str, Any] = {key: named[key] for key in ("base_url", "wire_api") if key in named}
    if "api_key" in named:
        table["env_key"] = KEY_VARIABLE
    if "provider" not in named and not table:
        return tuple(model)
    provider = named.get("provider", OPENAI)
    hidden: tuple[str, ...] = ()
    if not is_ours and table:
        # The real codex does not let its own providers be changed, and does not know all that we know. By the name
        # `OpenAI` it would take any server for one that can do what OpenAI's can.
        called = {"name": provider} if "base_url" in table else {}
        hidden = (f'shell_environment_policy.set.{KEY_VARIABLE}=""',) if "api_key" in named else ()
        if laid_over(provider, table).get("wire_api") == "chat":  # which it has given up; these servers speak both
            table.setdefault("wire_api", "responses")
        table = {"name": provider, **laid_over(provider, table), **called}
        provider = f"treadle_{provider}"
    elif provider not in KNOWN and table:
        table = {"name": provider, **table}
    return (
        *model,
        f"model_provider={_toml(provider)}",
        *(f"model_providers.{provider}.{key}={_toml(value)}" for key, value in table.items()),
        *hidden,  # from commands; ours hides it by itself
    )


def _toml(value: Any) -> str:
    """A JSON string or boolean is a TOML one."""
    return json.dumps(value)
