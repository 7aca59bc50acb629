"""What the sandbox modes of the app-server mean, as the sandbox object that the execution layer takes.

Read-only may read everything, workspace-write may also write below its roots, and full access is no sandbox. Whatever
the mode, the home in use is out of reach, but for the instructions in it that models read. What git and we take orders
from stays as it is below a writable root, where this machine can enforce that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import Final

from treadle.execution.sandbox.pinned_roots import Pins, pin, pinned_paths
from treadle.execution.sandbox.policy import contains, refused, resolve_path
from treadle.execution.sandbox.protected_paths import protected_paths
from treadle.execution.uris import uri_from_path
from treadle.protocol.app.settings import (
    DangerFullAccessSandboxPolicy,
    ExternalSandboxSandboxPolicy,
    ReadOnlySandboxPolicy,
    SandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)
from treadle.protocol.exec import (
    FileSystemPermissions,
    Permissions,
    Sandbox,
    SandboxEntry,
    SandboxPath,
    SandboxPathValue,
)

# What models are meant to read in the home. It carries authority, so it is never writable.
INSTRUCTIONS: Final = ("skills", "prompts", "AGENTS.md", "AGENTS.override.md")
# For as long as the machine has only Landlock. Told once per thread, and once per client for commands without one.
UNPROTECTED: Final = (
    "This machine cannot keep .git, .codex, .treadle and .agents read-only inside the sandbox: commands can change "
    "them, and with them what you run later (git hooks). Install the package `bubblewrap`. Where it is there and does "
    "not work, unprivileged user namespaces are switched off: see kernel.apparmor_restrict_unprivileged_userns (newer "
    "Ubuntu; or give bwrap an AppArmor profile), kernel.unprivileged_userns_clone and user.max_user_namespaces, and "
    "docs/sandbox.md. Until then a temporary directory that has Treadle's home in it is not writable either."
)


async def pinned_sandbox(
    policy: SandboxPolicy, cwd: str, pins: Pins, home: str, *, protect: bool = True
) -> Sandbox | None:
    """The sandbox of a thread, whose roots are known by `pins`. Raises `ExecError` when one of them was replaced.

    `protect` is False only for commands on a machine that cannot keep something read-only below a writable path.
    """
    if is_unconfined(policy):
        return None
    return await asyncio.to_thread(_checked, policy, cwd, pins, home, protect=protect)


async def request_sandbox(policy: SandboxPolicy, cwd: str, home: str, *, protect: bool) -> Sandbox | None:
    """The sandbox of a command outside of any thread."""
    if is_unconfined(policy):
        return None
    return await asyncio.to_thread(_resolved, policy, cwd, home, protect=protect)


def sandbox_for(policy: SandboxPolicy, cwd: str, *, home: str | None = None, protect: bool = True) -> Sandbox | None:
    """The same, blocking; None when the policy asks for no confinement by us."""
    return None if is_unconfined(policy) else _resolved(policy, cwd, home, protect=protect)


def is_unconfined(policy: SandboxPolicy) -> bool:
    return isinstance(policy, DangerFullAccessSandboxPolicy | ExternalSandboxSandboxPolicy)


def _resolved(policy: SandboxPolicy, cwd: str, home: str | None, *, protect: bool) -> Sandbox:
    return _checked(policy, cwd, Pins(pin(policy, cwd)), home, protect=protect)


def _checked(policy: SandboxPolicy, cwd: str, pins: Pins, home: str | None, *, protect: bool) -> Sandbox:
    """Blocking."""
    assert isinstance(policy, ReadOnlySandboxPolicy | WorkspaceWriteSandboxPolicy)
    entries = [_root()]
    homes = _Home(home) if home else None
    if isinstance(policy, WorkspaceWriteSandboxPolicy):
        pins.check(policy, cwd)
        if homes is not None:
            homes.check_links([pins[path] for path in pinned_paths(policy, cwd)])
        entries += _workspace(policy, cwd, pins, homes, protect)
    elif homes is not None and homes.has(os.path.realpath(cwd)):
        entries.append(_path(os.path.realpath(cwd), "read"))
    if homes is not None:
        homes.check_outside(pins[cwd])
        entries += homes.entries()
    return Sandbox(
        permissions=Permissions(
            type="managed",
            network="enabled" if policy.network_access else "restricted",
            file_system=FileSystemPermissions(type="restricted", entries=tuple(entries)),
        ),
        cwd=uri_from_path(cwd),
        canonical_paths=True,
    )


def _workspace(
    policy: WorkspaceWriteSandboxPolicy, cwd: str, pins: Pins, home: _Home | None, protect: bool
) -> Iterator[SandboxEntry]:
    roots = [pins[path] for path in pinned_paths(policy, cwd, temporary=False)]
    temporary = [pins[path] for path in pinned_paths(policy, cwd)]
    if home is not None and not protect:
        # A root that was asked for by name is refused when the home is in it. These were not, so they are left out.
        temporary = [root for root in temporary if not home.is_in(root)]
    writable = list(dict.fromkeys((*roots, *temporary)))
    for root in writable:
        if home is None or not home.reserves(root):
            yield _path(root, "write")
    if protect:
        for path in protected_paths(roots, writable):
            if home is None or not home.has(path):
                yield _path(path, "read")


class _Home:
    """The home in use. It is made when it is missing, so that there is something to cover."""

    def __init__(self, home: str) -> None:
        with contextlib.suppress(OSError):  # where we cannot make it, no command can
            os.makedirs(home, mode=0o700, exist_ok=True)
        found = resolve_path(os.path.abspath(home))
        self._path, self._links = found.canonical, found.links

    def has(self, path: str) -> bool:
        return contains(self._path, path)

    def is_in(self, root: str) -> bool:
        return contains(root, self._path)

    def reserves(self, root: str) -> bool:
        """Whether the root is the home itself, or is in a part of it that nobody may write."""
        name = os.path.relpath(root, self._path).split("/")[0]
        return self.has(root) and name in (".", *INSTRUCTIONS, "config.toml", "auth.json")

    def check_links(self, writable: Iterable[str]) -> None:
        """A link that a command could replace would decide what the next server takes for its home."""
        for link in self._links:
            if any(contains(root, os.path.dirname(link)) for root in writable):
                raise refused(
                    f"the home of Treadle is found through the symbolic link {link!a}, which a command could "
                    f"replace; set TREADLE_HOME to {self._path!a}"
                )

    def check_outside(self, cwd: str) -> None:
        if cwd == self._path:
            raise refused(
                f"the working directory {cwd!a} is the home of Treadle itself, with its settings and its "
                "login, which commands must not see; choose another"
            )

    def entries(self) -> Iterable[SandboxEntry]:
        yield _path(self._path, "none")
        for name in INSTRUCTIONS:
            yield _path(os.path.realpath(os.path.join(self._path, name)), "read", "skip")


def _root() -> SandboxEntry:
    return SandboxEntry(path=SandboxPath(type="special", value=SandboxPathValue(kind="root")), access="read")


def _path(path: str, access: str, missing: str | None = None) -> SandboxEntry:
    return SandboxEntry(
        path=SandboxPath(type="path", path=uri_from_path(path)), access=access, missing_path_behavior=missing
    )


async def can_protect() -> bool:
    """Whether something read-only below a writable root can be enforced here. The first answer takes a moment."""
    return await asyncio.to_thread(_has_bubblewrap)


def _has_bubblewrap() -> bool:
    # Loaded at the first question about it.
    from treadle.execution.sandbox.bubblewrap import Installation
    from treadle.execution.sandbox.host import HOST

    return os.environ.get("TREADLE_SANDBOX") != "landlock" and isinstance(HOST.bubblewrap(), Installation)
