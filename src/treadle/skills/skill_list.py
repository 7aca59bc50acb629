"""The list of skills in a request, and which of them a text mentions. Pure.

The list has a budget, because it is a part of every request: descriptions are shortened evenly until it fits, then left
out, and then skills are left out, the least specific first. A note in the list says how many.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from treadle.skills.skill_files import Skill

# Of the context window, and the characters of a token, as everywhere where nobody counts.
SHARE: Final = 0.02
CHARS_PER_TOKEN: Final = 4
UNKNOWN_WINDOW_CHARS: Final = 8000

OPENING: Final = "<skills_instructions>"
CLOSING: Final = "</skills_instructions>"
_HEAD: Final = """\
## Skills
A skill is a set of local instructions to follow that is stored in a `SKILL.md` file. Below is the list of skills that \
can be used. Each entry includes a name, description, and a short path that can be expanded into an absolute path \
using the skill roots table.
### Skill roots
"""
MAX_SHOWN: Final = 1024  # of one description
_MENTION: Final = re.compile(r"\$([A-Za-z0-9_][A-Za-z0-9_.:-]*)")
_OWN_TAG: Final = re.compile(r"<(?=/?skills_instructions)", re.IGNORECASE)


class SkillList(NamedTuple):
    """The text for the model, empty where there are no skills; and how many did not fit."""

    text: str
    left_out: int = 0


def list_budget(window: int | None, max_tokens: int | None = None) -> int:
    """How many characters the list may have. `window` is in tokens, None for one that is not known; `max_tokens` is
    what the settings say."""
    if max_tokens is not None:
        return max_tokens * CHARS_PER_TOKEN
    return UNKNOWN_WINDOW_CHARS if window is None else int(window * SHARE) * CHARS_PER_TOKEN


def list_for_model(skills: Sequence[Skill], budget: int) -> SkillList:
    """The list of skills, in their order. The words around it do not count."""
    if not skills:
        return SkillList("")
    roots: dict[str, str] = {}
    entries: list[tuple[str, str, str]] = []  # before the description, it, and behind it
    left = budget
    for skill in skills:
        alias = roots.get(skill.root, f"r{len(roots)}")
        path = os.path.relpath(skill.path, skill.root)
        # One that was reached by a link lies elsewhere.
        is_below = not path.startswith("..")
        place = f"{alias}/{path}" if is_below else skill.path
        before, behind = f"- {_plain(skill.name)}: ", f" (file: {_plain(place)})\n"
        cost = len(before) + len(behind)
        if is_below and skill.root not in roots:
            cost += len(_root_line(alias, skill.root))
        if cost > left:
            break
        left -= cost
        if is_below:
            roots[skill.root] = alias
        description = _plain(skill.description)
        if len(description) > MAX_SHOWN:
            description = description[: MAX_SHOWN - 3] + "..."
        entries.append((before, description, behind))
    left_out = len(skills) - len(entries)
    most = longest([len(description) for _, description, _ in entries], left)
    lines = [f"{before}{description[:most]}{behind}" for before, description, behind in entries]
    if left_out:
        lines.append(f"({left_out} more did not fit and are not listed; the user can still name one as `$name`.)\n")
    table = "".join(_root_line(alias, root) for root, alias in roots.items())
    return SkillList(f"{OPENING}\n{_HEAD}{table}### Available skills\n{''.join(lines)}{CLOSING}", left_out)


def longest(lengths: Sequence[int], budget: int) -> int:
    """The greatest length for which all of them, cut to it, have no more than `budget` together."""
    left = budget
    for done, length in enumerate(sorted(lengths)):
        share = left // (len(lengths) - done)
        if length > share:
            return max(0, share)
        left -= length
    return max(lengths, default=0)


def _root_line(alias: str, root: str) -> str:
    return f"- `{alias}` = `{_plain(root)}`\n"


def _plain(text: str) -> str:
    """On one line, and without the tags around the list: the files of a project do not end it."""
    return _OWN_TAG.sub("‹", " ".join(text.split()))


# --- use -------------------------------------------------------------------------------------------------------------


def mentioned(text: str, skills: Mapping[str, Skill]) -> list[Skill]:
    """The skills whose names stand in a text as `$name`, each once, in the order of the text."""
    found: dict[str, Skill] = {}
    for match in _MENTION.finditer(text):
        name = match[1]
        # The end of a sentence is none of the name, unless it is.
        skill = skills.get(name) or skills.get(name.rstrip(".:-"))
        if skill is not None:
            found.setdefault(skill.path, skill)
    return list(found.values())


def by_name(skills: Sequence[Skill]) -> dict[str, Skill]:
    """Skills by their names; of two with one name, the one that comes first."""
    return {skill.name: skill for skill in reversed(skills)}
