"""From a `ModelError` to `codexErrorInfo`, the word by which clients of the app-server tell failures apart.

It owns the table. What it says was recorded from the real server, but for the statuses 402, 413 and 529, which no
server of that API gives.
"""

from __future__ import annotations

from typing import Final

from treadle.llm import ErrorKind, ModelError
from treadle.protocol.app.turn_errors import (
    CodexErrorInfo,
    CodexErrorWord,
    HttpConnectionFailedCodexErrorInfo,
    HttpFailure,
    ResponseStreamDisconnectedCodexErrorInfo,
    ResponseTooManyFailedAttemptsCodexErrorInfo,
)

# Whatever the status was.
_WORDS: Final[dict[ErrorKind, CodexErrorWord]] = {
    "context_too_long": "contextWindowExceeded",
    "overloaded": "serverOverloaded",
    "policy": "cyberPolicy",
    "quota": "usageLimitExceeded",
}
# Without a status: nothing was answered, or something else than a failure.
_UNANSWERED: Final[frozenset[ErrorKind]] = frozenset({"absent", "unreachable", "untrusted"})


def error_info(error: ModelError) -> CodexErrorInfo:
    """Of a turn that ends with this error."""
    status = error.http_status
    if error.kind in _WORDS:
        return _WORDS[error.kind]
    if status == 500:
        return "internalServerError"
    if status == 429:
        return ResponseTooManyFailedAttemptsCodexErrorInfo(
            response_too_many_failed_attempts=HttpFailure(http_status_code=status)
        )
    if error.kind in _UNANSWERED or status not in (None, 200, 400):
        return HttpConnectionFailedCodexErrorInfo(http_connection_failed=HttpFailure(http_status_code=status))
    return "unauthorized" if error.kind == "unauthorized" else "other"


def retry_info(error: ModelError) -> CodexErrorInfo:
    """Of the notice that the request will be sent again because of this error."""
    return ResponseStreamDisconnectedCodexErrorInfo(
        response_stream_disconnected=HttpFailure(http_status_code=error.http_status)
    )
