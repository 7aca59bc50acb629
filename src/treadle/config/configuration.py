"""`Config`: the settings in force, and how they are derived.

It owns loading, and overlaying a thread's own settings. Precedence: built in < file (its profile over the rest of it) <
environment < `-c` < thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, structs

from treadle.config.document import Document, config_path, read_document
from treadle.config.file_settings import Settings
from treadle.config.known_keys import IGNORED, SILENT
from treadle.config.layers import Layers, from_environment
from treadle.config.model_choice import ModelChoice, choose_model, find_key
from treadle.config.model_tables import read_models
from treadle.config.overrides import KeyPath, expand, join_key, lookup, parse_overrides
from treadle.config.permission_profiles import READ_ONLY, Permissions, ProfileError, profile_permissions
from treadle.config.problems import ConfigError, ConfigWarning, ModelUnusable, kind_of
from treadle.config.providers import Providers, read_providers
from treadle.config.values import ParsedValues, read_values
from treadle.llm.catalogue import KnownModel
from treadle.llm.known_providers import OFFLINE, key_variables
from treadle.llm.provider import ProviderConfig
from treadle.protocol.app.base import Closed
from treadle.protocol.app.settings import (
    DangerFullAccessSandboxPolicy,
    ReadOnlySandboxPolicy,
    SandboxMode,
    SandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)

if TYPE_CHECKING:
    from treadle.protocol.exec import EnvPolicy

# For `treadle exec` alone, as with Codex: the key of one run.
RUN_KEY_VARIABLE: Final = "CODEX_API_KEY"

_MAX_INSTRUCTIONS: Final = 1024 * 1024


class Config(Settings, frozen=True, kw_only=True):
    """The settings in force. `providers` has every usable provider by id; `layers` knows where each
    setting came from.
    """

    home: Path
    layers: Layers
    document: Mapping[str, Any]
    """All that was said, also the keys that have no effect here, as one plain table."""
    providers: Mapping[str, ProviderConfig]
    models: Mapping[str, KnownModel]
    """What the user has said of models, by their names."""

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

    def model_choice(self, model: str | None, provider: str | None) -> ModelChoice:
        """For a thread that names a model or a provider of its own."""
        named = self.document
        if provider is None and model is None:
            return self.chosen
        return _choose(self.layers, named, model or named.get("model"), provider or named.get("model_provider"))

    @property
    def chosen(self) -> ModelChoice:
        """The model and the provider in force, and why."""
        return _choose(self.layers, self.document, self.document.get("model"), self.document.get("model_provider"))

    def permissions(self) -> Permissions:
        """What commands may do when a thread does not say it. `default_permissions` and `sandbox_mode` say the same
        thing in two ways: the nearer source wins, and in one source the profile."""
        if self.default_permissions is not None and self.layers.prefers("default_permissions", "sandbox_mode"):
            return self.profile_permissions(self.default_permissions)
        if self.layers.has(("sandbox_mode",)):
            return Permissions(self.sandbox_policy(self.sandbox_mode))
        return self.profile_permissions(READ_ONLY)

    def profile_permissions(self, name: str) -> Permissions:
        """What a permission profile allows. Raises `ProfileError`."""
        return profile_permissions(name, self.permission_tables)

    @property
    def permission_tables(self) -> Mapping[str, Any]:
        """`[permissions]`: the profiles of the user, as they are written."""
        tables: Mapping[str, Any] = self.document.get("permissions", {})
        return tables

    def sandbox_policy(self, mode: Closed[SandboxMode]) -> SandboxPolicy:
        """A sandbox mode as the protocol says it."""
        if mode == "danger-full-access":
            return DangerFullAccessSandboxPolicy()
        if mode == "read-only":
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
        # Loaded with the first command.
        from treadle.config.secret_variables import secret_variables
        from treadle.protocol.exec import EnvPolicy

        given = self.shell_environment_policy
        return EnvPolicy(
            inherit=given.inherit,
            ignore_default_excludes=given.ignore_default_excludes,
            exclude=(*given.exclude, *key_variables(), RUN_KEY_VARIABLE, *secret_variables(self.document)),
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


def load_config(home: Path, *, overrides: Iterable[str] = (), environ: Mapping[str, str] | None = None) -> Loaded:
    """The configuration of a home; `overrides` are the `key=value` of `-c`.

    Raises `ConfigError` with all that is wrong with it. Nothing may be run then: whatever would hold instead is not
    what was asked for.
    """
    environ = os.environ if environ is None else environ
    flags, errors = parse_overrides(overrides)
    try:
        document = read_document(home)
    except ConfigError as error:
        document = Document(path=str(config_path(home)), text="", values={})
        errors.insert(0, error)
    layers = Layers(
        path=document.path,
        text=document.text,
        file=document.values,
        environment=from_environment(environ),
        flags=flags,
        found=find_key(home, environ),
    )
    if errors:
        # What the rest says is checked too, but not whether it goes together: half of it is missing.
        raise ConfigError.of([*errors, *_invalid(layers, read_values(layers.effective()))])
    loaded = _resolve(home, layers)
    loaded.config.base_instructions()  # a file that is not there is told now, not by every turn
    return loaded


def built_in_config(home: Path) -> Config:
    """With nothing configured: for lists that are shown where the configuration cannot be used."""
    return _resolve(home, Layers(path=str(config_path(home)))).config


def check_document(values: Mapping[str, Any]) -> ConfigError | None:
    """What is wrong with the values of a file, if it were all there is."""
    try:
        _resolve(Path("/"), Layers(path="", file=values))
    except ConfigError as error:
        return error
    return None


def _choose(layers: Layers, document: Mapping[str, Any], model: str | None, provider: str | None) -> ModelChoice:
    by = layers.named_by("model_provider") if provider == document.get("model_provider") else "it was named"
    gateway = document.get("openai_base_url") or lookup(document, ("model_providers", "openai", "base_url"))
    return choose_model(model, provider, layers.found, named_by=by, gateway=gateway is not None)


def _resolve(home: Path, layers: Layers) -> Loaded:
    document = layers.effective()
    reading = read_values(document)
    values = reading.values
    choice = _choose(layers, document, values.get("model"), values.get("model_provider"))
    tables = document.get("model_providers", {})
    providers = read_providers(layers, tables, choice, values.get("openai_base_url"))
    models = read_models(layers, document.get("models", {}))
    missing_profile = layers.profile_error()
    permissions = _permissions_error(layers, document, values.get("default_permissions"))
    errors = [
        missing_profile,
        *_invalid(layers, reading),
        permissions,
        *models.errors,
        *providers.errors,
        providers.unusable,
    ]
    if any(errors):
        found = [error for error in errors if error is not None]
        kind = ModelUnusable if found == [providers.unusable] else ConfigError
        raise kind.of(found)
    values |= {"model": choice.model, "model_provider": choice.provider}
    config = Config(
        home=home, layers=layers, document=document, providers=providers.usable, models=models.known, **values
    )
    return Loaded(config, (*_warnings(layers, reading, providers), *models.warnings))


def _permissions_error(layers: Layers, document: Mapping[str, Any], default: str | None) -> ConfigError | None:
    """What is wrong with the profile that threads begin with. Others are looked at when they are chosen."""
    tables = document.get("permissions", {})
    if not isinstance(tables, Mapping):
        return layers.error(("permissions",), f"found {kind_of(tables)}, allowed is a table of profiles")
    if default is None:
        return None
    try:
        profile_permissions(default, tables)
    except ProfileError as error:
        return layers.error(("default_permissions",), str(error))
    return None


def _invalid(layers: Layers, reading: ParsedValues) -> list[ConfigError]:
    return [layers.error(invalid.path, invalid.problem) for invalid in reading.invalid]


def _warnings(layers: Layers, reading: ParsedValues, providers: Providers) -> list[ConfigWarning]:
    warnings = [layers.warning(path, _unknown_text(path)) for path in reading.unknown]
    for path, word, replacement in reading.retired:
        text = f"`{word}` is no longer known; `{replacement}` is used, write that instead"
        warnings.append(layers.warning(path, f"{join_key(path)}: {text}"))
    ignored = sorted([*reading.ignored, *providers.ignored])
    if ignored:
        names = ", ".join(f"`{join_key(path)}`" for path in ignored)
        text = f"of the keys that Codex reads, these have no effect here: {names}"
        warnings.append(ConfigWarning(message=text, path=layers.path, key=join_key(ignored[0])))
    return [*warnings, *providers.warnings]


def _unknown_text(path: KeyPath) -> str:
    from difflib import get_close_matches  # only for a warning

    known = Settings.__struct_fields__
    if len(path) > 1:
        table = next(field for field in structs.fields(Settings) if field.name == path[0]).type
        known = table.__struct_fields__
    near = get_close_matches(path[-1], known, 1, 0.8) or get_close_matches(path[-1], _elsewhere(path), 1, 0.8)
    hint = f"; did you mean `{join_key((*path[:-1], near[0]))}`?" if near else ""
    return f"the key `{join_key(path)}` is not known; it is ignored{hint}"


def _elsewhere(path: KeyPath) -> frozenset[str]:
    return (
        IGNORED | SILENT | {"model_providers", "models", "permissions", "profiles"} if len(path) == 1 else frozenset()
    )
