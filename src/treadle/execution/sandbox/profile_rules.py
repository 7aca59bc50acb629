"""The entries of a sandbox that a permission profile of the user comes to, here and now.

Owns the resolving: links, the workspace roots, the files that a pattern matches. Blocking. What it answers with is as
narrow as the profile, or it raises.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from treadle.execution.sandbox.policy import MAX_RULES, Access, PathRule, Policy, contains, refused, resolve_path
from treadle.execution.sandbox.profile_sandbox import MINIMAL, ProfileSandbox
from treadle.execution.sandbox.sandbox_roots import HiddenHome, Pins, minimal_entry, path_entry, protected_paths
from treadle.protocol.exec import SandboxEntry

_ACCESS: Final[dict[str, Access]] = {"write": "write", "read": "read", "deny": "none"}
_RANK: Final[dict[Access, int]] = {"write": 0, "read": 1, "none": 2}
# What a pattern looks at before each command: a large project, a second of work.
_MAX_SCANNED: Final = 200_000
_GLOB: Final = re.compile(r"[*?\[\]]")


def profile_entries(
    sandbox: ProfileSandbox, cwd: str, pins: Pins, home: HiddenHome | None, *, protect: bool
) -> Iterator[SandboxEntry]:
    """The entries of a sandbox. The narrower ones come last, so that they win where two are about the same path."""
    rules = _rules(sandbox, cwd, pins)
    roots = [pins[cwd], *(os.path.realpath(root) for root in sandbox.workspace_roots)]
    if home is not None:
        rules = [rule for rule in rules if _leaves_home(rule, home, roots)]
        if not protect:
            # As with the modes: a temporary directory with the home in it is left out, what was named is refused.
            named = {pins[path] for path in sandbox.writable_paths(cwd, temporary=False)}
            rules = [r for r in rules if r.access != "write" or r.path in named or not home.is_in(r.path)]
    meaning = Policy(tuple(sorted(rules, key=lambda rule: rule.path)), network=False)
    if home is not None and home.has(roots[0]) and meaning.access(roots[0]) != "none":
        yield path_entry(roots[0], "read")
    yield from (path_entry(rule.path, "write") for rule in rules if rule.access == "write")
    if any(rule.place == MINIMAL for rule in sandbox.rules):
        yield minimal_entry()
    yield from (path_entry(rule.path, rule.access) for rule in rules if rule.access != "write")
    if protect:
        # What git and we take orders from, unless the profile itself has a rule for it.
        ruled = {rule.path for rule in meaning.rules}
        writable = [rule.path for rule in meaning.rules if rule.access == "write"]
        for path in protected_paths([root for root in roots if meaning.access(root) == "write"], writable):
            if path not in ruled and (home is None or not home.has(path)):
                yield path_entry(path, "read")
    if home is not None:
        yield from home.entries(lambda path: meaning.access(path) != "none")


def _leaves_home(rule: PathRule, home: HiddenHome, roots: list[str]) -> bool:
    """Whether a rule can stand beside the home. Refuses one that would open it; a workspace may be in it, though."""
    if rule.access == "none" or not home.has(rule.path):
        return True
    if not any(contains(root, rule.path) for root in roots):
        raise refused(
            f"the permission profile has a rule for {rule.path!a}, which is in the home of Treadle; commands must not "
            "see its settings and its login, so take the rule out"
        )
    return rule.access != "write" or not home.reserves(rule.path)


def _rules(sandbox: ProfileSandbox, cwd: str, pins: Pins) -> list[PathRule]:
    """The rules of the profile, one per path, the narrowest. `:minimal` is left out: it is many paths."""
    writable = [pins[path] for path in sandbox.writable_paths(cwd)]
    found: dict[str, Access] = {}
    for rule in sandbox.rules:
        access = _ACCESS[rule.access]
        if rule.place == MINIMAL:
            continue
        paths: Iterable[str]
        if rule.glob:
            place, pattern = split_pattern(rule.place)
            bases = sandbox.paths(place, cwd)
            paths = chain.from_iterable(matching_paths(base, pattern, sandbox.glob_scan_max_depth) for base in bases)
        else:
            paths = sandbox.paths(rule.place, cwd)
        for path in paths:
            canonical = pins[path] if access == "write" else _fixed(path, writable)
            if _RANK[access] >= _RANK[found.get(canonical, "write")]:
                found[canonical] = access
    return [PathRule(path, access) for path, access in found.items()]


def _fixed(path: str, writable: list[str]) -> str:
    """Where a path leads. Refuses one that a command could make lead elsewhere: the rule would move with it."""
    try:
        found = resolve_path(path)
    except (OSError, ValueError) as error:
        raise refused(f"{path!a} cannot be resolved: {error}") from None
    for link in found.links:
        if any(contains(root, os.path.dirname(link)) for root in writable):
            raise refused(
                f"the permission profile has a rule for {path!a}, which goes through the symbolic link {link!a}; a "
                f"command could replace that, so write the path that it leads to ({found.canonical!a}) instead"
            )
    return found.canonical


def split_pattern(place: str) -> tuple[str, str]:
    """The place that a pattern begins with, and the rest of it."""
    parts = place.split("/")
    fixed = next(number for number, part in enumerate(parts) if _GLOB.search(part))
    return "/".join(parts[:fixed]) or "/", "/".join(parts[fixed:])


def matching_paths(base: str, pattern: str, max_depth: int | None = None) -> list[str]:
    """What is below `base` and matches now. In a directory that matches, everything is meant.

    `*` and `?` stay in one name, `**` is any number of directories. Links are matched by their name, not followed.
    """
    wanted = compiled(pattern)
    matches: list[str] = []
    scanned, ahead = 0, [("", 1)]
    while ahead:
        below, depth = ahead.pop()
        for name, is_directory in _names(os.path.join(base, below)):
            scanned += 1
            relative = os.path.join(below, name)
            if wanted.fullmatch(relative):
                matches.append(os.path.join(base, relative))
            elif is_directory and (max_depth is None or depth < max_depth):
                ahead.append((relative, depth + 1))
            if scanned > _MAX_SCANNED or len(matches) > MAX_RULES:
                raise refused(
                    f"the pattern {pattern!a} of the permission profile would have to look at more than {_MAX_SCANNED} "
                    f"files, or matches more than {MAX_RULES}; deny a directory instead, or set glob_scan_max_depth"
                )
    return matches


def _names(directory: str) -> list[tuple[str, bool]]:
    try:
        with os.scandir(directory) as entries:
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise refused(f"{directory!a} cannot be searched for what the profile denies: {error.strerror}") from None


def compiled(pattern: str) -> re.Pattern[str]:
    """The regular expression of a pattern. Raises `re.error`."""
    text, parts = "", pattern.split("/")
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if part == "**":
            text += ".+" if last else "(?:[^/]+/)*"
        else:
            text += _name_expression(part) + ("" if last else "/")
    return re.compile(text, re.DOTALL)


def _name_expression(part: str) -> str:
    text, at = "", 0
    while at < len(part):
        character = part[at]
        end = part.find("]", at + 2) if character == "[" else -1
        if character == "*":
            text += "[^/]*"
        elif character == "?":
            text += "[^/]"
        elif end > 0:
            inner = part[at + 1 : end].replace("\\", r"\\").replace("[", r"\[").replace("&&", r"&\&")
            text += f"(?!/)[{'^' + inner[1:] if inner[0] in '!^' else inner}]"
            at = end
        else:
            text += re.escape(character)
        at += 1
    return text
