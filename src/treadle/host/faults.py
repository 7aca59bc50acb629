"""`Fault`: what went wrong with a runtime, in fields for programs and text that a person can act on. Pure.

It owns the kinds of faults, the exceptions that carry them, the advice for each kind, the redaction of texts, and the
faults that a session finds by itself. How a runtime's own errors become faults stands with that runtime: by structure
first (an exit code, fields of an error, a status), by texts only where there is nothing else (`says_logged_out`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import force_setattr

from treadle.errors import TreadleError
from treadle.secrets import plain, secrets_in

FaultKind: TypeAlias = Literal[
    "auth",  # nobody is logged in, or the login is not accepted any more
    "usage_limit",  # the plan or the quota is used up
    "rate_limited",  # too much at once
    "overloaded",  # the provider, or the runtime, has too much to do
    "context_window",  # the thread does not fit any more
    "model_not_found",
    "policy",  # refused for what it is about
    "sandbox",  # the sandbox could not be set up
    "missing",  # the runtime's program is not there
    "startup",  # it is there and did not start
    "refused",  # the runtime does not take the request
    "dead",  # its process has ended, or the connection
    "stuck",  # it is there and does not answer
    "deadline",  # the turn took too long
    "aborted",  # the runtime gave the turn up
    "network",  # the provider cannot be reached
    "other",
]


class Fault(Struct, frozen=True, kw_only=True):
    """What went wrong.

    Args:
        kind: What it was, for programs.
        message: What happened, for people; no secrets.
        advice: What to do about it; may be empty.
        replace_runtime: Whether the session must open a new runtime.
        retryable: Whether the same turn may succeed a moment later.
        retry_after_s: How long to wait before that, if the provider said so.
        resets_at: When a limit ends, in seconds since 1970, if that is known.
        exit_code: Of a runtime whose process has ended.
        stderr_tail: The last lines that it wrote there, without secrets.
        retire: The former name of `replace_runtime`; both are always the same.
    """

    kind: FaultKind
    message: str
    advice: str = ""
    replace_runtime: bool = False
    retryable: bool = False
    retry_after_s: float | None = None
    resets_at: float | None = None
    exit_code: int | None = None
    stderr_tail: str = ""
    retire: bool = False

    def __post_init__(self) -> None:
        if self.retire != self.replace_runtime:
            force_setattr(self, "retire", True)
            force_setattr(self, "replace_runtime", True)

    def __str__(self) -> str:
        ends = not self.advice or self.message.endswith((".", "!", "?", "…"))
        said = f"{self.message if ends else self.message + '.'} {self.advice}".strip()
        return f"{said}\nstderr (last lines):\n{self.stderr_tail}" if self.stderr_tail else said


class RuntimeFault(TreadleError):
    """What a runtime raises when it cannot do what it was asked for."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault


class ResumeFailed(RuntimeFault):
    """The thread that was to be resumed cannot be: a new one may be opened on the same runtime."""


class SessionClosed(TreadleError):
    """A session was used after its `close`."""


class SessionBusy(TreadleError):
    """A session was to run a turn while another one runs."""


class AgentClosed(TreadleError):
    """The agent was closed."""

    def __init__(self) -> None:
        super().__init__("the agent is closed: make another one, with the same store and session_id to go on")


class AgentBusy(TreadleError):
    """Too many turns wait for the one that runs."""

    def __init__(self, waiting: int) -> None:
        super().__init__(f"{waiting} turns are waiting already: wait for some of them before you ask for more")


