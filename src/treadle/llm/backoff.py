"""How long to wait before a retry: one rule for requests and for streams."""

from __future__ import annotations

from typing import Final

from treadle.llm.model import MAX_ASKED_S, ModelError

FIRST_PAUSE_S: Final = 0.2
MAX_PAUSE_S: Final = 30.0
# Many threads fail at once, and should not come back at once.
JITTER: Final = 0.1


def pause(attempt: int, asked_s: float | None, longest_s: float = MAX_ASKED_S) -> float | None:
    """Seconds to wait after failed `attempt` (0 is the first): as the server asked, else twice as long each time.

    None when the server asks for more than `longest_s`. What it asked for is never undercut.
    """
    import random  # only for retries

    if asked_s is not None:
        return asked_s * random.uniform(1.0, 1.0 + JITTER) if asked_s <= longest_s else None
    # The exponent is bounded because 2.0 ** 2000 is an error.
    doubled = min(FIRST_PAUSE_S * 2.0 ** min(attempt, 30), MAX_PAUSE_S)
    return min(doubled * random.uniform(1.0 - JITTER, 1.0 + JITTER), longest_s)


def pause_after(error: ModelError, attempt: int, limit: int, *, answered: bool) -> float | None:
    """Seconds to wait before a response that failed is asked for again; None when it is not worth it.

    Args:
        error: Why it failed.
        attempt: How many attempts there were before this one.
        limit: How often it is asked for again.
        answered: Whether the provider has answered anything before: a server that was not there from the start will
            not be there in a moment either.
    """
    hopeless = not error.retryable or (error.kind == "absent" and not answered)
    return None if hopeless or attempt >= limit else pause(attempt, error.retry_after_s)


def was_retried(error: ModelError) -> bool:
    """Whether the request was sent several times already, silently: then the next attempts send it once each."""
    return error.kind == "unreachable" or (error.http_status or 0) >= 500
