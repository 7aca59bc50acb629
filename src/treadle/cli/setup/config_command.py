"""`treadle config`: makes, shows, changes and checks `config.toml`. What its keys mean is known to `treadle.config`.

FileSettings are shown with where each comes from, and without secrets.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Mapping
from typing import Any, Final

import click
import msgspec
from msgspec import Struct

from treadle.cli.completion import completing
from treadle.cli.problem import Problem
from treadle.cli.setup.config_init import init
from treadle.cli.streams import REFUSED, write, write_json
from treadle.cli.terminal import Colors, wants_color
from treadle.cli.user_commands import user_command, user_group
from treadle.config import Config, ConfigError, find_home, load_config, write_value
from treadle.config.file_settings import FileSettings, read_values
from treadle.config.home_files import config_path
from treadle.config.layers import KeyPath, join_key, leaves, lookup, nest, parse_value, split_key
from treadle.config.toml_edit import value_text
from treadle.llm.provider import shown_url
from treadle.pages.safe_text import printable_line
from treadle.secrets import HIDDEN, is_secret

BUILT_IN: Final = "built in"
# What is shown though nobody has set it: what people ask for first.
_ALWAYS: Final = ("model", "model_provider", "approval_policy", "sandbox_mode")
# They have a name like a secret, and hold the name of a variable, or prose.
_NAMES_ONLY: Final = frozenset(["env_key", "env_key_instructions", "bearer_token_env_var"])
_NAMING_TABLE: Final = "env_http_headers"
_EXITS: Final = {0: "done", 1: "it could not be done", 2: "wrong usage, or the settings cannot be used"}


@user_group(
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


@user_command(
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
        write_json({"file": str(config_path(config.home)), "settings": members})
    else:
        # Lines of TOML, with where each comes from as a comment.
        colors = Colors(wants_color("auto", sys.stdout, os.environ))
        lines = [
            f"{one.key} = {printable_line(value_text(one.value)) if one.value is not None else '(none)'}"
            for one in settings
        ]
        width = min(max(map(len, lines)), 60)
        lines = [f"{line:{width}}  {colors.dim(f'# {one.source}')}" for line, one in zip(lines, settings, strict=True)]
        write(sys.stdout, "\n".join([colors.dim(f"# {config_path(config.home)}"), *lines]) + "\n")
    return 0


@user_command(
    "get",
    summary="print one setting as it is in force",
    exit_codes={0: "done", 1: "nobody has set it, and it has no default", 2: "there is no such setting"},
    examples=("treadle config get model", "treadle config get sandbox_workspace_write.network_access"),
)
@click.argument("key", shell_complete=completing(lambda: list(FileSettings.__struct_fields__)))
def get(key: str, config_overrides: tuple[str, ...]) -> int:
    path = _path(key)
    config = load_config(find_home(os.environ), overrides=config_overrides).config
    value = lookup(config.document, path)
    if value is None:
        built_in = {name: getattr(config, name) for name in FileSettings.__struct_fields__}
        value = lookup(msgspec.to_builtins(built_in), path)
    if value is None:
        _check_known(path, "")
        raise Problem(f"{key} is not set", why="it has no default either", do=f"treadle config set {key} VALUE")
    if shown_value(path, value) != value:
        where = config_path(config.home)
        raise Problem(f"{key} holds a secret", why="a secret is never shown", do=f"look into {where}", code=REFUSED)
    write(sys.stdout, f"{value if isinstance(value, str) else value_text(value)}\n")
    return 0


@user_command(
    "set",
    summary="set a key of config.toml; the rest of the file stays as it is",
    more='VALUE is TOML, or a text: true, 3, \'["a", "b"]\', workspace-write.',
    exit_codes=_EXITS,
    config=False,
    examples=("treadle config set model gpt-6.1-sol", "treadle config set approval_policy never"),
)
@click.argument("key", shell_complete=completing(lambda: list(FileSettings.__struct_fields__)))
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
    # A query parameter is not shown, but may be as harmless as `api-version`: here its own name counts.
    if path[0] == "model_providers" and is_hidden(tuple(name for name in path if name != "query_params"), parsed):
        why = "every user of this machine can read it there, and the shell keeps it"
        login = f"treadle login {path[1]}"
        raise Problem("a secret does not belong on the command line", why=why, do=login, code=REFUSED)
    home = find_home(os.environ)
    written = write_value(home, path, parsed)
    lines = [f"{join_key(path)} = {value_text(shown_value(path, parsed))} in {written.path}"]
    try:
        loaded = load_config(home)
    except ConfigError as error:  # this may be the first of several edits that make them usable
        lines += ["  but the settings cannot be used yet:", *(f"    {problem}" for problem in error.problems)]
    else:
        lines += [f"  but {warning.message}" for warning in loaded.warnings if warning.key == join_key(path)]
        before = loaded.config.layers.origin(path)
        if before not in (None, "config.toml"):
            lines.append(f"  but {before} says otherwise, and goes before it")
    write(sys.stdout, printable_line("\n".join(lines)).replace("\\n", "\n") + "\n")
    return 0


@user_command(
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
    written = write_value(home, path, None)
    write(sys.stdout, f"{join_key(path)} is not in {written.path}\n")
    return 0


@user_command(
    "path", summary="print where config.toml is, or would be", config=False, examples=("treadle config path",)
)
def path_() -> int:
    write(sys.stdout, f"{config_path(find_home(os.environ))}\n")
    return 0


@user_command(
    "check",
    summary="say whether the settings can be used, and what has no effect",
    exit_codes={0: "they can be used", 1: "the model cannot be", 2: "they cannot be used"},
    examples=("treadle config check",),
)
def check(config_overrides: tuple[str, ...]) -> int:
    home = find_home(os.environ)
    loaded = load_config(home, overrides=config_overrides)
    lines = [f"warning: {printable_line(str(warning))}" for warning in loaded.warnings]
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
    """Raise `Problem` for a key that Treadle does not read: a typo would have no effect, silently."""
    unknown = read_values(nest(path, value)).unknown
    if not unknown:
        return
    wrong, known = next(iter(unknown.items()))
    near = difflib.get_close_matches(wrong[-1], known, n=1)
    raise Problem(
        f"there is no setting {join_key(wrong)}",
        why=f"did you mean {join_key((*wrong[:-1], near[0]))}?" if near else "Treadle does not read it",
        do="treadle config show --all lists the settings",
        code=REFUSED,
    )


# --- what is shown ---


class ShownSetting(Struct, frozen=True):
    """One setting: its key, its value without what is secret, and where it comes from."""

    key: str
    value: Any
    source: str


def shown_settings(config: Config, *, everything: bool = False) -> list[ShownSetting]:
    """The settings in force. With `everything` also those that nobody has set, as they are built in."""
    given = {path: lookup(config.document, path) for path in leaves(config.document)}
    # The model and the provider follow from each other, and from the keys that there are.
    chosen = config.chosen
    shown = [
        ShownSetting("model_provider", chosen.provider, f"because {chosen.because}"),
        ShownSetting("model", chosen.model, f"the usual one of {chosen.provider}"),
    ]
    shown = [one for one in shown if (one.key,) not in given]
    shown += [
        ShownSetting(join_key(path), shown_value(path, value), config.layers.origin(path) or BUILT_IN)
        for path, value in given.items()
    ]
    defaults = msgspec.to_builtins({name: getattr(config, name) for name in FileSettings.__struct_fields__})
    there = {one.key for one in shown}
    for path in leaves(defaults):
        if join_key(path) not in there and lookup(config.document, path) is None and (everything or path[0] in _ALWAYS):
            shown.append(ShownSetting(join_key(path), lookup(defaults, path), BUILT_IN))
    return shown


def shown_value(path: KeyPath, value: Any) -> Any:
    """A value without what is secret in it."""
    if isinstance(value, Mapping):
        return {key: shown_value((*path, key), member) for key, member in value.items()}
    if is_hidden(path, value):
        return HIDDEN
    is_url = path[-1].endswith("base_url") or path[-1] == "url"
    return shown_url(value) if is_url and isinstance(value, str) else value


def is_hidden(path: KeyPath, value: Any) -> bool:
    """Whether a value had better not be shown. Only texts are secrets: `tool_output_token_limit` is a number."""
    if isinstance(value, Mapping):
        return any(is_hidden((*path, key), member) for key, member in value.items())
    if isinstance(value, list | tuple):
        return any(is_hidden(path, member) for member in value)
    if not isinstance(value, str) or path[-1] in _NAMES_ONLY or _NAMING_TABLE in path:
        return False
    if path[0] == "profiles":
        return is_hidden(path[2:], value) if len(path) > 2 else is_secret(path[-1], value)
    if path[0] == "mcp_servers":
        # Variables and headers are what people put keys into, whatever they are called; the other keys have no secrets
        # by their names (`auth`, `oauth.client_id`), but may by their values.
        return path[2:3] in (("env",), ("http_headers",)) or is_secret("", value)
    names = path[2:] if path[0] == "model_providers" else path
    return is_secret(".".join(names), value)
