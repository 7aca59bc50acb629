"""What the faults of all runtimes have in common: redacting a text, and what to do next. Pure.

A runtime classifies a fault by structure (an exit code, `codexErrorInfo`, a status). `says_logged_out` looks at texts,
for cases in which there is nothing else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from treadle.host.faults import Fault, FaultKind
from treadle.secrets import redact, secrets_in

TAIL_LINES: Final = 20
_MAX_TEXT: Final = 2000
_ESCAPE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
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

CLOSED: Final = Fault(kind="dead", message="The runtime is closed: make a new one.", retire=True)
NOT_OPEN: Final = Fault(kind="refused", message="No thread is open: call `open` first.")
BUSY: Final = Fault(kind="refused", message="A turn runs already: wait for its end, or interrupt it.")


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
    # Before anything is cut: half a secret would not be known as one.
    return redact(_CONTROL.sub("", _ESCAPE.sub("", text)), [*secrets, *secrets_in(os.environ)])


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
