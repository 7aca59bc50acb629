"""What a thread's approval policy says about something that the model wants to do. Pure; who asks is `tools.approval`.

It owns the table of policies, and what is said when the answer is no.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct

from treadle.protocol.app.settings import GranularAskForApproval

if TYPE_CHECKING:
    from treadle.agent.state import Settings

Decision: TypeAlias = Literal["allow", "ask", "refuse"]

NOT_ALLOWED: Final = (
    "approval policy is {policy}; this needs the user's approval, which cannot be asked for. "
    "Find a way that works inside the sandbox, or say what the user has to allow."
)


class Risk(Struct, frozen=True):
    """`untrusted`: not known to be harmless, which counts under that policy. `beyond`: it leaves the sandbox."""

    untrusted: bool
    beyond: bool


def decide(settings: Settings, risk: Risk) -> Decision:
    policy = settings.approval_policy
    if isinstance(policy, GranularAskForApproval):
        policy = "on-request" if policy.granular.sandbox_approval else "never"
    if policy == "never":
        return "refuse" if risk.beyond else "allow"
    if policy == "untrusted":
        return "ask" if risk.untrusted or risk.beyond else "allow"
    return "ask" if risk.beyond else "allow"


def refusal(settings: Settings) -> str:
    """What the model is told when nobody can be asked."""
    return NOT_ALLOWED.format(policy=_named(settings))


def refusal_notice(settings: Settings, what: str) -> str:
    """The same for people."""
    return (
        f"{what} was refused: it would leave the sandbox, and the approval policy "
        f"`{_named(settings)}` lets nobody be asked."
    )


def is_reviewed(settings: Settings) -> bool:
    """Whether an automatic reviewer is asked before the user. Who trusts no command wants to see them all."""
    return settings.approvals_reviewer != "user" and settings.approval_policy != "untrusted"


def _named(settings: Settings) -> str:
    policy = settings.approval_policy
    return policy if isinstance(policy, str) else "granular"
