"""Roles of sub-agents: built in, of the user (`[agents.NAME]`, `HOME/agents`) and of a project (`.agents/agents/*.md`,
`.codex/agents/*.toml`). It owns what a role may say, where they are looked for, and which of two with one name counts.

A role of a project is written by whoever wrote the project, so it can only take away: it cannot replace a role of the
user or a built-in one, choose a provider, or switch on an MCP server. A file that cannot be used is a warning with its
line; the others count.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Struct, structs

from treadle.config import Config
from treadle.config.file_settings import Text
from treadle.execution.project_files import ProjectFiles
from treadle.execution.sandbox.profile_sandbox import WantedMode
from treadle.execution.user_files import read_regular

MAX_BYTES: Final = 64 << 10
MAX_FILES: Final = 200
MAX_DESCRIPTION: Final = 1024
FOLDERS: Final = (os.path.join(".agents", "agents"), os.path.join(".codex", "agents"))
# Of projects, which a model reads with every request, and warnings, which people do.
MAX_OF_PROJECT: Final = 32
MAX_WARNINGS: Final = 20
_NICKNAME: Final = re.compile(r"\w[\w .'-]{0,63}")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_LINE: Final = re.compile(r"at line (\d+)|\bline (\d+)\b")
_KEY: Final = re.compile(r"\$\.(\w+)")


class RoleTable(Struct, frozen=True, kw_only=True):
    """`[agents.NAME]`, or a file with a role; `docs/configuration.md` is made from it."""

    description: Text | None = None
    """What the role is for: the model reads it. A file must have it."""
    developer_instructions: Text | None = None
    """The instructions of a sub-agent of this role, besides those of its parent; of a Markdown file, the text below the
    front matter."""
    model: Text | None = None
    """Its model. Without it, that of the call, else of the parent."""
    model_provider: Text | None = None
    """Who serves the model; not from a project's file."""
    engine: Text | None = None
    """The agent program that does the work instead of a model, one of `agents.engines`; not from a project's file."""
    model_reasoning_effort: Text | None = None
    """How much it thinks."""
    sandbox_mode: WantedMode | None = None
    """What it may touch: never more than its parent."""
    tools: tuple[Text, ...] | None = None
    """The only ones of our own tools that it has."""
    mcp_servers: tuple[Text, ...] | None = None
    """The only MCP servers that it has, by name."""
    skills: tuple[Text, ...] | None = None
    """The only skills that it has, by name."""
    nickname_candidates: tuple[Text, ...] = ()
    """Names for sub-agents of this role."""
    isolation: Literal["worktree"] | None = None
    """`worktree` gives each of them a git worktree of its own to work in."""
    config_file: Text | None = None
    """A file with the rest of it; a relative path starts at the home. Not in a file."""


class AgentRole(Struct, frozen=True, kw_only=True):
    """A role as it counts. `own` says that the user wrote it, and not a project; `cheap`, that a cheap model does for
    it where nobody names one."""

    name: str
    table: RoleTable
    own: bool = True
    cheap: bool = False

    @property
    def description(self) -> str:
        return " ".join((self.table.description or "").split())[:MAX_DESCRIPTION]


class Roles(NamedTuple):
    """All roles by name, in the order in which a model reads them, and why others do not count."""

    by_name: Mapping[str, AgentRole]
    warnings: tuple[str, ...] = ()


def _built_in(
    name: str, mode: WantedMode | None, description: str, instructions: str | None = None, *, cheap: bool = False
) -> AgentRole:
    table = RoleTable(description=description, sandbox_mode=mode, developer_instructions=instructions)
    return AgentRole(name=name, table=table, cheap=cheap)


_ROLES: Final = (
    _built_in("default", None, "Whatever the task says."),
    _built_in(
        "explorer",
        "read-only",
        "Answers one well-defined question about files or code. It only reads, so several may run at a time.",
        "You look things up for another agent. Change nothing. Answer the question that you were asked, shortly, with "
        "the paths and lines that your answer rests on.",
        cheap=True,
    ),
    _built_in(
        "worker",
        None,
        "Carries a well-defined change out. Say which files are its own, and that others may work beside it.",
        "You carry out a task for another agent. Others may work in the same folder: stay with your own files, and do "
        "not revert what you did not write. At the end say which files you have changed.",
    ),
    _built_in(
        "reviewer",
        "read-only",
        "Looks for mistakes in changes. It only reads.",
        "You review changes for another agent. Change nothing. Report what is wrong, worst first, each with its path "
        "and line and what would put it right; say so if there is nothing.",
    ),
)
BUILT_IN_ROLES: Final = {role.name: role for role in _ROLES}


class RoleError(ValueError):
    """A role that cannot be used; the message says why."""


def find_roles(project: ProjectFiles, config: Config, *, of_project: bool = True) -> Roles:
    """The roles for threads of a project; those that the project brings only if it counts. Blocking."""
    found: dict[str, AgentRole] = {}
    warnings: list[str] = []

    def add(role: AgentRole, place: str) -> None:
        known = found.get(role.name) or BUILT_IN_ROLES.get(role.name)
        if not role.own and known is not None and known.own:
            warnings.append(f"{place} is left out: a project cannot replace the agent role `{role.name}`")
        elif not role.own and sum(not each.own for each in found.values()) >= MAX_OF_PROJECT:
            warnings.append(f"{place} is left out: of a project {MAX_OF_PROJECT} agent roles count")
        elif role.name not in found:
            found[role.name] = role

    tables = config.document.get("agents")
    for name, table in tables.items() if isinstance(tables, Mapping) else ():
        if isinstance(table, Mapping):
            try:
                add(_from_settings(name, table, config, project), "")
            except RoleError as error:
                problem = f"the agent role `{name}` is left out: {error}"
                warnings.append(str(config.layers.warning(("agents", name), problem)))
    folders = [(os.path.join(str(config.home), "agents"), True)]
    if of_project:
        folders += [(os.path.join(at, folder), False) for at in reversed(project.folders) for folder in FOLDERS]
    for folder, own in folders:
        for path in _files(folder, project):
            try:
                role = _from_file(path, None if own else project)
                add(role, path)
            except RoleError as error:
                warnings.append(f"{path}{error}")
    for name, role in BUILT_IN_ROLES.items():
        found.setdefault(name, role)
    if len(warnings) > MAX_WARNINGS:
        warnings[MAX_WARNINGS:] = [f"{len(warnings) - MAX_WARNINGS} more agent roles are left out"]
    return Roles(found, tuple(warnings))


