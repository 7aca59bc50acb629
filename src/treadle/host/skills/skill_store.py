"""`SkillStore`: the skills in a folder: `[category/]name/SKILL.md`, with files beside it.

It owns where they are and what the model is told of them. `SkillEditor` reads and changes them for a session.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from treadle.arguments import path, seconds
from treadle.client.tools import Tool
from treadle.host.guarded_folder import LOCK_S, GuardedFolder, locked, opened
from treadle.host.injection import find_injection
from treadle.host.memory.entries import one_line
from treadle.host.refused import Refused
from treadle.host.skills.skill import MARKERS, MAX_DOCUMENT_BYTES, PARTS, Skill, checked_name, described
from treadle.server.skill_files import FILE_NAME

if TYPE_CHECKING:
    from treadle.host.skills.editor import SkillEditor
    from treadle.host.skills.skill_tools import OnChange

MAX_SKILLS: Final = 1000
MAX_FILES: Final = 200
# What all of them may take of the prompt, and one of them.
MAX_PROMPT: Final = 8000
MAX_PROMPT_LINE: Final = 300

Place = tuple[str | None, str]
"""The category of a skill, if it is in one, and its name."""


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
            return [] if root is None else [_read(root, place) for place in places(root)]

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
        from treadle.host.skills.editor import SkillEditor

        return SkillEditor(self, must_read=must_read)

    def tools(self, *, on_change: OnChange | None = None, must_read: bool = False) -> list[Tool]:
        """`skills_list`, `skill_view` and `skill_manage`; `on_change` hears of every change that was made."""
        from treadle.host.skills.skill_tools import skill_tools

        return skill_tools(self, on_change, must_read)


# --- where they are --------------------------------------------------------------------------------------------------


def places(root: GuardedFolder) -> list[Place]:
    """Every folder with a `SKILL.md`, one or two levels down. Hidden ones and links are passed over."""
    found: list[Place] = []
    for name in _folders(root):
        with root.inner(name) as folder:
            if folder is None:
                continue
            if folder.has(FILE_NAME):
                found.append((None, name))
            else:
                found += [(name, inner) for inner in _folders(folder) if _has_document(folder, inner)]
        if len(found) >= MAX_SKILLS:
            break
    return sorted(found[:MAX_SKILLS], key=lambda place: (place[0] or "", place[1]))


def _folders(folder: GuardedFolder) -> list[str]:
    return [name for name in folder.names() if not name.startswith(".") and folder.is_folder(name)]


def _has_document(folder: GuardedFolder, name: str) -> bool:
    with folder.inner(name) as inner:
        return inner is not None and inner.has(FILE_NAME)


def find_place(root: GuardedFolder | None, name: str) -> Place:
    """Where the skill of this name is: `name`, or `category/name` where two have the same. Raises `Refused`."""
    for part in name.split("/", 1):
        checked_name("the name", part)
    known = [] if root is None else places(root)
    found = [place for place in known if name in (place[1], _path(place))]
    if len(found) == 1:
        return found[0]
    if found:
        listed = ", ".join(_path(place) for place in found)
        raise Refused("ambiguous", f"there are several skills called {name}; say which: {listed}")
    from difflib import get_close_matches

    near = get_close_matches(name, [_path(place) for place in known], n=3, cutoff=0.5)
    hint = f"; similar ones are {', '.join(near)}" if near else "; `skills_list` has the names"
    raise Refused("not_found", f"there is no skill called {name}{hint}")


def _path(place: Place) -> str:
    return place[1] if place[0] is None else f"{place[0]}/{place[1]}"


def folders_of(place: Place) -> tuple[str, ...]:
    return tuple(part for part in place if part is not None)


def _read(root: GuardedFolder, place: Place) -> Skill:
    category, name = place
    description, problem, marker = "", None, None
    try:
        with root.below(folders_of(place)) as folder:
            if folder is None:
                raise Refused("not_found", "it was removed a moment ago")
            marker = marker_of(folder)
            checked_name("the name", name)
            description = described(text_of(folder, FILE_NAME, MAX_DOCUMENT_BYTES))
    except Refused as error:
        problem = str(error)
    return Skill(name=name, category=category, description=description, marker=marker, problem=problem)


def marker_of(folder: GuardedFolder) -> str | None:
    return next((marker for marker in MARKERS if folder.has(marker)), None)


def text_of(folder: GuardedFolder, name: str, most: int) -> str:
    data = folder.read(name, most)
    if data is None:
        raise Refused("not_found", f"there is no {name} in {folder.path}")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Refused("unreadable", f"{folder.place(name)} is not a text in UTF-8 ({len(data):,} bytes)") from None


def files_of(folder: GuardedFolder, parts: Sequence[str] = PARTS, above: str = "") -> list[str]:
    """The files beside a `SKILL.md`, at most `MAX_FILES`."""
    found: list[str] = []
    for name in parts:
        place = f"{above}{name}"
        if above and folder.is_file(name) and not name.startswith("."):
            found.append(place)
        elif folder.is_folder(name) and place.count("/") < 4:
            with folder.inner(name) as inner:
                if inner is not None:
                    found += files_of(inner, inner.names(), f"{place}/")
        if len(found) >= MAX_FILES:
            break
    return found[:MAX_FILES]
