"""How times, lengths of time, numbers of tokens, money, paths and names of the protocol are written. Pure."""

from __future__ import annotations

import os
from datetime import datetime, tzinfo


def ago(seconds: float) -> str:
    if seconds < 45:
        return "just now"
    if seconds < 3600:
        return f"{max(1, int(seconds // 60))} min ago"
    if seconds < 86_400:
        return f"{int(seconds // 3600)} h ago"
    return f"{int(seconds // 86_400)} d ago"


def when(timestamp: float, now: float, zone: tzinfo | None = None) -> str:
    """Relative while that says more than a date."""
    if 0 <= now - timestamp < 14 * 86_400:
        return ago(now - timestamp)
    return moment(timestamp, zone)[:10]


def moment(timestamp: float, zone: tzinfo | None = None) -> str:
    """`2026-03-01 14:05`, in local time unless a zone is given."""
    return _at(timestamp, zone).strftime("%Y-%m-%d %H:%M")


def clock(timestamp: float, zone: tzinfo | None = None) -> str:
    return _at(timestamp, zone).strftime("%H:%M")


def _at(timestamp: float, zone: tzinfo | None) -> datetime:
    moment = datetime.fromtimestamp(timestamp, zone)
    return moment if zone else moment.astimezone()


def duration(milliseconds: int) -> str:
    seconds = milliseconds / 1000
    if seconds < 0.1:
        return f"{milliseconds} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def took(seconds: float) -> str:
    """A duration at the end of a line, also a short one: ` · 0.4s`; empty if it took no time."""
    if seconds < 0.05:
        return ""
    if seconds < 10:
        return f" · {seconds:.1f}s"
    from treadle.runners.progress import elapsed  # `treadle exec` starts without runners

    return f" · {elapsed(seconds)}"


def count(number: float) -> str:
    """`812`, `12.3k`, `1.5M`."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size * 0.9995:
            short = number / size
            return f"{short:.0f}{unit}" if short >= 100 else f"{short:.1f}".removesuffix(".0") + unit
    return f"{number:.0f}"


def money(usd: float) -> str:
    """Small sums with more digits: most turns cost less than a cent."""
    return f"${usd:.2f}" if usd >= 1 else f"${usd:.4f}"


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def at_home(path: str, home: str | None = None) -> str:
    """With `~` for the home directory."""
    home = (os.path.expanduser("~") if home is None else home).rstrip("/")
    if home and (path == home or path.startswith(f"{home}/")):
        return f"~{path[len(home) :]}"
    return path


def snake_case(name: object) -> str:
    """`in_progress` for `inProgress`."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in str(name))


def words(name: object) -> str:
    """`in progress` for `inProgress`."""
    return snake_case(name).replace("_", " ")
