"""The faults of all runtimes, in words: what happened, and what to do next. Pure, and never a secret in them.

A runtime finds out by structure which fault it is (an exit code, `codexErrorInfo`, a status) and calls the function of
that name. `says_logged_out` reads texts, for the cases in which nothing else is there.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterable
from typing import Final

from treadle.client.secrets import redact, secrets_in
from treadle.host.faults import Fault

TAIL_LINES: Final = 20
_MAX_TEXT: Final = 2000
_ESCAPE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
# Nothing else is called like this, wherever it is found.
_STRONG: Final = re.compile(
    r"invalid_grant|refresh[ _]token|token[ _]refresh|token has expired|expired_token|token_expired"
    r"|not authenticated|unauthenticated|re-?authenticate|please log ?in|no auth profile",
    re.IGNORECASE,
)
# Plugins and MCP servers write this to standard error about logins of their own.
_WEAK: Final = re.compile(r"unauthorized|oauth|auth profile", re.IGNORECASE)


def clean(text: str, secrets: Iterable[str] = ()) -> str:
    """A text of a runtime as it may be shown: no secrets, no colours, not endless.

    Args:
        text: What it said.
        secrets: Values to be taken out besides those of this process's environment and what has the shape of a key.
    """
    plain = _CONTROL.sub("", _ESCAPE.sub("", text)).strip()
    shown = redact(plain, [*secrets, *secrets_in(os.environ)])
    return shown if len(shown) <= _MAX_TEXT else shown[:_MAX_TEXT] + "…"


def tail(stderr: str, lines: int = TAIL_LINES, secrets: Iterable[str] = ()) -> str:
    """The last lines that a runtime wrote to its standard error, as they may be shown.

    Args:
        stderr: All that is kept of it.
        lines: How many to show at most.
        secrets: As for `clean`.
    """
    known = [*secrets, *secrets_in(os.environ)]
    # Before it is cut: half a secret would not be known as one.
    plain = redact(_CONTROL.sub("", _ESCAPE.sub("", stderr)), known)
    return "\n".join(line[:_MAX_TEXT] for line in plain.strip().splitlines()[-lines:])


def says_logged_out(primary: str, stderr: str = "") -> bool:
    """Whether texts are about a login that is missing or over; only for where there is nothing but text.

    Args:
        primary: The error itself. Here a vague word is enough.
        stderr: What the program wrote besides, in which only what can mean nothing else counts.
    """
    return any(_STRONG.search(text) for text in (primary, stderr)) or _WEAK.search(primary) is not None


def duration(seconds: float) -> str:
    """A time span as people say it: `45 s`, `1.5 s`, `2 h 10 min`, `3 days 4 h`."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if days:
        parts = ((days, "day" if days == 1 else "days"), (hours % 24, "h"))
    elif hours:
        parts = ((hours, "h"), (minutes % 60, "min"))
    else:
        parts = ((minutes, "min"), (int(seconds % 60), "s"))
    return " ".join(f"{count} {unit}" for count, unit in parts if count)


def resets(resets_at: float, now: float) -> str:
    """When a limit ends: `resets at 14:05 UTC, in 2 h 10 min`.

    Args:
        resets_at: Seconds since 1970.
        now: The same, of this moment.
    """
    left = resets_at - now
    if left <= 0:
        return "should have been reset by now"
    try:
        at = time.strftime("%H:%M UTC" if left < 86400 else "%H:%M UTC on %-d %B", time.gmtime(resets_at))
    except (ValueError, OverflowError, OSError):
        return "resets at a time that makes no sense"
    return f"resets at {at}, in {duration(left)}"


# --- a runtime that does not come up ---------------------------------------------------------------------------------


def missing(program: str, install: str = "") -> Fault:
    """The runtime's program is not there.

    Args:
        program: Its name or path.
        install: The command that installs it.
    """
    advice = f"Install it with: {install}" if install else "Install it, or name the place where it is."
    return Fault(kind="missing", message=f"{program!r} was not found.", advice=advice, retire=True)


def startup(runtime: str, reason: str, *, stderr: str = "", exit_code: int | None = None) -> Fault:
    """The program is there and did not start.

    Args:
        runtime: What people call it.
        reason: Why, as it said.
        stderr: What it wrote there.
        exit_code: Of a process that has ended.
    """
    return Fault(
        kind="startup",
        message=f"{runtime} did not start: {clean(reason)}",
        advice="Try once more; `treadle doctor` looks for the cause.",
        retire=True,
        exit_code=exit_code,
        stderr_tail=tail(stderr),
    )


def auth(runtime: str, login: str, *, detail: str = "") -> Fault:
    """Nobody is logged in, or the login is not accepted any more.

    Args:
        runtime: What people call it.
        login: What to type to log in.
        detail: What the provider said.
    """
    said = f" ({clean(detail)})" if detail else ""
    return Fault(
        kind="auth",
        message=f"{runtime} is not logged in, or its login is not accepted any more.{said}",
        advice=f"Log in again: {login}. Then send the message again.",
        retire=True,
    )


# --- a runtime that ends or hangs ------------------------------------------------------------------------------------


def dead(runtime: str, *, exit_code: int | None = None, stderr: str = "", detail: str = "") -> Fault:
    """Its process has ended, or the connection.

    Args:
        runtime: What people call it.
        exit_code: Of the process; negative for the signal that ended it; None when it is not known.
        stderr: What it wrote there.
        detail: What else is known.
    """
    how = "has ended" if exit_code is None else f"has ended {_exit_words(exit_code)}"
    return Fault(
        kind="dead",
        message=f"{runtime} {how} in the middle of its work{': ' + clean(detail) if detail else ''}.",
        advice="The next message starts it again.",
        retire=True,
        exit_code=exit_code,
        stderr_tail=tail(stderr),
    )


