"""Who decides whether something is done: the policy, the user, or nobody, which means no.

It owns the table of policies and the round trip to the clients. What is asked for is a command or a patch of the
caller; an answer that cannot be read is no.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from treadle.agent.authority import CHANGED
from treadle.agent.client_requests import ClientRequest
from treadle.agent.state import Settings
from treadle.agent.thread import Thread
from treadle.agent.turn import Turn
from treadle.errors import RpcError
from treadle.protocol.app.base import decode
from treadle.protocol.app.settings import GranularAskForApproval

# Somebody may be asleep; but a question is not kept for ever.
ANSWER_S: Final = 24 * 3600.0

Verdict: TypeAlias = Literal["accept", "acceptForSession", "decline", "cancel", "failed", "withdrawn"]
Course: TypeAlias = Literal["go", "ask", "refuse"]

REJECTED: Final = "rejected by user"
FAILED: Final = "approval request failed"
NOT_ALLOWED: Final = (
    "approval policy is {policy}; this needs the user's approval, which cannot be asked for. "
    "Find a way that works inside the sandbox, or say what the user has to allow."
)
NOT_REVIEWED: Final = (
    "declined: this thread wants an automatic reviewer (approvalsReviewer = {reviewer}), which is not available here. "
    "Find a way that needs no approval, or say what the user has to allow."
)


class Question(Struct, frozen=True):
    """`untrusted` things are asked about under that policy, `beyond` things leave the sandbox."""

    untrusted: bool
    beyond: bool


def course(settings: Settings, question: Question) -> Course:
    """What the policy says."""
    policy = settings.approval_policy
    if isinstance(policy, GranularAskForApproval):
        policy = "on-request" if policy.granular.sandbox_approval else "never"
    if policy == "never":
        return "refuse" if question.beyond else "go"
    if policy == "untrusted":
        return "ask" if question.untrusted or question.beyond else "go"
    return "ask" if question.beyond else "go"


def refusal(settings: Settings) -> str:
    """What the model is told when nobody can be asked."""
    policy = settings.approval_policy
    shown = policy if isinstance(policy, str) else "granular"
    return NOT_ALLOWED.format(policy=shown)


def reviewer_text(settings: Settings) -> str | None:
    """Why the user is not asked, when something else than the user is to decide."""
    if settings.approvals_reviewer == "user":
        return None
    return NOT_REVIEWED.format(reviewer=settings.approvals_reviewer)


async def wait_for(thread: Thread, ask: ClientRequest) -> Raw | RpcError:
    """Send the question and wait for the first answer; the question is off the table afterwards, whatever happens."""
    thread.requests.send(ask)
    try:
        async with asyncio.timeout(ANSWER_S):
            answer: Raw | RpcError = await ask.answer
            return answer
    except TimeoutError:
        return RpcError(0, "nobody answered")
    finally:
        thread.requests.close(ask)


async def ask_user(thread: Thread, ask: ClientRequest, wanted: type[Any]) -> Verdict:
    """What the user says; an answer to a question of other settings than those in force now is none."""
    epoch = thread.authority.epoch
    answer = await wait_for(thread, ask)
    return read_verdict(answer, wanted) if thread.authority.epoch == epoch else "withdrawn"


def refused_text(settings: Settings, verdict: Verdict) -> str:
    """What the model is told when it was not a yes."""
    match verdict:
        case "failed":
            return FAILED
        case "withdrawn":
            return CHANGED
    return reviewer_text(settings) or REJECTED


def read_verdict(answer: Raw | RpcError, wanted: type[Any]) -> Verdict:
    if isinstance(answer, RpcError):
        return "failed"
    try:
        decision = decode(answer, wanted).decision
    except msgspec.DecodeError:
        return "failed"
    if decision in ("accept", "acceptForSession", "decline", "cancel"):
        verdict: Verdict = decision
        return verdict
    # A rule for later commands is more than we keep: the command itself was accepted, and only it.
    return "acceptForSession" if hasattr(decision, "accept_with_execpolicy_amendment") else "decline"


def warn_refused(turn: Turn, what: str) -> None:
    policy = turn.thread.settings.approval_policy
    turn.report.warning(
        f"{what} was refused: it would leave the sandbox, and the approval policy "
        f"`{policy if isinstance(policy, str) else 'granular'}` lets nobody be asked."
    )


def warn_unreviewed(turn: Turn, what: str) -> None:
    reviewer = turn.thread.settings.approvals_reviewer
    turn.report.warning(
        f"{what} was declined: approvalsReviewer is `{reviewer}`, and no automatic reviewer is available. "
        'Set approvalsReviewer to "user" to be asked.'
    )
