"""`Projects`: folders with short names, stored in `projects.toml` in the home.

    [projects.web]
    path = "/home/me/src/web"
    engine = "claude"         # used for this project when nobody names another
    worktrees = ".worktrees"  # where `@branch` is checked out, seen from the top of the repository
    base = "main"             # what new branches begin from

A file of its own: `[projects]` of `config.toml` already says which folders are trusted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from treadle.arguments import folder, text, text_problem
from treadle.config.home_files import Document, find_home, read_document, rewrite_document
from treadle.config.toml_edit import remove_value, set_value
from treadle.errors import TreadleError
from treadle.execution.worktrees import WORKTREES

FILE: Final = "projects.toml"
_TABLE: Final = "projects"
_ALIAS: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")

ProjectProblem: TypeAlias = Literal["bad_alias", "bad_entry", "exists", "unknown"]


class ProjectError(TreadleError):
    """A project cannot be found, added or read.

    Args:
        message: What happened and what to type, for people.
        kind: Which of these it is.
        alias: The name that was given.
    """

    def __init__(self, message: str, kind: ProjectProblem, alias: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.alias = alias


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """A folder to work in.

    Args:
        alias: Its short name, in lower case.
        path: The folder, as an absolute path.
        engine: The engine that is used here when nobody names another.
        worktrees: Where branches are checked out, seen from the top of the repository.
        base: What new branches begin from; else what origin calls its HEAD, else the current branch.
    """

    alias: str
    path: str
    engine: str | None = None
    worktrees: str = WORKTREES
    base: str | None = None


class _Section(msgspec.Struct):
    path: str
    engine: str | None = None
    worktrees: str = WORKTREES
    base: str | None = None


class Projects:
    """The projects of a home. Every call reads the file anew: it is small, and people edit it.

    Args:
        home: The home; else the usual one.
    """

    def __init__(self, home: str | os.PathLike[str] | None = None) -> None:
        self._home = find_home(os.environ) if home is None else Path(home)

    @property
    def file(self) -> Path:
        """The file that has them."""
        return self._home / FILE

    def list(self) -> tuple[Project, ...]:
        """All projects, by name. Raises `ProjectError` for an entry that cannot be read."""
        entries = _entries(read_document(self._home, FILE))
        return tuple(self._project(alias, entries[alias]) for alias in sorted(entries))

    def engines(self) -> dict[str, str | None]:
        """The engine of each, as `Router` wants them."""
        return {project.alias: project.engine for project in self.list()}

    def find(self, alias: str) -> Project:
        """A project by its name. Raises `ProjectError` when there is none.

        Args:
            alias: Its name, in any case.
        """
        name = text("alias", alias).lower()
        entries = _entries(read_document(self._home, FILE))
        if name in entries:
            return self._project(name, entries[name])
        raise self._unknown(name, entries)

    def add(
        self,
        alias: str,
        path: str | os.PathLike[str],
        *,
        engine: str | None = None,
        worktrees: str | None = None,
        base: str | None = None,
        replace: bool = False,
    ) -> Project:
        """Store a folder under a name. Comments and order of the file stay as they are.

        Args:
            alias: Its name: letters, digits, `_` and `-`, at most 32; it is stored in lower case.
            path: The folder, which has to be there.
            engine: The engine that is used here when nobody names another.
            worktrees: Where branches are checked out, seen from the top of the repository.
            base: What new branches begin from.
            replace: Whether a project that has this name already is replaced.
        """
        name = text("alias", alias).lower()
        if _ALIAS.fullmatch(name) is None:
            rule = "letters, digits, `_` and `-`, at most 32, and the first no `_` or `-`"
            raise ProjectError(f"`{alias}` cannot be the name of a project: {rule}", "bad_alias", alias)
        given = {"engine": engine, "worktrees": worktrees, "base": base}
        entry = {"path": os.path.abspath(folder("path", os.path.expanduser(path)))}
        entry |= {key: text(key, value) for key, value in given.items() if value is not None}
        project = self._project(name, entry)

        def edit(document: Document) -> str:
            old = _entries(document).get(name)
            if old is not None and not replace:
                what = old.get("path") if isinstance(old, Mapping) else old
                message = f"there is already a project `{name}` ({what}): choose another name, or pass replace=True"
                raise ProjectError(message, "exists", name)
            return set_value(document.text, (_TABLE, name), entry)

        rewrite_document(self._home, edit, FILE)
        return project

    def remove(self, alias: str) -> None:
        """Remove a project from the file. The folder and its branches stay. Raises `ProjectError` when there is none.

        Args:
            alias: Its name.
        """
        name = text("alias", alias).lower()

        def edit(document: Document) -> str:
            entries = _entries(document)
            if name not in entries:
                raise self._unknown(name, entries)
            return remove_value(document.text, (_TABLE, name))

        rewrite_document(self._home, edit, FILE)

    def _project(self, alias: str, entry: object) -> Project:
        try:
            found = msgspec.convert(entry, _Section)
        except msgspec.ValidationError as error:
            message = f"{self.file}: [projects.{alias}] cannot be used: {error}; correct it there"
            raise ProjectError(message, "bad_entry", alias) from None
        path = os.path.expanduser(found.path)
        problem = _entry_problem(alias, path, found)
        if problem is not None:
            raise ProjectError(f"{self.file}: [projects.{alias}] {problem}", "bad_entry", alias)
        return Project(alias=alias, path=path, engine=found.engine, worktrees=found.worktrees, base=found.base)

    def _unknown(self, alias: str, entries: Mapping[str, Any]) -> ProjectError:
        known = f"the projects are {', '.join(sorted(entries))}" if entries else "there is no project yet"
        advice = f"to add it: treadle projects add {alias} FOLDER"
        return ProjectError(f"there is no project `{alias}`; {known}; {advice}", "unknown", alias)


def _entries(document: Document) -> Mapping[str, Any]:
    entries = document.values.get(_TABLE, {})
    if not isinstance(entries, Mapping):
        raise ProjectError(f"{document.path}: `projects` is no table: write [projects.NAME]", "bad_entry", _TABLE)
    return entries


def _entry_problem(alias: str, path: str, entry: _Section) -> str | None:
    if _ALIAS.fullmatch(alias) is None:
        return "has a name that cannot be used: lower-case letters, digits, `_` and `-`, at most 32"
    for name in ("path", "worktrees", "base", "engine"):
        if problem := text_problem(getattr(entry, name) or ""):
            return f"{name} {problem}"
    if not os.path.isabs(path):
        return f"path must be absolute, not {entry.path!r}"
    if not entry.worktrees or os.path.normpath(entry.worktrees) in (".", ".."):
        return f"worktrees must be a folder of its own, such as {WORKTREES!r}, not {entry.worktrees!r}"
    if entry.base is not None and (not entry.base or entry.base.startswith("-")):
        return f"base must be the name of a branch, not {entry.base!r}"
    return None
