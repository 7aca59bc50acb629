"""Why a turn failed: `TurnError` and `CodexErrorInfo`, a word or an object with one member that names it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from treadle.protocol.app.base import Member, Open, Unknown, Wire, Word, union


class NonSteerableTurnKind(Word):
    review = "review"
    compact = "compact"


CodexErrorWord = Literal[
    "contextWindowExceeded",
    "sessionBudgetExceeded",
    "usageLimitExceeded",
    "rateLimitExceeded",
    "flexUnavailable",
    "serverOverloaded",
    "modelNotFound",
    "policyCapacityUnavailable",
    "cyberPolicy",
    "misalignmentPolicyViolation",
    "tooManyDenials",
    "internalServerError",
    "unauthorized",
    "badRequest",
    "threadRollbackFailed",
    "sandboxError",
    "other",
]


class HttpFailure(Wire, frozen=True, kw_only=True):
    http_status_code: int | None = None


class ActiveTurnNotSteerable(Wire, frozen=True, kw_only=True):
    turn_kind: Open[NonSteerableTurnKind]


class HttpConnectionFailedCodexErrorInfo(Member, frozen=True, kw_only=True):
    http_connection_failed: HttpFailure


class ResponseStreamConnectionFailedCodexErrorInfo(Member, frozen=True, kw_only=True):
    response_stream_connection_failed: HttpFailure


class ResponseStreamDisconnectedCodexErrorInfo(Member, frozen=True, kw_only=True):
    response_stream_disconnected: HttpFailure


class ResponseTooManyFailedAttemptsCodexErrorInfo(Member, frozen=True, kw_only=True):
    response_too_many_failed_attempts: HttpFailure


class ActiveTurnNotSteerableCodexErrorInfo(Member, frozen=True, kw_only=True):
    active_turn_not_steerable: ActiveTurnNotSteerable


KnownErrorInfo = (
    CodexErrorWord
    | HttpConnectionFailedCodexErrorInfo
    | ResponseStreamConnectionFailedCodexErrorInfo
    | ResponseStreamDisconnectedCodexErrorInfo
    | ResponseTooManyFailedAttemptsCodexErrorInfo
    | ActiveTurnNotSteerableCodexErrorInfo
)

if TYPE_CHECKING:
    CodexErrorInfo = KnownErrorInfo | str | Unknown
else:
    CodexErrorInfo = union("CodexErrorInfo", get_args(KnownErrorInfo))


class MisalignmentSteer(Wire, frozen=True, kw_only=True):
    message: str


class MisalignmentErrorDetails(Wire, frozen=True, kw_only=True):
    detailed_explanation: str | None = None
    error_type: str | None = None
    review_target: str | None = None
    steer: MisalignmentSteer | None = None


class TurnError(Wire, frozen=True, kw_only=True):
    """`message` is for a person, `codex_error_info` for a program."""

    message: str
    additional_details: str | None = None
    codex_error_info: CodexErrorInfo | None = None
    misalignment: MisalignmentErrorDetails | None = None
