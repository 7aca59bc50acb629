"""Why a run of an engine failed, as a `Fault`: by what is known of its process first, by its words last. Pure.

Engines tell their failures in words for people, each in its own; the patterns are those that the real programs print.
"""

from __future__ import annotations

import re
from typing import Final

from treadle.client.secrets import redact
from treadle.host.faults import Fault, FaultKind
from treadle.runners.engine import Ending

MAX_STDERR: Final = 2000
_COLOURS: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
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
_RETRYABLE: Final[frozenset[FaultKind]] = frozenset({"rate_limited", "overloaded", "network"})
_ADVICE: Final[dict[FaultKind, str]] = {
    "rate_limited": "Try again in a moment.",
    "overloaded": "Try again in a moment, or choose another model.",
    "context_window": "Begin a new session.",
    "model_not_found": "Look at the name of the model.",
}


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
    message, tail = redact(error, hidden), redact(_COLOURS.sub("", stderr), hidden).strip()[-MAX_STDERR:]
    code = None if ending is None else ending.exit_code
    if ending is not None and ending.stopped is not None:
        return Fault(kind="deadline", message=message, exit_code=code, stderr_tail=tail)
    kind = _kind(f"{error}\n{stderr}" if code not in (0, None) else error)
    if kind is not None:
        advice = f"Log in: {log_in}" if kind == "auth" and log_in else _ADVICE.get(kind, "")
        return Fault(
            kind=kind, message=message, advice=advice, retryable=kind in _RETRYABLE, exit_code=code, stderr_tail=tail
        )
    killed = code is not None and code > 128
    # A guess, so it does not decide what happened; and a program that was killed did not ask for a login.
    advice = f"There seems to be no login; log in: {log_in}" if no_login and log_in and not killed else ""
    if code in (0, None):
        return Fault(kind="startup" if ending is None else "other", message=message, advice=advice, stderr_tail=tail)
    if lost_session:
        advice = f"The session of {engine} cannot be continued; the next turn begins a new one."
    if killed and code is not None:
        message = f"{message} It was killed by signal {code - 128}."
    return Fault(kind="dead", message=message, advice=advice, retire=lost_session, exit_code=code, stderr_tail=tail)


def _kind(text: str) -> FaultKind | None:
    return next((kind for kind, pattern in _PATTERNS.items() if pattern.search(text)), None)
