"""Why a run failed and what to type next, for people. Pure.

This is the only place that shows the end of an engine's standard error: without secrets, and with control characters
made visible.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from treadle.cli.visible import visible
from treadle.runners.engine import Ending
from treadle.runners.logins import HOW_TO_LOG_IN
from treadle.runners.run_events import CompletedEvent
from treadle.secrets import redact

# Of what the engine complained about: the last lines, and so much of each.
TAIL_LINES: Final = 12
MAX_LINE: Final = 300

_LOGIN: Final = re.compile(
    r"\b401\b|unauthori[sz]ed|not (?:logged|signed) in|log ?in\b|authenticat"
    r"|(?:invalid|missing|no|incorrect) api[ _-]?key",
    re.IGNORECASE,
)
_NO_SESSION: Final = re.compile(
    r"no (?:conversation|session|thread|rollout)\b.*found|(?:session|thread|conversation) not found"
    r"|no such (?:session|thread)",
    re.IGNORECASE,
)


def failure_reason(completed: CompletedEvent, secrets: Iterable[str]) -> str:
    """The reason, as it may be shown and kept."""
    return visible(redact(completed.error or "it did not say why", secrets)).strip()


def stderr_lines(stderr: str, secrets: Iterable[str]) -> list[str]:
    """The last lines of a standard error, as they may be shown."""
    lines = [line.rstrip() for line in visible(redact(stderr, secrets)).splitlines() if line.strip()]
    return [line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 1]}…" for line in lines[-TAIL_LINES:]]


def advice(completed: CompletedEvent, ending: Ending | None, stderr: str) -> str:
    """What to type next. What engines themselves say has no code, so their words are looked at."""
    engine, error = completed.engine, completed.error or ""
    limit = None if ending is None else ending.limit
    if limit == "idle":
        return "to wait longer: --idle-timeout SECONDS"
    if limit == "total":
        return "to give it more time: --timeout SECONDS"
    said = f"{error}\n{stderr}"
    if completed.resume is not None and _NO_SESSION.search(said):
        return "to begin a new session, leave the session out"
    if _LOGIN.search(said) and engine in HOW_TO_LOG_IN:
        return f"it looks as if {engine} is not logged in: {HOW_TO_LOG_IN[engine]}"
    return f"to try it out offline: treadle doctor {engine}"
