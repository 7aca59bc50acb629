"""Skills on disk: folders with a `SKILL.md`, and where they are looked for.

It owns the roots, in the order in which skills count (the nearest folder of the project first), the rules by which a
folder is walked, and what is known of it from before. How a file is read is `skill_reading`. A folder that has a
`SKILL.md` is a skill, and what is inside is its own; one that has none may contain skills. Hidden folders are passed
over. What a project has is read as `ProjectFiles` reads it: it must lie in the project after all links were followed,
belong to the user, and be readable for the commands of the thread. What is wrong with one skill is an entry of
`broken`, and concerns no other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from treadle.execution.bounded_reads import FileSnapshot, KnownReads
from treadle.execution.project_files import ProjectFiles

if TYPE_CHECKING:
    from treadle.config.file_settings import SkillRule, SkillSettings
    from treadle.execution.remote_machine import RemoteProject
    from treadle.execution.sandbox.profile_sandbox import Confinement
    from treadle.protocol.app.extensions import SkillInterface, SkillToolDependency

FILE_NAME: Final = "SKILL.md"
EVERY_SKILL: Final = "*"  # the name of a rule for all of them
METADATA: Final = os.path.join("agents", "openai.yaml")
PROJECT_FOLDERS: Final = (os.path.join(".agents", "skills"), os.path.join(".codex", "skills"))
CLAUDE_FOLDER: Final = os.path.join(".claude", "skills")
ADMIN_ROOTS: Final = ("/etc/treadle/skills", "/etc/codex/skills")
# Of the user's roots together, and of the project's: one must not take them from the other.
MAX_FOLDERS: Final = 2000
MAX_ENTRIES: Final = 10_000  # names in one folder
MAX_DEPTH: Final = 6

Scope: TypeAlias = Literal["repo", "user", "admin"]


class Skill(NamedTuple):
    name: str
    description: str
    path: str
    """The path of its `SKILL.md`, without links."""
    root: str
    scope: Scope
    rank: int = 0
    """How near it is: the lower one counts where two have the same name."""
    short_description: str | None = None
    interface: SkillInterface | None = None
    tools: tuple[SkillToolDependency, ...] = ()
    """What it needs, such as MCP servers."""
    implicit: bool = True
    """Whether the model may choose it by itself."""


class BrokenSkill(NamedTuple):
    path: str
    message: str


class SkillRoot(NamedTuple):
    path: str
    scope: Scope
    rank: int = 0


class SkillSet(NamedTuple):
    """The skills of a place, the most specific first. `folders` are those whose names decide about it."""

    skills: tuple[Skill, ...] = ()
    broken: tuple[BrokenSkill, ...] = ()
    folders: tuple[str, ...] = ()


def is_enabled(skill: Skill, rules: Sequence[SkillRule]) -> bool:
    """Whether `[[skills.config]]` lets a skill be used."""
    return rule_for(rules, name=skill.name, path=skill.path) is not False


def rule_for(rules: Sequence[SkillRule], *, name: str, path: str = "") -> bool | None:
    """What the last rule says that names a skill; None where there is none."""
    fitting = (rule for rule in reversed(rules) if rule.path == path or rule.name in (name, EVERY_SKILL))
    return next((rule.enabled for rule in fitting), None)


# --- finding ---------------------------------------------------------------------------------------------------------


def skill_roots(project: ProjectFiles, settings: SkillSettings, extra: Sequence[str] = ()) -> list[SkillRoot]:
    """Where skills are looked for: in the project, from the working directory up to its root; then the user's own,
    those of the settings and `extra` ones included; then those of the machine."""
    user_home = os.path.expanduser("~")
    claude = (CLAUDE_FOLDER,) if settings.claude_folders else ()
    own = [os.path.join(user_home, folder) for folder in (PROJECT_FOLDERS[0], *claude)]
    if project.home is not None:
        own.insert(0, os.path.join(project.home, "skills"))
        own += (os.path.join(project.home, os.path.expanduser(root)) for root in settings.roots)
    own = [os.path.normpath(root) for root in (*own, *extra)]
    names, rank = (*PROJECT_FOLDERS, *claude), len(project.folders)
    below = [
        SkillRoot(os.path.join(folder, name), "repo", at)
        for at, folder in enumerate(project.folders[::-1])
        for name in names
    ]
    # In the user's home directory the folders of "the project" are the user's.
    roots = [root for root in below if root.path not in own]
    roots += (SkillRoot(path, "user", rank) for path in own)
    return [*roots, *(SkillRoot(path, "admin", rank + 1) for path in ADMIN_ROOTS)]


def find_skills(project: ProjectFiles, settings: SkillSettings, extra: Sequence[str] = ()) -> SkillSet:
    """All skills for a working directory. As long as the project's snapshot, which is filled here, is current, there is
    nothing else to be found."""
    skills: dict[str, Skill] = {}
    broken: dict[str, BrokenSkill] = {}
    folders: dict[str, None] = {}
    left = {True: MAX_FOLDERS, False: MAX_FOLDERS}
    for root, scope, rank in skill_roots(project, settings, extra):
        owner = project if scope == "repo" else None
        real = project.snapshot.note_root(root)
        if real is None:
            folders[root] = None
            continue
        if owner is not None and not owner.encloses(real):
            broken[root] = BrokenSkill(root, f"it leads to {real}, which is not in the project")
            continue
        walk = _Walk(project, owner, left[owner is not None])
        for path in walk.files(real):
            from treadle.skills.skill_reading import read_skill  # only where there is one

            if path in skills or path in broken:
                continue
            try:
                found, problem = read_skill(path, scope, owner)
                # The model cannot choose what it cannot read; when the user names it, it is read for it.
                implicit = found.implicit and (owner is not None or project.may_read(path))
                skills[path] = found._replace(root=real, rank=rank, implicit=implicit)
            except ValueError as error:
                problem = BrokenSkill(path, str(error))
            if problem is not None:
                broken[problem.path] = problem
        left[owner is not None] = walk.left
        folders |= walk.folders
        broken |= walk.broken
    # What is left out beside a skill: the repository itself, when it is somebody else's.
    for path, reason in project.left_out.items():
        broken.setdefault(path, BrokenSkill(path, reason))
    nearest_first = sorted(skills.values(), key=lambda skill: (skill.rank, skill.name))
    return SkillSet(tuple(nearest_first), tuple(sorted(broken.values())), tuple(folders))


def find_remote_skills(project: RemoteProject, settings: SkillSettings) -> SkillSet:
    """The skills of a project on another machine, the nearest first."""
    skills: dict[str, Skill] = {}
    broken: dict[str, BrokenSkill] = {}
    names = (*PROJECT_FOLDERS, *((CLAUDE_FOLDER,) if settings.claude_folders else ()))
    for rank, folder in enumerate(project.folders[::-1]):
        for root in (os.path.join(folder, name) for name in names):
            if not project.is_folder(root):
                continue
            real = project.real(root)
            if real is None or not project.encloses(real):
                broken[root] = BrokenSkill(root, f"it leads to {real}, which is not in the project")
                continue
            for path in project.files_below(root, FILE_NAME, depth=MAX_DEPTH, most=MAX_FOLDERS):
                from treadle.skills.skill_reading import read_skill  # only where there is one

                try:
                    found, problem = read_skill(path, "repo", project)
                    skills.setdefault(path, found._replace(root=root, rank=rank))
                except ValueError as error:
                    problem = BrokenSkill(path, str(error))
                if problem is not None:
                    broken[problem.path] = problem
    nearest_first = sorted(skills.values(), key=lambda skill: (skill.rank, skill.name))
    return SkillSet(tuple(nearest_first), tuple(sorted(broken.values())))


class _Walk:
    """A walk through one root."""

    def __init__(self, project: ProjectFiles, owner: ProjectFiles | None, left: int) -> None:
        self._snapshot = project.snapshot
        self._owner = owner
        self._seen: set[str] = set()
        self.left = left
        self.folders: dict[str, None] = {}
        self.broken: dict[str, BrokenSkill] = {}

    def files(self, root: str) -> Iterator[str]:
        """The `SKILL.md` of every skill, by name. A link to a folder is followed, each folder once."""
        pending = [(root, 0)]
        while pending:
            folder, depth = pending.pop()
            if folder in self._seen:
                continue
            if not self.left:
                self.broken[root] = BrokenSkill(root, f"only the first {MAX_FOLDERS} folders were looked at")
                return
            self.left -= 1
            self._seen.add(folder)
            self.folders[folder] = None
            file = os.path.join(folder, FILE_NAME)
            if os.path.lexists(file) and not os.path.isdir(file):
                self._snapshot.note(file)
                metadata = os.path.join(folder, METADATA)
                if os.path.lexists(metadata):
                    self._snapshot.note(metadata)
                    self.folders[os.path.dirname(metadata)] = None
                else:
                    self._snapshot.note_mark(metadata)
                yield file
                if depth:  # one that lies in the root itself hides no other
                    continue
            self._snapshot.note(folder)
            if depth < MAX_DEPTH:
                pending += [(inner, depth + 1) for inner in reversed(self._inner(folder))]

    def _inner(self, folder: str) -> list[str]:
        found: list[tuple[str, str]] = []
        try:
            with os.scandir(folder) as entries:
                for entry in islice(entries, MAX_ENTRIES):
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        found.append((entry.name, entry.path))
                    elif entry.is_symlink() and (real := self._followed(entry.path)) is not None:
                        found.append((entry.name, real))
                if next(entries, None) is not None:
                    self.broken[folder] = BrokenSkill(folder, f"only the first {MAX_ENTRIES} names were looked at")
        except OSError as error:
            self.broken[folder] = BrokenSkill(folder, f"it cannot be read ({error.strerror})")
        return [path for _, path in sorted(found)]

    def _followed(self, link: str) -> str | None:
        """The folder that a link leads to."""
        real = os.path.realpath(link)
        if self._owner is not None and not self._owner.encloses(real):
            self._snapshot.note_mark(link)
            self.broken[link] = BrokenSkill(link, f"it leads to {real}, which is not in the project")
            return None
        return self._snapshot.note_root(link)


# --- what was found before -------------------------------------------------------------------------------------------


class SkillPlace(NamedTuple):
    """The facts that decide which skills there are, besides the files."""

    cwd: str
    confinement: Confinement | None
    home: str
    settings: SkillSettings
    extra: tuple[str, ...] = ()


known_skills: Final[KnownReads[SkillPlace, SkillSet]] = KnownReads()


def look_for_skills(place: SkillPlace) -> tuple[SkillSet, FileSnapshot]:
    """The skills that there are now, which are known from then on. Blocking."""
    snapshot = FileSnapshot()
    project = ProjectFiles(place.cwd, place.home, place.confinement, snapshot)
    found = find_skills(project, place.settings, place.extra)
    return known_skills.store(place, found, snapshot), snapshot