def stuck(runtime: str, seconds: float, doing: str = "") -> Fault:
    """It is there and does not answer.

    Args:
        runtime: What people call it.
        seconds: How long it was waited for.
        doing: What it should have done: `start the turn`.
    """
    what = f"did not {doing} within {duration(seconds)}" if doing else f"has not answered for {duration(seconds)}"
    return Fault(kind="stuck", message=f"{runtime} {what}.", advice="The next message starts a new one.", retire=True)


def quiet(runtime: str, seconds: float) -> Fault:
    """Nothing came after a tool had ended, and the settings say that this is the end.

    Args:
        runtime: What people call it.
        seconds: How long nothing came.
    """
    message = f"{runtime} went silent for {duration(seconds)} after the result of a tool; it is not used any more."
    advice = 'The next message starts a new one. `quiet_action="probe"` asks it first.'
    return Fault(kind="stuck", message=message, advice=advice, retire=True)


def deadline(seconds: float, limit: str) -> Fault:
    """The turn took too long.

    Args:
        seconds: The limit that it exceeded.
        limit: Which one: `idle` or `turn`.
    """
    how = "gave no sign of life for" if limit == "idle" else "was not done within"
    message = f"The turn {how} {duration(seconds)} and was ended."
    return Fault(kind="deadline", message=message, advice=f"A longer limit: Timeouts({limit}=…).", retire=True)


def aborted(reason: str, *, retire: bool = False) -> Fault:
    """The turn was given up.

    Args:
        reason: A whole sentence.
        retire: Whether the runtime is of no use any more.
    """
    return Fault(
        kind="aborted", message=clean(reason), advice="Send the message again if it still matters.", retire=retire
    )


# --- what a provider says --------------------------------------------------------------------------------------------


def usage_limit(detail: str = "", *, resets_at: float | None = None, now: float | None = None) -> Fault:
    """The plan or the quota is used up.

    Args:
        detail: What the provider said.
        resets_at: When the limit ends, in seconds since 1970.
        now: The same, of this moment; the machine's clock without it.
    """
    when = "" if resets_at is None else f" It {resets(resets_at, time.time() if now is None else now)}."
    return Fault(
        kind="usage_limit",
        message=f"The usage limit is reached{': ' + clean(detail).rstrip('.') if detail else ''}.{when}",
        advice="Wait for the reset, or use another account, provider or model.",
        resets_at=resets_at,
    )


def rate_limited(detail: str = "", *, retry_after_s: float | None = None) -> Fault:
    """Too much was asked for at once."""
    message = f"The provider is asked too often{_said(detail)}"
    advice = f"Try again in {'a moment' if retry_after_s is None else duration(retry_after_s)}."
    return Fault(kind="rate_limited", message=message, advice=advice, retryable=True, retry_after_s=retry_after_s)


def overloaded(detail: str = "", *, retry_after_s: float | None = None) -> Fault:
    """The provider, or the runtime, has too much to do."""
    message = f"The provider or the runtime has too much to do{_said(detail)}"
    advice = f"Try again in {'a moment' if retry_after_s is None else duration(retry_after_s)}."
    return Fault(kind="overloaded", message=message, advice=advice, retryable=True, retry_after_s=retry_after_s)


def network(detail: str = "") -> Fault:
    """The provider cannot be reached."""
    advice = "Look at the network and the address of the provider, then try again."
    return Fault(
        kind="network", message=f"The provider cannot be reached{_said(detail)}", advice=advice, retryable=True
    )


def context_window(detail: str = "") -> Fault:
    """The thread does not fit into the model's context any more. The session sums it up and says what came of that."""
    message = f"The conversation does not fit into the model's context any more{_said(detail)}"
    return Fault(kind="context_window", message=message, advice="Have it summed up, or start a new one.")


def model_not_found(detail: str = "") -> Fault:
    """The provider does not know the model."""
    message = f"The provider does not have this model{_said(detail)}"
    return Fault(kind="model_not_found", message=message, advice="Name another model.")


def policy(detail: str = "") -> Fault:
    """The provider refuses the request for what it is about."""
    message = f"The provider refuses this request for its content{_said(detail)}"
    return Fault(kind="policy", message=message, advice="Say it differently, or use another model.")


def sandbox(detail: str = "") -> Fault:
    """The sandbox could not be set up."""
    message = f"The sandbox for commands could not be set up{_said(detail)}"
    return Fault(kind="sandbox", message=message, advice="`treadle doctor` says what is missing.")


def refused(runtime: str, doing: str, detail: str = "") -> Fault:
    """The runtime does not take a request.

    Args:
        runtime: What people call it.
        doing: What was asked for: `start the turn`.
        detail: What it said.
    """
    return Fault(kind="refused", message=f"{runtime} does not {doing}{_said(detail)}")


def other(detail: str) -> Fault:
    """What has no kind of its own."""
    return Fault(kind="other", message=clean(detail) or "The turn failed, and the runtime did not say why.")


def _said(detail: str) -> str:
    return f": {clean(detail).rstrip('.')}." if detail.strip() else "."


def _exit_words(code: int) -> str:
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"by the signal {signal.Signals(-code).name}"
    except ValueError:
        return f"by the signal {-code}"
