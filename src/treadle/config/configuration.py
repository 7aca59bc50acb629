"""`Config`: the settings in force, and how they are derived.

The module owns loading, and overlaying a thread's own settings. Precedence: built in < file (its profile over the rest
of it) < environment < `-c` < thread.
"""

from __future__ import annotations

import codecs
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, structs

from treadle.config.file_settings import ELSEWHERE, IGNORED, SILENT, FileSettings, ParsedValues, read_values
from treadle.config.home_files import CONFIG_FILE, Document, config_path, read_document
from treadle.config.layers import THREAD, FoundKey, Layers, expand, from_environment, join_key, lookup, parse_overrides
from treadle.config.model_settings import NO_MODEL, ModelChoice, choose_model, find_key, read_models, read_providers
from treadle.config.permission_profiles import (
    READ_ONLY,
    PermissionTable,
    ProfileError,
    ThreadPermissions,
    profile_permissions,
)
from treadle.config.problems import ConfigError, ConfigWarning, ModelUnusable, kind_of
from treadle.llm.catalogue import KnownModel
from treadle.llm.known_providers import OFFLINE, OPENAI, key_variables
from treadle.llm.provider import ProviderConfig
from treadle.protocol.app.base import Closed
from treadle.protocol.app.settings import (
    DangerFullAccessSandboxPolicy,
    ReadOnlySandboxPolicy,
    SandboxMode,
    SandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)
from treadle.secrets import is_secret

if TYPE_CHECKING:
    from treadle.config.environment_settings import Environments
    from treadle.config.mcp_settings import McpServerConfig
    from treadle.protocol.exec import EnvPolicy

# For `treadle exec` alone, as with Codex: the key of one run.
RUN_KEY_VARIABLE: Final = "CODEX_API_KEY"
# By these libpq finds the password of a store that `store` names.
STORE_PASSWORDS: Final = ("PGPASSWORD", "PGPASSFILE")

ENVIRONMENTS: Final = "environments.toml"
EXEC_SERVER: Final = "CODEX_EXEC_SERVER_URL"
_SECTIONS: Final = ("model_providers", "mcp_servers", "environments")
_MAX_INSTRUCTIONS: Final = 1024 * 1024
_SETTLED_NS: Final = 1_000_000_000


