"""`treadle login`: keeps the key of a provider in the home, and says what to type next."""

from __future__ import annotations

import asyncio
import difflib
import os
import sys
from typing import Final

import click

from treadle.cli.exit_codes import FAILED, REFUSED
from treadle.cli.model_problem import model_problem
from treadle.cli.people import command as people_command
from treadle.cli.people import completing
from treadle.cli.problem import Problem
from treadle.cli.server_process import start_logging
from treadle.cli.setup.key_input import read_key
from treadle.cli.setup.login_status import show_status
from treadle.cli.setup.provider_keys import key_variable, provider_names, usable_settings
from treadle.cli.setup.tiny_request import ask_tiny
from treadle.cli.streams import write
from treadle.config import Config, Login, find_home
from treadle.config.stored_keys import StoredKeys
from treadle.llm import ModelError
from treadle.llm.known_providers import KNOWN, OFFLINE, OPENAI
from treadle.secrets import hides_secret

STATUS: Final = "status"
_MORE: Final = """\
The key is typed at a prompt that does not show it, or comes from standard input. It is kept in the home of Treadle, in
a file that only you can read: OpenAI's in auth.json, as Codex keeps it, the others in keys.json. An environment
variable with a key goes before what is kept.

`treadle login status` shows which providers have a key, and where. PROVIDER is a built-in one or a table
[model_providers.NAME] of config.toml; without it, it is the one in use."""


@people_command(
    "login",
    more=_MORE,
    exit_codes={
        0: "done; with `status`: some provider has a key",
        1: "the key cannot be kept, or was not accepted; with `status`: there is no key",
        2: "wrong usage, or no key was given",
        130: "interrupted",
    },
    examples=(
        "treadle login anthropic",
        "treadle login openrouter --check < key.txt",
        "treadle login status",
        "treadle login status --json | jq -r '.providers[] | select(.source) | .provider'",
    ),
)
@click.argument(
    "provider", required=False, metavar="[PROVIDER|status]", shell_complete=completing(lambda: [*KNOWN, STATUS])
)
@click.option("--with-key", "--with-api-key", "with_key", is_flag=True, help="read the key from standard input")
@click.option("--check/--no-check", default=None, help="try the key with a tiny request, which costs a few tokens")
@click.option("--json", "as_json", is_flag=True, help="with status: as one JSON object")
def command(
    provider: str | None, with_key: bool, check: bool | None, as_json: bool, config_overrides: tuple[str, ...]
) -> int:
    start_logging("error")
    config = usable_settings(find_home(os.environ), config_overrides)
    if provider == STATUS:
        return show_status(config, as_json=as_json)
    if as_json:
        raise Problem("--json is for the status alone", do="treadle login status --json", code=REFUSED)
    name = _provider(provider, config)
    _keep(config, name, read_key(name, from_stdin=with_key))
    config = usable_settings(config.home, config_overrides)  # which provider answers may have changed
    _say(config, name)
    if check is None and sys.stdin.isatty() and not with_key and name in config.providers:
        check = click.confirm("Try it with a tiny request? It costs a few tokens", default=True, err=True)
    return _check(config, name) if check else 0


def _provider(named: str | None, config: Config) -> str:
    names = provider_names(config)
    if named is None:
        return _asked(config, names)
    if named in names:
        return named
    if hides_secret(named) and named not in names:
        raise Problem(
            "a key does not belong on the command line",
            why="every user of this machine can read it there, and the shell keeps it: better make a new one",
            do="treadle login PROVIDER, which asks for the key",
            code=REFUSED,
        )
    if named == OFFLINE:
        raise Problem("the offline model needs no key", do="treadle login PROVIDER", code=REFUSED)
    near = difflib.get_close_matches(named, names, n=1)
    table = f"treadle config set model_providers.{named}.base_url https://HOST/v1"
    raise Problem(
        f"there is no provider {named!r}",
        why=f"there are {', '.join(names)}",
        do=f"treadle login {near[0]}" if near else f"{table}, then log in",
        code=REFUSED,
    )


def _asked(config: Config, names: list[str]) -> str:
    """The provider in use; with none, whoever is at the terminal says it."""
    if config.chosen.provider in names:
        return config.chosen.provider
    if not sys.stdin.isatty():
        raise Problem(
            "which provider is the key for?",
            why=f"there are {', '.join(names)}",
            do="treadle login PROVIDER",
            code=REFUSED,
        )
    chosen: str = click.prompt("Which provider", type=click.Choice(names), default=OPENAI, err=True)
    return chosen


def _keep(config: Config, name: str, key: str) -> None:
    if name == OPENAI:
        Login(config.home).set_api_key(key)
    else:
        StoredKeys(config.home).set(name, key)


def _say(config: Config, name: str) -> None:
    """Where it is, what goes before it, and what to type next."""
    path = Login(config.home).path if name == OPENAI else StoredKeys(config.home).path
    lines = [f"the key for {name} is kept in {path}, for you alone"]
    variable = key_variable(name, config)
    if variable is not None and os.environ.get(variable, "").strip():
        lines.append(f"  but {variable} is set in your environment, and goes before it: unset {variable}")
    if name not in config.providers:
        lines.append(f"  next: say where your server is: treadle config set model_providers.{name}.base_url URL")
    elif config.chosen.provider == name:
        lines.append('  next: treadle exec "look around"')
    else:
        lines.append(f"  {config.chosen.provider} is in use, because {config.chosen.because}")
        lines.append(f"  next: treadle config set model_provider {name}")
    write(sys.stdout, "\n".join(lines) + "\n")


def _check(config: Config, name: str) -> int:
    provider = config.providers.get(name)
    if provider is None:
        raise Problem(
            f"the key for {name} cannot be tried yet",
            why="nobody has said where its server is",
            do=f"treadle config set model_providers.{name}.base_url https://HOST/v1",
            code=FAILED,
        )
    try:
        answer = asyncio.run(ask_tiny(provider, config))
    except ModelError as error:
        raise model_problem(error, provider, f"the key is kept, but {name} cannot be used with it") from None
    write(sys.stdout, f"{answer.what}, after {answer.seconds:.1f} s\n")
    return 0
