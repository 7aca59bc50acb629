"""`ApprovalMode` and `Sandbox`: the two most important settings, as one word each."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from treadle.errors import ArgumentValueError
from treadle.protocol.app import settings

if TYPE_CHECKING:
    from treadle.protocol.app.settings import SandboxPolicy


class ApprovalMode(str, Enum):  # noqa: UP042 - as in the official SDK, also in how it prints
    """Who decides about what goes beyond the sandbox.

    `deny_all`: nobody, it is refused. `auto_review`: the server's reviewer, or your `approval_handler` if there is one.
    """

    deny_all = "deny_all"
    auto_review = "auto_review"


class Sandbox(str, Enum):  # noqa: UP042
    """What commands may do with files: only read, write in the workspace, or anything."""

    read_only = "read-only"
    workspace_write = "workspace-write"
    full_access = "full-access"


def approval_settings(mode: ApprovalMode | None, *, has_approval_handler: bool = False) -> dict[str, Any]:
    """Members of params. None leaves everything as it is; `has_approval_handler` means that an `approval_handler`
    decides.
    """
    if mode is None:
        return {}
    if not isinstance(mode, ApprovalMode):
        raise _no_member("approval_mode", mode, ApprovalMode)
    if mode is ApprovalMode.deny_all:
        return {"approval_policy": "never"}
    return {"approval_policy": "on-request", "approvals_reviewer": "user" if has_approval_handler else "auto_review"}


def sandbox_mode(sandbox: Sandbox | None) -> str | None:
    """As a thread takes it."""
    if sandbox is None:
        return None
    return "danger-full-access" if _checked(sandbox) is Sandbox.full_access else sandbox.value


def sandbox_policy(sandbox: Sandbox | None) -> SandboxPolicy | None:
    """As a turn takes it."""
    if sandbox is None:
        return None
    match _checked(sandbox):
        case Sandbox.read_only:
            return settings.ReadOnlySandboxPolicy()
        case Sandbox.workspace_write:
            return settings.WorkspaceWriteSandboxPolicy()
        case Sandbox.full_access:
            return settings.DangerFullAccessSandboxPolicy()


def _checked(sandbox: Sandbox) -> Sandbox:
    if not isinstance(sandbox, Sandbox):
        raise _no_member("sandbox", sandbox, Sandbox)
    return sandbox


def _no_member(name: str, given: object, kind: type[Enum]) -> ArgumentValueError:
    known = ", ".join(f"{kind.__name__}.{member.name}" for member in kind)
    return ArgumentValueError(name, f"{name} must be one of {known}, not {given!r}")
