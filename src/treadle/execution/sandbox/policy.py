"""What a sandbox allows: rules by path, and the network.

Owns the reading of the wire's sandbox object, and the question "what may be done with this path". Does not enforce
anything: processes are confined by `bubblewrap` and `landlock`, file requests ask `Policy.access` themselves.

An object that cannot be enforced exactly is refused. Nothing here ever answers with a policy that is wider than the
one that was asked for.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from treadle.errors import INVALID_REQUEST, SandboxRefused
from treadle.execution.uris import path_from_uri
from treadle.protocol.exec import Sandbox, SandboxEntry, SandboxPathValue

Access = Literal["none", "read", "write"]

MAX_RULES: Final = 512  # far above real requests (about ten); keeps the argument list of bubblewrap below its limit

_MAX_LINKS: Final = 40  # the kernel's own limit
_ACCESS: Final[dict[str, Access]] = {"read": "read", "write": "write", "none": "none", "deny": "none"}

# What `minimal` stands for: programs, libraries and settings of the system, the harmless devices, and /proc. No home
# directories, no /var, no /run (sockets), no /sys, no disks.
MINIMAL_PATHS: Final = (
    "/bin",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/proc",
    "/run/current-system/sw",
    "/sbin",
    "/usr",
    "/dev/full",
    "/dev/null",
    "/dev/random",
    "/dev/urandom",
    "/dev/zero",
)


def refused(reason: str) -> SandboxRefused:
    """It cannot be confined as asked. Whoever raises this runs nothing."""
    return SandboxRefused(f"sandbox: {reason}; the request was refused rather than run unconfined", INVALID_REQUEST)


@dataclass(frozen=True, slots=True)
class Rule:
    """`path` is absolute and canonical (no symbolic link in it), a native `str`."""

    path: str
    access: Access


@dataclass(frozen=True, slots=True)
class Policy:
    """`rules` are sorted by path, one per path. `network` is true when the network may be used."""

    rules: tuple[Rule, ...]
    network: bool

    def access(self, path: str) -> Access:
        """What the longest rule that contains `path` allows. The path must be canonical already."""
        # A directory sorts before what is in it, so the first hit from the end is the longest.
        for rule in reversed(self.rules):
            if contains(rule.path, path):
                return rule.access
        return "none"


def contains(directory: str, path: str) -> bool:
    """Whether `path` is `directory` or below it; both canonical."""
    return path == directory or directory == "/" or path.startswith(directory + "/")


def policy_from_wire(sandbox: Sandbox | None) -> Policy | None:
    """The policy that the wire's object asks for; None when it asks for no confinement."""
    if sandbox is None or sandbox.permissions.type in ("disabled", "external"):
        return None
    permissions = sandbox.permissions
    network = permissions.network == "enabled"
    if permissions.file_system is None:
        raise refused("permissions are managed but have no file_system")
    if permissions.file_system.type == "unrestricted":
        return None if network else Policy((Rule("/", "write"),), network)
    return _restricted(sandbox, permissions.file_system.entries, network)


def _restricted(sandbox: Sandbox, entries: tuple[SandboxEntry, ...], network: bool) -> Policy:
    chosen: dict[str, Access] = {}
    resolved: list[tuple[str, ResolvedPath]] = []
    for number, entry in enumerate(entries):
        label = f"entry {number}"
        access = _ACCESS.get(entry.access)
        if access is None:
            raise refused(f"{label} has the unknown access {_shown(entry.access)}; known are {', '.join(_ACCESS)}")
        for path in _named_paths(sandbox, entry, label):
            found = _resolve(path, sandbox, entry, label)
            if _says_nothing(found.canonical, access, entry):
                continue
            if chosen.get(found.canonical) != "none":  # a denial is final; else the later entry wins
                chosen[found.canonical] = access
            resolved.append((label, found))
            if len(resolved) > MAX_RULES:
                raise refused(f"it has more than {MAX_RULES} paths")
    policy = Policy(tuple(Rule(path, chosen[path]) for path in sorted(chosen)), network)
    _refuse_movable(policy, resolved)
    return policy


def _resolve(path: str, sandbox: Sandbox, entry: SandboxEntry, label: str) -> ResolvedPath:
    if entry.missing_path_behavior not in (None, "skip"):
        raise refused(f"{label} has the unknown missing_path_behavior {_shown(entry.missing_path_behavior)}")
    try:
        found = resolve_path(path)
    except (OSError, ValueError) as error:
        raise refused(f"{label}: {_shown(path)} cannot be resolved: {error}") from error
    if sandbox.canonical_paths is True and entry.path.type == "path" and found.links:
        raise refused(
            f"{_shown(path)} was a path without symbolic links when it was chosen, and now {_shown(found.links[0])} is "
            "one: it was replaced since"
        )
    return found


