"""Which hooks there are for a thread: the administrator's, the user's, and those of the project that it works in.

A project may come from anywhere. Its files are read by the rules of `ProjectFiles`, as its instructions are, and what
they say runs only when the user has trusted it. Nearly always there is nothing: that costs a look at the places, and
loads no more than this module. Reading is blocking: callers on an event loop use `known_hook_files`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from treadle.config.home_files import CONFIG_FILE
from treadle.execution.bounded_reads import FileSnapshot, KnownReads
from treadle.execution.project_files import ProjectFiles
from treadle.execution.user_files import read_regular

if TYPE_CHECKING:
    from treadle.config import Config
    from treadle.execution.sandbox.profile_sandbox import Confinement
    from treadle.hooks.hook_settings import Hook, HookFile, Source

HOOKS_FILE: Final = "hooks.json"
# What is in it runs without being trusted: only root may write it, and the way to it.
ADMIN_FOLDER: Final = "/etc/treadle"
PROJECT_FOLDER: Final = ".codex"
# Where hooks are from that were given with the start of the program or of the thread. Clients go by the name.
GIVEN_PATH: Final = "/<session-flags>/config.toml"
MAX_BYTES: Final = 1 << 20
_BOTH: Final = "loading hooks from both {} and {}; prefer a single representation for this layer"


class HookSet(NamedTuple):
    """All hooks for a place, in the order in which they are listed. `warnings` are about their files."""

    hooks: tuple[Hook, ...] = ()
    warnings: tuple[str, ...] = ()


class HookPlace(NamedTuple):
    """The facts that decide which files apply. Without `cwd` no project does."""

    cwd: str | None
    confinement: Confinement | None
    home: str


known_hook_files: Final[KnownReads[HookPlace, HookSet]] = KnownReads()


def read_hook_files(place: HookPlace) -> HookSet:
    """The hooks of the files that apply there now, without those of the settings. Blocking."""
    folders = [place.home, ADMIN_FOLDER] if place.cwd is None else [place.cwd, place.home, ADMIN_FOLDER]
    snapshot = FileSnapshot(*folders)
    found = _admin_file(snapshot) + _user_file(place.home, snapshot)
    left_out: list[str] = []
    if place.cwd is not None:
        project = ProjectFiles(place.cwd, place.home, place.confinement, snapshot)
        for folder in project.folders:
            found += _project_files(os.path.join(folder, PROJECT_FOLDER), project)
        left_out = project.warnings
    read = HookSet(
        tuple(hook for file in found for hook in file.hooks),
        (*(warning for file in found for warning in file.warnings), *left_out),
    )
    return known_hook_files.store(place, read, snapshot)


def with_settings(read: HookSet, config: Config) -> HookSet:
    """The hooks of files with those of the user's config.toml, those that were given beside it, and what is decided
    about all of them.

    Those beside it are more hooks: nobody may lose a guard because an editor brings one of its own.
    """
    from treadle.hooks.hook_settings import STATE, read_hooks, with_trust  # few have hooks

    hooks, warnings = read
    table = config.document.get("hooks")
    if isinstance(table, Mapping):
        path = os.path.join(config.home, CONFIG_FILE)
        own = read_hooks(_hook_table(config.layers.of_file()), path, "user")
        given = read_hooks(_hook_table(config.layers.given()), GIVEN_PATH, "sessionFlags")
        first = next((at for at, hook in enumerate(hooks) if hook.source == "project"), len(hooks))
        if own.hooks and any(hook.source == "user" for hook in hooks):
            warnings = (_BOTH.format(os.path.join(config.home, HOOKS_FILE), path), *warnings)
        hooks = (*hooks[:first], *own.hooks, *hooks[first:], *given.hooks)
        warnings = (*own.warnings, *warnings, *given.warnings)
    return HookSet(with_trust(hooks, table.get(STATE) if isinstance(table, Mapping) else None), warnings)


def _hook_table(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    table = settings.get("hooks")
    return table if isinstance(table, Mapping) else {}


# --- the files --------------------------------------------------------------------------------------------------------


def _admin_file(snapshot: FileSnapshot) -> list[HookFile]:
    path = os.path.join(ADMIN_FOLDER, HOOKS_FILE)
    snapshot.note(path)
    read = read_regular(path, MAX_BYTES)
    if read is None:
        return []
    for place, found in ((path, read[1]), (ADMIN_FOLDER, os.stat(ADMIN_FOLDER))):
        if found.st_uid != 0 or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return [_useless(f"{path} is left out: others than root can write {place}")]
    return [_hooks_of_json(read[0], path, "system")]


def _user_file(home: str, snapshot: FileSnapshot) -> list[HookFile]:
    path = os.path.join(home, HOOKS_FILE)
    snapshot.note(path)
    read = read_regular(path, MAX_BYTES)
    return [] if read is None else [_hooks_of_json(read[0], path, "user")]


def _project_files(folder: str, project: ProjectFiles) -> list[HookFile]:
    """What one folder of the project has. A home that lies in the project is no part of it."""
    assert project.home is not None
    if not project.snapshot.note_mark(folder) or os.path.realpath(folder) == os.path.realpath(project.home):
        return []
    found = []
    for name, read_as in ((HOOKS_FILE, _hooks_of_json), (CONFIG_FILE, _hooks_of_toml)):
        path = os.path.join(folder, name)
        project.snapshot.note(path)
        read = project.read(path, MAX_BYTES, inside=True)
        if read is not None:
            found.append(read_as(read[0], path, "project"))
    if len(found) == 2 and all(file.hooks for file in found):
        found.append(_useless(_BOTH.format(os.path.join(folder, HOOKS_FILE), os.path.join(folder, CONFIG_FILE))))
    return found


def _hooks_of_json(data: bytes, path: str, source: Source) -> HookFile:
    import msgspec  # few have such a file

    from treadle.hooks.hook_settings import HooksFile, read_hooks

    try:
        return read_hooks(msgspec.json.decode(data, type=HooksFile).hooks, path, source)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return _useless(f"failed to parse hooks config {path}: {error}")


def _hooks_of_toml(data: bytes, path: str, source: Source) -> HookFile:
    """The hooks of a config.toml that is not the user's: nothing else in it counts, least of all what it trusts."""
    import tomllib  # few projects have one

    from treadle.hooks.hook_settings import HookFile, read_hooks

    try:
        table: Any = tomllib.loads(data.decode()).get("hooks", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        return _useless(f"failed to parse hooks config {path}: {error}")
    return read_hooks(table, path, source) if isinstance(table, Mapping) else HookFile()


def _useless(warning: str) -> HookFile:
    from treadle.hooks.hook_settings import HookFile  # likewise

    return HookFile(warnings=(warning,))
