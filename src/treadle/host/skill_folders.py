"""Skills on disk: what a skill may be called and contain (pure), which there are, where one is, and what is in it.

The caller holds the folder open.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from treadle.host.guarded_folder import GuardedFolder, Refused
from treadle.host.injection import find_injection
from treadle.skills.skill_files import FILE_NAME
from treadle.skills.skill_reading import MAX_DESCRIPTION, MAX_NAME, NAME, one_line_of
from treadle.skills.skill_yaml import YamlError, read_yaml, split_document

MAX_BODY: Final = 100_000
MAX_FILE_BYTES: Final = 1 << 20
# The front matter and the body, with room for characters of several bytes.
MAX_DOCUMENT_BYTES: Final = 4 * MAX_BODY + (64 << 10)
PARTS: Final = ("references", "templates", "scripts", "assets")
MAX_DEPTH: Final = 5

_PART: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._ -]{0,99}")

# A file of this name in the folder of a skill says that it is not for the agent to change, and why.
MARKERS: Final = {
    ".protected": "it is protected",
    ".bundled": "it came with the program, whose next version would replace it",
    ".hub": "it was installed from elsewhere, and the next update would replace it",
    ".pinned": "the user has pinned it",
}

SkillAction: TypeAlias = Literal["create", "patch", "edit", "delete", "write_file", "remove_file"]


class StoredSkill(Struct, frozen=True, kw_only=True):
    """A skill in a list.

    Args:
        name: The name of its folder.
        category: The folder around it, if there is one.
        description: What it is for.
        marker: The file that keeps the agent from changing it, such as `.pinned`; None when it may.
        problem: Why it cannot be used; None when it can.
    """

    name: str
    category: str | None = None
    description: str = ""
    marker: str | None = None
    problem: str | None = None

    @property
    def path(self) -> str:
        return self.name if self.category is None else f"{self.category}/{self.name}"


class SkillChange(Struct, frozen=True, kw_only=True):
    """What was done to a skill; `file` is None for its `SKILL.md`."""

    action: SkillAction
    name: str
    file: str | None = None


def checked_name(what: str, name: str) -> str:
    if len(name) > MAX_NAME or not NAME.fullmatch(name):
        problem = (
            f"{what} {name[:100]!r} cannot be used: take 1 to {MAX_NAME} lower-case letters, digits, `.`, `_` and `-`, "
            "the first one a letter or a digit"
        )
        raise Refused("invalid", problem)
    return name


def checked_description(text: str, name: str | None = None) -> str:
    """The description in the front matter of a `SKILL.md`; `name` is what it must be called in there, if given."""
    try:
        head, _ = split_document(text)
    except YamlError:
        raise Refused("invalid", f"{FILE_NAME} must begin with {_head(name)}") from None
    try:
        fields = read_yaml("\n".join(head), 2)
        description = one_line_of(fields, "description")
        found = one_line_of(fields, "name")
    except YamlError as error:
        raise Refused("invalid", f"the front matter of {FILE_NAME} cannot be read: {error}") from None
    if not description:
        raise Refused("invalid", f"{FILE_NAME} has no `description` in its front matter; begin it with {_head(name)}")
    if len(description) > MAX_DESCRIPTION:
        problem = f"the description has {len(description):,} characters; shorten it to {MAX_DESCRIPTION:,}"
        raise Refused("invalid", problem)
    if name is not None and found != name:
        problem = f"the front matter says `name: {found[:100]}`, but the skill is called {name}"
        raise Refused("invalid", problem)
    return description


def _head(name: str | None) -> str:
    return f"three dashes, `name: {name or '…'}`, `description: …` and three dashes, each on a line of its own"


def check_document(text: str, name: str) -> None:
    """Whether this may be the `SKILL.md` of a skill; raises `Refused`."""
    checked_description(text, name)
    _, body = split_document(text)
    if not body.strip():
        raise Refused("invalid", f"there is nothing below the front matter of {FILE_NAME}: say how it is done")
    if len(body) > MAX_BODY:
        problem = (
            f"the text has {len(body):,} characters, and {MAX_BODY:,} fit; put parts of it into files of `references`"
        )
        raise Refused("full", problem)
    check_text(text)
    if len(text.encode()) > MAX_DOCUMENT_BYTES:
        raise Refused("full", "the front matter is too long; it has room for a name and a description")


def check_text(text: str) -> None:
    reason = find_injection(text.replace("\r\n", "\n").removeprefix("\ufeff"))
    if reason is not None:
        raise Refused("injection", f"this is not stored: {reason}. Say in other words what is to be done.")


def file_parts(file: str) -> tuple[str, ...]:
    """The folders and the name of a file of a skill; raises `Refused` for what could be anywhere else."""
    parts = tuple(file.split("/"))
    if parts[0] in PARTS and 2 <= len(parts) <= MAX_DEPTH and all(_PART.fullmatch(part) for part in parts):
        return parts
    problem = (
        f"{file[:200]!r} cannot be a file of a skill: give a path such as `references/notes.md`, in one of "
        f"{', '.join(PARTS)}, of plain names and at most {MAX_DEPTH} levels deep"
    )
    raise Refused("invalid", problem)


# --- folders ---------------------------------------------------------------------------------------------------------

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


def read_skill(root: GuardedFolder, place: Place) -> StoredSkill:
    category, name = place
    description, problem, marker = "", None, None
    try:
        with root.below(folders_of(place)) as folder:
            if folder is None:
                raise Refused("not_found", "it was removed a moment ago")
            marker = marker_of(folder)
            checked_name("the name", name)
            description = checked_description(read_text(folder, FILE_NAME, MAX_DOCUMENT_BYTES))
    except Refused as error:
        problem = str(error)
    return StoredSkill(name=name, category=category, description=description, marker=marker, problem=problem)


def marker_of(folder: GuardedFolder) -> str | None:
    return next((marker for marker in MARKERS if folder.has(marker)), None)


def read_text(folder: GuardedFolder, name: str, most: int) -> str:
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
