"""The settings in force as they may be shown: each with where it comes from, and without secrets. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from treadle.config import Config
from treadle.config.file_settings import Settings
from treadle.config.overrides import KeyPath, join_key, lookup
from treadle.llm.provider import shown_url
from treadle.secrets import HIDDEN, is_secret

BUILT_IN: Final = "built in"
# What is shown though nobody has set it: what people ask for first.
_ALWAYS: Final = ("model", "model_provider", "approval_policy", "sandbox_mode")
# They have a name like a secret, and hold the name of a variable, or prose.
_NAMES_ONLY: Final = frozenset(["env_key", "env_key_instructions", "bearer_token_env_var"])
_NAMING_TABLE: Final = "env_http_headers"


class ShownSetting(Struct, frozen=True):
    """One setting: its key, its value without what is secret, and who has set it."""

    key: str
    value: Any
    source: str


def shown_settings(config: Config, *, everything: bool = False) -> list[ShownSetting]:
    """What holds. With `everything` also what nobody has set, as it is built in."""
    said = dict(_leaves(config.document))
    shown = [ShownSetting(key, config_value, why) for key, config_value, why in _chosen(config) if (key,) not in said]
    shown += [
        ShownSetting(join_key(path), shown_value(path, value), config.layers.origin(path) or BUILT_IN)
        for path, value in said.items()
    ]
    defaults = msgspec.to_builtins({name: getattr(config, name) for name in Settings.__struct_fields__})
    there = {one.key for one in shown}
    for path, value in _leaves(defaults):
        if join_key(path) not in there and lookup(config.document, path) is None and (everything or path[0] in _ALWAYS):
            shown.append(ShownSetting(join_key(path), value, BUILT_IN))
    return shown


def _chosen(config: Config) -> Iterator[tuple[str, Any, str]]:
    """The model and the provider follow from each other, and from the keys that there are."""
    chosen = config.chosen
    yield "model_provider", chosen.provider, f"because {chosen.because}"
    yield "model", chosen.model, f"the usual one of {chosen.provider}"


def shown_value(path: KeyPath, value: Any) -> Any:
    if is_hidden(path, value):
        return HIDDEN
    return shown_url(value) if path[-1].endswith("base_url") and isinstance(value, str) else value


def is_hidden(path: KeyPath, value: Any) -> bool:
    """Whether a value had better not be shown. Only texts are secrets: `tool_output_token_limit` is a number."""
    if isinstance(value, Mapping):
        return any(is_hidden((*path, key), member) for key, member in value.items())
    if isinstance(value, list | tuple):
        return any(is_hidden(path, member) for member in value)
    if not isinstance(value, str) or path[-1] in _NAMES_ONLY or _NAMING_TABLE in path:
        return False
    names = path[2:] if path[0] in ("model_providers", "mcp_servers") else path
    return is_secret(".".join(names), value)


def _leaves(table: Mapping[str, Any], above: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), value
