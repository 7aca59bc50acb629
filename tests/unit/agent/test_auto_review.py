"""The automatic reviewer: whatever its model does, only a clear answer is a yes, and everything is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw, structs

from treadle.agent import (
    ATTEMPTS,
    CHANGED,
    LATE,
    MAX_DENIED,
    MAX_IN_A_ROW,
    Approval,
    ApprovalQuestion,
    Outcome,
    ReviewedAction,
    ToolUse,
    Turn,
    is_yes,
)
from treadle.agent.tools import auto_review
from treadle.errors import RpcError
from treadle.llm import (
    Completed,
    Created,
    ItemDone,
    ItemStarted,
    MessageItem,
    ModelError,
    ModelEvent,
    ModelRequest,
    TokenUsage,
    read_item,
)
from treadle.protocol.app import (
    ApplyPatchGuardianApprovalReviewAction,
    FileChangeRequestApprovalParams,
    FileChangeRequestApprovalResponse,
)
from unit.agent.bare_thread import Ears, PlayedModel, PlayedStream, bare_thread

pytestmark = pytest.mark.anyio

DEADLINE_S = 30
METHOD = "item/fileChange/requestApproval"
ACCEPT = Raw(b'{"decision": "accept"}')
ALLOW = {"risk_level": "low", "user_authorization": "high", "rationale": "it was asked for", "outcome": "allow"}
DENY = {**ALLOW, "risk_level": "high", "rationale": "too dangerous", "outcome": "deny"}
YES, NO = json.dumps(ALLOW), json.dumps(DENY)
END = Completed("r")


def message(text: str, item_id: str = "m") -> MessageItem:
    content = [{"type": "output_text", "text": text}]
    raw = {"type": "message", "id": item_id, "role": "assistant", "content": content}
    item = read_item(Raw(msgspec.json.encode(raw)), item_id)
    assert isinstance(item, MessageItem)
    return item


def says(*texts: str, end: ModelEvent | ModelError | None = END) -> list[ModelEvent | ModelError]:
    """A response with these messages."""
    events: list[ModelEvent | ModelError] = [Created("r")]
    for number, text in enumerate(texts):
        item = message(text, f"m{number}")
        events += [ItemStarted(item), ItemDone(item)]
    return [*events, *([] if end is None else [end])]


class Silent:
    """A model that never answers."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    def stream(self, request: ModelRequest) -> _SilentStream:
        return _SilentStream(self)

    async def close(self) -> None: ...


class _SilentStream(PlayedStream):
    def __init__(self, model: Silent) -> None:
        super().__init__(())
        self._model = model

    async def __anext__(self) -> ModelEvent:
        self._model.asked.set()
        await asyncio.Event().wait()
        raise AssertionError


class Stage:
    """A turn whose model wants to patch a file, and the reviewer's model."""

    def __init__(self, turn: Turn, ears: Ears, model: Any) -> None:
        self.turn = turn
        self.thread = turn.thread
        self.ears = ears
        self.model = model
        self.interrupted = False

    def approval(self) -> Approval:
        return Approval(self.turn, "a patch")

    async def ask(self, approval: Approval, file: str = "/f") -> Outcome:
        async with asyncio.timeout(DEADLINE_S):
            return await approval.ask(
                ApprovalQuestion(
                    METHOD, self._params, FileChangeRequestApprovalResponse, ToolUse("c", "t", {}), self._wish(file)
                )
            )

    def _wish(self, file: str) -> Any:
        shown = ApplyPatchGuardianApprovalReviewAction(cwd="/", files=(file,))
        return lambda: ReviewedAction(item_id="i", shown=shown, exact={"writes": file})

    def _params(self) -> FileChangeRequestApprovalParams:
        return FileChangeRequestApprovalParams(thread_id="t", turn_id="u", item_id="i", started_at_ms=0)

    async def told(self) -> list[tuple[str, Any]]:
        await self.thread.journal.flush()
        short = {"guardianWarning": "message", "item/autoApprovalReview/completed": "review"}
        reports = ((told["method"], told["params"]) for told in self.ears.told)
        return [(method, params[short[method]]) for method, params in reports if method in short]

    async def status(self) -> str:
        return str([review["status"] for method, review in await self.told() if method.endswith("completed")][-1])


