"""The sandbox of a thread whose commands run on another machine: what is sent there, and what is made of it there.

A sandbox travels unresolved. Whoever runs the agent never looks for links, directories or protected names of another
machine on its own disk; it sends the roots as they were found when the thread got them (`canonical_paths`, so that one
which leads elsewhere by now is refused), and what has a name of its own everywhere: the root of the disk, the temporary
directories. `unresolved_sandbox` makes that, `enforced_policy` is the executor's side.

An executor of ours protects what git and agents take orders from by its own rules (`protect_orders`), missing names and
links among them. Others are sent the names, as Codex sends them; there a missing one is not protected.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from msgspec import UNSET

from treadle.execution.sandbox.policy import PathRule, Policy, named_paths, policy_from_wire, refused, resolve_path
from treadle.execution.sandbox.profile_rules import split_pattern
from treadle.execution.sandbox.profile_sandbox import (
    MINIMAL,
    ROOT,
    SLASH_TMP,
    TMPDIR,
    WORKSPACE_ROOTS,
    Confinement,
    ProfileSandbox,
)
from treadle.execution.sandbox.sandbox_modes import has_bubblewrap, is_unconfined, may_write
from treadle.execution.sandbox.sandbox_roots import (
    GIT,
    HiddenHome,
    Pins,
    path_entry,
    protected_names,
    protected_paths,
    root_entry,
)
from treadle.execution.uris import path_from_uri, uri_from_path
from treadle.home import home_place
from treadle.protocol.app.settings import WorkspaceWriteSandboxPolicy
from treadle.protocol.exec import (
    FileSystemPermissions,
    Permissions,
    Sandbox,
    SandboxEntry,
    SandboxPath,
    SandboxPathValue,
)

SeenRoots: TypeAlias = dict[str, Pins]
"""The folders that the threads of one client were given, by the names that it has made for that."""
# Of a session. Threads beyond that, the ones that were used the longest ago, are known only by the names of their
# folders, as after a restart; a path takes some hundred bytes.
MAX_SEEN: Final = 1024
MAX_SEEN_PATHS: Final = 1024
_seen_lock: Final = threading.Lock()
OF: Final = ":of"
"""Among the roots of a thread, in place of a path: the name by which an executor knows them again."""

_SPECIAL: Final = {ROOT: "root", MINIMAL: "minimal", TMPDIR: "tmpdir", SLASH_TMP: "slash_tmp"}
_ACCESS: Final = {"write": "write", "read": "read", "deny": "none"}


def remote_roots(policy: Confinement, cwd: str) -> list[str]:
    """The directories that a thread needs to know on another machine, as written: the working directory, and what is
    opened for writing."""
    named: tuple[str, ...] | list[str] = ()
    if isinstance(policy, WorkspaceWriteSandboxPolicy):
        named = [os.path.join(cwd, root) for root in policy.writable_roots]
    elif isinstance(policy, ProfileSandbox):
        places = (rule.place for rule in policy.rules if rule.access == "write" and not rule.glob)
        named = [*policy.workspace_roots, *(place for place in places if not place.startswith(":"))]
    return list(dict.fromkeys((cwd, *named)))


def unresolved_sandbox(policy: Confinement, cwd: str, roots: Mapping[str, str], *, ours: bool | None) -> Sandbox | None:
    """The sandbox object for another machine; None when the policy asks for no confinement by us.

    Args:
        policy: What the thread may do.
        cwd: Its working directory there.
        roots: Where the `remote_roots` lead there.
        ours: Whether the executor is one of ours, which protects by its own rules; None for a policy that foresees what
            either will do.
    """
    if is_unconfined(policy):
        return None
    entries: list[SandboxEntry]
    network = bool(getattr(policy, "network_access", False))
    if isinstance(policy, ProfileSandbox):
        entries = list(_profile_entries(policy, cwd, roots, ours=ours))
        projects = [*(() if policy.excludes_cwd else (cwd,)), *policy.workspace_roots]
    elif isinstance(policy, WorkspaceWriteSandboxPolicy):
        entries = [root_entry(), _special("project_roots", "write")]
        entries += [] if policy.exclude_slash_tmp else [_special("slash_tmp", "write")]
        entries += [] if policy.exclude_tmpdir_env_var else [_special("tmpdir", "write")]
        projects = remote_roots(policy, cwd)
    else:
        entries, projects = [root_entry()], [cwd]
    if may_write(policy) and ours is not True:
        entries += [_special("project_roots", "read", name, missing="skip") for name in protected_names()]
    return Sandbox(
        permissions=Permissions(
            type="managed",
            network="enabled" if network else "restricted",
            file_system=FileSystemPermissions(
                type="restricted",
                entries=tuple(entries),
                glob_scan_max_depth=getattr(policy, "glob_scan_max_depth", None),
            ),
        ),
        cwd=uri_from_path(cwd),
        workspace_roots=tuple(uri_from_path(roots.get(path, path)) for path in dict.fromkeys(projects)),
        canonical_paths=True if ours else UNSET,
        protect_orders=True if ours else UNSET,
        roots_of=roots[OF] if ours and OF in roots and may_write(policy) else UNSET,
    )


def _profile_entries(
    profile: ProfileSandbox, cwd: str, roots: Mapping[str, str], *, ours: bool | None
) -> Iterator[SandboxEntry]:
    # The narrower ones come last, so that they win where two are about the same path.
    for rule in sorted(profile.rules, key=lambda rule: ("write", "read", "deny").index(rule.access)):
        access = _ACCESS[rule.access]
        if rule.glob:
            if ours is False:
                raise refused(
                    f"the permission profile has the pattern {rule.place!a}, which this executor does not know; write "
                    "paths for it"
                )
            place, pattern = split_pattern(rule.place)
            if place == TMPDIR:  # which that is, only the other machine knows
                raise refused(f"the pattern {rule.place!a} cannot be sent to another machine; write the path of it")
            for base in profile.paths(place, cwd):
                yield SandboxEntry(
                    path=SandboxPath(type="glob_pattern", pattern=os.path.join(roots.get(base, base), pattern)),
                    access=access,
                )
        elif rule.place in _SPECIAL:
            yield _special(_SPECIAL[rule.place], access)
        elif rule.place.startswith(WORKSPACE_ROOTS):
            yield _special("project_roots", access, rule.place[len(WORKSPACE_ROOTS) + 1 :] or None)
        else:
            yield path_entry(roots.get(rule.place, rule.place), access)


def _special(kind: str, access: str, subpath: str | None = None, *, missing: str | None = None) -> SandboxEntry:
    value = SandboxPathValue(kind=kind, subpath=subpath)
    return SandboxEntry(path=SandboxPath(type="special", value=value), access=access, missing_path_behavior=missing)


# --- on the executor --------------------------------------------------------------------------------------------------


def enforced_policy(sandbox: Sandbox | None, seen: SeenRoots | None = None, *, mounts: bool = True) -> Policy | None:
    """What the executor holds a request to: the policy of the object, and with `protect_orders` what this machine knows
    to protect. Blocking. Raises `ExecError`.

    Args:
        sandbox: The object of the request.
        seen: What the session of the client knows of its folders.
        mounts: Whether the policy is for a process: then something read-only below a writable root needs bubblewrap,
            and is left out without it, as it is for commands of this machine's own threads.
    """
    if sandbox is not None and seen is not None and isinstance(sandbox.roots_of, str):
        _check_roots(sandbox, sandbox.roots_of, seen)
    policy = policy_from_wire(sandbox)
    if policy is None or sandbox is None or sandbox.protect_orders is not True:
        return policy
    rules = {rule.path: rule.access for rule in policy.rules}
    found = home_place(os.environ)
    home = None if found is None else HiddenHome(found[0])
    writable = [path for path, access in rules.items() if access == "write"]
    if home is not None:
        home.check_links(writable)
        home.check_outside(os.path.realpath(path_from_uri(sandbox.cwd)) if sandbox.cwd else "/")
    if not mounts or has_bubblewrap():
        roots = [resolve_path(path_from_uri(uri)).canonical for uri in sandbox.workspace_roots]
        roots = [root for root in roots if policy.access(root) == "write"]
        opened = [root for root in roots if os.path.basename(root) == GIT]  # to name it as a root is to mean it
        for path in protected_paths(roots, writable, opened):
            if path in roots or path not in rules:  # else a profile has a rule of its own for it
                rules[path] = "read"
    elif home is not None:  # a temporary directory with the home in it cannot be open for writing then
        rules = {path: access for path, access in rules.items() if access != "write" or not home.is_in(path)}
    if home is not None:
        for entry in home.entries(lambda path: policy.access(path) != "none"):
            assert entry.path.path is not None
            path = path_from_uri(entry.path.path)
            if entry.missing_path_behavior != "skip" or os.path.exists(path):
                rules[path] = "none" if entry.access == "none" else "read"
        rules = {
            path: access
            for path, access in rules.items()
            if not (access == "write" and home.has(path) and home.reserves(path))
        }
    return Policy(tuple(PathRule(path, rules[path]) for path in sorted(rules)), policy.network)


def _check_roots(sandbox: Sandbox, name: str, seen: SeenRoots) -> None:
    """Refuse a folder that was replaced by another one, as `Pins` does for the threads of this machine."""
    file_system = sandbox.permissions.file_system
    paths = [path_from_uri(sandbox.cwd)] if sandbox.cwd else []
    for number, entry in enumerate(() if file_system is None else file_system.entries):
        if entry.access == "write" and (entry.path.value is None or entry.path.value.kind != "minimal"):
            paths += named_paths(sandbox, entry, f"entry {number}", as_written=False)
    with _seen_lock:
        pins = seen.pop(name) if name in seen else Pins()
        seen[name] = pins  # the last one now
        while len(seen) > MAX_SEEN:
            del seen[next(iter(seen))]
    if len(pins) + len(paths) > MAX_SEEN_PATHS:
        raise refused(f"more than {MAX_SEEN_PATHS} folders have been named for one thread; start another one")
    pins.check_paths(list(dict.fromkeys(paths)))
