"""`Skill`: the name of a skill, its purpose, and what its parts may be named. Pure: no files here."""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from treadle.host.injection import find_injection
from treadle.host.refused import Refused
from treadle.server.skill_files import FILE_NAME, MAX_DESCRIPTION, MAX_NAME, front_matter

MAX_BODY: Final = 100_000
MAX_FILE_BYTES: Final = 1 << 20
# The front matter and the body, with room for characters of several bytes.
MAX_DOCUMENT_BYTES: Final = 4 * MAX_BODY + (64 << 10)
PARTS: Final = ("references", "templates", "scripts", "assets")
MAX_DEPTH: Final = 5

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]*")
_PART: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._ -]{0,99}")

# A file of this name in the folder of a skill says that it is not for the agent to change, and why.
MARKERS: Final = {
    ".protected": "it is protected",
    ".bundled": "it came with the program, whose next version would replace it",
    ".hub": "it was installed from elsewhere, and the next update would replace it",
    ".pinned": "the user has pinned it",
}

SkillAction: TypeAlias = Literal["create", "patch", "edit", "delete", "write_file", "remove_file"]


class Skill(Struct, frozen=True, kw_only=True):
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
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        problem = (
            f"{what} {name[:100]!r} cannot be used: take 1 to {MAX_NAME} lower-case letters, digits, `.`, `_` and `-`, "
            "the first one a letter or a digit"
        )
        raise Refused("invalid", problem)
    return name


def described(text: str, name: str | None = None) -> str:
    """The description in the front matter of a `SKILL.md`; `name` is what it must be called in there, if given."""
    try:
        fields = front_matter(text)
    except ValueError:
        raise Refused("invalid", f"{FILE_NAME} must begin with {_head(name)}") from None
    description = " ".join(fields.get("description", "").split())
    if not description:
        raise Refused("invalid", f"{FILE_NAME} has no `description` in its front matter; begin it with {_head(name)}")
    if len(description) > MAX_DESCRIPTION:
        problem = f"the description has {len(description):,} characters; shorten it to {MAX_DESCRIPTION:,}"
        raise Refused("invalid", problem)
    if name is not None and fields.get("name", "").strip() != name:
        problem = f"the front matter says `name: {fields.get('name', '')[:100]}`, but the skill is called {name}"
        raise Refused("invalid", problem)
    return description


def _head(name: str | None) -> str:
    return f"three dashes, `name: {name or '…'}`, `description: …` and three dashes, each on a line of its own"


def check_document(text: str, name: str) -> None:
    """Whether this may be the `SKILL.md` of a skill; raises `Refused`."""
    described(text, name)
    body = _body(text)
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
        raise Refused("injection", f"this is not kept: {reason}. Say in other words what is to be done.")


def _body(text: str) -> str:
    lines = text.splitlines(keepends=True)
    end = next(index for index, line in enumerate(lines[1:], 1) if line.rstrip() == "---")
    return "".join(lines[end + 1 :])


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
