"""The folders of skills on disk: which there are, where one is, and what is in it. The caller holds the folder open."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

from treadle.host.guarded_folder import GuardedFolder
from treadle.host.refused import Refused
from treadle.host.skills.skill import MARKERS, MAX_DOCUMENT_BYTES, PARTS, Skill, checked_name, described
from treadle.server.skill_files import FILE_NAME

MAX_SKILLS: Final = 1000
MAX_FILES: Final = 200

Place = tuple[str | None, str]
"""The category of a skill, if it is in one, and its name."""


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
    near = get_close_matches(name, [_path(place) for place in known], n=3, cutoff=0.5)
    hint = f"; similar ones are {', '.join(near)}" if near else "; `skills_list` has the names"
    raise Refused("not_found", f"there is no skill called {name}{hint}")


def _path(place: Place) -> str:
    return place[1] if place[0] is None else f"{place[0]}/{place[1]}"


def folders_of(place: Place) -> tuple[str, ...]:
    return tuple(part for part in place if part is not None)


def read_skill(root: GuardedFolder, place: Place) -> Skill:
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
