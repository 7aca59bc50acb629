"""The sandbox modes and permission profiles of the app-server, as the sandbox object that the execution layer takes.

Read-only may read everything, workspace-write may also write below its roots, full access is no sandbox, and a profile
of the user has rules of its own. Whatever it is, the home in use is out of reach, but for the instructions in it that
models read. What git, we and other agents take orders from stays as it is below a writable root, where this machine can
enforce that, but for a `.git` that is a writable root itself.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Final, Literal

from treadle.execution.sandbox.policy import policy_from_wire
from treadle.execution.sandbox.profile_sandbox import Confinement, ProfileSandbox
from treadle.execution.sandbox.sandbox_roots import (
    GIT,
    HiddenHome,
    Pins,
    path_entry,
    pin,
    pinned_paths,
    protected_paths,
    root_entry,
)
from treadle.execution.uris import uri_from_path
from treadle.protocol.app.settings import (
    DangerFullAccessSandboxPolicy,
    ExternalSandboxSandboxPolicy,
    ReadOnlySandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)
from treadle.protocol.exec import (
    FileSystemPermissions,
    Permissions,
    Sandbox,
    SandboxEntry,
)

# A warning where the machine has only Landlock. Sent once per thread, and once per client for commands without one.
UNPROTECTED: Final = (
    "This machine cannot keep .git, .codex, .claude and the like read-only inside the sandbox: commands can change "
    "them, and with them what you run later (hooks of git and of agents). Install the package `bubblewrap`. Where it "
    "is there and does not work, unprivileged user namespaces are switched off: see "
    "kernel.apparmor_restrict_unprivileged_userns (newer Ubuntu; or give bwrap an AppArmor profile), "
    "kernel.unprivileged_userns_clone and user.max_user_namespaces, and docs/sandbox.md. Until then a temporary "
    "directory that has Treadle's home in it is not writable either."
)


def unprotected(machine: str | None = None) -> str:
    """The warning, about another machine where one is named."""
    return UNPROTECTED if machine is None else UNPROTECTED.replace("This machine", f"The machine `{machine}`", 1)


async def pinned_sandbox(
    policy: Confinement, cwd: str, pins: Pins, home: str, *, protect: bool = True
) -> Sandbox | None:
    """The sandbox of a thread, whose roots are known by `pins`. Raises `ExecError` when one of them was replaced.

    `protect` is False only for commands on a machine that cannot keep something read-only below a writable path.
    """
    if is_unconfined(policy):
        return None
    return await asyncio.to_thread(_checked, policy, cwd, pins, home, protect=protect)


async def request_sandbox(policy: Confinement, cwd: str, home: str, *, protect: bool) -> Sandbox | None:
    """The sandbox of a command outside of any thread."""
    if is_unconfined(policy):
        return None
    return await asyncio.to_thread(_resolved, policy, cwd, home, protect=protect)


def sandbox_for(policy: Confinement, cwd: str, *, home: str | None = None, protect: bool = True) -> Sandbox | None:
    """The sandbox of a command outside of any thread, blocking; None when the policy asks for no confinement by us."""
    return None if is_unconfined(policy) else _resolved(policy, cwd, home, protect=protect)


def is_unconfined(policy: Confinement) -> bool:
    return isinstance(policy, DangerFullAccessSandboxPolicy | ExternalSandboxSandboxPolicy)


def may_write(policy: Confinement) -> bool:
    """Whether a confined command can write somewhere: then there is something below that should stay as it is."""
    return isinstance(policy, WorkspaceWriteSandboxPolicy) or (isinstance(policy, ProfileSandbox) and policy.may_write)


def _resolved(policy: Confinement, cwd: str, home: str | None, *, protect: bool) -> Sandbox:
    return _checked(policy, cwd, Pins(pin(policy, cwd)), home, protect=protect)


def _checked(policy: Confinement, cwd: str, pins: Pins, home: str | None, *, protect: bool) -> Sandbox:
    """The sandbox object, after a check that the pinned roots are what they were. Blocking."""
    assert isinstance(policy, ReadOnlySandboxPolicy | WorkspaceWriteSandboxPolicy | ProfileSandbox)
    homes = HiddenHome(home) if home else None
    if may_write(policy):
        pins.check(policy, cwd)
        if homes is not None:
            homes.check_links([pins[path] for path in pinned_paths(policy, cwd)])
    if isinstance(policy, ProfileSandbox):
        from treadle.execution.sandbox.profile_rules import profile_entries  # for who has a profile of their own

        entries = list(profile_entries(policy, cwd, pins, homes, protect=protect))
    elif isinstance(policy, WorkspaceWriteSandboxPolicy):
        entries = [root_entry(), *_workspace(policy, cwd, pins, homes, protect)]
    else:
        entries = [root_entry()]
        if homes is not None and homes.has(os.path.realpath(cwd)):
            entries.append(path_entry(os.path.realpath(cwd), "read"))
    if homes is not None:
        homes.check_outside(pins[cwd])
        if not isinstance(policy, ProfileSandbox):
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
    policy: WorkspaceWriteSandboxPolicy, cwd: str, pins: Pins, home: HiddenHome | None, protect: bool
) -> Iterator[SandboxEntry]:
    roots = [pins[path] for path in pinned_paths(policy, cwd, temporary=False)]
    temporary = [pins[path] for path in pinned_paths(policy, cwd)]
    if home is not None and not protect:
        # A root that was asked for by name is refused when the home is in it. These were not, so they are left out.
        temporary = [root for root in temporary if not home.is_in(root)]
    writable = list(dict.fromkeys((*roots, *temporary)))
    for root in writable:
        if home is None or not home.reserves(root):
            yield path_entry(root, "write")
    if protect:
        named = [pins[os.path.join(cwd, root)] for root in policy.writable_roots]
        opened = [root for root in named if os.path.basename(root) == GIT]
        for path in protected_paths(roots, writable, opened):
            if home is None or not home.has(path):
                yield path_entry(path, "read")


async def check_enforceable(policy: Confinement, cwd: str, home: str) -> None:
    """Raises `ExecError` when commands of a permission profile could not be confined as it says: by this machine, or
    with what is at its paths now. So a bad choice fails at once, not with every command."""
    if isinstance(policy, ProfileSandbox):
        await asyncio.to_thread(_try_out, policy, cwd, home, protect=await can_protect())


def _try_out(policy: ProfileSandbox, cwd: str, home: str, *, protect: bool) -> None:
    from treadle.execution.sandbox.confinement import confine  # loads all of the mechanisms

    rules = policy_from_wire(_resolved(policy, cwd, home, protect=protect))
    assert rules is not None
    confine(rules, argv=("true",), arg0=None, cwd=cwd, env={}, tty=False).release()


def mechanism() -> Literal["bubblewrap", "landlock", "none"]:
    """What this machine confines commands by. Blocking; the first answer takes a moment."""
    if has_bubblewrap():
        return "bubblewrap"
    from treadle.execution.sandbox.confinement import HOST

    return "landlock" if HOST.landlock() and os.environ.get("TREADLE_SANDBOX", "") in ("", "landlock") else "none"


async def can_protect() -> bool:
    """Whether something read-only below a writable root can be enforced here. The first answer takes a moment."""
    return await asyncio.to_thread(has_bubblewrap)


def has_bubblewrap() -> bool:
    """The same, blocking."""
    # Loaded at the first question about it.
    from treadle.execution.sandbox.bubblewrap import Installation
    from treadle.execution.sandbox.confinement import HOST

    return os.environ.get("TREADLE_SANDBOX") != "landlock" and isinstance(HOST.bubblewrap(), Installation)
