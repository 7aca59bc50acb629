"""`treadle environments`: lists, adds, tries and removes the machines of config.toml, and opens a shell on one."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import click

from treadle.cli.completion import complete_environments
from treadle.cli.own_process import start_logging
from treadle.cli.problem import Problem
from treadle.cli.streams import FAILED, REFUSED, write, write_json, write_stderr
from treadle.cli.terminal import table_lines
from treadle.cli.user_commands import user_command, user_group
from treadle.config import find_home, load_config, write_value
from treadle.config.environment_settings import EnvironmentConfig, Environments, read_environment
from treadle.config.home_files import read_document
from treadle.config.layers import lookup, parse_overrides
from treadle.errors import ExecError
from treadle.pages.safe_text import printable_line
from treadle.secrets import shown_argument
from treadle.transport.address import shown_url

SECTION: Final = "environments"
_HEAD: Final = ("Name", "Kind", "Where", "Directory", "Default")
_BY: Final = {
    "bubblewrap": ", by bubblewrap",
    "landlock": (
        ", by Landlock alone: they can change .git, .codex, .claude and the like where they can write, and permission "
        "profiles that deny something there are refused; install bubblewrap on that machine"
    ),
}
_NONE: Final = "No environments configured yet. Try `treadle environments add box --provider ssh --option host=me@box`."
# What tells one machine of a provider from another.
_TELLING: Final = ("host", "container", "image", "branch")
# How often it is asked to see how fast it answers.
ASKED: Final = 5


@user_group(
    "environments",
    more="Environments are other machines on which threads can work. They are in [environments.NAME] of config.toml.",
    examples=(
        "treadle environments add box --provider ssh --option host=me@box",
        "treadle environments check box",
        'treadle exec --environment box "look around"',
    ),
)
def command() -> int:
    return 0


def _configured(overrides: tuple[str, ...]) -> Environments:
    return load_config(find_home(os.environ), overrides=overrides).config.environments or Environments()


def _environment(name: str, overrides: tuple[str, ...]) -> EnvironmentConfig:
    """Raises `Problem` for one that nobody knows, or that cannot be used."""
    known = _configured(overrides).known
    if name not in known:
        why = f"there are {', '.join(known)}" if known else "none is configured"
        raise Problem(f"there is no environment {name!r}", why=why, do="treadle environments list", code=FAILED)
    if (problem := known[name].problem) is not None:
        raise Problem(problem, do="correct its table in config.toml", code=REFUSED)
    return known[name]


@contextmanager
def _reaching(name: str) -> Iterator[None]:
    try:
        yield
    except ExecError as error:
        raise Problem(f"{name} cannot be used", why=error.message, code=FAILED) from None


# --- add and remove --------------------------------------------------------------------------------------------------


@user_command(
    "add",
    summary="add an environment to config.toml, or replace the one of that name",
    more="It is an exec-server with a --url, or what a --provider starts (ssh, docker, podman, worktree), or a "
    "program, which is written after --.",
    config=False,
    exit_codes={0: "added", 1: "it cannot be added", 2: "wrong usage"},
    examples=(
        "treadle environments add box --provider ssh --option host=me@box --workdir /home/me/project",
        "treadle environments add clean --provider podman --option image=python:3.12 --option folder=/home/me/project",
        "treadle environments add builder --url wss://builder:8765 --token-file ~/.builder-token",
    ),
)
@click.argument("name")
@click.argument("program", nargs=-1, metavar="[-- COMMAND...]", type=click.UNPROCESSED)
@click.option("--url", metavar="URL", help="where an exec-server is: ws://, wss:// or unix://")
@click.option("--provider", metavar="NAME", help="what starts the machine: ssh, docker, podman, worktree or a plug-in")
@click.option(
    "--option", "options", multiple=True, metavar="KEY=VALUE", help="what the provider is told; may be given again"
)
@click.option("--token-file", metavar="FILE", type=click.Path(), help="with --url: a file with its token")
@click.option("--token-env-var", metavar="VARIABLE", help="with --url: the variable that has its token")
@click.option("--workdir", metavar="DIR", help="the directory there for threads that name none")
@click.option("--default", is_flag=True, help="threads that name no environment work there")
def add(
    name: str,
    program: tuple[str, ...],
    url: str | None,
    provider: str | None,
    options: tuple[str, ...],
    token_file: str | None,
    token_env_var: str | None,
    workdir: str | None,
    default: bool,
) -> int:
    usage = "treadle environments add NAME (--url URL | --provider NAME --option KEY=VALUE | -- COMMAND...)"
    told, wrong = parse_overrides(options)
    if wrong:
        raise Problem("--option cannot be used as it is given", why="it is no KEY=VALUE", do=usage, code=REFUSED)
    given = {
        "url": url,
        "program": program[0] if program else None,
        "args": list(program[1:]) or None,
        "provider": provider,
        "options": told or None,
        "token_file": None if token_file is None else os.path.abspath(os.path.expanduser(token_file)),
        "token_env_var": token_env_var,
        "workdir": workdir,
        "default": default or None,
    }
    table: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if (problem := read_environment(name, table).problem) is not None:
        raise Problem(problem, do=usage, code=REFUSED)
    write_value(find_home(os.environ), (SECTION, name), table)
    write(sys.stdout, f"Added environment '{name}'. Try it: treadle environments check {name}\n")
    return 0


@user_command(
    "remove",
    summary="stop what was started for an environment, and remove it from config.toml",
    more="A container that was made of an image is removed, unless its `keep` is set; a worktree with changes that are "
    "nowhere else is not.",
    config=False,
    exit_codes={0: "it is not there any more", 1: "it cannot be stopped or removed", 2: "wrong usage"},
    examples=("treadle environments remove box", "treadle environments remove box --force"),
)
@click.argument("name", shell_complete=complete_environments)
@click.option("--force", is_flag=True, help="remove it from config.toml also when it cannot be stopped")
def remove(name: str, force: bool) -> int:
    home = find_home(os.environ)
    table = lookup(read_document(home).values, (SECTION, name))
    if table is None:
        write(sys.stdout, printable_line(f"There is no environment '{name}' in config.toml.") + "\n")
        return 0
    config = read_environment(name, table)
    if config.problem is None and config.provider is not None:
        from treadle.execution.environment_provider import find_provider

        state = os.path.join(home, SECTION, name)
        try:
            if asyncio.run(find_provider(config.provider).stop(name, config.options, state)):
                write(sys.stdout, printable_line(f"Stopped the machine of '{name}'.") + "\n")
        except ExecError as error:
            if not force:
                do = f"treadle environments remove {name} --force"
                raise Problem(f"'{name}' cannot be stopped", why=error.message, do=do, code=FAILED) from None
            write_stderr(printable_line(f"treadle environments remove: not stopped: {error.message}"))
    write_value(home, (SECTION, name), None)
    write(sys.stdout, printable_line(f"Removed environment '{name}'.") + "\n")
    return 0


# --- list ------------------------------------------------------------------------------------------------------------


@user_command(
    "list",
    summary="list the environments",
    exit_codes={0: "listed", 2: "wrong usage, or the settings cannot be used"},
    examples=("treadle environments list", "treadle environments list --json | jq -r '.[].name'"),
)
@click.option("--json", "as_json", is_flag=True, help="as a JSON list")
def list_(as_json: bool, config_overrides: tuple[str, ...]) -> int:
    environments = _configured(config_overrides)
    known = [environments.known[name] for name in sorted(environments.known)]
    rows = [
        (one.id, one.kind, _where(one), one.workdir or "-", "yes" if one.id in environments.default else "-")
        for one in known
        if one.problem is None
    ]
    if as_json:
        write_json(
            [
                {
                    "name": one.id,
                    "kind": one.kind,
                    "where": _where(one),
                    "workdir": one.workdir,
                    "default": one.id in environments.default,
                    "problem": one.problem,
                }
                for one in known
            ]
        )
        return 0
    lines = table_lines((_HEAD, *rows)) if rows else []
    lines += [printable_line(one.problem) for one in known if one.problem is not None]
    write(sys.stdout, "\n".join(lines or [_NONE]) + "\n")
    return 0


def _where(one: EnvironmentConfig) -> str:
    if one.provider is not None:
        return next((str(one.options[key]) for key in _TELLING if key in one.options), "-")
    if one.program is not None:
        return " ".join((one.program, *map(shown_argument, one.args)))
    return shown_url(one.url) if one.url else " ".join(one.labels)


# --- check and shell -------------------------------------------------------------------------------------------------


@user_command(
    "check",
    summary="connect to an environment, and say what is there",
    exit_codes={0: "it can be used", 1: "it cannot be reached", 2: "wrong usage, or the settings cannot be used"},
    examples=("treadle environments check box",),
)
@click.argument("name", shell_complete=complete_environments)
def check(name: str, config_overrides: tuple[str, ...]) -> int:
    start_logging("error")
    one = _environment(name, config_overrides)
    with _reaching(name):
        facts = asyncio.run(_check(one, config_overrides))
    width = max(map(len, facts))
    lines = [f"{name}  {one.kind}  {_where(one)}", *(f"  {key:<{width}}  {fact}" for key, fact in facts.items())]
    write(sys.stdout, "\n".join(map(printable_line, lines)) + "\n")
    return 0


async def _check(one: EnvironmentConfig, overrides: tuple[str, ...]) -> dict[str, str]:
    # Only what connects needs a server.
    from treadle.cli.in_process import open_client, server_of
    from treadle.execution.sandbox.remote_sandbox import unresolved_sandbox
    from treadle.execution.uris import path_from_uri
    from treadle.protocol.app.settings import ReadOnlySandboxPolicy

    async with open_client("treadle_environments", overrides) as client:
        begun = time.perf_counter()
        environment = await server_of(client).environment(one.id)
        took = time.perf_counter() - begun
        info = environment.info
        times = []
        for _ in range(ASKED):
            begun = time.perf_counter()
            await environment.check()
            times.append(time.perf_counter() - begun)
        cwd = path_from_uri(info.cwd) if info.cwd is not None else "/"
        sandbox = unresolved_sandbox(ReadOnlySandboxPolicy(), cwd, {}, ours=info.capabilities.sandbox_orders)
        try:
            done = await environment.run(["true"], cwd=cwd, sandbox=sandbox, timeout=60)
            confined = "commands can be confined" if done.exit_code == 0 else f"`true` ended with {done.exit_code}"
            confined += _BY.get(await environment.confines_by() or "", "")
        except ExecError as error:
            confined = f"commands cannot be confined: {error.message}"
    return {
        "connected": f"in {took:.2f} s, answers in {sorted(times)[ASKED // 2] * 1000:.1f} ms",
        "version": info.executor_version or "it does not say",
        "platform": info.platform_os or "it does not say",
        "shell": info.shell.path,
        "directory": cwd if info.cwd is not None else "it does not say",
        "home": path_from_uri(info.user_home_dir) if info.user_home_dir is not None else "it does not say",
        "sandbox": confined,
    }


@user_command(
    "shell",
    summary="open a shell in an environment, in this terminal",
    more="It runs without a sandbox, with the rights of the exec-server there.",
    exit_codes={0: "it ended", 1: "it cannot be reached", 2: "wrong usage, no terminal, or wrong settings"},
    examples=("treadle environments shell box", "treadle environments shell box -C /srv"),
)
@click.argument("name", shell_complete=complete_environments)
@click.option("-C", "--cd", metavar="DIR", help="the directory there (default: the one of the environment)")
def shell(name: str, cd: str | None, config_overrides: tuple[str, ...]) -> int:
    start_logging("error")
    _environment(name, config_overrides)
    if not sys.stdin.isatty() or not sys.stdout.isatty():
        do = f'treadle exec --environment {name} "…" has an agent run commands there'
        raise Problem("a shell needs a terminal", do=do, code=REFUSED)
    from treadle.cli.setup.environment_shell import run_shell  # only for this

    with _reaching(name):
        return asyncio.run(run_shell(name, cd, config_overrides))


for _each in (list_, add, check, shell, remove):
    command.add_command(_each)
