"""`Approval`: the permission for one call of the model. The policy decides, or the user, or nobody, which means no.

It owns the way from the risk to a yes or no, and the round trip to the clients. It counts only under the settings that
it was begun with: when they change meanwhile, it is outdated. An answer that cannot be read is no.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from treadle.agent.approval_policy import (
    Risk,
    decide,
    refusal,
    refusal_notice,
    unreviewed,
    unreviewed_notice,
)
from treadle.agent.authority import CHANGED
from treadle.errors import RpcError
from treadle.protocol.app.base import decode

if TYPE_CHECKING:
    from treadle.agent.client_requests import ClientRequest
    from treadle.agent.state import Settings
    from treadle.agent.thread import Thread
    from treadle.agent.turn import Turn

# Somebody may be asleep; but a question is not kept for ever.
ANSWER_S: Final = 24 * 3600.0

UserDecision: TypeAlias = Literal["accept", "acceptForSession", "decline", "cancel"]
# Nobody could be asked; the question got no answer that can be read; the settings changed while it was open.
NoDecision: TypeAlias = Literal["refused", "failed", "withdrawn"]
Outcome: TypeAlias = UserDecision | NoDecision

REJECTED: Final = "rejected by user"
FAILED: Final = "approval request failed"


class Request(Struct, frozen=True):
    """The question to the user. `params` is called when the question is open: the thread waits from then on."""

    method: str
    params: Callable[[], Struct]
    answer: type[Any]


class Approval:
    """`what` is named to people when it is not allowed."""

    def __init__(self, turn: Turn, what: str) -> None:
        self._turn = turn
        self._thread = turn.thread
        self._what = what
        self.epoch: int = turn.thread.authority.epoch
        self.settings: Settings = turn.settings

    @property
    def outdated(self) -> bool:
        """Whether it was begun under settings that are no longer in force."""
        return self._thread.authority.epoch != self.epoch

    async def seek(self, risk: Risk, request: Request) -> Outcome:
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

    async def ask(self, request: Request) -> Outcome:
        """Whatever the policy says."""
        if unreviewed(self.settings) is not None:
            self._turn.report.warning(unreviewed_notice(self.settings, self._what))
            return "decline"
        ask = self._thread.requests.open(request.method)
        ask.params = request.params()
        epoch = self._thread.authority.epoch
        answer = await answer_to(self._thread, ask)
        return read_decision(answer, request.answer) if self._thread.authority.epoch == epoch else "withdrawn"

    def denied(self, outcome: Outcome) -> str:
        """It was not a yes, and its item has ended: what the model is told. People are told what they cannot know."""
        match outcome:
            case "refused":
                self._turn.report.warning(refusal_notice(self.settings, self._what))
                return refusal(self.settings)
            case "failed":
                return FAILED
            case "withdrawn":
                return CHANGED
            case "cancel":
                self._turn.interrupt()
        return unreviewed(self.settings) or REJECTED


def is_yes(outcome: Outcome) -> bool:
    return outcome in ("accept", "acceptForSession")


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


def read_decision(answer: Raw | RpcError, wanted: type[Any]) -> UserDecision | Literal["failed"]:
    if isinstance(answer, RpcError):
        return "failed"
    try:
        decision = decode(answer, wanted).decision
    except msgspec.DecodeError:
        return "failed"
    if decision in ("accept", "acceptForSession", "decline", "cancel"):
        told: UserDecision = decision
        return told
    # A rule for later commands is more than we keep: the command itself was accepted, and only it.
    return "acceptForSession" if hasattr(decision, "accept_with_execpolicy_amendment") else "decline"