def _says_nothing(path: str, access: Access, entry: SandboxEntry) -> bool:
    """Whether the entry is void because there is nothing at the path."""
    void = entry.missing_path_behavior == "skip" or access == "write" or _is_minimal(entry)
    return void and not os.path.exists(path)


def _named_paths(sandbox: Sandbox, entry: SandboxEntry, label: str) -> Iterable[str]:
    """The absolute paths that an entry names, as they were written."""
    match entry.path.type:
        case "path":
            if entry.path.path is None:
                raise refused(f"{label} is a path without a path")
            return (path_from_uri(entry.path.path, field=f"sandbox {label}"),)
        case "special":
            if entry.path.value is None:
                raise refused(f"{label} is special without a value")
            return _special_paths(sandbox, entry.path.value, label)
        case "glob_pattern":
            raise refused(f"{label} is a glob_pattern, which cannot be enforced here; list the paths instead")
        case other:
            raise refused(f"{label} has the unknown path type {_shown(other)}")


def _special_paths(sandbox: Sandbox, value: SandboxPathValue, label: str) -> Iterable[str]:
    if value.subpath is not None and value.kind != "project_roots":
        raise refused(f"{label}: only project_roots can have a subpath, not {_shown(value.kind)}")
    match value.kind:
        case "root":
            return ("/",)
        case "slash_tmp":
            return ("/tmp",)
        case "tmpdir":
            return _temporary_directories(sandbox, label)
        case "minimal":
            return MINIMAL_PATHS
        case "project_roots":
            return _project_roots(sandbox, value.subpath, label)
        case other:
            raise refused(f"{label} has the unknown special kind {_shown(other)}")


def _project_roots(sandbox: Sandbox, subpath: str | None, label: str) -> Iterator[str]:
    parts = [part for part in (subpath or "").split("/") if part not in ("", ".")]
    if subpath is not None and (subpath.startswith("/") or ".." in parts or "\0" in subpath):
        raise refused(f"{label}: the subpath {_shown(subpath)} leaves the project root")
    for uri in sandbox.workspace_roots:
        root = path_from_uri(uri, field="sandbox workspaceRoots")
        yield os.path.join(root, *parts)


def _temporary_directories(sandbox: Sandbox, label: str) -> Iterable[str]:
    if sandbox.temporary_directories is not None:
        return [path_from_uri(uri, field="sandbox temporaryDirectories") for uri in sandbox.temporary_directories]
    directory = os.environ.get("TMPDIR", "")
    if directory and not os.path.isabs(directory):
        raise refused(f"{label} is tmpdir, but TMPDIR of the server is the relative path {_shown(directory)}")
    return (directory,) if directory else ()


def _refuse_movable(policy: Policy, resolved: list[tuple[str, ResolvedPath]]) -> None:
    """Refuse a path that runs through a symbolic link which the confined process itself could replace.

    Such a link decides what the rule means: one command could point it at any place, and the next request would then
    grant that place, or no longer protect the right one.
    """
    for label, found in resolved:
        for link in found.links:
            if policy.access(os.path.dirname(link)) == "write":
                raise refused(
                    f"{label}: {_shown(found.path)} goes through the symbolic link {_shown(link)}, which the sandboxed "
                    "process could replace; send the path that it points to"
                )


@dataclass(frozen=True, slots=True)
class ResolvedPath:
    """What a path leads to: `canonical` has no symbolic link in it, `links` are those that were met on the way there,
    canonical but for their last name."""

    path: str
    canonical: str
    links: tuple[str, ...]


def resolve_path(path: str) -> ResolvedPath:
    """Resolve a path as the kernel does, in one pass: so the links and where they led belong together.

    What does not exist counts as no link. Raises `OSError` for a circle of links.
    """
    here, links = "/", list[str]()
    ahead = path.split("/")[::-1]
    while ahead:
        part = ahead.pop()
        if part in ("", ".", ".."):
            here = os.path.dirname(here) if part == ".." else here
            continue
        step = os.path.join(here, part)
        target = _link_target(step)
        if target is None:
            here = step
            continue
        links.append(step)
        if len(links) > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        here = "/" if target.startswith("/") else here
        ahead.extend(target.split("/")[::-1])
    return ResolvedPath(path, here, tuple(links))


def _link_target(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:  # no link, or nothing there: either way the walk does not turn here
        return None


def _is_minimal(entry: SandboxEntry) -> bool:
    return entry.path.value is not None and entry.path.value.kind == "minimal"


def _shown(text: object) -> str:
    return ascii(str(text)[:200])
