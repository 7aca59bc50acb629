"""How it is said that something cannot be confined as asked. Whoever raises this runs nothing."""

from __future__ import annotations

from treadle.errors import INVALID_REQUEST, SandboxRefused


def refused(reason: str) -> SandboxRefused:
    return SandboxRefused(f"sandbox: {reason}; the request was refused rather than run unconfined", INVALID_REQUEST)
