"""What a sandbox allows: rules by path, and the network.

Owns the reading of the wire's sandbox object, and the question "what may be done with this path". Does not enforce
anything: processes are confined by `bubblewrap` and `landlock`, file requests ask `Policy.access` themselves.

    wire object ─▶ each entry: unknown access? ─▶ refused
                     │ named_paths     the absolute paths that it names, as written
                     │ _resolve        where each leads, and the links on the way there
                     │ void?           nothing at the path, and the entry may then be left out
                     ▼
                   one rule per path ─▶ a link that a command could replace? refused ─▶ Policy (rules sorted by path)

An object that cannot be enforced exactly is refused. Nothing here ever answers with a policy that is wider than the one
that was asked for. Hence:

- Entries are resolved to canonical paths first and compared then: two names of one place are one rule.
- A denial is final, whatever comes after it; of other entries for one path the later one wins, as clients expect.
- Links are checked last, against the finished policy: whether a command can replace a link is known only then.
- What is unknown (an access, a path type, a special kind, a behaviour) is refused, never skipped: it may have been the
  entry that takes something away.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from treadle.errors import INVALID_REQUEST, SandboxRefused
from treadle.execution.uris import path_from_uri
from treadle.own_python import pin_imports
from treadle.protocol.exec import Sandbox, SandboxEntry

Access = Literal["none", "read", "write"]

MAX_RULES: Final = 512  # far above real requests (about ten); keeps the argument list of bubblewrap below its limit

_MAX_LINKS: Final = 40  # the kernel's own limit
_ACCESS: Final[dict[str, Access]] = {"read": "read", "write": "write", "none": "none", "deny": "none"}

_WIDTH: Final[dict[Access, int]] = {"none": 0, "read": 1, "write": 2}

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
    """The error for what cannot be confined as asked. The caller raises it and runs nothing."""
    return SandboxRefused(f"sandbox: {reason}; the request was refused rather than run unconfined", INVALID_REQUEST)


@dataclass(frozen=True, slots=True)
class PathRule:
    """`path` is absolute and canonical (no symbolic link in it), a native `str`. A link at its end is meant itself: it
    can be read, and must stay as it is."""

    path: str
    access: Access


@dataclass(frozen=True, slots=True)
class Policy:
    """`rules` are sorted by path, one per path. `network` is true when the network may be used."""

    rules: tuple[PathRule, ...]
    network: bool

    def access(self, path: str) -> Access:
        """What the longest rule that contains `path` allows. The path must be canonical already."""
        # A directory sorts before what is in it, so the first hit from the end is the longest. The test is `contains`,
        # written out: this is asked some hundred times for each confined command.
        for rule in reversed(self.rules):
            directory = rule.path
            if path == directory or directory == "/" or path.startswith(directory + "/"):
                return rule.access
        return "none"


def both(one: Policy | None, other: Policy | None) -> Policy | None:
    """What both policies allow; None confines nothing."""
    if one is None or other is None:
        return other if one is None else one
    paths = sorted({rule.path for rule in (*one.rules, *other.rules)})
    rules = (PathRule(path, min(one.access(path), other.access(path), key=_WIDTH.__getitem__)) for path in paths)
    return Policy(tuple(rules), one.network and other.network)


def contains(directory: str, path: str) -> bool:
    """Whether `path` is `directory` or below it; both canonical."""
    return path == directory or directory == "/" or path.startswith(directory + "/")


def policy_from_wire(sandbox: Sandbox | None, *, as_written: bool = False) -> Policy | None:
    """The policy that the wire's object asks for; None when it asks for no confinement.

    `as_written`: its paths are those of another machine, without links, so nothing is looked for here. Whoever enforces
    it there resolves them; this policy serves to foresee what that will say.
    """
    if sandbox is None or sandbox.permissions.type in ("disabled", "external"):
        return None
    permissions = sandbox.permissions
    pin_imports()  # whatever is done under a policy may write modules
    network = permissions.network == "enabled"
    if permissions.file_system is None:
        raise refused("permissions are managed but have no file_system")
    if permissions.file_system.type == "unrestricted":
        return None if network else Policy((PathRule("/", "write"),), network)
    chosen: dict[str, Access] = {}
    resolved: list[tuple[str, ResolvedPath]] = []
    for number, entry in enumerate(permissions.file_system.entries):
        label = f"entry {number}"
        access = _ACCESS.get(entry.access)
        if access is None:
            raise refused(f"{label} has the unknown access {_shown(entry.access)}; known are {', '.join(_ACCESS)}")
        for path in named_paths(sandbox, entry, label, as_written=as_written):
            if as_written:
                found = ResolvedPath(path, os.path.normpath(path), ())
            else:
                found = _resolve(path, sandbox, entry, label)
            # Void where nothing is at the path: an entry that says so, one that grants writing, and `minimal`.
            is_minimal = entry.path.value is not None and entry.path.value.kind == "minimal"
            may_be_void = entry.missing_path_behavior == "skip" or access == "write" or is_minimal
            if may_be_void and not as_written and not os.path.exists(found.canonical):
                continue
            if chosen.get(found.canonical) != "none":  # a denial is final; else the later entry wins
                chosen[found.canonical] = access
            resolved.append((label, found))
            if len(resolved) > MAX_RULES:
                raise refused(f"it has more than {MAX_RULES} paths")
    policy = Policy(tuple(PathRule(path, chosen[path]) for path in sorted(chosen)), network)
    # Refuse a path that runs through a symbolic link which the confined process itself could replace. Such a link
    # decides what the rule means: one command could point it at any place, and the next request would then grant that
    # place, or no longer protect the right one.
    for label, found in resolved:
        for link in found.links:
            if policy.access(os.path.dirname(link)) == "write":
                raise refused(
                    f"{label}: {_shown(found.path)} goes through the symbolic link {_shown(link)}, which the sandboxed "
                    "process could replace; send the path that it points to"
                )
    return policy


def _resolve(path: str, sandbox: Sandbox, entry: SandboxEntry, label: str) -> ResolvedPath:
    if entry.missing_path_behavior not in (None, "skip"):
        raise refused(f"{label} has the unknown missing_path_behavior {_shown(entry.missing_path_behavior)}")
    try:
        if (
            entry.access == "read"
            and sandbox.canonical_paths is True
            and entry.path.type == "path"
            and os.path.islink(path)
        ):
            # A client that resolves paths beforehand means the link. Nothing is granted by that, wherever it leads.
            directory = resolve_path(os.path.dirname(path))
            found = ResolvedPath(path, os.path.join(directory.canonical, os.path.basename(path)), directory.links)
        else:
            found = resolve_path(path)
    except (OSError, ValueError) as error:
        raise refused(f"{label}: {_shown(path)} cannot be resolved: {error}") from error
    value = entry.path.value
    is_chosen = value is None or (value.kind == "project_roots" and not value.subpath)
    if sandbox.canonical_paths is True and is_chosen and found.links:
        raise refused(
            f"{_shown(path)} was a path without symbolic links when it was chosen, and now {_shown(found.links[0])} is "
            "one: it was replaced since"
        )
    return found


def named_paths(sandbox: Sandbox, entry: SandboxEntry, label: str, *, as_written: bool) -> Iterable[str]:
    """The absolute paths that an entry names, as they were written."""
    value = entry.path.value
    match entry.path.type:
        case "path":
            if entry.path.path is None:
                raise refused(f"{label} is a path without a path")
            return (path_from_uri(entry.path.path, field=f"sandbox {label}"),)
        case "special":
            if value is None:
                raise refused(f"{label} is special without a value")
        case "glob_pattern":
            if as_written:
                return ()
            if sandbox.protect_orders is not True or entry.access not in ("none", "deny") or entry.path.pattern is None:
                raise refused(f"{label} is a glob_pattern, which cannot be enforced here; list the paths instead")
            from treadle.execution.sandbox.profile_rules import matching_paths, split_pattern  # few have one

            file_system = sandbox.permissions.file_system
            depth = None if file_system is None else file_system.glob_scan_max_depth
            return matching_paths(*split_pattern(entry.path.pattern), depth)
        case other:
            raise refused(f"{label} has the unknown path type {_shown(other)}")
    subpath = value.subpath
    if subpath is not None and value.kind != "project_roots":
        raise refused(f"{label}: only project_roots can have a subpath, not {_shown(value.kind)}")
    match value.kind:
        case "root":
            return ("/",)
        case "slash_tmp":
            return ("/tmp",)
        case "tmpdir":
            given = sandbox.temporary_directories
            if given is not None:
                return [path_from_uri(uri, field="sandbox temporaryDirectories") for uri in given]
            directory = os.environ.get("TMPDIR", "")
            if directory and not os.path.isabs(directory):
                raise refused(f"{label} is tmpdir, but TMPDIR of the server is the relative path {_shown(directory)}")
            return (directory,) if directory else ()
        case "minimal":
            return MINIMAL_PATHS
        case "project_roots":
            parts = [part for part in (subpath or "").split("/") if part not in ("", ".")]
            if subpath is not None and (subpath.startswith("/") or ".." in parts or "\0" in subpath):
                raise refused(f"{label}: the subpath {_shown(subpath)} leaves the project root")
            roots = (path_from_uri(uri, field="sandbox workspaceRoots") for uri in sandbox.workspace_roots)
            return (os.path.join(root, *parts) for root in roots)
        case other:
            raise refused(f"{label} has the unknown special kind {_shown(other)}")


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
        try:
            target = os.readlink(step)
        except OSError:  # no link, or nothing there: either way the walk does not turn here
            here = step
            continue
        links.append(step)
        if len(links) > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        here = "/" if target.startswith("/") else here
        ahead.extend(target.split("/")[::-1])
    return ResolvedPath(path, here, tuple(links))


def _shown(text: object) -> str:
    return ascii(str(text)[:200])
