"""`treadle login` and `treadle logout`: store the key of a provider in the home, show which providers have one, and
remove it. A key is typed at a hidden prompt or comes from standard input, never from the command line, which every user
of the machine can read; and no part of it is ever shown.
"""

from __future__ import annotations

import asyncio
import difflib
import os
import sys
from pathlib import Path
from typing import Final

import click

from treadle.cli.completion import completing
from treadle.cli.own_process import start_logging
from treadle.cli.problem import Problem, model_problem
from treadle.cli.setup.provider_status import ask_tiny, key_variable, provider_keys, provider_names, usable_settings
from treadle.cli.streams import FAILED, REFUSED, write, write_json, write_stderr
from treadle.cli.terminal import Colors, wants_color
from treadle.cli.user_commands import UserCommand, user_command
from treadle.config import Config, ConfigError, Login, find_home
from treadle.config.login import StoredKeys
from treadle.llm import ModelError
from treadle.llm.known_providers import KNOWN, OFFLINE, OPENAI
from treadle.pages.safe_text import printable_line
from treadle.secrets import hides_secret

STATUS: Final = "status"
# Keys have some hundred characters, tokens some thousand.
_MAX_KEY_BYTES: Final = 64 * 1024
_MORE: Final = """\
The key is typed at a prompt that does not show it, or comes from standard input. It is stored in the home of Treadle,
in a file that only you can read: OpenAI's in auth.json, where Codex has it, the others in keys.json. An environment
variable with a key goes before what is stored.

`treadle login status` shows which providers have a key, and where. PROVIDER is a built-in one or a table
[model_providers.NAME] of config.toml; without it, it is the one in use."""


