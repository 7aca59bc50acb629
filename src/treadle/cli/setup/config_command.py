"""`treadle config`: makes, shows, changes and checks `config.toml`. What its keys mean is known to `treadle.config`."""

from __future__ import annotations

import difflib
import os
import sys
from typing import Any, Final

import click
import msgspec

from treadle.cli.exit_codes import REFUSED
from treadle.cli.people import command as people_command
from treadle.cli.people import completing, group
from treadle.cli.problem import Problem
from treadle.cli.setup.config_init import command as init
from treadle.cli.setup.settings_view import ShownSetting, is_hidden, shown_settings, shown_value
from treadle.cli.streams import write
from treadle.cli.terminal import Colors, wants_color
from treadle.cli.visible import visible_line
from treadle.config import Config, find_home, load_config, write_values
from treadle.config.document import config_path
from treadle.config.file_settings import Settings
from treadle.config.overrides import KeyPath, join_key, lookup, nest, parse_value, split_key
from treadle.config.toml_text import value_text
from treadle.config.values import read_values
from treadle.protocol.app.config import ConfigEdit

_EXITS: Final = {0: "done", 1: "it could not be done", 2: "wrong usage, or the settings cannot be used"}


@group(
    "config",
    more="Settings come from config.toml in the home of Treadle. Environment variables and -c KEY=VALUE go before it.",
    examples=(
        "treadle config init",
        "treadle config show",
        "treadle config set model_provider anthropic",
        "treadle config set sandbox_workspace_write.network_access true",
    ),
)
def command() -> int:
    return 0


