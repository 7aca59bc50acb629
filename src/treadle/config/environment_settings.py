"""The environments of a configuration: other machines on which threads can run their commands.

    [environments.NAME]      in config.toml: ours, by whatever provider of environments
    environments.toml        beside it, as Codex reads it: every thread gets all of them
    CODEX_EXEC_SERVER_URL    one environment, `remote`, and this machine is none

What a table says beyond its connection belongs to its provider (`ssh`, `docker`, `worktree`, or one of another
package), which reads it when it is used. A table that cannot be used is a warning, and an error for who asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta, Struct, structs

from treadle.config.configuration import ENVIRONMENTS, EXEC_SERVER
from treadle.config.home_files import read_document
from treadle.config.layers import Layers
from treadle.config.problems import ConfigError, ConfigWarning

LOCAL: Final = "local"
_RESERVED: Final = frozenset({LOCAL, "none"})
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=3600)]
Detached: TypeAlias = Annotated[float, Meta(ge=0, le=30 * 86400)]


class EnvironmentTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[environments.NAME]`: where an exec-server is. It has one of `url`, `program`, `labels` and `provider`."""

    url: str | None = None
    """`ws://HOST:PORT`, `wss://HOST` or `unix:///PATH` of an exec-server."""
    program: str | None = None
    """A program that speaks the protocol on its standard streams."""
    args: tuple[str, ...] = ()
    """Its arguments."""
    env: dict[str, str] = {}
    """Variables that it gets."""
    cwd: str | None = None
    """The directory that it starts in."""
    labels: tuple[str, ...] = ()
    """What an executor that has dialled in must have: the one with the fewest users is taken."""
    provider: str | None = None
    """What starts the machine: `ssh`, `docker`, `podman`, `worktree`, or the name that a package gives."""
    options: dict[str, Any] = {}
    """What the provider is told."""
    token_file: str | None = None
    """A file with the token that the server asks for."""
    token_env_var: str | None = None
    """The variable that has it."""
    ca_file: str | None = None
    """The issuers of certificates to trust."""
    cert_file: str | None = None
    """The certificate to show, where the server asks for one."""
    key_file: str | None = None
    """Its key."""
    workdir: str | None = None
    """The directory of threads there that name none; without it, the one that the machine begins in."""
    default: bool = False
    """Whether threads that name no environment work there."""
    connect_timeout_sec: Seconds = 10.0
    """How long it may take to connect."""
    initialize_timeout_sec: Seconds = 10.0
    """How long the server may take to greet."""
    recovery_s: Detached = 25.0
    """How long a lost connection is tried again before its commands count as lost."""
    detach_s: Detached = 30.0
    """How long commands may go on there without a connection, as far as the server allows."""


class EnvironmentConfig(EnvironmentTable, frozen=True, kw_only=True):
    """One environment, and why it cannot be used."""

    id: str
    problem: str | None = None

    def __repr__(self) -> str:
        return f"EnvironmentConfig({self.id!r})"

    @property
    def kind(self) -> str:
        """`url`, `program`, `labels`, or the name of what starts it."""
        return self.provider or ("url" if self.url else "program" if self.program else "labels")


class Environments(Struct, frozen=True):
    """All environments by their ids, and those of threads that name none."""

    known: Mapping[str, EnvironmentConfig] = {}
    default: tuple[str, ...] = (LOCAL,)


class _FileTable(EnvironmentTable, frozen=True, kw_only=True):
    id: str


class _File(Struct, frozen=True, kw_only=True):
    default: str | None = None
    include_local: bool = True
    environments: tuple[_FileTable, ...] = ()


def id_problem(name: str) -> str | None:
    """Why an environment cannot have this id."""
    if name in _RESERVED:
        return f"environment id `{name}` is reserved"
    if not _ID.fullmatch(name):
        return "the id of an environment has at most 64 letters, digits, `-` and `_`"
    return None


def read_environments(
    home: Path, layers: Layers, environ: Mapping[str, str]
) -> tuple[Environments, list[ConfigWarning]]:
    """The environments, and what is wrong with their tables. Raises `ConfigError` for a file that is no TOML."""
    warnings: list[ConfigWarning] = []
    known: dict[str, EnvironmentConfig] = {}
    tables = layers.effective().get("environments", {})
    for name, table in tables.items() if isinstance(tables, Mapping) else ():
        known[name] = read_environment(name, table)
        if (problem := known[name].problem) is not None:
            warnings.append(layers.warning(("environments", name), problem))
    chosen = tuple(name for name, each in known.items() if each.default and each.problem is None)
    default = chosen or (LOCAL,)
    document = read_document(home, ENVIRONMENTS)
    if document.values:
        try:
            file = msgspec.convert(document.values, _File)
        except msgspec.ValidationError as error:
            raise ConfigError(str(error), path=document.path) from None
        for each in file.environments:
            known[each.id] = read_environment(each.id, {**structs.asdict(each), "id": None})
        ids = [*([LOCAL] if file.include_local else []), *(each.id for each in file.environments)]
        if file.default is not None and file.default not in (*ids, "none"):
            raise ConfigError(f"its default `{file.default}` is none of its environments", path=document.path)
        first = [file.default] if file.default in ids else []
        default = () if file.default == "none" else tuple(dict.fromkeys((*first, *ids)))
    elif url := environ.get(EXEC_SERVER, ""):
        if url == "none":
            default = ()
        else:
            known["remote"] = read_environment("remote", {"url": url})
            default = ("remote",)
    return Environments(known, default), warnings


def read_environment(name: str, table: object) -> EnvironmentConfig:
    """An environment, with what is wrong with it. No value gets into a problem: it may be secret."""
    if isinstance(table, Mapping):
        table = {key: value for key, value in table.items() if value is not None}
    try:
        read = msgspec.convert(table, EnvironmentTable)
    except msgspec.ValidationError as error:
        return EnvironmentConfig(id=name, problem=f"the environment `{name}` cannot be used: {error}")
    problem = next(_problems(name, read), None)
    text = None if problem is None else f"the environment `{name}` cannot be used: {problem}"
    return EnvironmentConfig(**{**structs.asdict(read), "id": name, "problem": text})


def _problems(name: str, table: EnvironmentTable) -> Iterator[str]:
    if (problem := id_problem(name)) is not None:
        yield problem
    ways = [table.url, table.program, table.provider, table.labels or None]
    if sum(way is not None for way in ways) != 1:
        yield "it needs one of `url`, `program`, `labels` and `provider`"
    if (table.args or table.env or table.cwd) and table.program is None:
        yield "`args`, `env` and `cwd` are for a `program`"
    if table.options and table.provider is None:
        yield "`options` are for a `provider`"
    if table.token_file is not None and table.token_env_var is not None:
        yield "a token is in a file or in a variable; remove one of `token_file` and `token_env_var`"
    if (table.cert_file is None) != (table.key_file is None):
        yield "`cert_file` and `key_file` belong together"
    if table.workdir is not None and not table.workdir.startswith("/"):
        yield "`workdir` must be an absolute path"
