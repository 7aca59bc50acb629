"""`treadle login status`: which providers have a key, and where it is. Never the key, nor a part of it."""

from __future__ import annotations

import os
import sys

import msgspec

from treadle.cli.exit_codes import FAILED
from treadle.cli.setup.provider_keys import ProviderKey, provider_keys
from treadle.cli.streams import write, write_stderr
from treadle.cli.terminal import Colors, wants_color
from treadle.cli.visible import visible_line
from treadle.config import Config, ConfigError, Login
from treadle.config.stored_keys import StoredKeys


def show_status(config: Config, *, as_json: bool) -> int:
    """Gives the exit code: whether any provider has a key."""
    listed = provider_keys(config, os.environ)
    if as_json:
        write(sys.stdout, _as_json(config, listed))
    else:
        write(sys.stdout, _as_text(config, listed, Colors(wants_color("auto", sys.stdout, os.environ))))
        for warning in _warnings(config):
            write_stderr(f"treadle login: {warning}")
    return 0 if any(key.source for key in listed) else FAILED


def _as_json(config: Config, listed: list[ProviderKey]) -> str:
    found = {"home": str(config.home), "used": config.chosen.provider, "providers": listed}
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"


def _as_text(config: Config, listed: list[ProviderKey], colors: Colors) -> str:
    width = max(len(visible_line(key.provider)) for key in listed)
    lines = []
    for key in sorted(listed, key=lambda key: (key.source is None, not key.needs_key)):
        name = f"{visible_line(key.provider):{width}}"
        if key.source is not None:
            lines.append(f"{colors.green('✓')} {colors.bold(name)}  {visible_line(_place(key))}")
        elif key.needs_key:
            lines.append(f"– {name}  no key; treadle login {visible_line(key.provider)}")
        else:
            lines.append(colors.dim(f"– {name}  needs no key"))
    lines.append(f"in use: {config.chosen.provider}, because {config.chosen.because}")
    return "\n".join(lines) + "\n"


def _place(key: ProviderKey) -> str:
    words = {"variable": "the variable", "file": "the file", "config": "config.toml:"}
    return f"key in {words[key.source or 'file']} {key.where}"


def _warnings(config: Config) -> list[str]:
    """Files that are there and count for nothing."""
    found = [warning] if (warning := Login(config.home).warning()) else []
    try:
        StoredKeys(config.home).check()
    except ConfigError as error:
        found.append(str(error))
    return found
