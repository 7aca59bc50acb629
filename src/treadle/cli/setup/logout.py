"""`treadle logout`: forgets the key of a provider, or all of them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from treadle.cli.exit_codes import FAILED, REFUSED
from treadle.cli.people import command as people_command
from treadle.cli.people import completing
from treadle.cli.problem import Problem
from treadle.cli.setup.provider_keys import key_variable, usable_settings
from treadle.cli.streams import write
from treadle.config import Login, find_home
from treadle.config.stored_keys import StoredKeys
from treadle.llm.known_providers import OPENAI


@people_command(
    "logout",
    config=False,
    more="Without PROVIDER it is the only one that a key is kept for. Environment variables are not touched.",
    exit_codes={0: "forgotten", 1: "no such key is kept, or it cannot be removed", 2: "wrong usage"},
    examples=("treadle logout anthropic", "treadle logout --all"),
)
@click.argument("provider", required=False, shell_complete=completing(lambda: _kept(find_home(os.environ))))
@click.option("--all", "everything", is_flag=True, help="forget every key")
def command(provider: str | None, everything: bool) -> int:
    home = find_home(os.environ)
    kept = _kept(home)
    if everything and provider is not None:
        raise Problem("a provider and --all do not go together", do="treadle logout --all", code=REFUSED)
    if not kept:
        raise Problem("there is nothing to forget", why=f"no key is kept in {home}", do="treadle login status")
    if provider is None and len(kept) > 1 and not everything:
        why = f"there are keys for {', '.join(kept)}"
        raise Problem("which key shall be forgotten?", why=why, do="treadle logout PROVIDER, or --all", code=REFUSED)
    if provider is not None and provider not in kept:
        why = f"there are keys for {', '.join(kept)}"
        raise Problem(f"no key is kept for {provider!r}", why=why, do="treadle login status", code=FAILED)
    for name in kept if everything or provider is None else [provider]:
        _forget(home, name)
    return 0


def _kept(home: Path) -> list[str]:
    """The file of the login counts even when it cannot be read: whoever logs out wants it gone."""
    login = Login(home)
    has_login = login.api_key() is not None or login.warning() is not None
    return [*([OPENAI] if has_login else []), *StoredKeys(home).providers()]


def _forget(home: Path, name: str) -> None:
    if name == OPENAI:
        Login(home).logout()
    StoredKeys(home).remove(name)
    lines = [f"the key for {name} is forgotten"]
    variable = key_variable(name, usable_settings(home))
    if variable is not None and os.environ.get(variable, "").strip():
        lines.append(f"  {variable} is still set in your environment: unset {variable}")
    write(sys.stdout, "\n".join(lines) + "\n")
