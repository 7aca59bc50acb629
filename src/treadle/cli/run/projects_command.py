"""`treadle projects`: lists, adds and removes the projects of projects.toml, in which `treadle run` and bots work."""

from __future__ import annotations

import sys
from typing import Final

import click
from msgspec import to_builtins

from treadle.cli.completion import complete_projects, completing
from treadle.cli.problem import Problem
from treadle.cli.streams import FAILED, REFUSED, write, write_json
from treadle.cli.terminal import table_lines
from treadle.cli.user_commands import user_command, user_group
from treadle.pages.safe_text import printable_line
from treadle.runners.engine_registry import engine_names, find_engine
from treadle.runners.projects import ProjectError, Projects

_NONE: Final = "There are no projects yet. Try `treadle projects add web ~/src/web`."
_CODES: Final = {0: "done", 1: "it could not be done", 2: "wrong usage, or projects.toml cannot be read"}


@user_group(
    "projects",
    more="A project is a folder under a short name: `treadle run --project web`, or `/web` in a message to a bot. They "
    "are in projects.toml of the home, which can be edited; comments stay.",
    examples=("treadle projects add web ~/src/web --engine claude", "treadle projects list"),
)
def command() -> int:
    return 0


@user_command(
    "list",
    summary="list the projects",
    config=False,
    exit_codes=_CODES,
    examples=("treadle projects list", "treadle projects list --json | jq -r '.[].path'"),
)
@click.option("--json", "as_json", is_flag=True, help="as a JSON list")
def list_(as_json: bool) -> int:
    projects = Projects().list()
    if as_json:
        write_json(to_builtins(projects))
        return 0
    lines = table_lines([(one.alias, one.path, one.engine or "", one.base or "") for one in projects])
    write(sys.stdout, "".join(f"{line}\n" for line in lines or [_NONE]))
    return 0


@user_command(
    "add",
    summary="give a folder a short name",
    more="Names are letters, digits, _ and -, at most 32. Options that are left out are as they are documented in "
    "`treadle.runners.Projects`.",
    config=False,
    exit_codes=_CODES,
    examples=("treadle projects add web ~/src/web", "treadle projects add api . --engine claude --base develop"),
)
@click.argument("name")
@click.argument("folder", type=click.Path(file_okay=False))
@click.option(
    "-e",
    "--engine",
    metavar="NAME",
    help="the engine that is used here when nobody names another",
    shell_complete=completing(engine_names),
)
@click.option(
    "--base", metavar="BRANCH", help="what new branches begin from (default: origin's HEAD, else the current)"
)
@click.option("--worktrees", metavar="DIR", help="where branches are checked out (default: .worktrees)")
@click.option("--replace", is_flag=True, help="also when there is a project of this name")
def add(name: str, folder: str, engine: str | None, base: str | None, worktrees: str | None, replace: bool) -> int:
    if engine is not None:
        find_engine(engine)  # raises for one that there is not
    try:
        project = Projects().add(name, folder, engine=engine, base=base, worktrees=worktrees, replace=replace)
    except ProjectError as error:
        do = "--replace, or another name" if error.kind == "exists" else "treadle projects add --help"
        raise Problem(str(error).partition(": choose")[0], do=do, code=FAILED) from None
    except ValueError as error:
        raise Problem(f"{folder} cannot be a project", why=str(error), do="name a folder", code=REFUSED) from None
    write(sys.stdout, printable_line(f"Added {project.alias}: {project.path}") + "\n")
    return 0


@user_command(
    "remove",
    summary="forget a project; its folder and its branches stay",
    config=False,
    exit_codes=_CODES,
    examples=("treadle projects remove web",),
)
@click.argument("name", shell_complete=complete_projects)
def remove(name: str) -> int:
    try:
        Projects().remove(name)
    except ProjectError as error:
        raise Problem(f"{name} cannot be removed", why=str(error), do="treadle projects list", code=FAILED) from None
    write(sys.stdout, printable_line(f"Removed {name}; its folder stays.") + "\n")
    return 0


for _each in (list_, add, remove):
    command.add_command(_each)
