"""`treadle skills`: lists, makes and checks skills, and turns them on and off.

What there is, it reads itself, as the agent does for a thread in this folder; no server is started.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from treadle.cli.completion import completing
from treadle.cli.problem import Problem
from treadle.cli.streams import FAILED, REFUSED, write, write_json
from treadle.cli.terminal import table_lines
from treadle.cli.user_commands import user_command, user_group
from treadle.config import Config, find_home, load_config, write_values
from treadle.config.config_access import skill_edit
from treadle.config.home_files import read_document
from treadle.execution.project_files import ProjectFiles
from treadle.pages.figures import plural
from treadle.pages.safe_text import printable_line
from treadle.skills.skill_files import FILE_NAME, PROJECT_FOLDERS, Skill, SkillSet, find_skills, is_enabled
from treadle.skills.skill_reading import MAX_DESCRIPTION, MAX_NAME, NAME, read_skill
from treadle.skills.skill_yaml import YamlError, split_document

# Of a description in the list; the whole is in the file.
_SHOWN: Final = 100
_NONE: Final = "There are no skills here yet. Try `treadle skills new my-skill`."
_NEW: Final = """\
---
name: {name}
description: {description}
---

# {name}

1. Say here, step by step, how it is done.
2. Say how to see that it worked.
"""
_DESCRIPTION: Final = "Say here what this is for, and when to use it."


@user_group(
    "skills",
    more="A skill is a folder with a SKILL.md that says how something is done. Yours are in skills/ of the home and in "
    "~/.agents/skills, those of a project in its .agents/skills.",
    examples=("treadle skills new release --project", "treadle skills list", "treadle skills check"),
)
def command() -> int:
    return 0


def _found(config: Config) -> SkillSet:
    project = ProjectFiles(os.getcwd(), str(config.home), config.permissions().sandbox)
    return find_skills(project, config.skills)


def _document(given: str) -> str:
    """The `SKILL.md` that a path means: itself, or that of a folder."""
    return os.path.realpath(given if os.path.basename(given) == FILE_NAME else os.path.join(given, FILE_NAME))


def _names() -> list[str]:
    return [skill.name for skill in _found(load_config(find_home(os.environ)).config).skills]


@user_command(
    "list",
    summary="list the skills that there are in this folder",
    exit_codes={0: "listed", 2: "wrong usage, or the settings cannot be used"},
    examples=("treadle skills list", "treadle skills list --json | jq -r '.skills[].name'"),
)
@click.option("--json", "as_json", is_flag=True, help="as one JSON object, with whole descriptions and with errors")
def list_(as_json: bool, config_overrides: tuple[str, ...]) -> int:
    config = load_config(find_home(os.environ), overrides=config_overrides).config
    found = _found(config)
    if as_json:
        skills = [_as_json(skill, enabled=is_enabled(skill, config.skills.config)) for skill in found.skills]
        write_json({"skills": skills, "errors": [bad._asdict() for bad in found.broken]})
        return 0
    lines = []
    for skill in found.skills:
        is_on = is_enabled(skill, config.skills.config)
        state = "disabled" if not is_on else "enabled" if skill.implicit else "when named"
        lines.append((skill.name, skill.scope, state, skill.description[:_SHOWN]))
    for line in table_lines(lines):
        write(sys.stdout, line + "\n")
    if found.broken:
        write(sys.stdout, f"{plural(len(found.broken), 'problem')} more: treadle skills check\n")
    elif not lines:
        write(sys.stdout, f"{_NONE}\n")
    return 0


def _as_json(skill: Skill, *, enabled: bool) -> dict[str, Any]:
    return {
        "name": skill.name,
        "description": skill.description,
        "shortDescription": skill.short_description,
        "scope": skill.scope,
        "path": skill.path,
        "enabled": enabled,
        "implicit": skill.implicit,
        "interface": None if skill.interface is None else msgspec.to_builtins(skill.interface),
        "tools": [msgspec.to_builtins(tool) for tool in skill.tools],
    }


# --- make and check --------------------------------------------------------------------------------------------------


@user_command(
    "new",
    summary="make a skill, to be filled in",
    config=False,
    exit_codes={0: "made", 1: "it cannot be made", 2: "wrong usage"},
    examples=("treadle skills new release --description 'How to make a release' --project", "treadle skills new notes"),
)
@click.argument("name")
@click.option("--description", default=_DESCRIPTION, metavar="TEXT", help="what it is for, and when to use it")
@click.option("--project", is_flag=True, help="in this project (.agents/skills) instead of in the home")
def new(name: str, description: str, project: bool) -> int:
    if len(name) > MAX_NAME or not NAME.fullmatch(name):
        why = f"take 1 to {MAX_NAME} lower-case letters, digits, `.`, `_` and `-`, the first one a letter or a digit"
        raise Problem(f"a skill cannot be called {name!r}", why=why, do="treadle skills new my-skill", code=REFUSED)
    text = " ".join(description.split())
    if not text or len(text) > MAX_DESCRIPTION:
        why = f"it has {len(text):,} characters, and 1 to {MAX_DESCRIPTION:,} are allowed"
        raise Problem("the description cannot be used", why=why, do="--description 'When to use it'", code=REFUSED)
    home = find_home(os.environ)
    if project:
        found = ProjectFiles(os.getcwd(), str(home))
        root = Path(found.repository or os.getcwd(), PROJECT_FOLDERS[0])
        if not found.encloses(os.path.realpath(root)):
            raise Problem(f"{root} cannot be used", why="a link leads out of the project", code=FAILED)
    else:
        root = home / "skills"
    folder = root / name
    # A text in JSON is one in YAML too.
    quoted = msgspec.json.encode(text).decode()
    try:
        folder.mkdir(parents=True)
        with open(folder / FILE_NAME, "x", encoding="utf-8") as file:
            file.write(_NEW.format(name=name, description=quoted))
    except FileExistsError:
        raise Problem(f"{folder} is there already", do="treadle skills new ANOTHER-NAME", code=FAILED) from None
    except OSError as error:
        raise Problem(f"{folder} cannot be made", why=error.strerror or str(error), code=FAILED) from None
    write(sys.stdout, printable_line(f"Made {folder / FILE_NAME}: write into it how it is done.") + "\n")
    return 0


@user_command(
    "check",
    summary="say what is wrong with the skills here, or with those in some folders",
    exit_codes={0: "nothing", 1: "something", 2: "wrong usage, or the settings cannot be used"},
    examples=("treadle skills check", "treadle skills check .agents/skills/release", "treadle skills check --json"),
)
@click.argument("paths", nargs=-1, metavar="[FOLDER...]")
@click.option("--json", "as_json", is_flag=True, help="as one JSON object")
def check(paths: tuple[str, ...], as_json: bool, config_overrides: tuple[str, ...]) -> int:
    config = load_config(find_home(os.environ), overrides=config_overrides).config
    problems: list[tuple[str, str]] = []
    if paths:
        skills = []
        for given in paths:
            path = _document(given)
            try:
                skill, problem = read_skill(path, "user")
            except ValueError as error:
                problems.append((path, str(error)))
            else:
                skills.append(skill)
                if problem is not None:
                    problems.append(problem)
    else:
        found = _found(config)
        skills, problems = list(found.skills), list(found.broken)
    for skill in skills:
        problems += ((skill.path, problem) for problem in _odd(skill))
    if as_json:
        write_json({"checked": len(skills), "problems": [{"path": path, "message": text} for path, text in problems]})
    else:
        for path, text in problems:
            write(sys.stdout, printable_line(f"{path}: {text}") + "\n")
        if not problems:
            write(sys.stdout, f"Nothing is wrong with {plural(len(skills), 'skill')}.\n")
    return FAILED if problems else 0


def _odd(skill: Skill) -> Sequence[str]:
    """What the agent puts up with, and is not meant."""
    found = []
    folder = os.path.basename(os.path.dirname(skill.path))
    if not NAME.fullmatch(skill.name):
        found.append(f"it is called {skill.name!r}; take lower-case letters, digits, `.`, `_` and `-`")
    elif skill.name != folder:
        found.append(f"it is called {skill.name}, and its folder {folder}; give both one name")
    if len(skill.description) > MAX_DESCRIPTION:
        found.append(f"its description has {len(skill.description):,} characters, and models get {MAX_DESCRIPTION:,}")
    try:
        _, body = split_document(Path(skill.path).read_text(encoding="utf-8"))
    except (OSError, ValueError, YamlError) as error:
        found.append(f"it cannot be read as a text in UTF-8: {error}")
    else:
        if not body.strip():
            found.append("there is nothing below its front matter; say how it is done")
    return found


# --- on and off ------------------------------------------------------------------------------------------------------


@user_command(
    "enable",
    summary="turn a skill on",
    config=False,
    exit_codes={0: "it is on", 1: "there is no such skill", 2: "wrong usage, or the settings cannot be used"},
    examples=("treadle skills enable release",),
)
@click.argument("skill", shell_complete=completing(_names))
def enable(skill: str) -> int:
    return _switch(skill, on=True)


@user_command(
    "disable",
    summary="turn a skill off, by its name or its path",
    config=False,
    exit_codes={0: "it is off", 1: "there is no such skill", 2: "wrong usage, or the settings cannot be used"},
    examples=("treadle skills disable release", "treadle skills disable .agents/skills/release"),
)
@click.argument("skill", shell_complete=completing(_names))
def disable(skill: str) -> int:
    return _switch(skill, on=False)


def _switch(given: str, *, on: bool) -> int:
    home = find_home(os.environ)
    skills = _found(load_config(home).config).skills
    path = _document(given)
    is_path = any(skill.path == path for skill in skills)
    names = sorted({skill.name for skill in skills})
    if not is_path and given not in names:
        near = difflib.get_close_matches(given, names, n=1)
        do = f"treadle skills {'enable' if on else 'disable'} {near[0]}" if near else "treadle skills list"
        raise Problem(f"there is no skill {given!r} here", do=do, code=FAILED)
    values = read_document(home).values
    write_values(home, [skill_edit(values, path=path if is_path else None, name=given, enabled=on)])
    write(sys.stdout, printable_line(f"Turned {'on' if on else 'off'} {path if is_path else given}.") + "\n")
    return 0


for _each in (list_, new, check, enable, disable):
    command.add_command(_each)
