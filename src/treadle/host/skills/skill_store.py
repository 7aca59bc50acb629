"""`SkillStore`: the skills in a folder: `[category/]name/SKILL.md`, with files beside it.

It owns where they are and what the model is told of them. `SkillEditor` reads and changes them for a session.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from treadle.arguments import path, seconds
from treadle.client.tools import Tool
from treadle.host.guarded_folder import LOCK_S, GuardedFolder, locked, opened
from treadle.host.injection import find_injection
from treadle.host.memory.entries import one_line
from treadle.host.refused import Refused
from treadle.host.skills.editor import SkillEditor
from treadle.host.skills.skill import Skill
from treadle.host.skills.skill_folders import places, read_skill
from treadle.host.skills.skill_tools import skill_tools

if TYPE_CHECKING:
    from treadle.host.skills.skill_tools import OnChange

# What all of them may take of the prompt, and one of them.
MAX_PROMPT: Final = 8000
MAX_PROMPT_LINE: Final = 300


class SkillStore:
    """What an agent knows how to do. Any thread may use it, and any number of processes the same folder.

    Args:
        folder: Where the skills are; it is made at the first write.
        lock_wait_s: How long to wait for another writer.
    """

    def __init__(self, folder: str | os.PathLike[str], *, lock_wait_s: float = LOCK_S) -> None:
        # Links on the way to it are the user's; one that comes to lie in its place later is not followed.
        self.folder: str = os.path.realpath(os.path.expanduser(path("folder", folder)))
        self._lock_wait_s = seconds("lock_wait_s", lock_wait_s)

    @contextmanager
    def reading(self) -> Iterator[GuardedFolder | None]:
        """The folder, open for reading."""
        with opened(self.folder) as root:
            yield root

    @contextmanager
    def writing(self) -> Iterator[GuardedFolder]:
        """The folder, for one writer at a time."""
        with locked(self.folder, self._lock_wait_s) as root:
            yield root

    def skills(self) -> list[Skill]:
        """All of them, by category and name. One that cannot be used is there too, with its problem."""
        with opened(self.folder) as root:
            return [] if root is None else [read_skill(root, place) for place in places(root)]

    def prompt(self) -> str:
        """What the model is told of them at the start of a session; empty when there are none."""
        lines, left_out, used = list[str](), dict[str, int](), 0
        try:
            found = self.skills()
        except Refused as error:
            return f"# Skills\n(Not shown: {error}.)"
        for skill in found:
            line = f"- {skill.path}: {one_line(skill.description, MAX_PROMPT_LINE)}"
            reason = skill.problem or find_injection(skill.description)
            if reason is None and used + len(line) > MAX_PROMPT:
                reason = "there are too many; `skills_list` has them all"
            if reason is None:
                lines.append(line)
                used += len(line) + 1
            else:
                left_out[reason] = left_out.get(reason, 0) + 1
        if not found:
            return ""
        notes = [f"({number} not shown: {reason}.)" for reason, number in sorted(left_out.items())[:10]]
        return "\n".join(
            ["# Skills: what you learned to do; read one with `skill_view` before you use it", *lines, *notes]
        )

    def editor(self, *, must_read: bool = False) -> SkillEditor:
        """What reads and changes skills, and remembers what it has read. With `must_read` nothing is changed unread."""
        return SkillEditor(self, must_read=must_read)

    def tools(self, *, on_change: OnChange | None = None, must_read: bool = False) -> list[Tool]:
        """`skills_list`, `skill_view` and `skill_manage`; `on_change` hears of every change that was made."""
        return skill_tools(self, on_change, must_read)