class Config(FileSettings, frozen=True, kw_only=True):
    """The settings in force. `providers` has every usable provider by id; `layers` knows where each
    setting came from.
    """

    home: Path
    layers: Layers
    document: Mapping[str, Any]
    """All settings as they were given, also the keys that have no effect here, as one plain table."""
    providers: Mapping[str, ProviderConfig]
    models: Mapping[str, KnownModel]
    """What the user's tables say of models, by their names."""
    mcp_servers: Mapping[str, McpServerConfig] = {}
    """The MCP servers by name, in the order of the file, also those that are disabled or cannot be used."""
    environments: Environments | None = None
    """Other machines, where some are configured; not in the configuration of a thread."""

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

    def with_thread_overrides(self, overrides: Mapping[str, Any], *, stored: bool = False) -> Config:
        """This configuration with the `config` object of a thread laid over it; raises `ConfigError`. In one that is
        `stored` an MCP server that cannot be used (any more: the file has changed) is only disabled."""
        loaded = self._with_thread(overrides)
        error = None if stored else _invalid_servers(loaded, THREAD)
        if error is not None:
            raise error
        return loaded.config

    def unknown_in_thread(self, overrides: Mapping[str, Any]) -> list[ConfigWarning]:
        """Warnings for the keys of such an object that nobody knows."""
        warnings = self._with_thread(overrides).warnings
        return [each for each in warnings if each.unknown is not None and each.unknown.source == THREAD]

    def _with_thread(self, overrides: Mapping[str, Any]) -> LoadedConfig:
        return _resolve(self.home, self.layers.with_thread(expand(overrides)))

    def model_choice(self, model: str | None, provider: str | None) -> ModelChoice:
        """The model of a thread that names a model or a provider of its own."""
        named = self.document
        if provider is None and model is None:
            return self.chosen
        return _choose(self.layers, named, model or named.get("model"), provider or named.get("model_provider"))

    @property
    def chosen(self) -> ModelChoice:
        """The model and the provider in force, and why."""
        return _configured(self.layers, self.document, self.document)

    def permissions(self) -> ThreadPermissions:
        """What commands of a thread may do that has no permissions of its own. `default_permissions` and `sandbox_mode`
        set the same thing in two ways: the nearer source wins, and in one source the profile."""
        if self.default_permissions is not None and self.layers.prefers("default_permissions", "sandbox_mode"):
            return self.profile_permissions(self.default_permissions)
        if self.layers.has(("sandbox_mode",)):
            return ThreadPermissions(self.sandbox_policy(self.sandbox_mode))
        return self.profile_permissions(READ_ONLY)

    def profile_permissions(self, name: str) -> ThreadPermissions:
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

        The keys of providers are never inherited, whatever they are called, nor the password of the store: who has that
        can change every thread. One that `set` names is meant for commands.
        """
        from treadle.protocol.exec import EnvPolicy  # loaded with the first command

        given = self.shell_environment_policy
        return EnvPolicy(
            inherit=given.inherit,
            ignore_default_excludes=given.ignore_default_excludes,
            exclude=(
                *(*given.exclude, *key_variables(), RUN_KEY_VARIABLE, *secret_variables(self.document)),
                *(STORE_PASSWORDS if self.store is not None else ()),
            ),
            set=given.set,
            include_only=given.include_only,
        )

    def base_instructions(self) -> str | None:
        """The text that replaces our own base instructions, if there is one: a file goes before a text."""
        if self.model_instructions_file is None:
            return self.instructions
        from treadle.execution.project_files import ProjectFiles  # few have such a file
        from treadle.execution.sandbox.policy import contains

        path = os.path.normpath(self._absolute(self.model_instructions_file))
        # In the home nobody but the user writes. Elsewhere a command may have put a link in the place of the file.
        files = ProjectFiles("/", None if contains(str(self.home), path) else str(self.home))
        found = files.read(path, _MAX_INSTRUCTIONS, owned=False)
        problem = files.left_out.get(path, "there is no such file")
        try:
            if found is not None:
                return codecs.getincrementaldecoder("utf-8")().decode(found[0])  # the limit may cut a character
        except UnicodeDecodeError:
            problem = "it is not UTF-8"
        key = ("model_instructions_file",)
        raise self.layers.error(key, f"`{path}` cannot be read ({problem}); correct the path")

    def _absolute(self, path: str) -> Path:
        """Relative paths are relative to the file that says them."""
        return self.home / os.path.expanduser(path)


class LoadedConfig(Struct, frozen=True):
    """A configuration, and what in it has no effect."""

    config: Config
    warnings: tuple[ConfigWarning, ...] = ()

    def unknown_keys(self, source: str) -> list[ConfigError]:
        """Keys from there (`-c`, say) that nobody knows, and MCP servers that cannot be used, as errors: for one who
        means them to have an effect."""
        unknown = (found for warning in self.warnings if (found := warning.unknown or warning.invalid) is not None)
        return [ConfigError(each.problem, key=each.key, source=source) for each in unknown if each.source == source]


def load_config(home: Path, *, overrides: Iterable[str] = (), environ: Mapping[str, str] | None = None) -> LoadedConfig:
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
    loaded.config.base_instructions()  # a missing file is reported now, not by every turn
    if "environments" in loaded.config.document or EXEC_SERVER in environ or os.path.lexists(home / ENVIRONMENTS):
        from treadle.config.environment_settings import read_environments  # few have them

        environments, wrong = read_environments(home, layers, environ)
        loaded = LoadedConfig(structs.replace(loaded.config, environments=environments), (*loaded.warnings, *wrong))
    return loaded


def files_mark(home: Path) -> object:
    """A value that changes with the files that a configuration is read from: the settings, and the logins, which decide
    about the provider when none is named. It costs a `stat` each."""

    def mark(path: str) -> tuple[int, ...]:
        try:
            found = os.stat(path)
            seen = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
            # The clock of a file system is coarse: what has just changed may change again and look the same.
            if time.time_ns() - found.st_ctime_ns < _SETTLED_NS and stat.S_ISREG(found.st_mode):
                with open(path, "rb") as file:
                    return *seen, hash(file.read())
            return seen
        except OSError as error:
            return (error.errno or 0,)

    return [mark(os.path.join(home, name)) for name in (CONFIG_FILE, "auth.json", "keys.json", ENVIRONMENTS)]


def built_in_config(home: Path) -> Config:
    """The configuration with nothing configured: for lists that are shown where the user's cannot be used."""
    return _resolve(home, Layers(path=str(config_path(home)))).config


def check_document(values: Mapping[str, Any]) -> ConfigError | None:
    """What is wrong with the values of a file, as if it were all there is. A missing key is not wrong."""
    found = FoundKey(OPENAI) if values.get("offline") is False else FoundKey()
    try:
        loaded = _resolve(Path("/"), Layers(path="", file=values, found=found))
    except ConfigError as error:
        return error
    return _invalid_servers(loaded)


def _invalid_servers(loaded: LoadedConfig, source: str | None = None) -> ConfigError | None:
    """MCP servers that cannot be used, by the fault of the file or of another source, as an error."""
    invalid = (warning.invalid for warning in loaded.warnings)
    found = [
        ConfigError(one.problem, key=one.key, source=one.source)
        for one in invalid
        if one is not None and one.source == source
    ]
    return ConfigError.of(found) if found else None