class WrongThread(TreadleError):
    """A call that waits for the agent was made by the agent itself, which would wait for ever."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} waits for the agent, so it cannot be called in on_event: call it from another thread")


class WrongProcess(TreadleError):
    """The agent belongs to the process that this one was forked from."""

    def __init__(self) -> None:
        super().__init__("the agent belongs to the process that this one was forked from: make another one here")


# --- texts -----------------------------------------------------------------------------------------------------------


TAIL_LINES: Final = 20
_MAX_TEXT: Final = 2000
# Nothing else is called like this, wherever it is found.
_STRONG: Final = re.compile(
    r"invalid_grant|refresh[ _]token|token[ _]refresh|token has expired|expired_token|token_expired"
    r"|not authenticated|unauthenticated|re-?authenticate|please log ?in|no auth profile|not logged in",
    re.IGNORECASE,
)
# Plugins and MCP servers write this to standard error about logins of their own.
_WEAK: Final = re.compile(r"\bunauthori[sz]ed\b|\boauth\b|auth profile|invalid api key", re.IGNORECASE)

RETRYABLE: Final[frozenset[FaultKind]] = frozenset({"rate_limited", "overloaded", "network"})
_ADVISES: Final = re.compile(
    r"\b(try again|wait (until|for)|look at|log in|compact the|correct|(choose|use) another)\b", re.IGNORECASE
)
_ADVICE: Final[Mapping[FaultKind, str]] = {
    "usage_limit": "Wait for the limit to end, or use another account, key or model.",
    "rate_limited": "Try again in a moment.",
    "overloaded": "Try again in a moment, or choose another model.",
    "network": "Look at the network and at the provider's address; then try again.",
    "context_window": "Have the conversation summed up (compact), or start a new one.",
    "model_not_found": "Choose a model that the provider has (`treadle models` lists them), and look at base_url.",
    "policy": "The provider does not answer this: say it differently, or use another model.",
    "sandbox": "`treadle doctor` tells what the sandbox needs on this machine.",
}


def advice(kind: FaultKind, message: str) -> str:
    """What to do about a fault; empty when the message says it already, as many providers' do.

    Args:
        kind: Which fault.
        message: What is said of it.
    """
    return "" if _ADVISES.search(message) else _ADVICE.get(kind, "")


def clean(text: str, secrets: Iterable[str] = ()) -> str:
    """A text of a runtime as it may be shown: no secrets, no colours, not endless.

    Args:
        text: What it said.
        secrets: Values to be taken out besides those of this process's environment and what has the shape of a key.
    """
    shown = _plain(text, secrets).strip()
    return shown if len(shown) <= _MAX_TEXT else shown[:_MAX_TEXT] + "…"


def tail(stderr: str, secrets: Iterable[str] = ()) -> str:
    """The last lines that a runtime wrote to its standard error, as they may be shown.

    Args:
        stderr: All that is kept of it.
        secrets: As for `clean`.
    """
    lines = [line.rstrip()[:_MAX_TEXT] for line in _plain(stderr, secrets).splitlines()]
    return "\n".join([line for line in lines if line][-TAIL_LINES:])


def _plain(text: str, secrets: Iterable[str]) -> str:
    return plain(text, [*secrets, *secrets_in(os.environ)])


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


def limit_ends(resets_at: float | None) -> str:
    """When a limit ends, as a sentence; empty when that is not known, or makes no sense.

    Args:
        resets_at: Seconds since 1970.
    """
    if resets_at is None:
        return ""
    try:
        at = datetime.fromtimestamp(resets_at, UTC)
    except (ValueError, OverflowError, OSError):
        return ""
    return f"The limit ends at {at:%Y-%m-%d %H:%M} UTC."


# --- faults of every runtime, and those that a session finds by itself -----------------------------------------------

CLOSED: Final = Fault(kind="dead", message="The runtime is closed: make a new one.", replace_runtime=True)
NOT_OPEN: Final = Fault(kind="refused", message="No thread is open: call `open` first.")
BUSY: Final = Fault(kind="refused", message="A turn runs already: wait for its end, or interrupt it.")


def startup_fault(runtime: str, reason: str) -> Fault:
    """The program is there and did not start.

    Args:
        runtime: What people call it.
        reason: Why, as a sentence.
    """
    advice = "Try once more; `treadle doctor` looks for the cause."
    return Fault(
        kind="startup", message=f"{runtime} did not start: {clean(reason)}", advice=advice, replace_runtime=True
    )


def stuck_fault(runtime: str, seconds: float, doing: str = "") -> Fault:
    """The fault of a runtime that is there and does not answer.

    Args:
        runtime: What people call it.
        seconds: How long it was waited for.
        doing: What it should have done: `start the turn`.
    """
    what = f"did not {doing} within {duration(seconds)}" if doing else f"has not answered for {duration(seconds)}"
    return Fault(
        kind="stuck", message=f"{runtime} {what}.", advice="The next message starts a new one.", replace_runtime=True
    )


def quiet_fault(runtime: str, seconds: float) -> Fault:
    """The fault of a runtime that was quiet after a tool had ended, where the settings say that this is the end.

    Args:
        runtime: What people call it.
        seconds: How long nothing came.
    """
    message = f"{runtime} went silent for {duration(seconds)} after the result of a tool; it is not used any more."
    advice = 'The next message starts a new one. `quiet_action="probe"` asks it first.'
    return Fault(kind="stuck", message=message, advice=advice, replace_runtime=True)


def deadline_fault(seconds: float, limit: str) -> Fault:
    """The turn took too long.

    Args:
        seconds: The limit that it exceeded.
        limit: Which one: `idle` or `turn`.
    """
    how = "gave no sign of life for" if limit == "idle" else "was not done within"
    message = f"The turn {how} {duration(seconds)} and was ended."
    return Fault(kind="deadline", message=message, advice=f"A longer limit: Timeouts({limit}=…).", replace_runtime=True)


def aborted_fault(reason: str) -> Fault:
    """The turn was ended before it was done, and nobody knows how that has left the runtime.

    Args:
        reason: A whole sentence.
    """
    advice = "Send the message again if it still matters."
    return Fault(kind="aborted", message=clean(reason), advice=advice, replace_runtime=True)


def refused_fault(runtime: str, doing: str) -> Fault:
    """The runtime cannot do what it was asked for.

    Args:
        runtime: What people call it.
        doing: What was asked for: `sum up threads`.
    """
    return Fault(kind="refused", message=f"{runtime} does not {doing}.")


def unexplained_fault() -> Fault:
    """A turn that failed without a word."""
    return Fault(kind="other", message="The turn failed, and the runtime did not say why.", advice="Try again.")
