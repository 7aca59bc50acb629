"""How it is said that something cannot be confined as asked. Whoever raises this runs nothing."""

from __future__ import annotations

from treadle.errors import INVALID_REQUEST, ExecError


def refused(reason: str) -> ExecError:
    """Callers know a refusal by its first word."""
    return ExecError(f"sandbox: {reason}; the request was refused rather than run unconfined", INVALID_REQUEST)
