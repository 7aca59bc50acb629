"""Rate limits as reported in the headers of a response. Pure; headers that cannot be parsed are ignored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal, TypeAlias

from msgspec import Struct

Unit: TypeAlias = Literal["requests", "tokens", "output tokens"]

# Header with the remaining amount: header with the limit, header with the reset time, unit.
_HEADERS: Final[dict[str, tuple[str, str, Unit]]] = {
    "x-ratelimit-remaining-requests": ("x-ratelimit-limit-requests", "x-ratelimit-reset-requests", "requests"),
    "x-ratelimit-remaining-tokens": ("x-ratelimit-limit-tokens", "x-ratelimit-reset-tokens", "tokens"),
    "anthropic-ratelimit-requests-remaining": (
        "anthropic-ratelimit-requests-limit",
        "anthropic-ratelimit-requests-reset",
        "requests",
    ),
    "anthropic-ratelimit-tokens-remaining": (
        "anthropic-ratelimit-tokens-limit",
        "anthropic-ratelimit-tokens-reset",
        "tokens",
    ),
    "anthropic-ratelimit-input-tokens-remaining": (
        "anthropic-ratelimit-input-tokens-limit",
        "anthropic-ratelimit-input-tokens-reset",
        "tokens",
    ),
    "anthropic-ratelimit-output-tokens-remaining": (
        "anthropic-ratelimit-output-tokens-limit",
        "anthropic-ratelimit-output-tokens-reset",
        "output tokens",
    ),
}
_DURATION: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|h|m|s)")
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_NUMBER: Final = re.compile(r"\d{1,15}(?:\.\d{1,9})?")


class ReportedLimit(Struct, frozen=True):
    """`name` is the header; `full_in_s` is the time until the limit is fully reset, 0 if the server does not say."""

    name: str
    unit: Unit
    limit: float
    left: float
    full_in_s: float


LIMIT_HEADERS: Final = frozenset(_HEADERS)


def read_limits(headers: Mapping[str, str], wall: float) -> list[ReportedLimit]:
    """Header names are lower case. `wall` is the Unix time, used if the server sends no `Date`."""
    return [
        ReportedLimit(
            name, unit, _number(headers.get(limit, "")) or left, left, _full_in(headers.get(reset, ""), headers, wall)
        )
        for name, (limit, reset, unit) in _HEADERS.items()
        if name in headers and (left := _number(headers[name])) is not None
    ]


def _number(text: str) -> float | None:
    text = text.strip()
    return float(text) if _NUMBER.fullmatch(text) else None


def _full_in(text: str, headers: Mapping[str, str], wall: float) -> float:
    """Parses `6m0s`, `20ms`, seconds, or an RFC 3339 date, which is compared with the server's own clock."""
    text = text.strip()
    seconds = _number(text)
    if seconds is not None:
        return seconds
    parts = _DURATION.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return sum(float(number) * _SECONDS[unit] for number, unit in parts)
    try:
        return max(0.0, datetime.fromisoformat(text).timestamp() - _clock(headers.get("date", ""), wall))
    except (ValueError, OverflowError, OSError):
        return 0.0


def _clock(date: str, wall: float) -> float:
    if not date:
        return wall
    from email.utils import parsedate_to_datetime  # only for servers that send dates

    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError, OverflowError, OSError):
        return wall