def _files(folder: str, project: ProjectFiles) -> Iterator[str]:
    project.snapshot.note(folder)
    try:
        names = sorted(os.listdir(folder))[:MAX_FILES]
    except OSError:
        return
    for name in names:
        if name.endswith((".toml", ".md")) and not name.startswith("."):
            yield os.path.join(folder, name)


def _from_settings(name: str, table: Mapping[str, Any], config: Config, project: ProjectFiles) -> AgentRole:
    read = _convert(table, name)
    if read.config_file is not None:
        path = os.path.join(str(config.home), os.path.expanduser(read.config_file))
        project.snapshot.note(path)
        try:
            of_file = _parse(path, _text(read_regular(path, MAX_BYTES + 1)))
        except RoleError as error:
            raise RoleError(f"{path}{error}") from None
        read = _convert({**of_file, **table}, name)
    if (known := BUILT_IN_ROLES.get(name)) is None:
        return AgentRole(name=_name(name), table=read)
    # A table of the settings says what is different about a built-in role: one that names a model writes no more.
    said = {
        member: value for member in RoleTable.__struct_fields__ if (value := getattr(read, member)) not in (None, ())
    }
    return structs.replace(known, table=structs.replace(known.table, **said))


def _from_file(path: str, project: ProjectFiles | None) -> AgentRole:
    """The role of a file: of the user's own, when no project is given. Errors begin with the place in it."""
    if project is not None:
        project.snapshot.note(path)
    found = read_regular(path, MAX_BYTES + 1) if project is None else project.read(path, MAX_BYTES + 1, inside=True)
    if found is None:
        reason = None if project is None else project.left_out.pop(path, None)
        raise RoleError(f" is left out: {reason or 'it cannot be read, or is not a regular file'}")
    text = _text(found)
    values = _parse(path, text)
    name = values.pop("name", None) or os.path.splitext(os.path.basename(path))[0]
    try:
        table = _convert(values, str(name))
        for member in ("description", "developer_instructions"):
            if getattr(table, member) is None:
                raise RoleError(f"it must define `{member}`")
        if table.config_file is not None:
            raise RoleError("`config_file` is for settings only")
        for member in () if project is None else ("model_provider", "engine"):
            if getattr(table, member) is not None:
                raise RoleError(f"`{member}` cannot be chosen by a project")
        return AgentRole(name=_name(str(name)), table=table, own=project is None)
    except RoleError as error:
        raise RoleError(f":{_line_of(text, str(error))}: malformed agent role: {error}") from None


def _text(found: tuple[bytes, os.stat_result] | None) -> str:
    if found is None:
        raise RoleError(": malformed agent role: it cannot be read, or is not a regular file")
    if len(found[0]) > MAX_BYTES:
        raise RoleError(f":1: malformed agent role: it is longer than {MAX_BYTES} bytes")
    try:
        return found[0].decode()
    except UnicodeDecodeError:
        raise RoleError(":1: malformed agent role: it is not UTF-8") from None


def _parse(path: str, text: str) -> dict[str, Any]:
    try:
        if path.endswith(".md"):
            from treadle.skills.skill_yaml import front_matter, split_document  # few have such files

            values: dict[str, Any] = dict(front_matter(text))
            for member in ("tools", "mcp_servers", "skills", "nickname_candidates"):
                if isinstance(values.get(member), str):
                    values[member] = [part for each in values[member].split(",") if (part := each.strip())]
            if values.get("model") == "inherit":
                del values["model"]
            body = split_document(text)[1].strip()
            return {**values, "developer_instructions": body} if body else values
        import tomllib

        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        line = _LINE.search(str(error))
        at = 1 if line is None else line[1] or line[2]
        raise RoleError(f":{at}: malformed agent role: {str(error)[:300]}") from None


def _convert(values: Mapping[str, Any], name: str) -> RoleTable:
    """A role from what is written of it. Keys that we do not know are those of other programs."""
    try:
        table = msgspec.convert(values, RoleTable)
    except msgspec.ValidationError as error:
        raise RoleError(str(error)) from None
    # It stands before what the sub-agent asks people, and in the name of a branch.
    if not all(_NICKNAME.fullmatch(each) for each in table.nickname_candidates):
        raise RoleError("`nickname_candidates` must be letters, digits, spaces, `.`, `'`, `_` and `-`, at most 64")
    return table


def _name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise RoleError("its `name` must be letters, digits, `-` and `_`, at most 64")
    return name


def _line_of(text: str, problem: str) -> int:
    """The line of the key that a problem names."""
    named = _KEY.search(problem) or re.search(r"`(\w+)`", problem)
    if named is not None:
        for number, line in enumerate(text.splitlines(), 1):
            if re.match(rf"\s*\[*[\"']?{re.escape(named[1])}[\"']?\s*[=:.\]]", line):
                return number
    return 1
