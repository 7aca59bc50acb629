"""`robots.txt` (RFC 9309): what a site asks programs not to read. Pure.

Not `urllib.robotparser`, which knows no wildcards and takes the first rule instead of the longest.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from msgspec import Struct

AGENT: Final = "treadle"
MAX_ROBOTS: Final = 500 * 1024  # bytes; the RFC wants that many to be read
MAX_RULES: Final = 5000


class Robots(Struct, frozen=True):
    """The rules that are for us: whether they allow, and the pattern of paths."""

    rules: tuple[tuple[bool, str], ...] = ()

    def allow(self, path: str) -> bool:
        """Whether a path, with its query, may be read: the longest rule decides, and of two the one that allows."""
        path = unquote(path)
        found = [(len(pattern), allows) for allows, pattern in self.rules if _matches(pattern, path)]
        return max(found)[1] if found else True


def read_robots(text: str) -> Robots:
    """The rules of the groups that name us; of those for all, when none does."""
    ours: list[tuple[bool, str]] = []
    others: list[tuple[bool, str]] = []
    named = False
    into: list[list[tuple[bool, str]]] = []
    in_rules = True  # the next name begins a group
    for line in text.splitlines():
        key, colon, value = line.partition("#")[0].partition(":")
        key, value = key.strip().lower(), value.strip()
        if not colon:
            continue
        if key == "user-agent":
            if in_rules:
                into, in_rules = [], False
            agent = value.lower()
            if agent.split("/")[0].strip() == AGENT:
                named = True
                into.append(ours)
            elif agent == "*":
                into.append(others)
        elif key in ("allow", "disallow"):
            in_rules = True
            for rules in into if value else ():
                if len(rules) < MAX_RULES:
                    rules.append((key == "allow", unquote(value)))
    return Robots(tuple(ours if named else others))


def _matches(pattern: str, path: str) -> bool:
    """`*` is anything, `$` at the end the end. By hand: a pattern of a stranger is no regular expression to be run."""
    ends = pattern.endswith("$")
    first, *rest = pattern.removesuffix("$").split("*")
    if not path.startswith(first):
        return False
    if not rest:
        return not ends or path == first
    at = len(first)
    last = rest.pop() if ends else ""
    for part in rest:
        at = path.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return len(path) - len(last) >= at and path.endswith(last)
