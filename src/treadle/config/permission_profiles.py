"""Permission profiles: the built-in ones, and those that a user defines as `[permissions.NAME]` in `config.toml`.

The module owns what such a table may say and what it comes to. A profile that says something which no sandbox of ours
can enforce is refused as a whole, with the reason: it never allows more than it says. Pure, but for `~`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from treadle.config.layers import Table, join_key, merge
from treadle.config.problems import kind_of
from treadle.errors import TreadleError
from treadle.execution.sandbox.profile_sandbox import (
    MINIMAL,
    ROOT,
    SLASH_TMP,
    TMPDIR,
    WORKSPACE_ROOTS,
    Confinement,
    ProfileAccess,
    ProfileRule,
    ProfileSandbox,
)
from treadle.protocol.app.settings import (
    ActivePermissionProfile,
    DangerFullAccessSandboxPolicy,
    ReadOnlySandboxPolicy,
    SandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)

READ_ONLY: Final = ":read-only"
WORKSPACE: Final = ":workspace"
BUILT_IN: Final[Mapping[str, SandboxPolicy]] = {
    READ_ONLY: ReadOnlySandboxPolicy(),
    WORKSPACE: WorkspaceWriteSandboxPolicy(),
    ":danger-full-access": DangerFullAccessSandboxPolicy(),
}
# The built-in ones that others can extend, as a table would say them.
_TABLES: Final[Mapping[str, Table]] = {
    READ_ONLY: {"filesystem": {ROOT: "read"}},
    WORKSPACE: {
        "filesystem": {ROOT: "read", WORKSPACE_ROOTS: {".": "write"}, SLASH_TMP: "write", TMPDIR: "write"},
    },
}
_DEPTH: Final = "glob_scan_max_depth"
_SPECIAL: Final = (ROOT, MINIMAL, TMPDIR, SLASH_TMP)
_ROOTS: Final = (WORKSPACE_ROOTS, ":project_roots")  # the earlier name means the same
_ACCESS: Final[Mapping[str, ProfileAccess]] = {"read": "read", "write": "write", "deny": "deny", "none": "deny"}
_GLOB: Final = re.compile(r"[*?\[\]]")


class PermissionTable(Struct, frozen=True, kw_only=True):
    """`[permissions.NAME]`, key by key; `docs/configuration.md` is made from it. What they may hold: see `_sandbox`."""

    description: str | None = None
    """A line for people."""
    extends: str | None = None
    """The profile below it: `:read-only`, `:workspace` or one of yours. Without it, nothing can be read."""
    filesystem: dict[str, Any] = {}
    """Places and what may be done there: `read`, `write` or `deny`, or a table of such rules for what is below."""
    network: dict[str, Any] = {}
    """`enabled = true` opens the network for commands. `domains` is a table of hosts (`*.NAME` is what is below one),
    each with `allow` or `deny`: which of them [`web_fetch`](web-search.md) may ask. Commands cannot be held to it, so
    it cannot stand beside `enabled = true`."""
    workspace_roots: dict[str, bool] = {}
    """Directories that are treated like the working directory, each with `true`."""


class ProfileError(TreadleError):
    """A profile is missing or cannot be used. The text says why and what to do."""


class ThreadPermissions(Struct, frozen=True):
    """What commands may do, and the profile that says so; None when a sandbox mode or policy does."""

    sandbox: Confinement
    profile: ActivePermissionProfile | None = None


def profile_permissions(name: str, profiles: Mapping[str, Any]) -> ThreadPermissions:
    """What a profile allows; `profiles` is the table `[permissions]`. Raises `ProfileError`."""
    if name.startswith(":"):
        policy = BUILT_IN.get(name)
        if policy is None:
            raise ProfileError(f"there is no built-in profile `{name}`; there are {', '.join(BUILT_IN)}")
        return ThreadPermissions(policy, ActivePermissionProfile(id=name))
    table, extends = _inherited(name, profiles)
    return ThreadPermissions(_sandbox(name, table), ActivePermissionProfile(id=name, extends=extends))


def user_profiles(profiles: Mapping[str, Any]) -> Iterator[tuple[str, str | None, bool]]:
    """The profiles of a user: name, description, and whether it can be chosen."""
    for name in sorted(profiles):
        table = profiles[name]
        description = table.get("description") if isinstance(table, Mapping) else None
        try:
            profile_permissions(name, profiles)
        except ProfileError:
            usable = False
        else:
            usable = not name.startswith(":")
        yield name, description if isinstance(description, str) else None, usable


def _inherited(name: str, profiles: Mapping[str, Any]) -> tuple[Table, str | None]:
    """The table of a profile over those that it extends, and the name of the nearest of them."""
    chain: list[str] = []
    tables: list[Mapping[str, Any]] = []
    here: str | None = name
    while here is not None:
        if here in chain:
            raise ProfileError(f"permission profiles extend each other in a circle: {' -> '.join((*chain, here))}")
        tables.append(_table(here, chain, profiles))
        chain.append(here)
        here = tables[-1].get("extends")
        if not isinstance(here, str | None):
            raise _wrong(chain[-1], ("extends",), here, "the name of a profile")
    merged: Table = {}
    for table in reversed(tables):
        merged = merge(merged, {key: value for key, value in table.items() if key not in ("description", "extends")})
    return merged, chain[1] if len(chain) > 1 else None


def _table(name: str, chain: list[str], profiles: Mapping[str, Any]) -> Mapping[str, Any]:
    if name in _TABLES and chain:
        return _TABLES[name]
    if name.startswith(":"):
        raise ProfileError(
            f"the permission profile `{chain[-1]}` cannot extend `{name}`; it can extend {', '.join(_TABLES)} or one "
            "of your own"
        )
    table = profiles.get(name)
    if table is None:
        subject = f"the permission profile `{chain[-1]}` extends `{name}`, which" if chain else f"`{name}`"
        known = ", ".join((*BUILT_IN, *sorted(other for other in profiles if other != name)))
        raise ProfileError(f"{subject} is no permission profile; add [permissions.{join_key((name,))}], or use {known}")
    if not isinstance(table, Mapping):
        raise _wrong(name, (), table, "a table")
    for key in table:
        if key not in PermissionTable.__struct_fields__:
            raise ProfileError(
                f"the permission profile `{name}` says `{key}`, which is not known here and may be a limit; take it out"
            )
    return table


def _sandbox(name: str, table: Table) -> ProfileSandbox:
    files = table.get("filesystem", {})
    if not isinstance(files, Mapping):
        raise _wrong(name, ("filesystem",), files, "a table")
    depth = files.get(_DEPTH)
    if depth is not None and (type(depth) is not int or depth < 1):
        raise _wrong(name, ("filesystem", _DEPTH), depth, "a whole number from 1")
    rules = [rule for key, value in files.items() if key != _DEPTH for rule in _rules(name, key, value)]
    network = table.get("network", {})
    if not isinstance(network, Mapping):
        raise _wrong(name, ("network",), network, "a table")
    enabled = network.get("enabled", False)
    if not isinstance(enabled, bool):
        raise _wrong(name, ("network", "enabled"), enabled, "true or false")
    limits = sorted(key for key in network if key != "enabled")
    if enabled and limits:
        raise ProfileError(
            f"the permission profile `{name}` limits the network by {', '.join(f'`{key}`' for key in limits)}, which "
            "cannot be enforced here: it is open or closed; take the limits out, or set `enabled = false`"
        )
    roots = table.get("workspace_roots", {})
    if not isinstance(roots, Mapping):
        raise _wrong(name, ("workspace_roots",), roots, "a table of paths")
    for path, wanted in roots.items():
        if not isinstance(wanted, bool):
            raise _wrong(name, ("workspace_roots", path), wanted, "true or false")
    return ProfileSandbox(
        rules=tuple(rules),
        network_access=enabled,
        domains=_domains(name, network),
        workspace_roots=tuple(_absolute(name, path) for path, wanted in roots.items() if wanted),
        glob_scan_max_depth=depth,
    )


def _rules(name: str, key: str, value: Any) -> Iterator[ProfileRule]:
    """The rules for one place, and for what is below it."""
    place = WORKSPACE_ROOTS if key in _ROOTS else key
    if place.startswith(":") and place not in (*_SPECIAL, WORKSPACE_ROOTS):
        known = ", ".join((*_SPECIAL, WORKSPACE_ROOTS))
        raise ProfileError(f"the permission profile `{name}` names the place `{key}`, which is none of {known}")
    if not place.startswith(":"):
        place = _absolute(name, key)
    if not isinstance(value, Mapping):
        yield _rule(name, place, value)
        return
    if place in _SPECIAL:
        raise ProfileError(
            f"the permission profile `{name}` has rules below `{key}`, where none can be; name the paths"
        )
    for below, access in value.items():
        parts = below.split("/")
        if below != "." and ("" in parts or "." in parts or ".." in parts or "\0" in below):
            raise ProfileError(
                f"the permission profile `{name}` names `{below}` below another path; it must be a plain way down, "
                "without `.`, `..` or a slash at an end"
            )
        yield _rule(name, place if below == "." else f"{place.rstrip('/')}/{below}", access)


def _absolute(name: str, path: str) -> str:
    found = os.path.expanduser(path) if path == "~" or path.startswith("~/") else path
    if not os.path.isabs(found) or "\0" in found:
        raise ProfileError(
            f"the permission profile `{name}` names the path `{path}`, which must be absolute, begin with `~/`, or be "
            f"a place like {WORKSPACE_ROOTS}"
        )
    return found if _GLOB.search(found) else os.path.normpath(found)


def _rule(name: str, place: str, word: Any) -> ProfileRule:
    access = _ACCESS.get(word) if isinstance(word, str) else None
    if access is None:
        raise _wrong(name, ("filesystem", place), word, "`read`, `write` or `deny`")
    if place.endswith("/**"):  # the directory with all that is in it, which is what a path means anyway
        place = place[:-3] or "/"
    if place == MINIMAL and access != "read":
        raise ProfileError(f"the permission profile `{name}` says `{word}` of {MINIMAL}, which can only be read")
    if not _GLOB.search(place):
        return ProfileRule(place, access)
    if access != "deny":
        raise ProfileError(
            f"the permission profile `{name}` says `{word}` of the pattern `{place}`: patterns can only be denied; "
            "name the path, or a directory and `/**`"
        )
    from treadle.execution.sandbox.profile_rules import compiled, split_pattern  # few profiles have patterns

    try:
        compiled(split_pattern(place)[1])
    except re.error:
        raise ProfileError(f"the permission profile `{name}` has the pattern `{place}`, which means nothing") from None
    return ProfileRule(place, access, glob=True)


def _domains(name: str, table: Mapping[str, Any]) -> tuple[tuple[str, bool], ...]:
    """What `enabled = false` closes stays closed: then only what is denied counts."""
    domains = table.get("domains", {})
    if not isinstance(domains, Mapping):
        raise _wrong(name, ("network", "domains"), domains, "a table of hosts")
    for host, word in domains.items():
        if word not in ("allow", "deny"):
            raise _wrong(name, ("network", "domains", host), word, "`allow` or `deny`")
    rules = ((host.lower().rstrip("."), word == "allow") for host, word in domains.items())
    return tuple(rule for rule in rules if not rule[1] or table.get("enabled") is not False)


def _wrong(name: str, path: tuple[str, ...], found: Any, allowed: str) -> ProfileError:
    key = join_key(("permissions", name, *path))
    shown = f"`{found}`" if isinstance(found, str) and len(found) <= 40 else kind_of(found)
    return ProfileError(f"`{key}`: found {shown}, allowed is {allowed}")
