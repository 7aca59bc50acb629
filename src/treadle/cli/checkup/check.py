"""`Check`: one thing that `treadle doctor` has looked at, and what to type if it is not as it should be."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

Verdict: TypeAlias = Literal["ok", "warning", "failed", "skipped"]
MARKS: Final[dict[str, str]] = {"ok": "✓", "warning": "!", "failed": "✗", "skipped": "–"}


class Check(msgspec.Struct, frozen=True):
    """One thing that was checked.

    Args:
        what: What it is, and what was found.
        verdict: The outcome.
        advice: What to do about it.
        detail: More about it, a line each.
        seconds: How long it took, where that is worth knowing.
    """

    what: str
    verdict: Verdict = "ok"
    advice: str | None = None
    detail: list[str] = []
    seconds: float | None = None
