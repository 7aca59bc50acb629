"""`Approval`: the permission for one call of the model. The thread's approval policy decides, or the user, or an
automatic reviewer in the user's place (`auto_review`), or nobody, which means no.

It owns the table of policies, the steps from the risk to a yes or no, and the round trip to the clients. An approval
counts only under the settings that it was begun with: when they change meanwhile, it is outdated. An answer that cannot
be read is no.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from treadle.agent.thread.authority import CHANGED
from treadle.errors import RpcError
from treadle.logs import audit
from treadle.logs.metrics import APPROVALS
from treadle.protocol.app.base import decode
from treadle.protocol.app.settings import GranularAskForApproval

if TYPE_CHECKING:
    from treadle.agent.thread.client_requests import ClientRequest
    from treadle.agent.thread.thread import Thread
    from treadle.agent.thread.thread_state import Settings
    from treadle.agent.tools.auto_review import Verdict
    from treadle.agent.turn.turn import Turn
    from treadle.protocol.app.approvals import GuardianApprovalReviewAction


# --- the policy -------------------------------------------------------------------------------------------------------


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
    """The answer for the model when nobody can be asked."""
    return NOT_ALLOWED.format(policy=policy_name(settings))


def refusal_notice(settings: Settings, what: str) -> str:
    """The same for people."""
    return (
        f"{what} was refused: it would leave the sandbox, and the approval policy "
        f"`{policy_name(settings)}` lets nobody be asked."
    )


def is_reviewed(settings: Settings) -> bool:
    """Whether an automatic reviewer is asked before the user. Who trusts no command wants to see them all, and who
    plans wants nothing to be done."""
    trusting = settings.approval_policy != "untrusted" and settings.mode != "plan"
    return settings.approvals_reviewer != "user" and trusting


def policy_name(settings: Settings) -> str:
    policy = settings.approval_policy
    return policy if isinstance(policy, str) else "granular"


# --- asking -----------------------------------------------------------------------------------------------------------


logger: logging.Logger = logging.getLogger(__name__)
# Somebody may be asleep; but a question does not stay open for ever.
ANSWER_S: Final = 24 * 3600.0
UserDecision: TypeAlias = Literal["accept", "acceptForSession", "acceptAlways", "decline", "cancel"]
# Nobody could be asked; the question got no answer that can be read; the settings changed while it was open.
NoDecision: TypeAlias = Literal["refused", "failed", "withdrawn"]
Outcome: TypeAlias = UserDecision | NoDecision
REJECTED: Final = "rejected by user"
REJECTED_BY_HOOK: Final = "rejected by a PermissionRequest hook"
FAILED: Final = "approval request failed"


class ReviewedAction(Struct, frozen=True, kw_only=True):
    """What an automatic reviewer judges, and what clients see of it. `exact` leaves nothing out of what will be done;
    `reason` is what the model says about it."""

    item_id: str
    shown: GuardianApprovalReviewAction
    exact: Mapping[str, object]
    reason: str | None = None

    @property
    def fingerprint(self) -> str:
        """The same for the same action, whatever reason is given, and for no other."""
        return json.dumps(self.exact, sort_keys=True)


def read_decision(answer: Raw | RpcError, wanted: type[Any]) -> UserDecision | Literal["failed"]:
    if isinstance(answer, RpcError):
        return "failed"
    try:
        decision = decode(answer, wanted).decision
    except msgspec.DecodeError:
        return "failed"
    if decision in ("accept", "acceptForSession", "decline", "cancel"):
        read: UserDecision = decision
        return read
    # A rule for later commands is more than we store: the command itself was accepted, and only it.
    return "acceptForSession" if hasattr(decision, "accept_with_execpolicy_amendment") else "decline"


class ToolUse(Struct, frozen=True):
    """A call of the model as hooks know it, under the name that they have for its tool."""

    call_id: str
    name: str
    input: Any


COMMAND: Final = "Bash"
PATCH: Final = "apply_patch"


def command_use(call_id: str, command: str, reason: str | None = None) -> ToolUse:
    given = {"command": command}
    return ToolUse(call_id, COMMAND, given if reason is None else {**given, "description": reason})


def mcp_use(call_id: str, server: str, tool: str, arguments: Any) -> ToolUse:
    return ToolUse(call_id, f"mcp__{server}__{tool}", arguments)


class ApprovalQuestion(Struct, frozen=True):
    """The question to the user. `params` is called when the question is open: the thread waits from then on. `use` is
    what hooks are given that may answer first. `action` is called when a reviewer is asked instead; without it the
    question is always the user's. `read` says what an answer means."""

    method: str
    params: Callable[[], Struct]
    answer: type[Any]
    use: ToolUse
    action: Callable[[], ReviewedAction] | None = None
    read: Callable[[Raw | RpcError, type[Any]], UserDecision | Literal["failed"]] = read_decision


