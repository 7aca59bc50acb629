"""`ProfileSandbox`: what a permission profile of the user allows, as rules by place.

Owns the rules and what their places stand for. Reading them from a configuration is the matter of
`config.permission_profiles`, making a sandbox of them that of `sandbox_modes`.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Final, Literal, TypeAlias

from msgspec import Struct, structs

from treadle.protocol.app.base import Variant
from treadle.protocol.app.settings import (
    DangerFullAccessSandboxPolicy,
    ReadOnlySandboxPolicy,
    SandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)

ProfileAccess: TypeAlias = Literal["read", "write", "deny"]

ROOT: Final = ":root"
MINIMAL: Final = ":minimal"
TMPDIR: Final = ":tmpdir"
SLASH_TMP: Final = ":slash_tmp"
WORKSPACE_ROOTS: Final = ":workspace_roots"


class ProfileRule(Struct, frozen=True):
    """`place` is an absolute path, `:root`, `:minimal`, `:tmpdir`, `:slash_tmp`, or `:workspace_roots` with or without
    a path below it. With `glob` it is a pattern of paths, which are denied."""

    place: str
    access: ProfileAccess
    glob: bool = False


class ProfileSandbox(Variant, frozen=True, kw_only=True, tag="permissionProfile"):
    """The longest rule that contains a path decides; what no rule is about is denied. It is never sent to a client:
    see `on_wire`. The working directory is one of the workspace roots, unless it `excludes_cwd`."""

    rules: tuple[ProfileRule, ...]
    network_access: bool = False
    workspace_roots: tuple[str, ...] = ()
    excludes_cwd: bool = False
    glob_scan_max_depth: int | None = None
    domains: tuple[tuple[str, bool], ...] = ()
    """Patterns of hosts, and whether they are allowed: for what the server fetches itself. Commands have a network that
    is open or closed."""

    def allows_host(self, host: str) -> bool | None:
        """Whether a host is allowed by the profile; None when it says nothing of it. What is denied stays denied, and
        where some are allowed, all others are not."""
        said = [allowed for pattern, allowed in self.domains if _matches_host(pattern, host)]
        if said:
            return all(said)
        return False if any(allowed for _, allowed in self.domains) else None

    @property
    def may_write(self) -> bool:
        has_roots = bool(self.workspace_roots) or not self.excludes_cwd
        return any(
            rule.access == "write" and (has_roots or not rule.place.startswith(WORKSPACE_ROOTS)) for rule in self.rules
        )

    def without_writing(self) -> ProfileSandbox:
        """This profile with its places at most to be read, and no network: never wider, whatever it allows."""
        rules = (
            ProfileRule(rule.place, "read" if rule.access == "write" else rule.access, rule.glob) for rule in self.rules
        )
        return structs.replace(self, rules=tuple(rules), network_access=False)

    def on_wire(self) -> SandboxPolicy:
        """The nearest of the sandbox policies that clients know: for their screens, nothing is enforced by it."""
        if not self.may_write:
            return ReadOnlySandboxPolicy(network_access=self.network_access)
        written = [rule.place for rule in self.rules if rule.access == "write"]
        roots = ["/" if place == ROOT else place for place in written if place == ROOT or not place.startswith(":")]
        if WORKSPACE_ROOTS in written:
            roots += self.workspace_roots
        if self.excludes_cwd and SLASH_TMP in written:
            roots.append("/tmp")  # as the real server shows it
        return WorkspaceWriteSandboxPolicy(
            writable_roots=tuple(dict.fromkeys(roots)),
            network_access=self.network_access,
            exclude_slash_tmp=not {SLASH_TMP, ROOT, "/tmp"} & set(written),
            exclude_tmpdir_env_var=TMPDIR not in written,
        )

    def paths(self, place: str, cwd: str) -> list[str]:
        """The absolute paths, as written, that a place stands for; `:minimal` is no such place."""
        if place == ROOT:
            return ["/"]
        if place == SLASH_TMP:
            return ["/tmp"]
        if place == TMPDIR:
            given = os.environ.get("TMPDIR", "")
            return [given] if os.path.isabs(given) else []  # a relative one would be another one everywhere
        if place.startswith(WORKSPACE_ROOTS):
            below = place[len(WORKSPACE_ROOTS) + 1 :]
            roots = self.workspace_roots if self.excludes_cwd else dict.fromkeys((cwd, *self.workspace_roots))
            return [os.path.join(root, below) if below else root for root in roots]
        return [place]

    def writable_paths(self, cwd: str, *, temporary: bool = True) -> list[str]:
        """What it opens for writing, as written."""
        skipped = () if temporary else (TMPDIR, SLASH_TMP)
        places = (rule.place for rule in self.rules if rule.access == "write" and rule.place not in (MINIMAL, *skipped))
        return list(dict.fromkeys(path for place in places for path in self.paths(place, cwd)))


def _matches_host(pattern: str, host: str) -> bool:
    """`*.name` is what is below the name, `**.name` also the name itself, `*` every host."""
    if pattern == "*":
        return True
    if pattern.startswith("**."):
        return host == pattern[3:] or host.endswith(pattern[2:])
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern


Confinement: TypeAlias = SandboxPolicy | ProfileSandbox


def as_policy(sandbox: Confinement) -> SandboxPolicy:
    """The sandbox as clients see it."""
    return sandbox.on_wire() if isinstance(sandbox, ProfileSandbox) else sandbox


def with_roots(sandbox: Confinement, cwd: str, roots: Collection[str]) -> Confinement:
    """The sandbox with these workspace roots in place of the working directory alone."""
    others = tuple(root for root in roots if root != cwd)
    if isinstance(sandbox, WorkspaceWriteSandboxPolicy):
        if cwd in roots:
            return structs.replace(sandbox, writable_roots=tuple(dict.fromkeys((*others, *sandbox.writable_roots))))
        # The policies of clients always let the working directory be written; rules need not.
        written = [WORKSPACE_ROOTS, *(os.path.join(cwd, root) for root in sandbox.writable_roots)]
        written += [] if sandbox.exclude_slash_tmp else [SLASH_TMP]
        written += [] if sandbox.exclude_tmpdir_env_var else [TMPDIR]
        rules = (ProfileRule(ROOT, "read"), *(ProfileRule(place, "write") for place in dict.fromkeys(written)))
        sandbox = ProfileSandbox(rules=rules, network_access=sandbox.network_access)
    if not isinstance(sandbox, ProfileSandbox):
        return sandbox
    own = tuple(dict.fromkeys((*others, *sandbox.workspace_roots)))
    return structs.replace(sandbox, workspace_roots=own, excludes_cwd=cwd not in roots)


def without_writing(sandbox: Confinement) -> Confinement:
    """The sandbox without writing. Full access becomes reading everything, with network; a sandbox that is not ours
    stays what it is."""
    if isinstance(sandbox, DangerFullAccessSandboxPolicy):
        return ReadOnlySandboxPolicy(network_access=True)
    if isinstance(sandbox, WorkspaceWriteSandboxPolicy):
        return ReadOnlySandboxPolicy(network_access=sandbox.network_access)
    return sandbox.without_writing() if isinstance(sandbox, ProfileSandbox) else sandbox


WantedMode: TypeAlias = Literal["read-only", "workspace-write", "danger-full-access"]


def narrowed(sandbox: Confinement, mode: WantedMode | None, workspace: Confinement) -> Confinement | None:
    """The sandbox as somebody may have it who was allowed this one and asks for a mode: never wider. None when the mode
    would be wider, or nobody can tell.

    Args:
        sandbox: What is allowed.
        mode: What is asked for; None asks for nothing.
        workspace: What the mode `workspace-write` is, by the settings.
    """
    match mode:
        case None:
            return sandbox
        case "read-only":
            return sandbox.without_writing() if isinstance(sandbox, ProfileSandbox) else ReadOnlySandboxPolicy()
        case "workspace-write":
            if isinstance(sandbox, DangerFullAccessSandboxPolicy):
                return workspace
            # Of two that let a workspace be written, the one that is allowed counts, whatever the settings say now.
            return sandbox if isinstance(sandbox, WorkspaceWriteSandboxPolicy) else None
        case "danger-full-access":
            return sandbox if isinstance(sandbox, DangerFullAccessSandboxPolicy) else None
