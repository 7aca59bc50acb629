"""`treadle config init`: writes a commented `config.toml` after at most three questions, or from flags.

`config_text` is the first file, with a comment for each setting that people ask for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click
from msgspec import Struct

from treadle.cli.problem import Problem
from treadle.cli.setup.provider_status import provider_keys, usable_settings
from treadle.cli.streams import REFUSED, write, write_stderr
from treadle.cli.user_commands import user_command
from treadle.config import Config, find_home, load_config
from treadle.config.configuration import check_document
from treadle.config.home_files import PRIVATE, config_path, locked, make_home, parse_document, replace_file
from treadle.config.toml_edit import key_text, value_text
from treadle.llm.known_providers import KNOWN, OFFLINE, default_model
from treadle.llm.wire_api import wire_api_names

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


@user_command(
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
def init(
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
    path = config_path(home)
    if os.path.lexists(path) and not force:
        raise Problem(
            f"there is a {path}",
            why="what somebody has written is not written over",
            do=f"treadle config set KEY VALUE changes it; --force writes it anew and keeps the old one as {_OLD}",
            code=REFUSED,
        )
    config = usable_settings(home)
    if not yes and not (provider and sandbox and approval) and not sys.stdin.isatty():
        raise Problem(
            "there is nobody to answer questions",
            why="standard input is not a terminal",
            do=_EXAMPLES[1],
            code=REFUSED,
        )
    provider = provider or (config.chosen.provider if yes else _ask_provider(config))
    sandbox = sandbox or ("read-only" if yes else _ask("What may commands do?", _SANDBOXES))
    approval = approval or ("on-request" if yes else _ask("When are you asked?", _APPROVALS))
    settings = InitialSettings(
        provider=provider, model=model, sandbox=sandbox, approval=approval, base_url=base_url, wire_api=wire_api
    )
    _write(home, settings)

    # What is in force now, and what to type next.
    config = load_config(home).config
    key = next((key for key in provider_keys(config, os.environ) if key.provider == provider), None)
    lines = [f"{path} is written", f"  the model is {config.chosen}"]
    needs_login = key is not None and key.needs_key and key.source is None
    if needs_login:
        lines.append(f"  next: treadle login {provider}")
    lines.append(f'  {"then" if needs_login else "next"}: treadle exec "look around"')
    lines.append("  also: treadle config show, treadle config set KEY VALUE, treadle doctor")
    write(sys.stdout, "\n".join(lines) + "\n")
    return 0


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
    """The choice of whoever is at the terminal, made by number or by name."""
    names = list(choices)
    default = default if default in names else names[0]
    width = max(map(len, names))
    lines = [f"  {number}  {name:{width}}  {choices[name]}" for number, name in enumerate(names, 1)]
    write_stderr("\n".join([question, *lines]))
    while True:
        answer: str = click.prompt("Number or name", default=default, err=True).strip()
        if answer.isdecimal() and 1 <= int(answer) <= len(names):
            return names[int(answer) - 1]
        if answer in names:
            return answer
        write_stderr(f"{answer!r} is none of them.")


def _write(home: Path, settings: InitialSettings) -> None:
    """Write the file. Settings that cannot be used are not written: raises `Problem`."""
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


# --- the first config.toml ---


class InitialSettings(Struct, frozen=True, kw_only=True):
    """What `treadle config init` writes."""

    provider: str
    sandbox: str = "read-only"
    approval: str = "on-request"
    model: str | None = None
    base_url: str | None = None
    wire_api: str | None = None


_HEAD: Final = """\
# The settings of Treadle. `treadle config show` shows what is in force, `treadle config check` what is wrong with it.
# What is commented out is an example. Environment variables and `-c KEY=VALUE` go before this file."""

_SANDBOX: Final = """\
# What commands may do: "read-only", "workspace-write" (the folder that you work in, without network) or
# "danger-full-access" (whatever you may do)."""

_APPROVAL: Final = """\
# When you are asked: "on-request" (a command needs more than the sandbox allows), "untrusted" (before every command
# that is not known to be harmless) or "never" (what the sandbox forbids fails)."""

_REST: Final = """\
# How much the model thinks: "low", "medium" or "high".
# model_reasoning_effort = "medium"

# More for "workspace-write":
# [sandbox_workspace_write]
# network_access = true
# writable_roots = ["/another/folder"]

# Another provider; its key comes from `treadle login mine`, or from the variable that env_key names:
# [model_providers.mine]
# base_url = "https://HOST/v1"
# wire_api = "chat"
# env_key = "MY_KEY"

# Settings under a name, used with `treadle exec --profile careful`:
# [profiles.careful]
# approval_policy = "untrusted"
"""


def config_text(settings: InitialSettings) -> str:
    """The whole file."""
    model = ["# Who is asked, and which of its models; `treadle models` lists them, `treadle login` stores a key."]
    model.append(f"model_provider = {value_text(settings.provider)}")
    usual = default_model(settings.provider)
    if settings.model is not None:
        model.append(f"model = {value_text(settings.model)}")
    elif usual is not None and settings.provider != OFFLINE:
        model.append(f"# model = {value_text(usual)}")

    values = {"base_url": settings.base_url, "wire_api": settings.wire_api}
    table = [f"{key} = {value_text(value)}" for key, value in values.items() if value is not None]
    rest = _REST
    if table:  # after the last key that is in no table
        head, tables = rest.split("\n\n", 1)
        table = [f"[model_providers.{key_text(settings.provider)}]", *table]
        rest = "\n\n".join([head, "\n".join(table), tables])
    return "\n\n".join(
        [
            _HEAD,
            "\n".join(model),
            f"{_SANDBOX}\nsandbox_mode = {value_text(settings.sandbox)}",
            f"{_APPROVAL}\napproval_policy = {value_text(settings.approval)}",
            rest,
        ]
    )
