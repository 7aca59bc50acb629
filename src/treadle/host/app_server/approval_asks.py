"""What an app-server asks of a person, as an `Ask`, and the answer as the server takes it. Pure."""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET

from treadle.client.approval_requests import ApprovalDecision, ApprovalRequest
from treadle.host.ask import Ask, Choice
from treadle.host.patch_summary import patch_summary

_DECISIONS: Final[dict[Choice, ApprovalDecision]] = {
    "once": ApprovalDecision.accept,
    "session": ApprovalDecision.accept_for_session,
}


def decision_of(choice: Choice) -> ApprovalDecision:
    """A no does not end the turn: the model is told, and finds another way."""
    return _DECISIONS.get(choice, ApprovalDecision.decline)


def ask_of(request: ApprovalRequest) -> Ask:
    """The question for a person."""
    ids: dict[str, Any] = {"thread_id": request.thread_id, "turn_id": request.turn_id, "detail": request.params}
    if request.kind == "patch":
        return _patch(request, ids)
    if request.kind == "permissions":
        where = f"in {request.cwd}" if request.cwd else ""
        title = f"more permissions for the rest of the turn: {_wanted(request)}"
        return Ask(kind="permissions", title=title, description=_told(where, request.reason), cwd=request.cwd, **ids)
    network = getattr(request.params, "network_approval_context", None)
    where = f"in {request.cwd}" if request.cwd else ""
    if network is not None and network is not UNSET:
        title = f"network access to {network.host} ({network.protocol})"
        description = _told(f"by the command {request.command}" if request.command else "", where, request.reason)
        return Ask(
            kind="network", title=title, description=description, command=request.command, cwd=request.cwd, **ids
        )
    title = request.command or "a command that the server does not show"
    description = _told(where, request.reason)
    return Ask(kind="command", title=title, description=description, command=request.command, cwd=request.cwd, **ids)


def _patch(request: ApprovalRequest, ids: dict[str, Any]) -> Ask:
    root = getattr(request.params, "grant_root", None)
    grants = f"this also allows writing anywhere in {root}" if root else ""
    return Ask(
        kind="patch",
        title=f"apply_patch: {patch_summary(request.changes)}",
        description=_told(grants, request.reason),
        paths=tuple(change.path for change in request.changes),
        **ids,
    )


def _wanted(request: ApprovalRequest) -> str:
    given = {} if request.permissions is None else request.permissions.model_dump(exclude_none=True)
    return ", ".join(f"{name} {value}" for name, value in given.items() if value) or "none are named"


def _told(*parts: str | None) -> str:
    return "; ".join(part for part in parts if part)
