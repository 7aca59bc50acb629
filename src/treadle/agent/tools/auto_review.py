"""The automatic reviewer: a model decides about one action instead of the user.

It owns the way of a review: what clients are told of it, its time limit, what follows from the answer, and the circuit
breaker, which ends a turn that is denied again and again. What is asked and how an answer is read is `review_request`.
It never says yes by mistake: without a clear answer the user is asked, and if nobody can be asked, the answer is no.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from treadle.agent.ids import new_id, now_ms
from treadle.agent.sampling import request_headers, tell_wait
from treadle.agent.tools.review_request import SCHEMA, Assessment, NoVerdict, read_assessment, review_messages
from treadle.config import model_facts
from treadle.errors import TreadleError
from treadle.llm import Completed, ItemDone, MessageItem, ModelError, ModelRequest
from treadle.llm.backoff import pause_after
from treadle.llm.known_providers import OFFLINE
from treadle.protocol.app.reviews import (
    GuardianApprovalReview,
    GuardianWarningNotification,
    ItemGuardianApprovalReviewCompletedNotification,
    ItemGuardianApprovalReviewStartedNotification,
)

if TYPE_CHECKING:
    from treadle.agent.state import Settings
    from treadle.agent.tools.approval import Action
    from treadle.agent.turn import Turn

ATTEMPTS: Final = 3
# The circuit breaker: denials in a row, and among the last reviews of a turn.
MAX_IN_A_ROW: Final = 3
MAX_DENIED: Final = 10
LAST_REVIEWS: Final = 50

DENIED: Final = (
    "denied by the automatic reviewer of this thread: {rationale}\n"
    "Do not try to get the same effect in another way, by another command or in smaller steps. Go on with something "
    "that is clearly safer, or tell the user what you wanted to do and why it was denied, and wait for an answer."
)
NOT_REVIEWED: Final = (
    "not done: the automatic review of this action failed ({why}), and there is nobody to ask. That is no judgement of "
    "the action. Do not work around the review: go on with what needs no approval, or tell the user what it stopped."
)
LATE: Final = (
    "not done: the automatic review of this action did not end in time, and there is nobody to ask. That is no "
    "judgement of the action. You may try it once more, or tell the user what it stopped."
)


class Verdict(Struct, frozen=True):
    """What a review came to. Without an outcome the user is to be asked. `told` is for the model; `afterwards` is
    called when the item of the action has ended."""

    outcome: Literal["accept", "decline", "failed", "withdrawn"] | None
    told: str | None = None
    afterwards: Callable[[], None] = lambda: None


class _Late(NoVerdict):
    pass


async def review(turn: Turn, settings: Settings, action: Action) -> Verdict:
    """`settings` are those under which the action was asked for."""
    if turn.thread.authority.use_overruling(action.fingerprint):
        return Verdict("accept")
    return await _Review(turn, settings, action).run()


class _Review:
    def __init__(self, turn: Turn, settings: Settings, action: Action) -> None:
        self._turn = turn
        self._thread = turn.thread
        self._settings = settings
        self._config = turn.thread.services.config_for(settings)
        self._action = action
        self._epoch = turn.thread.authority.epoch
        self._id = new_id()
        self._started_ms = now_ms()

    async def run(self) -> Verdict:
        self._tell_started()
        try:
            assessment = await self._assess_in_time()
        except asyncio.CancelledError:
            self._tell_completed(GuardianApprovalReview(status="aborted"))
            raise
        except TreadleError as error:
            return self._undecided(error)
        if self._withdrawn:
            return self._withdraw()
        return self._decided(assessment)

    @property
    def _withdrawn(self) -> bool:
        return self._thread.authority.epoch != self._epoch

    # --- asking ---

    async def _assess_in_time(self) -> Assessment:
        """Raises `TreadleError`: a change of the settings ends it early."""
        limit_ms = self._config.auto_review.timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1000) as clock:
                with self._thread.authority.ending(clock):
                    return await self._assess()
        except TimeoutError:
            if clock.expired():
                raise _Late(f"it did not end within {limit_ms / 1000:g} s") from None
            raise NoVerdict("the model of the reviewer did not answer in time") from None

    async def _assess(self) -> Assessment:
        if self._settings.model_provider == OFFLINE:
            raise NoVerdict("the offline model cannot judge")
        request = self._request()
        for attempt in range(ATTEMPTS):
            is_last = attempt == ATTEMPTS - 1
            try:
                return read_assessment(await self._answer(request))
            except NoVerdict:
                if is_last:
                    raise
            except ModelError as error:
                wait = pause_after(error, attempt, ATTEMPTS - 1, answered=True)
                if wait is None:
                    raise
                await asyncio.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    def _request(self) -> ModelRequest:
        given = self._config.auto_review
        model = given.model or self._settings.model
        history = self._thread.history.items if self._thread.history is not None else ()
        policies = [policy for policy in (given.policy, given.extra_policy) if policy]
        return ModelRequest(
            model=model,
            input=review_messages(history, self._action, secrets.token_hex(16), policies),
            reasoning_effort="low",
            reasoning_summary=None,
            output_schema=SCHEMA,
            max_output_tokens=model_facts(model, self._config).output_limit,
            prompt_cache_key=f"review:{self._thread.id}",
            headers=request_headers(self._turn),
            fair_key=self._thread.id,
            on_wait=partial(tell_wait, self._turn),
        )

    async def _answer(self, request: ModelRequest) -> str:
        """The one message of a response that came to its end. Raises `ModelError`, `NoVerdict`."""
        texts: list[str] = []
        ended = False
        async with self._thread.services.model_for(self._settings).stream(request) as events:
            async for event in events:
                match event:
                    case ItemDone(item=MessageItem() as message):
                        texts.append(message.text)
                    case Completed():
                        ended = not event.paused
                        price = model_facts(request.model, self._config).price
                        self._turn.report.review_cost(event.usage, price)
        if not ended or len(texts) != 1:
            raise NoVerdict("the reviewer did not give one whole answer")
        return texts[0]

    # --- what follows ---

    def _decided(self, assessment: Assessment) -> Verdict:
        status: Literal["approved", "denied"] = "approved" if assessment.outcome == "allow" else "denied"
        risk, authorization = assessment.risk_level, assessment.user_authorization
        self._warn(f"{status} (risk: {risk}, authorization: {authorization}): {assessment.rationale}")
        self._tell_completed(
            GuardianApprovalReview(
                status=status, risk_level=risk, user_authorization=authorization, rationale=assessment.rationale
            )
        )
        reviews = self._turn.reviews
        reviews.append(status)
        del reviews[:-LAST_REVIEWS]
        if status == "approved":
            return Verdict("accept")
        self._thread.authority.denied(self._id, self._action.item_id, self._action.fingerprint)
        return Verdict("decline", DENIED.format(rationale=assessment.rationale), self._break_circuit)

    def _break_circuit(self) -> None:
        reviews = self._turn.reviews
        in_a_row = next((n for n, status in enumerate(reversed(reviews)) if status == "approved"), len(reviews))
        denied = reviews.count("denied")
        if in_a_row >= MAX_IN_A_ROW or denied >= MAX_DENIED:
            self._warn(
                f"denied too many actions in this turn ({in_a_row} in a row, {denied} of the last {len(reviews)}); "
                "the turn is interrupted."
            )
            self._turn.interrupt()

    def _undecided(self, error: TreadleError) -> Verdict:
        if self._withdrawn:
            return self._withdraw()
        late = isinstance(error, _Late)
        can_ask = self._thread.subscribers.can_ask
        text = f"{'timed out' if late else 'failed'}: {error}"
        self._warn(f"{text}. {'You are asked instead' if can_ask else 'The action was declined'}.")
        status: Literal["timedOut", "aborted", "denied"] = "timedOut" if late else "aborted" if can_ask else "denied"
        self._tell_completed(GuardianApprovalReview(status=status, rationale=f"Automatic approval review {text}"))
        if can_ask:
            return Verdict(None)
        return Verdict("failed", LATE) if late else Verdict("decline", NOT_REVIEWED.format(why=error))

    def _withdraw(self) -> Verdict:
        self._tell_completed(GuardianApprovalReview(status="aborted", rationale="the settings of the thread changed"))
        return Verdict("withdrawn")

    # --- telling ---

    def _warn(self, text: str) -> None:
        params = GuardianWarningNotification(thread_id=self._thread.id, message=f"Automatic approval review {text}")
        self._thread.journal.emit("guardianWarning", params)

    def _tell_started(self) -> None:
        params = ItemGuardianApprovalReviewStartedNotification(
            thread_id=self._thread.id,
            turn_id=self._turn.id,
            action=self._action.shown,
            review=GuardianApprovalReview(status="inProgress"),
            review_id=self._id,
            started_at_ms=self._started_ms,
            target_item_id=self._action.item_id,
        )
        self._thread.journal.emit("item/autoApprovalReview/started", params)

    def _tell_completed(self, result: GuardianApprovalReview) -> None:
        params = ItemGuardianApprovalReviewCompletedNotification(
            thread_id=self._thread.id,
            turn_id=self._turn.id,
            action=self._action.shown,
            completed_at_ms=max(now_ms(), self._started_ms),
            decision_source="agent",
            review=result,
            review_id=self._id,
            started_at_ms=self._started_ms,
            target_item_id=self._action.item_id,
        )
        self._thread.journal.emit("item/autoApprovalReview/completed", params)