class Approval:
    """`what` is named to people when it is not allowed."""

    def __init__(self, turn: Turn, what: str) -> None:
        self._turn = turn
        self._thread = turn.thread
        self._what = what
        self.epoch: int = turn.thread.authority.epoch
        self.settings: Settings = turn.settings
        self._verdict: Verdict | None = None  # of a reviewer that has decided
        self._hook_refusal: str | None = None

    @property
    def outdated(self) -> bool:
        """Whether it was begun under settings that are no longer in force."""
        return self._thread.authority.epoch != self.epoch

    @property
    def was_reviewed(self) -> bool:
        """Whether an automatic reviewer has decided, or a hook has refused."""
        return self._verdict is not None or self._hook_refusal is not None

    async def seek(self, risk: Risk, request: ApprovalQuestion) -> Outcome:
        """Go by the policy, and ask the user when it says so."""
        match decide(self.settings, risk):
            case "allow":
                return "accept"
            case "refuse":
                return "refused"
            case "ask":
                return await self.ask(request)

    def may_ask(self) -> bool:
        """Whether the user can be asked for something outside of the sandbox."""
        return decide(self.settings, Risk(untrusted=True, beyond=True)) == "ask"

    async def ask(self, request: ApprovalQuestion) -> Outcome:
        """Ask, whatever the policy says."""
        if (hooks := self._thread.hooks) is not None:
            decision = await hooks.permission(self._turn, request.use)
            if self.outdated:
                return "withdrawn"
            if decision.refusal is not None:
                self._hook_refusal = decision.refusal
                return self._decided(request, "decline", "declined by a hook")
            if decision.allowed:
                return self._decided(request, "accept", "accepted by a hook")
        if request.action is None or not is_reviewed(self.settings):
            return await self._ask_user(request)
        from treadle.agent.tools.auto_review import review  # loaded with the first review

        verdict = await review(self._turn, self.settings, request.action())
        said = verdict.outcome or "left to the user"
        outcome = self._decided(request, verdict.outcome or "failed", f"reviewed: {said}")
        if verdict.outcome is None:
            return await self._ask_user(request, person=True)
        if outcome == verdict.outcome:  # a yes that was recorded, or a no
            self._verdict = verdict
        return outcome

    async def _ask_user(self, request: ApprovalQuestion, *, person: bool = False) -> Outcome:
        """`person`: not a client that says yes by itself."""
        ask = self._thread.requests.open(request.method, person=person, approval=True)
        ask.params = request.params()
        epoch = self._thread.authority.epoch
        logger.info("approval asked", {"method": request.method})
        if audit.log is not None:
            try:
                audit.log.record("approval asked", {"method": request.method, "question": ask.id})
            except audit.AuditFailed as error:
                ask.resolve(RpcError(0, str(error)))  # which is no yes
        answer = await answer_to(self._thread, ask)
        in_force = self._thread.authority.epoch == epoch
        outcome: Outcome = request.read(answer, request.answer) if in_force else "withdrawn"
        return self._decided(request, outcome)

    def _decided(self, request: ApprovalQuestion, outcome: Outcome, how: str | None = None) -> Outcome:
        """What the decision counts for once it is recorded: a yes that cannot be is none. `how`, if not by the user."""
        said = how or outcome
        logger.info("approval answered", {"method": request.method, "outcome": said})
        APPROVALS.add(said)
        if audit.log is not None:
            try:
                audit.log.record("approval decided", {"method": request.method, "outcome": said})
            except audit.AuditFailed:
                return "failed" if is_yes(outcome) else outcome
        return outcome

    def denied(self, outcome: Outcome) -> str:
        """The answer for the model when it was not a yes, after the end of the item. People are warned of a refusal."""
        match outcome:
            case "refused":
                self._turn.report.warning(refusal_notice(self.settings, self._what))
                return refusal(self.settings)
            case "failed" if self._verdict is None:
                return FAILED
            case "withdrawn":
                return CHANGED
            case "cancel":
                self._turn.interrupt()
        if self._hook_refusal is not None:
            return f"{REJECTED_BY_HOOK}: {self._hook_refusal}"
        if self._verdict is None:
            return REJECTED
        self._verdict.afterwards()
        return self._verdict.answer or REJECTED


def is_yes(outcome: Outcome) -> bool:
    return outcome in ("accept", "acceptForSession", "acceptAlways")


async def answer_to(thread: Thread, ask: ClientRequest) -> Raw | RpcError:
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
