"""`Approval`: what becomes of a wish of the model, by policy, by the user, and when settings change meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw, structs

from treadle.agent import CHANGED, FAILED, REJECTED, Approval, ApprovalQuestion, Outcome, Risk, ToolUse, Turn, is_yes
from treadle.errors import RpcError
from treadle.protocol.app import FileChangeRequestApprovalParams, FileChangeRequestApprovalResponse
from unit.agent.bare_thread import Ears, bare_thread

pytestmark = pytest.mark.anyio
DEADLINE_S = 30
BEYOND = Risk(untrusted=True, beyond=True)
METHOD = "item/fileChange/requestApproval"


class Wish:
    """Something outside of the sandbox that the model wants, in a turn of its own."""

    def __init__(self, turn: Turn, ears: Ears) -> None:
        self.turn = turn
        self.thread = turn.thread
        self.ears = ears

    def set(self, **changes: Any) -> None:
        settings = structs.replace(self.thread.settings, **changes)
        self.thread.state = structs.replace(self.thread.state, settings=settings)

    async def seek(self, approval: Approval, answer: Raw | RpcError | None = None, risk: Risk = BEYOND) -> Outcome:
        """Seek approval; who is asked answers this. None: nobody is to be asked."""
        request = ApprovalQuestion(METHOD, self._params, FileChangeRequestApprovalResponse, ToolUse("c", "t", {}))
        async with asyncio.timeout(DEADLINE_S):
            seeking = asyncio.ensure_future(approval.seek(risk, request))
            if answer is not None:
                self.thread.requests.answer(await self._asked(), answer)
            return await seeking

    async def _asked(self) -> int:
        while not self.thread.requests.sent():
            await asyncio.sleep(0)
        (ask,) = self.thread.requests.sent()
        assert ask.method == METHOD
        return ask.id

    def _params(self) -> FileChangeRequestApprovalParams:
        assert self.thread.requests  # from here on the thread waits
        return FileChangeRequestApprovalParams(thread_id="t", turn_id="u", item_id="i", started_at_ms=0)

    async def warnings(self) -> list[str]:
        await self.thread.journal.flush()
        return [told["params"]["message"] for told in self.ears.told if told["method"] == "warning"]


@pytest.fixture
async def wish(tmp_path: Path) -> AsyncIterator[Wish]:
    async def nothing(turn: Turn) -> None: ...

    async with bare_thread(tmp_path) as (thread, ears):
        await thread.load_history()
        made = Wish(Turn(thread, nothing), ears)
        made.set(approval_policy="on-request")
        yield made
        assert not thread.requests  # no question stays on the table


def _says(decision: str) -> Raw:
    return Raw(f'{{"decision": "{decision}"}}'.encode())


async def test_what_the_policy_allows_is_not_asked_about(wish: Wish) -> None:
    outcome = await wish.seek(Approval(wish.turn, "it"), risk=Risk(untrusted=True, beyond=False))
    assert is_yes(outcome)


async def test_what_the_policy_refuses_is_not_asked_about(wish: Wish) -> None:
    wish.set(approval_policy="never")
    approval = Approval(wish.turn, "the wish")
    assert not approval.may_ask()
    outcome = await wish.seek(approval)
    assert not is_yes(outcome)
    assert "approval policy is never" in approval.denied(outcome)
    (told,) = await wish.warnings()
    assert told.startswith("the wish was refused: ")


@pytest.mark.parametrize(
    ("answer", "yes", "told"),
    [
        (_says("accept"), True, None),
        (_says("acceptForSession"), True, None),
        (_says("decline"), False, REJECTED),
        (_says("cancel"), False, REJECTED),
        (_says("perhaps"), False, FAILED),
        (RpcError(0, "no"), False, FAILED),
    ],
)
async def test_what_the_user_says_counts(wish: Wish, answer: Raw | RpcError, yes: bool, told: str | None) -> None:
    approval = Approval(wish.turn, "it")
    assert approval.may_ask()
    outcome = await wish.seek(approval, answer)
    assert is_yes(outcome) is yes
    assert told is None or approval.denied(outcome) == told
    assert await wish.warnings() == []


@pytest.mark.parametrize("decision", ["decline", "cancel"])
async def test_a_cancel_ends_the_turn_too(wish: Wish, decision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    monkeypatch.setattr(wish.turn, "interrupt", lambda: ended.append("interrupted"))
    approval = Approval(wish.turn, "it")
    approval.denied(await wish.seek(approval, _says(decision)))
    assert ended == (["interrupted"] if decision == "cancel" else [])


async def test_a_yes_under_other_settings_is_none(wish: Wish) -> None:
    approval = Approval(wish.turn, "it")
    seeking = asyncio.ensure_future(wish.seek(approval, _says("accept")))
    while not wish.thread.requests:
        await asyncio.sleep(0)
    wish.thread.authority.forget()  # the settings changed before the answer is there
    outcome = await seeking
    assert approval.outdated
    assert outcome == "withdrawn"
    assert approval.denied(outcome) == CHANGED


async def test_what_a_reviewer_cannot_be_told_of_is_the_users_to_decide(wish: Wish) -> None:
    wish.set(approvals_reviewer="auto_review")
    assert is_yes(await wish.seek(Approval(wish.turn, "it"), _says("accept")))
