"""Why a run of an engine failed, as a `Fault`: judged by its process first, by its words last. Pure.

Engines report failures in words for people, each in its own; the patterns match what the real programs print.
"""

from __future__ import annotations

import re
from typing import Final

from treadle.host.fault_text import RETRYABLE, advice, clean, tail
from treadle.host.faults import Fault, FaultKind
from treadle.runners.engine import Ending

_WORDS: Final[dict[FaultKind, str]] = {
    "auth": r"\b401\b|unauthori[sz]ed|authentication|not logged in|/login\b|invalid (x-)?api[ -]?key"
    r"|no api key|there is no key|needs the environment variable|token (has )?expired",
    "usage_limit": r"\b402\b|usage limit|insufficient_quota|quota .*(used up|exceeded)|credit balance|hit your limit",
    "context_window": r"context window|context length|context_length_exceeded|prompt is too long",
    "rate_limited": r"\b429\b|rate.?limit|too many requests",
    "overloaded": r"\b(529|503)\b|overloaded|no free capacity",
    "model_not_found": r"\bmodel\b.*(not found|does not exist|not available|may not exist)|not_found_error",
    "network": r"ECONNREFUSED|ENOTFOUND|connection (error|refused)|unable to connect|fetch failed|stream disconnected",
}
_PATTERNS: Final = {kind: re.compile(words, re.IGNORECASE) for kind, words in _WORDS.items()}


def engine_fault(
    engine: str,
    error: str,
    *,
    ending: Ending | None,
    stderr: str = "",
    secrets: list[str] | None = None,
    log_in: str | None = None,
    no_login: bool = False,
    lost_session: bool = False,
) -> Fault:
    """What a run has failed of.

    Args:
        engine: Its name.
        error: Why, as the run told it.
        ending: How its process ended, if there was one.
        stderr: The last of what it wrote there.
        secrets: Values that must not be shown.
        log_in: What a person types to log in.
        no_login: Whether the engine has no login, as far as one can see.
        lost_session: Whether it was to go on with a session and did not even find it: it never will.
    """
    hidden = secrets or []
    message, last = clean(error, hidden), tail(stderr, hidden)
    code = None if ending is None else ending.exit_code
    if ending is not None and ending.stopped is not None:
        return Fault(kind="deadline", message=message, exit_code=code, stderr_tail=last)
    killed = code is not None and code > 128
    # What a program that was killed had written before is not the reason.
    kind = _kind(error if killed or code in (0, None) else f"{error}\n{stderr}")
    if kind is not None:
        what_to_do = f"Log in: {log_in}" if kind == "auth" and log_in else advice(kind, message)
        return Fault(
            kind=kind, message=message, advice=what_to_do, retryable=kind in RETRYABLE, exit_code=code, stderr_tail=last
        )
    # A guess, so it does not decide what happened; and a program that was killed did not ask for a login.
    what_to_do = f"There seems to be no login; log in: {log_in}" if no_login and log_in and not killed else ""
    if code in (0, None):
        return Fault(
            kind="startup" if ending is None else "other", message=message, advice=what_to_do, stderr_tail=last
        )
    if lost_session:
        what_to_do = f"The session of {engine} cannot be continued; the next turn begins a new one."
    if killed and code is not None:
        message = f"{message} It was killed by signal {code - 128}."
    return Fault(kind="dead", message=message, advice=what_to_do, retire=lost_session, exit_code=code, stderr_tail=last)


def _kind(text: str) -> FaultKind | None:
    return next((kind for kind, pattern in _PATTERNS.items() if pattern.search(text)), None)