class _LoginCommand(UserCommand):
    """A command that takes what follows the provider for a key: click would repeat it in its complaint."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.allow_extra_args = True
        rest = super().parse_args(ctx, args)
        if rest and not ctx.resilient_parsing:
            provider = ctx.params["provider"]
            raise _key_on_command_line("PROVIDER" if provider == STATUS else provider)
        return rest


@user_command(
    "login",
    kind=_LoginCommand,
    more=_MORE,
    exit_codes={
        0: "done; with `status`: some provider has a key",
        1: "the key cannot be stored, or was not accepted; with `status`: there is no key",
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
def login(
    provider: str | None, with_key: bool, check: bool | None, as_json: bool, config_overrides: tuple[str, ...]
) -> int:
    start_logging("error")
    config = usable_settings(find_home(os.environ), config_overrides)
    if provider == STATUS:
        return _show_status(config, as_json=as_json)
    if as_json:
        raise Problem("--json is for the status alone", do="treadle login status --json", code=REFUSED)
    name = _provider(provider, config)
    key = _read_key(name, from_stdin=with_key)
    if name == OPENAI:
        path = Login(config.home).path
        Login(config.home).set_api_key(key)
    else:
        path = StoredKeys(config.home).path
        StoredKeys(config.home).set(name, key)

    # Where the key is, what goes before it, and what to type next.
    config = usable_settings(config.home, config_overrides)  # which provider answers may have changed
    lines = [f"the key for {name} is stored in {path}, for you alone"]
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

    if check is None and sys.stdin.isatty() and not with_key and name in config.providers:
        check = click.confirm("Try it with a tiny request? It costs a few tokens", default=True, err=True)
    if not check:
        return 0
    chosen = config.providers.get(name)
    if chosen is None:
        raise Problem(
            f"the key for {name} cannot be tried yet",
            why="nobody has said where its server is",
            do=f"treadle config set model_providers.{name}.base_url https://HOST/v1",
            code=FAILED,
        )
    try:
        answer = asyncio.run(ask_tiny(chosen, config))
    except ModelError as error:
        raise model_problem(error, chosen, f"the key is stored, but {name} cannot be used with it") from None
    write(sys.stdout, f"{answer.what}, after {answer.seconds:.1f} s\n")
    return 0


def _provider(named: str | None, config: Config) -> str:
    """The provider that was named; else the one in use; with none, whoever is at the terminal says it."""
    names = provider_names(config)
    if named is None and config.chosen.provider in names:
        return config.chosen.provider
    if named is None and not sys.stdin.isatty():
        raise Problem(
            "which provider is the key for?",
            why=f"there are {', '.join(names)}",
            do="treadle login PROVIDER",
            code=REFUSED,
        )
    if named is None:
        chosen: str = click.prompt("Which provider", type=click.Choice(names), default=OPENAI, err=True)
        return chosen
    if named in names:
        return named
    if hides_secret(named):
        raise _key_on_command_line("PROVIDER")
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


def _key_on_command_line(provider: str) -> Problem:
    return Problem(
        "a key does not belong on the command line",
        why="every user of this machine can read it there, and the shell keeps it: better make a new one",
        do=f"treadle login {provider}, which asks for the key; or treadle login {provider} --with-key < FILE",
        code=REFUSED,
    )


def _read_key(provider: str, *, from_stdin: bool) -> str:
    """The key, typed at a hidden prompt or from standard input; raises `Problem` when there is none."""
    if not from_stdin and sys.stdin.isatty():
        typed: str = click.prompt(f"Key for {provider} (it is not shown)", hide_input=True, err=True)
        return typed
    pieces: list[bytes] = []
    while sum(map(len, pieces)) <= _MAX_KEY_BYTES and (piece := os.read(0, 1 << 16)):
        pieces.append(piece)
    data = b"".join(pieces)
    if len(data) > _MAX_KEY_BYTES:
        raise Problem(
            "standard input is no key",
            why=f"it has more than {_MAX_KEY_BYTES} bytes",
            do=f"treadle login {provider} < FILE_WITH_THE_KEY",
            code=REFUSED,
        )
    key = data.decode("utf-8", "replace").strip()
    if not key:
        raise Problem(
            f"there is no key for {provider}",
            why="standard input is empty",
            do=f"treadle login {provider} in a terminal, or: treadle login {provider} < FILE_WITH_THE_KEY",
            code=REFUSED,
        )
    return key


# --- treadle login status ---


def _show_status(config: Config, *, as_json: bool) -> int:
    """Write which providers have a key, and where; gives the exit code: whether any provider has one."""
    listed = provider_keys(config, os.environ)
    if as_json:
        write_json({"home": str(config.home), "used": config.chosen.provider, "providers": listed})
        return 0 if any(key.source for key in listed) else FAILED
    colors = Colors(wants_color("auto", sys.stdout, os.environ))
    places = {"variable": "the variable", "file": "the file", "config": "config.toml:"}
    width = max(len(printable_line(key.provider)) for key in listed)
    lines = []
    for key in sorted(listed, key=lambda key: (key.source is None, not key.needs_key)):
        name = f"{printable_line(key.provider):{width}}"
        if key.source is not None:
            place = printable_line(f"key in {places[key.source]} {key.where}")
            lines.append(f"{colors.green('✓')} {colors.bold(name)}  {place}")
        elif key.needs_key:
            lines.append(f"– {name}  no key; treadle login {printable_line(key.provider)}")
        else:
            lines.append(colors.dim(f"– {name}  needs no key"))
    lines.append(f"in use: {config.chosen.provider}, because {config.chosen.because}")
    write(sys.stdout, "\n".join(lines) + "\n")
    # Files that exist and cannot be used.
    if (warning := Login(config.home).warning()) is not None:
        write_stderr(f"treadle login: {warning}")
    try:
        StoredKeys(config.home).check()
    except ConfigError as error:
        write_stderr(f"treadle login: {error}")
    return 0 if any(key.source for key in listed) else FAILED


# --- treadle logout ---


@user_command(
    "logout",
    config=False,
    more="Without PROVIDER it is the only one that a key is stored for. Environment variables are not touched.",
    exit_codes={0: "forgotten", 1: "no such key is stored, or it cannot be removed", 2: "wrong usage"},
    examples=("treadle logout anthropic", "treadle logout --all"),
)
@click.argument(
    "provider", required=False, shell_complete=completing(lambda: _providers_with_key(find_home(os.environ)))
)
@click.option("--all", "everything", is_flag=True, help="forget every key")
def logout(provider: str | None, everything: bool) -> int:
    home = find_home(os.environ)
    stored = _providers_with_key(home)
    if everything and provider is not None:
        raise Problem("a provider and --all do not go together", do="treadle logout --all", code=REFUSED)
    if not stored:
        raise Problem("there is nothing to forget", why=f"no key is stored in {home}", do="treadle login status")
    if provider is None and len(stored) > 1 and not everything:
        why = f"there are keys for {', '.join(stored)}"
        raise Problem("which key shall be forgotten?", why=why, do="treadle logout PROVIDER, or --all", code=REFUSED)
    if provider is not None and provider not in stored:
        why = f"there are keys for {', '.join(stored)}"
        raise Problem(f"no key is stored for {provider!r}", why=why, do="treadle login status", code=FAILED)
    for name in stored if everything or provider is None else [provider]:
        if name == OPENAI:
            Login(home).logout()
        StoredKeys(home).remove(name)
        lines = [f"the key for {name} is forgotten"]
        variable = key_variable(name, usable_settings(home))
        if variable is not None and os.environ.get(variable, "").strip():
            lines.append(f"  {variable} is still set in your environment: unset {variable}")
        write(sys.stdout, "\n".join(lines) + "\n")
    return 0


def _providers_with_key(home: Path) -> list[str]:
    """The providers that have a stored key. The file of the login counts even when it cannot be read: whoever logs out
    wants it gone."""
    login = Login(home)
    has_login = login.api_key() is not None or login.warning() is not None
    return [*([OPENAI] if has_login else []), *StoredKeys(home).providers()]