@asynccontextmanager
async def stage(tmp_path: Path, *answers: Sequence[ModelEvent | ModelError], model: Any = None) -> AsyncIterator[Stage]:
    async def nothing(turn: Turn) -> None: ...

    played = model or PlayedModel(*answers)
    async with bare_thread(tmp_path, played) as (thread, ears):
        await thread.load_history()
        given = structs.replace(thread.settings, approval_policy="on-request", approvals_reviewer="auto_review")
        thread.state = structs.replace(thread.state, settings=given)
        made = Stage(Turn(thread, nothing), ears, played)

        def interrupt() -> None:
            made.interrupted = True

        made.turn.interrupt = interrupt  # type: ignore[method-assign, assignment]
        yield made
        assert not thread.requests  # no question stays on the table


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries without a pause."""

    def no_pause(error: ModelError, attempt: int, limit: int, *, answered: bool) -> float | None:
        return 0.0 if error.retryable and attempt < limit else None

    monkeypatch.setattr(auto_review, "pause_after", no_pause)


# --- a clear answer --------------------------------------------------------------------------------------------------


async def test_a_yes_is_told_and_counts(tmp_path: Path) -> None:
    async with stage(tmp_path, says(YES)) as it:
        assert await it.ask(it.approval()) == "accept"
        assert await it.told() == [
            (
                "guardianWarning",
                "Automatic approval review approved (risk: low, authorization: high): it was asked for",
            ),
            (
                "item/autoApprovalReview/completed",
                {
                    "status": "approved",
                    "riskLevel": "low",
                    "userAuthorization": "high",
                    "rationale": "it was asked for",
                },
            ),
        ]
        (asked,) = it.model.asked
        assert (asked.model, asked.reasoning_effort, asked.tools) == ("m", "low", ())


async def test_a_no_is_told_with_its_reason(tmp_path: Path) -> None:
    async with stage(tmp_path, says(NO)) as it:
        approval = it.approval()
        outcome = await it.ask(approval)
        assert outcome == "decline"
        told = approval.denied(outcome)
        assert "too dangerous" in told
        assert "Do not try to get the same effect in another way" in told
        assert await it.status() == "denied"
        assert not it.interrupted


async def test_an_answer_that_cannot_be_read_is_asked_for_again(tmp_path: Path) -> None:
    async with stage(tmp_path, says("hm"), says(), says(YES)) as it:
        assert await it.ask(it.approval()) == "accept"
        assert len(it.model.asked) == ATTEMPTS


# --- no clear answer -------------------------------------------------------------------------------------------------

CUT = ModelError("the response broke off", kind="cut", retryable=True)
LIMITED = ModelError("too many requests", kind="rate_limited", http_status=429, retryable=True)
BAD: dict[str, list[ModelEvent | ModelError]] = {
    "nothing": [],
    "no message": says(),
    "not JSON": says("fine, go on"),
    "extra text": says(f"Here you are: {YES}"),
    "missing members": says('{"outcome": "allow"}'),
    "a wrong word": says(YES.replace('"low"', '"tiny"')),
    "a yes against the rules": says(YES.replace('"low"', '"critical"')),
    "two answers": says(YES, YES),
    "a no and a yes": says(NO, YES),
    "no end": says(YES, end=None),
    "a pause": says(YES, end=Completed("r", paused=True)),
    "cut off after the yes": says(YES, end=CUT),
    "cut off": [Created("r"), CUT],
    "rate limit": [LIMITED],
    "refused": [ModelError("no", kind="refused", http_status=400)],
    "incomplete": says(YES, end=ModelError("the model stopped early", kind="incomplete")),
}


@pytest.mark.parametrize("name", BAD)
async def test_without_a_clear_answer_nobody_means_no(tmp_path: Path, name: str) -> None:
    async with stage(tmp_path, *[BAD[name]] * ATTEMPTS) as it:
        it.ears.can_ask = False
        approval = it.approval()
        outcome = await it.ask(approval)
        assert outcome == "decline"
        assert "no judgement" in approval.denied(outcome)
        assert await it.status() == "denied"
        assert it.ears.asks == []


@pytest.mark.parametrize("name", BAD)
async def test_without_a_clear_answer_the_user_decides(tmp_path: Path, name: str) -> None:
    async with stage(tmp_path, *[BAD[name]] * ATTEMPTS) as it:
        asking = asyncio.ensure_future(it.ask(it.approval()))
        while not it.ears.asks:
            await asyncio.sleep(0)
        assert await it.status() == "aborted"
        (ask,) = it.ears.asks
        assert ask.person  # clients that say yes by themselves do not count
        it.thread.requests.answer(ask.id, ACCEPT)
        assert await asking == "accept"


@pytest.mark.parametrize(("decision", "told"), [(b'{"decision":"decline"}', "rejected by user"), (b"5", "failed")])
async def test_what_the_user_says_then_is_what_counts(tmp_path: Path, decision: bytes, told: str) -> None:
    async with stage(tmp_path, *[BAD["not JSON"]] * ATTEMPTS) as it:
        approval = it.approval()
        asking = asyncio.ensure_future(it.ask(approval))
        while not it.ears.asks:
            await asyncio.sleep(0)
        it.thread.requests.answer(it.ears.asks[0].id, Raw(decision))
        outcome = await asking
        assert not is_yes(outcome)
        assert told in approval.denied(outcome)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(list(BAD)), min_size=ATTEMPTS, max_size=ATTEMPTS))
def test_no_row_of_bad_answers_is_a_yes(tmp_path: Path, names: list[str]) -> None:
    async def run() -> None:
        async with stage(tmp_path, *[BAD[name] for name in names]) as it:
            it.ears.can_ask = False
            assert not is_yes(await it.ask(it.approval()))

    asyncio.run(run())


async def test_the_offline_model_is_not_asked(tmp_path: Path) -> None:
    async with stage(tmp_path) as it:
        given = structs.replace(it.thread.settings, model_provider="offline", model="offline")
        it.thread.state = structs.replace(it.thread.state, settings=given)
        it.ears.can_ask = False
        approval = it.approval()
        assert "offline model cannot judge" in approval.denied(await it.ask(approval))


async def test_an_action_that_is_too_long_is_not_reviewed(tmp_path: Path) -> None:
    async with stage(tmp_path) as it:
        it.ears.can_ask = False
        approval = it.approval()
        assert "too long" in approval.denied(await it.ask(approval, "x" * 100_000))


# --- too late, too early ---------------------------------------------------------------------------------------------


async def test_a_review_has_a_time_limit(tmp_path: Path) -> None:
    async with stage(tmp_path, model=Silent()) as it:
        limit(it, 10)
        it.ears.can_ask = False
        approval = it.approval()
        outcome = await it.ask(approval)
        assert outcome == "failed"
        assert approval.denied(outcome) == LATE
        assert await it.status() == "timedOut"


async def test_after_its_time_the_user_is_asked(tmp_path: Path) -> None:
    async with stage(tmp_path, model=Silent()) as it:
        limit(it, 10)
        asking = asyncio.ensure_future(it.ask(it.approval()))
        while not it.ears.asks:
            await asyncio.sleep(0.001)
        it.thread.requests.answer(it.ears.asks[0].id, RpcError(0, "no"))
        assert await asking == "failed"
        assert await it.status() == "timedOut"


def limit(it: Stage, milliseconds: int) -> None:
    services: Any = it.thread.services
    given = structs.replace(services._config.auto_review, timeout_ms=milliseconds)
    services._config = structs.replace(services._config, auto_review=given)


async def test_a_change_of_the_settings_ends_it_at_once(tmp_path: Path) -> None:
    model = Silent()
    async with stage(tmp_path, model=model) as it:
        approval = it.approval()
        asking = asyncio.ensure_future(it.ask(approval))
        await model.asked.wait()
        it.thread.authority.forget()
        outcome = await asking
        assert outcome == "withdrawn"
        assert approval.denied(outcome) == CHANGED
        assert await it.status() == "aborted"
        assert it.ears.asks == []


async def test_a_yes_under_other_settings_is_none(tmp_path: Path) -> None:
    async with stage(tmp_path, says(YES)) as it:
        stream = it.model.stream

        def change_then_answer(request: ModelRequest) -> PlayedStream:
            it.thread.authority.epoch += 1  # without the clock that would end it
            played: PlayedStream = stream(request)
            return played

        it.model.stream = change_then_answer
        assert await it.ask(it.approval()) == "withdrawn"


async def test_an_interrupt_ends_it_as_aborted(tmp_path: Path) -> None:
    model = Silent()
    async with stage(tmp_path, model=model) as it:
        asking = asyncio.ensure_future(it.ask(it.approval()))
        await model.asked.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert await it.status() == "aborted"
        assert it.thread.authority._reviews == set()


# --- the circuit breaker ---------------------------------------------------------------------------------------------


async def decide(it: Stage, count: int) -> int:
    """Ask until the turn is interrupted; how often that took."""
    for number in range(1, count + 1):
        approval = it.approval()
        outcome = await it.ask(approval)
        if not is_yes(outcome):
            approval.denied(outcome)
        if it.interrupted:
            return number
    return 0


async def test_denials_in_a_row_end_the_turn(tmp_path: Path) -> None:
    async with stage(tmp_path, *[says(NO)] * 5) as it:
        assert await decide(it, 5) == MAX_IN_A_ROW
        method, text = (await it.told())[-1]
        assert method == "guardianWarning"
        assert "3 in a row" in text


async def test_denials_among_the_last_reviews_end_the_turn(tmp_path: Path) -> None:
    row = [says(YES if number % 3 == 0 else NO) for number in range(1, 30)]
    async with stage(tmp_path, *row) as it:
        assert await decide(it, len(row)) == 14  # the tenth denial
        assert it.turn.reviews.count("denied") == MAX_DENIED


# --- the user overrules ----------------------------------------------------------------------------------------------


async def test_the_user_may_allow_what_was_denied_once(tmp_path: Path) -> None:
    async with stage(tmp_path, says(NO), says(NO), says(NO)) as it:
        assert await it.ask(it.approval()) == "decline"
        await it.thread.journal.flush()
        (review_id,) = [
            told["params"]["reviewId"]
            for told in it.ears.told
            if told["method"].endswith("autoApprovalReview/completed")
        ]
        assert it.thread.authority.overrule("another") is None
        assert it.thread.authority.overrule(review_id) == "i"
        assert await it.ask(it.approval(), "/other") == "decline"
        assert await it.ask(it.approval()) == "accept"
        assert await it.ask(it.approval()) == "decline"
        assert it.thread.authority.overrule(review_id) is None


async def test_what_was_overruled_ends_with_the_settings(tmp_path: Path) -> None:
    async with stage(tmp_path, says(NO)) as it:
        it.thread.authority.denied("r", "i", json.dumps({"writes": "/f"}))
        it.thread.authority.denied("s", "i", "other")
        assert it.thread.authority.overrule("r") == "i"
        it.thread.authority.forget()
        assert it.thread.authority.overrule("s") is None
        assert await it.ask(it.approval()) == "decline"


# --- what it costs ---------------------------------------------------------------------------------------------------


async def test_its_tokens_are_not_those_of_the_conversation(tmp_path: Path) -> None:
    used = TokenUsage(input_tokens=10, output_tokens=5, total_tokens=15)
    async with stage(tmp_path, says(YES, end=Completed("r", used))) as it:
        before = it.thread.state.usage
        await it.ask(it.approval())
        assert it.thread.state.usage.total == before.total
        assert it.thread.state.usage.last == before.last
        assert it.turn.report.tokens == 0
