"""`Config`: the settings in force, and how they come about.

Owns the loading and the laying of a thread's own settings over them. Precedence: built in < file (its profile over the
rest of it) < environment < `-c` < thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from treadle.config.document import Document, config_path, read_document
from treadle.config.layers import Layers, from_environment
from treadle.config.overrides import KeyPath, Table, expand, join_key, parse_overrides
from treadle.config.problems import ConfigError, ConfigWarning
from treadle.config.providers import OFFLINE, read_providers
from treadle.config.values import InvalidValue, Settings, read_values
from treadle.llm.provider import ProviderConfig
from treadle.protocol.app.settings import (
    DangerFullAccessSandboxPolicy,
    ReadOnlySandboxPolicy,
    SandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)

if TYPE_CHECKING:
    from treadle.protocol.exec import EnvPolicy

DEFAULT_MODEL: Final = "gpt-6.1-sol"
"""For a provider without a `model` beside it."""

_MAX_INSTRUCTIONS: Final = 1024 * 1024


class Config(Settings, frozen=True, kw_only=True):
    """The settings in force. `providers` has every usable one by its id; `layers` says who said what."""

    home: Path
    layers: Layers
    document: Mapping[str, Any]
    """All that was said, also the keys that have no effect here, as one plain table."""
    providers: Mapping[str, ProviderConfig]

    def __repr__(self) -> str:
        return f"Config({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        names = ("model", "model_provider", "approval_policy", "sandbox_mode", "profile")
        return [("home", str(self.home)), *((name, getattr(self, name)) for name in names)]

    @property
    def is_offline(self) -> bool:
        return self.model_provider == OFFLINE

    @property
    def provider(self) -> ProviderConfig | None:
        """The provider in use; None when it is the offline model, which needs none."""
        return self.providers.get(self.model_provider)

    def with_thread_overrides(self, overrides: Mapping[str, Any]) -> Config:
        """With the `config` object of a thread laid over it; raises `ConfigError`."""
        return _resolve(self.home, self.layers.with_thread(expand(overrides))).config

    def sandbox_policy(self) -> SandboxPolicy:
        """`sandbox_mode` as the protocol says it."""
        if self.sandbox_mode == "danger-full-access":
            return DangerFullAccessSandboxPolicy()
        if self.sandbox_mode == "read-only":
            return ReadOnlySandboxPolicy()
        table = self.sandbox_workspace_write
        return WorkspaceWriteSandboxPolicy(
            writable_roots=tuple(str(self._absolute(root)) for root in table.writable_roots),
            network_access=table.network_access,
            exclude_slash_tmp=table.exclude_slash_tmp,
            exclude_tmpdir_env_var=table.exclude_tmpdir_env_var,
        )

    def env_policy(self) -> EnvPolicy:
        """`[shell_environment_policy]` as the execution layer takes it.

        The keys of providers are never inherited, whatever they are called. One that `set` names is meant for commands.
        """
        from treadle.config.secret_variables import secret_variables
        from treadle.protocol.exec import EnvPolicy

        given = self.shell_environment_policy
        return EnvPolicy(
            inherit=given.inherit,
            ignore_default_excludes=given.ignore_default_excludes,
            exclude=(*given.exclude, *secret_variables(self.document)),
            set=given.set,
            include_only=given.include_only,
        )

    def base_instructions(self) -> str | None:
        """What replaces our own base instructions, if anything does: a file before a text."""
        if self.model_instructions_file is None:
            return self.instructions
        path = self._absolute(self.model_instructions_file)
        try:
            if not path.is_file():
                raise OSError(0, "there is no such file")
            with open(path, encoding="utf-8") as file:
                return file.read(_MAX_INSTRUCTIONS)
        except (OSError, ValueError) as error:
            problem = f"`{path}` cannot be read ({getattr(error, 'strerror', None) or 'it is not UTF-8'})"
            raise self.layers.error(("model_instructions_file",), f"{problem}; correct the path") from None

    def _absolute(self, path: str) -> Path:
        """Relative paths are relative to the file that says them."""
        return self.home / os.path.expanduser(path)


class Loaded(Struct, frozen=True):
    config: Config
    warnings: tuple[ConfigWarning, ...] = ()


def load_config(
    home: Path, *, overrides: Iterable[str] = (), environ: Mapping[str, str] | None = None, use_file: bool = True
) -> Loaded:
    """The configuration of a home; `overrides` are the `key=value` of `-c`.

    Raises `ConfigError`. A server that would rather start without a broken file than not at all reports the error and
    asks again with `use_file=False`.
    """
    empty = Document(path=str(config_path(home)), text="", values={})
    document = read_document(home) if use_file else empty
    layers = Layers(
        path=document.path,
        text=document.text,
        file=document.values,
        environment=from_environment(os.environ if environ is None else environ),
        flags=parse_overrides(overrides),
    )
    return _resolve(home, layers)


def check_document(values: Mapping[str, Any]) -> ConfigError | None:
    """What is wrong with the values of a file, if it were all there is."""
    try:
        _resolve(Path("/"), Layers(path="", file=values))
    except ConfigError as error:
        return error
    return None


def _resolve(home: Path, layers: Layers) -> Loaded:
    document = layers.effective()
    try:
        reading = read_values(document)
    except InvalidValue as error:
        raise layers.error(error.path, error.problem) from None
    warnings = [layers.warning(path, _unknown_text(path)) for path in reading.unknown]
    for path, word, replacement in reading.retired:
        text = f"`{word}` is no longer known; `{replacement}` is used, write that instead"
        warnings.append(layers.warning(path, f"{join_key(path)}: {text}"))
    _complete(reading.values, layers, warnings)
    providers, more = read_providers(
        layers,
        document.get("model_providers", {}),
        reading.values.get("model_provider", OFFLINE),
        reading.values.get("openai_base_url"),
    )
    config = Config(home=home, layers=layers, document=document, providers=providers, **reading.values)
    return Loaded(config, (*warnings, *more))


def _complete(values: Table, layers: Layers, warnings: list[ConfigWarning]) -> None:
    """The defaults that depend on other settings."""
    if "model_provider" in values:
        if values["model_provider"] != OFFLINE:
            values.setdefault("model", DEFAULT_MODEL)
    elif values.get("model", OFFLINE) != OFFLINE:
        text = 'model is set, model_provider is not: the offline model answers; set model_provider = "openai"'
        warnings.append(layers.warning(("model",), f"{text}, or the provider that has the model"))


def _unknown_text(path: KeyPath) -> str:
    from difflib import get_close_matches

    near = get_close_matches(path[-1], Settings.__struct_fields__, 1, 0.8) if len(path) == 1 else []
    hint = f"; did you mean `{near[0]}`?" if near else ""
    return f"the key `{join_key(path)}` is not known; it is ignored{hint}"
