"""The sandbox of a thread, as the execution layer takes it.

It owns what the three modes mean: read-only may read everything, workspace-write may also write below its roots, and
full access is no sandbox. The repository's own data below a writable root stays read-only where this machine can
enforce it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable

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

# What git and we read our own orders from: a command that may change the files must not change those.
PROTECTED = (".git", ".codex", ".treadle", ".agents")


def sandbox_for(policy: SandboxPolicy, cwd: str, *, protect: bool = True) -> Sandbox | None:
    """None when the policy asks for no confinement by us."""
    match policy:
        case DangerFullAccessSandboxPolicy() | ExternalSandboxSandboxPolicy():
            return None
        case ReadOnlySandboxPolicy():
            return _sandbox([_special("root", "read")], policy.network_access, cwd)
        case WorkspaceWriteSandboxPolicy():
            return _sandbox(list(_workspace(policy, cwd, protect)), policy.network_access, cwd)


def _workspace(policy: WorkspaceWriteSandboxPolicy, cwd: str, protect: bool) -> Iterable[SandboxEntry]:
    yield _special("root", "read")
    if not policy.exclude_slash_tmp:
        yield _special("slash_tmp", "write")
    if not policy.exclude_tmpdir_env_var:
        yield _special("tmpdir", "write")
    roots = [os.path.realpath(root) for root in (cwd, *policy.writable_roots)]
    for root in roots:
        yield _path(root, "write")
    if protect:
        for root in roots:
            for name in PROTECTED:
                yield _path(os.path.realpath(os.path.join(root, name)), "read", "skip")


def _sandbox(entries: list[SandboxEntry], network: bool, cwd: str) -> Sandbox:
    return Sandbox(
        permissions=Permissions(
            type="managed",
            network="enabled" if network else "restricted",
            file_system=FileSystemPermissions(type="restricted", entries=tuple(entries)),
        ),
        cwd=uri_from_path(cwd),
    )


def _special(kind: str, access: str) -> SandboxEntry:
    return SandboxEntry(path=SandboxPath(type="special", value=SandboxPathValue(kind=kind)), access=access)


def _path(path: str, access: str, missing: str | None = None) -> SandboxEntry:
    return SandboxEntry(
        path=SandboxPath(type="path", path=uri_from_path(path)), access=access, missing_path_behavior=missing
    )


async def can_protect() -> bool:
    """Whether something read-only below a writable root can be enforced here. The first answer takes a moment."""
    return await asyncio.to_thread(_has_bubblewrap)


def _has_bubblewrap() -> bool:
    from treadle.execution.sandbox.bubblewrap import Installation
    from treadle.execution.sandbox.host import HOST

    return os.environ.get("TREADLE_SANDBOX") != "landlock" and isinstance(HOST.bubblewrap(), Installation)


def may_write(sandbox: Sandbox | None, path: str) -> bool:
    """Whether a file may be written under the sandbox; symbolic links are followed first. Fails closed."""
    if sandbox is None:
        return True
    from treadle.errors import ExecError
    from treadle.execution.sandbox import policy_from_wire

    try:
        policy = policy_from_wire(sandbox)
        return policy is None or policy.access(os.path.realpath(path)) == "write"
    except (ExecError, OSError, ValueError):
        return False
