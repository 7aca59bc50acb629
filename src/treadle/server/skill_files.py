"""Skills on disk: a folder with a `SKILL.md`, found below `.agents/skills` of a project and below the home.

It owns where they are looked for and how their front matter is read: the few forms of YAML that people write there.
Which are enabled is not its business.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from treadle.execution.project_files import ProjectFiles
from treadle.execution.user_files import read_regular

FILE_NAME: Final = "SKILL.md"
FOLDER: Final = os.path.join(".agents", "skills")
MAX_FOLDERS: Final = 2000
MAX_DEPTH: Final = 6
MAX_NAME: Final = 64
MAX_DESCRIPTION: Final = 1024
# The front matter is at the beginning; what is written below it is not read here.
MAX_HEAD: Final = 64 << 10

Scope = Literal["repo", "user"]


class SkillFile(NamedTuple):
    name: str
    description: str
    short_description: str | None
    path: str
    scope: Scope


class BrokenSkill(NamedTuple):
    path: str
    message: str


def find_skills(project: ProjectFiles) -> tuple[list[SkillFile], list[BrokenSkill]]:
    """The skills of the project, then those of the user, each by name. A folder that is not there has none."""
    skills: dict[str, SkillFile] = {}
    broken: dict[str, BrokenSkill] = {}
    roots: list[tuple[str, Scope]] = [(os.path.join(folder, FOLDER), "repo") for folder in project.folders]
    if project.home is not None:
        roots.append((os.path.join(project.home, "skills"), "user"))
    for root, scope in roots:
        for path in _files(root):
            try:
                skills.setdefault(path, read_skill(path, scope, project if scope == "repo" else None))
            except ValueError as error:
                broken.setdefault(path, BrokenSkill(path, str(error)))
    # What is left out beside a skill: the repository itself, when it is somebody else's.
    for path, reason in project.left_out.items():
        broken.setdefault(path, BrokenSkill(path, reason))
    ordered = sorted(skills.values(), key=lambda skill: (skill.scope, skill.name, skill.path))
    return ordered, sorted(broken.values())


def _files(root: str) -> Iterator[str]:
    """Links to folders are followed, each folder once; hidden ones are passed over."""
    pending, seen = [(root, 0)], set[str]()
    while pending and len(seen) < MAX_FOLDERS:
        folder, depth = pending.pop()
        real = os.path.realpath(folder)
        if real in seen:
            continue
        seen.add(real)
        try:
            with os.scandir(folder) as entries:
                names = sorted(entry.name for entry in entries)
        except OSError:
            continue
        if FILE_NAME in names:
            yield os.path.join(real, FILE_NAME)
        if depth < MAX_DEPTH:
            pending += [(os.path.join(folder, name), depth + 1) for name in names if not name.startswith(".")]


def read_skill(path: str, scope: Scope, project: ProjectFiles | None = None) -> SkillFile:
    """Raises `ValueError`, which says what is wrong with the file. `project`: the one that has it, if it is not the
    user's own."""
    found = read_regular(path, MAX_HEAD) if project is None else project.read(path, MAX_HEAD)
    if found is None:
        left_out = {} if project is None else project.left_out
        raise ValueError(left_out.get(path, "it cannot be read, or is not a regular file"))
    fields = front_matter(found[0].decode("utf-8", "replace"))
    name = " ".join(fields.get("name", "").split()) or os.path.basename(os.path.dirname(path))
    description = " ".join(fields.get("description", "").split())
    short = " ".join(fields.get("metadata.short-description", "").split())
    if not description:
        raise ValueError("missing field `description`")
    for label, text, most in (("name", name, MAX_NAME), ("description", description, MAX_DESCRIPTION)):
        if len(text) > most:
            raise ValueError(f"invalid {label}: exceeds maximum length of {most} characters")
    return SkillFile(name, description, short or None, path, scope)


# --- front matter ----------------------------------------------------------------------------------------------------


def front_matter(text: str) -> dict[str, str]:
    """The texts between the first two lines of `---`; a member of a member has a dotted name."""
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != "---":
        raise ValueError("missing YAML frontmatter delimited by ---")
    end = next((index for index, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        raise ValueError("missing YAML frontmatter delimited by ---")
    return _members(lines[1:end], "")


def _members(lines: list[str], prefix: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        key, colon, value = line.partition(":")
        if not colon or not key.strip() or line.lstrip().startswith(("#", "- ")):
            continue
        start = at  # of the lines that belong to this one: they are further in, or blank
        while at < len(lines) and (not lines[at].strip() or _indent(lines[at]) > _indent(line)):
            at += 1
        below = lines[start:at]
        name, value = prefix + key.strip().strip("\"'"), value.strip()
        if value[:1] in ("|", ">"):
            fields[name] = (" " if value[0] == ">" else "\n").join(line.strip() for line in below).strip()
        elif value and not value.startswith("#"):
            fields[name] = _scalar(" ".join([value, *(more.strip() for more in below)]))
        elif not prefix:
            fields |= _members(below, f"{name}.")
    return fields


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _scalar(text: str) -> str:
    if text.startswith('"') and (end := text.rfind('"')) > 0:
        return text[1:end].replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\")
    if text.startswith("'") and (end := text.rfind("'")) > 0:
        return text[1:end].replace("''", "'")
    return text.partition(" #")[0].rstrip()