@people_command(
    "show",
    summary="show the settings in force, and where each comes from",
    exit_codes=_EXITS,
    examples=("treadle config show", "treadle config show --all", "treadle config show --json | jq .settings.model"),
)
@click.option("--all", "everything", is_flag=True, help="also what nobody has set")
@click.option("--json", "as_json", is_flag=True, help="as one JSON object")
def show(everything: bool, as_json: bool, config_overrides: tuple[str, ...]) -> int:
    config = load_config(find_home(os.environ), overrides=config_overrides).config
    settings = shown_settings(config, everything=everything)
    if as_json:
        members = {one.key: {"value": one.value, "source": one.source} for one in settings}
        found = {"file": str(config_path(config.home)), "settings": members}
        write(sys.stdout, msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n")
    else:
        write(sys.stdout, _as_text(config, settings))
    return 0


@people_command(
    "get",
    summary="print one setting as it is in force",
    exit_codes={0: "done", 1: "nobody has set it, and it has no default", 2: "there is no such setting"},
    examples=("treadle config get model", "treadle config get sandbox_workspace_write.network_access"),
)
@click.argument("key", shell_complete=completing(lambda: list(Settings.__struct_fields__)))
def get(key: str, config_overrides: tuple[str, ...]) -> int:
    path = _path(key)
    config = load_config(find_home(os.environ), overrides=config_overrides).config
    value = _value(config, path)
    if value is None:
        _check_known(path, "")
        raise Problem(f"{key} is not set", why="it has no default either", do=f"treadle config set {key} VALUE")
    if is_hidden(path, value):
        where = config_path(config.home)
        raise Problem(f"{key} is a secret", why="a secret is never shown", do=f"look into {where}", code=REFUSED)
    write(sys.stdout, f"{value if isinstance(value, str) else value_text(value)}\n")
    return 0


@people_command(
    "set",
    summary="set a key of config.toml; the rest of the file stays as it is",
    more='VALUE is TOML, or a text: true, 3, \'["a", "b"]\', workspace-write.',
    exit_codes=_EXITS,
    config=False,
    examples=("treadle config set model gpt-6.1-sol", "treadle config set approval_policy never"),
)
@click.argument("key", shell_complete=completing(lambda: list(Settings.__struct_fields__)))
@click.argument("value")
def set_(key: str, value: str) -> int:
    path = _path(key)
    try:
        parsed = parse_value(value)
    except ValueError as error:
        raise Problem(
            f"the value of {key} cannot be read", why=str(error), do="write it as TOML", code=REFUSED
        ) from None
    _check_known(path, parsed)
    if path[0] == "model_providers" and is_hidden(path, parsed):
        why = "every user of this machine can read it there, and the shell keeps it"
        login = f"treadle login {path[1]}"
        raise Problem("a secret does not belong on the command line", why=why, do=login, code=REFUSED)
    home = find_home(os.environ)
    written = write_values(home, [ConfigEdit(key_path=join_key(path), merge_strategy="replace", value=parsed)])
    lines = [f"{join_key(path)} = {value_text(shown_value(path, parsed))} in {written.path}"]
    before = load_config(home).config.layers.origin(path)
    if before not in (None, "config.toml"):
        lines.append(f"  but {before} says otherwise, and goes before it")
    write(sys.stdout, visible_line("\n".join(lines)).replace("\\n", "\n") + "\n")
    return 0


@people_command(
    "unset",
    summary="remove a key from config.toml",
    config=False,
    exit_codes=_EXITS,
    examples=("treadle config unset model",),
)
@click.argument("key")
def unset(key: str) -> int:
    path = _path(key)
    home = find_home(os.environ)
    written = write_values(home, [ConfigEdit(key_path=join_key(path), merge_strategy="replace", value=None)])
    write(sys.stdout, f"{join_key(path)} is not in {written.path}\n")
    return 0


@people_command(
    "path", summary="print where config.toml is, or would be", config=False, examples=("treadle config path",)
)
def path_() -> int:
    write(sys.stdout, f"{config_path(find_home(os.environ))}\n")
    return 0


@people_command(
    "check",
    summary="say whether the settings can be used, and what has no effect",
    exit_codes={0: "they can be used", 1: "the model cannot be", 2: "they cannot be used"},
    examples=("treadle config check",),
)
def check(config_overrides: tuple[str, ...]) -> int:
    home = find_home(os.environ)
    loaded = load_config(home, overrides=config_overrides)
    lines = [f"warning: {visible_line(str(warning))}" for warning in loaded.warnings]
    path = config_path(home)
    if path.exists():
        lines.append(f"{path} can be used" + (", with warnings" if lines else ""))
    else:
        lines.append(f"there is no {path}; what is built in is used. To make one: treadle config init")
    write(sys.stdout, "\n".join([*lines, f"the model is {loaded.config.chosen}"]) + "\n")
    return 0


for _each in (init, show, get, set_, unset, path_, check):
    command.add_command(_each)


def _path(key: str) -> KeyPath:
    try:
        return split_key(key)
    except ValueError as error:
        raise Problem(f"{key!r} is no key", why=str(error), do="treadle config show --all", code=REFUSED) from None


def _check_known(path: KeyPath, value: Any) -> None:
    """A typo would have no effect, silently."""
    unknown = read_values(nest(path, value)).unknown
    if not unknown:
        return
    near = difflib.get_close_matches(path[0], Settings.__struct_fields__, n=1)
    raise Problem(
        f"there is no setting {join_key(unknown[0])}",
        why=f"did you mean {near[0]}?" if near else "Treadle does not read it",
        do="treadle config show --all lists the settings",
        code=REFUSED,
    )


def _value(config: Config, path: KeyPath) -> Any:
    said = lookup(config.document, path)
    if said is not None:
        return said
    return lookup(msgspec.to_builtins({name: getattr(config, name) for name in Settings.__struct_fields__}), path)


def _as_text(config: Config, settings: list[ShownSetting]) -> str:
    """Lines of TOML, with where each comes from as a comment."""
    colors = Colors(wants_color("auto", sys.stdout, os.environ))
    said = [
        f"{one.key} = {visible_line(value_text(one.value)) if one.value is not None else '(none)'}" for one in settings
    ]
    width = min(max(map(len, said)), 60)
    lines = [f"{line:{width}}  {colors.dim(f'# {one.source}')}" for line, one in zip(said, settings, strict=True)]
    return "\n".join([colors.dim(f"# {config_path(config.home)}"), *lines]) + "\n"