def _choose(layers: Layers, document: Mapping[str, Any], model: str | None, provider: str | None) -> ModelChoice:
    by = layers.named_by("model_provider") if provider == document.get("model_provider") else "it was named"
    gateway = document.get("openai_base_url") or lookup(document, ("model_providers", "openai", "base_url"))
    return choose_model(model, provider, layers.found, named_by=by, gateway=gateway is not None)


def _configured(layers: Layers, document: Mapping[str, Any], values: Mapping[str, Any]) -> ModelChoice:
    if values.get("offline") is True:
        return ModelChoice(OFFLINE, OFFLINE, "`offline` is true")
    return _choose(layers, document, values.get("model"), values.get("model_provider"))


def _resolve(home: Path, layers: Layers) -> LoadedConfig:
    """The configuration of these layers. Raises `ConfigError` with all that is wrong."""
    document = layers.effective()
    reading = read_values(document)
    values = reading.values
    choice = _configured(layers, document, values)
    providers = read_providers(layers, document.get("model_providers", {}), choice, values.get("openai_base_url"))
    models = read_models(layers, document.get("models", {}))
    is_forbidden = choice.provider == OFFLINE and values.get("offline") is False
    unusable = layers.error(("offline",), NO_MODEL) if is_forbidden else providers.unusable

    # The permission profile that threads begin with. Others are looked at when they are chosen.
    permissions: ConfigError | None = None
    tables, default = document.get("permissions", {}), values.get("default_permissions")
    if not isinstance(tables, Mapping):
        problem = f"found {kind_of(tables)}, allowed is a table of profiles"
        permissions = layers.error(("permissions",), problem)
    elif default is not None:
        try:
            profile_permissions(default, tables)
        except ProfileError as error:
            permissions = layers.error(("default_permissions",), str(error))

    errors = [
        layers.profile_error(),
        *_invalid(layers, reading),
        permissions,
        *models.errors,
        *providers.errors,
        unusable,
    ]
    found = [error for error in errors if error is not None]
    if found:
        kind = ModelUnusable if found == [unusable] else ConfigError
        raise kind.of(found)

    # What has no effect.
    warnings: list[ConfigWarning] = []
    for path, known in reading.unknown.items():
        elsewhere = IGNORED | SILENT | ELSEWHERE if len(path) == 1 else ()
        warnings.append(layers.unknown(path, known, elsewhere))
    keys = PermissionTable.__struct_fields__
    for name, table in tables.items():
        others = table.keys() - keys if isinstance(table, Mapping) else ()
        warnings += [layers.unknown(("permissions", name, key), keys) for key in sorted(others)]
    for path, word, replacement in reading.retired:
        text = f"`{word}` is no longer known; `{replacement}` is used, write that instead"
        warnings.append(layers.warning(path, f"{join_key(path)}: {text}"))
    ignored = sorted([*reading.ignored, *providers.ignored])
    if ignored:
        names = ", ".join(f"`{join_key(path)}`" for path in ignored)
        text = f"of the keys that Codex reads, these have no effect here: {names}"
        warnings.append(ConfigWarning(message=text, path=layers.path, key=join_key(ignored[0])))

    values |= {"model": choice.model, "model_provider": choice.provider}
    if (tables := document.get("mcp_servers")) not in (None, {}):
        from treadle.config.mcp_settings import read_mcp_servers  # few have them

        values["mcp_servers"], wrong = read_mcp_servers(layers, tables)
        warnings += wrong
    config = Config(
        home=home, layers=layers, document=document, providers=providers.usable, models=models.known, **values
    )
    return LoadedConfig(config, (*warnings, *providers.warnings, *models.warnings))


def _invalid(layers: Layers, reading: ParsedValues) -> list[ConfigError]:
    return [layers.error(invalid.path, invalid.problem) for invalid in reading.invalid]


# --- secrets in a configuration ---


def secret_variables(document: Mapping[str, Any]) -> Iterator[str]:
    """The environment variables that a configuration names as holding keys: those of every provider, server and
    environment, used or not, usable or not. Commands never inherit them."""
    for section in _SECTIONS:
        tables = document.get(section)
        for table in tables.values() if isinstance(tables, Mapping) else ():
            if isinstance(table, Mapping):
                headers = table.get("env_http_headers")
                named = [table.get("env_key"), table.get("bearer_token_env_var"), table.get("token_env_var")]
                named += headers.values() if isinstance(headers, Mapping) else ()
                yield from (name for name in named if isinstance(name, str) and name)


def secret_values(document: Mapping[str, Any]) -> Iterator[str]:
    """The secrets in a configuration: what is written under names such as `api_key`, or below `http_headers`. The name
    of a variable is none."""
    variables = frozenset(secret_variables(document))
    return (value for value in _values(document, "") if value not in variables)


def _values(settings: object, name: str) -> Iterator[str]:
    if isinstance(settings, Mapping):
        for key, value in settings.items():
            yield from _values(value, name if is_secret(name) else str(key))
    elif isinstance(settings, str) and is_secret(name, settings):
        yield settings
