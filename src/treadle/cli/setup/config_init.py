"""`treadle config init`: writes a commented `config.toml` after at most three questions, or from flags."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from treadle.cli.exit_codes import REFUSED
from treadle.cli.people import command as people_command
from treadle.cli.problem import Problem
from treadle.cli.setup.config_text import InitialSettings, config_text
from treadle.cli.setup.provider_keys import provider_keys, usable_settings
from treadle.cli.streams import write, write_stderr
from treadle.config import Config, find_home, load_config
from treadle.config.atomic_write import PRIVATE, make_home, replace_file
from treadle.config.configuration import check_document
from treadle.config.document import config_path, locked, parse_document
from treadle.llm.known_providers import KNOWN, OFFLINE, default_model
from treadle.llm.wire_api_names import wire_api_names

_SANDBOXES: Final[Mapping[str, str]] = {
    "read-only": "commands read, and write nothing (what is built in)",
    "workspace-write": "commands write in the folder that you work in, without network",
    "danger-full-access": "commands may do whatever you may do",
}
_APPROVALS: Final[Mapping[str, str]] = {
    "on-request": "you are asked when a command needs more than the sandbox allows (what is built in)",
    "untrusted": "you are asked before every command that is not known to be harmless",
    "never": "you are never asked; what the sandbox forbids fails",
}
_EXAMPLES: Final = (
    "treadle config init",
    "treadle config init --provider anthropic --sandbox workspace-write --yes",
    "treadle config init --provider mine --base-url http://localhost:8000/v1 --wire-api chat --model NAME --yes",
)
_OLD: Final = "config.toml.old"


@people_command(
    "init",
    summary="write a commented config.toml after at most three questions",
    config=False,
    more="A flag answers its question; with --yes the others are answered with what is usual. A file that is there "
    f"stays, unless --force is given: then it is kept as {_OLD}.",
    exit_codes={0: "written", 1: "it could not be written", 2: "wrong usage, or there is a file", 130: "interrupted"},
    examples=_EXAMPLES,
)
@click.option("--provider", metavar="NAME", help="who is asked: a built-in provider, or one of yours")
@click.option("--model", metavar="NAME", help="which of its models")
@click.option("--sandbox", type=click.Choice(tuple(_SANDBOXES)), help="what commands may do")
@click.option("--approval", type=click.Choice(tuple(_APPROVALS)), help="when you are asked")
@click.option("--base-url", metavar="URL", help="where the server of the provider is")
@click.option("--wire-api", type=click.Choice(tuple(wire_api_names())), help="what the server of the provider speaks")
@click.option("--yes", is_flag=True, help="ask nothing")
@click.option("--force", is_flag=True, help="write over the file that is there")
def command(
    provider: str | None,
    model: str | None,
    sandbox: str | None,
    approval: str | None,
    base_url: str | None,
    wire_api: str | None,
    yes: bool,
    force: bool,
) -> int:
    home = find_home(os.environ)
    _check_free(home, force=force)
    config = usable_settings(home)
    if not yes and not (provider and sandbox and approval):
        _check_terminal()
    provider = provider or (config.chosen.provider if yes else _ask_provider(config))
    sandbox = sandbox or ("read-only" if yes else _ask("What may commands do?", _SANDBOXES))
    approval = approval or ("on-request" if yes else _ask("When are you asked?", _APPROVALS))
    settings = InitialSettings(
        provider=provider, model=model, sandbox=sandbox, approval=approval, base_url=base_url, wire_api=wire_api
    )
    _write(home, settings)
    _say(home, settings)
    return 0


def _check_free(home: Path, *, force: bool) -> None:
    path = config_path(home)
    if os.path.lexists(path) and not force:
        raise Problem(
            f"there is a {path}",
            why="what somebody has written is not written over",
            do=f"treadle config set KEY VALUE changes it; --force writes it anew and keeps the old one as {_OLD}",
            code=REFUSED,
        )


def _check_terminal() -> None:
    if not sys.stdin.isatty():
        raise Problem(
            "there is nobody to answer questions",
            why="standard input is not a terminal",
            do=f"{_EXAMPLES[1]}",
            code=REFUSED,
        )


def _ask_provider(config: Config) -> str:
    keys = {key.provider: key for key in provider_keys(config, os.environ)}
    choices = {}
    for name, known in KNOWN.items():
        if known.missing is None:
            key = keys.get(name)
            has = f"there is a key: {key.where}" if key is not None and key.source else ""
            needs = "needs a key" if known.table.get("env_key") or known.table.get("requires_openai_auth") else "no key"
            choices[name] = f"{default_model(name)}; {has or needs}"
    own = {name: "from your config.toml" for name in config.providers if name not in KNOWN}
    choices |= own | {OFFLINE: "a fixed script, to try Treadle without a model"}
    return _ask("Which provider is asked?", choices, default=config.chosen.provider)


def _ask(question: str, choices: Mapping[str, str], default: str | None = None) -> str:
    """By number or by name."""
    names = list(choices)
    default = default if default in names else names[0]
    width = max(map(len, names))
    lines = [f"  {number}  {name:{width}}  {choices[name]}" for number, name in enumerate(names, 1)]
    write_stderr("\n".join([question, *lines]))
    while True:
        answer: str = click.prompt("Number or name", default=default, err=True).strip()
        chosen = _chosen(answer, names)
        if chosen is not None:
            return chosen
        write_stderr(f"{answer!r} is none of them.")


def _chosen(answer: str, names: Sequence[str]) -> str | None:
    if answer.isdecimal() and 1 <= int(answer) <= len(names):
        return names[int(answer) - 1]
    return answer if answer in names else None


def _write(home: Path, settings: InitialSettings) -> None:
    """What cannot be used is not written."""
    path, text = config_path(home), config_text(settings)
    error = check_document(parse_document(path, text))
    if error is not None:
        raise Problem(
            "these settings cannot be used, so nothing was written",
            why="; ".join(f"{one.key}: {one.problem}" if one.key else one.problem for one in error.problems),
            do=f"treadle config init --provider {settings.provider} --base-url URL --model NAME",
            code=REFUSED,
        )
    try:
        make_home(home)
        with locked(home):
            if path.exists():
                replace_file(home / _OLD, path.read_bytes(), PRIVATE)
            replace_file(path, text.encode(), PRIVATE)
    except OSError as problem:
        raise Problem(
            f"{path} cannot be written", why=str(problem.strerror), do="set TREADLE_HOME to a folder of yours"
        ) from None


def _say(home: Path, settings: InitialSettings) -> None:
    config = load_config(home).config
    keys = {key.provider: key for key in provider_keys(config, os.environ)}
    key = keys.get(settings.provider)
    lines = [f"{config_path(home)} is written", f"  the model is {config.chosen}"]
    needs_login = key is not None and key.needs_key and key.source is None
    if needs_login:
        lines.append(f"  next: treadle login {settings.provider}")
    lines.append(f'  {"then" if needs_login else "next"}: treadle exec "look around"')
    lines.append("  also: treadle config show, treadle config set KEY VALUE, treadle doctor")
    write(sys.stdout, "\n".join(lines) + "\n")
