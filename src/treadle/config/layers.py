"""Where settings come from: file, profile, environment, command line, thread; later ones win.

The module owns the order and the origin of each setting, and what layers are made of: dotted keys, the values of
`-c key=value` and of the `config` object of a thread, and merging. Values are plain tables here, and no setting is
known by name except those that environment variables can set.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from treadle.arguments import text_problem
from treadle.config.problems import ConfigError, ConfigWarning, kind_of
from treadle.llm.known_providers import ANTHROPIC_KEY_VARIABLE, OFFLINE, OPENAI_KEY_VARIABLE
from treadle.rpc.message import MAX_DEPTH, TOO_DEEP, is_too_deep

Table: TypeAlias = dict[str, Any]
KeyPath: TypeAlias = tuple[str, ...]

VARIABLES: Final = {
    "TREADLE_MODEL": "model",
    "TREADLE_MODEL_PROVIDER": "model_provider",
    "TREADLE_STORE": "store",
}
# A proxy or a gateway is often named by this one, which the OpenAI clients read too.
BASE_URL_VARIABLE: Final = "OPENAI_BASE_URL"
_VARIABLES: Final = {**VARIABLES, BASE_URL_VARIABLE: "openai_base_url"}
THREAD: Final = "the configuration of the thread"
NOTHING: Final = f"neither {OPENAI_KEY_VARIABLE} nor {ANTHROPIC_KEY_VARIABLE} is set, and nobody is logged in"
_FEW: Final = 8

_PART: Final = re.compile(
    r"""[ \t]*(?:(?P<basic>"(?:[^"\\\n]|\\.)*")|'(?P<literal>[^'\n]*)'|(?P<bare>[^."'\n]+))[ \t]*"""
)
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


class FoundKey(Struct, frozen=True):
    """The provider for which a key was found. It is used if no provider is named."""

    provider: str = OFFLINE
    because: str = NOTHING


class Layers(Struct, frozen=True, kw_only=True):
    """What each source of settings says. `path` is the file, `text` its text, for finding the line of a key."""

    path: str
    text: str = ""
    file: Mapping[str, Any] = {}
    environment: Mapping[str, Any] = {}
    flags: Mapping[str, Any] = {}
    thread: Mapping[str, Any] = {}
    found: FoundKey = FoundKey()
    """The provider that there is a key for."""

    def __repr__(self) -> str:
        return f"Layers(path={self.path!r})"

    def with_thread(self, overrides: Mapping[str, Any]) -> Layers:
        return msgspec.structs.replace(self, thread=merge(self.thread, overrides))

    def effective(self) -> Table:
        """All sources, one over the other; a missing profile adds nothing."""
        return merge(self.of_file(), self.given())

    def of_file(self) -> Table:
        """What the file says, with the profile that is chosen."""
        return merge(self.file, self._profile())

    def given(self) -> Table:
        """What is laid over the file by whoever started the program or the thread."""
        return merge(merge(self.environment, self.flags), self.thread)

    def profile_name(self) -> str | None:
        name = next((layer["profile"] for layer in (self.thread, self.flags, self.file) if "profile" in layer), None)
        return name if isinstance(name, str) else None  # another type is refused when the settings are read

    def _profile(self) -> Mapping[str, Any]:
        name = self.profile_name()
        if name is None:
            return {}
        table = self._profiles().get(name)
        return table if isinstance(table, Mapping) else {}

    def _profiles(self) -> Mapping[str, Any]:
        profiles = merge(merge(self.file, self.flags), self.thread).get("profiles", {})
        return profiles if isinstance(profiles, Mapping) else {}

    def profile_error(self) -> ConfigError | None:
        """What is wrong with the profile that is chosen, if one is."""
        name = self.profile_name()
        profiles = self._profiles()
        table = profiles.get(name) if name is not None else {}
        if isinstance(table, Mapping):
            return None
        problem = (
            f"there is no table [profiles.{join_key((name or '',))}]" if table is None else f"it is {kind_of(table)}"
        )
        others = ", ".join(f"`{other}`" for other, found in sorted(profiles.items()) if isinstance(found, Mapping))
        instead = f"or choose one of {others}" if others else "or leave the profile out"
        return self.error(("profile",), f"{problem}; add the table, {instead}")

    def has(self, path: KeyPath) -> bool:
        """Whether any source has a value at a key path."""
        return lookup(self.effective(), path) is not None

    def prefers(self, one: str, other: str) -> bool:
        """Whether the nearest source that has one of two keys has the first of them."""
        for layer in (self.thread, self.flags, self.environment, self._profile(), self.file):
            if one in layer or other in layer:
                return one in layer
        return False

    def error(self, path: KeyPath, problem: str) -> ConfigError:
        """A problem with the value at a key path, as an error that says where the value came from."""
        where, source = self._origin(path)
        if source is not None:
            return ConfigError(problem, key=join_key(path), source=source)
        line, column = self._place(where)
        return ConfigError(problem, path=self.path, key=join_key(where), line=line, column=column)

    def warning(self, path: KeyPath, message: str) -> ConfigWarning:
        where, source = self._origin(path)
        if source is not None:
            return ConfigWarning(message=f"{source}: {message}", key=join_key(path))
        line, column = self._place(where)
        return ConfigWarning(message=message, path=self.path, key=join_key(where), line=line, column=column)

    def unknown(self, path: KeyPath, known: Collection[str], elsewhere: Collection[str] = ()) -> ConfigWarning:
        """A warning for a key that nobody knows, with the nearest one that is known, or all if they are few."""
        from difflib import get_close_matches  # only for a warning

        near = get_close_matches(path[-1], known, 1, 0.8) or get_close_matches(path[-1], elsewhere, 1, 0.8)
        hint = f"; did you mean `{join_key((*path[:-1], near[0]))}`?" if near else ""
        if not near and len(known) <= _FEW:
            hint = f" (there are {', '.join(known)})"
        warning = self.warning(path, f"the key `{join_key(path)}` is not known; it is ignored{hint}")
        (problem,) = self.error(path, f"it is not known{hint}").problems
        return msgspec.structs.replace(warning, unknown=problem)

    def changed_keys(self, before: Layers) -> list[str]:
        """The settings that have another value than before."""
        old, new = before.effective(), self.effective()
        paths = {*leaves(old), *leaves(new)}
        return sorted(join_key(path) for path in paths if lookup(old, path) != lookup(new, path))

    def named_by(self, key: str) -> str:
        """Which source names the value in force, as words that follow "because"."""
        where, source = self._origin((key,))
        if source is not None:
            return f"{source} names it"
        return f"the profile `{where[1]}` names it" if len(where) > 1 else "config.toml names it"

    def origin(self, path: KeyPath) -> str | None:
        """The source of the value in force at a key path; None without a value."""
        if not self.has(path):
            return None
        where, source = self._origin(path)
        if source is not None:
            return source
        return f"the profile `{where[1]}`" if where != path else "config.toml"

    def _origin(self, path: KeyPath) -> tuple[KeyPath, str | None]:
        """The path at which the topmost source has the value, and the name of the source unless it is the file."""
        if lookup(self.thread, path) is not None:
            return path, THREAD
        if lookup(self.flags, path) is not None:
            return path, "-c"
        if lookup(self.environment, path) is not None:
            variable = next(name for name, key in _VARIABLES.items() if key == path[0])
            return path, f"the environment variable {variable}"
        name = self.profile_name()
        in_profile = ("profiles", name, *path) if name is not None else path
        return (in_profile if lookup(self.file, in_profile) is not None else path), None

    def _place(self, path: KeyPath) -> tuple[int | None, int | None]:
        from treadle.config.toml_edit import locate  # a start without a config file parses no TOML

        return (self.text and locate(self.text, path)) or (None, None)


def from_environment(environ: Mapping[str, str]) -> Table:
    """The settings in environment variables."""
    return {key: environ[name] for name, key in _VARIABLES.items() if environ.get(name)}


# --- dotted keys, values, tables ---


def split_key(text: str) -> KeyPath:
    """The parts of a dotted key; a part in quotes may have dots in it. Raises `ValueError`."""
    if (problem := text_problem(text)) is not None:
        raise ValueError(f"the key {problem}")
    parts: list[str] = []
    at = 0
    while found := _PART.match(text, at):
        if found["literal"] is not None:
            parts.append(found["literal"])
        elif found["basic"] is not None:
            parts.append(unquoted(found["basic"]))
        elif bare := found["bare"].strip():
            parts.append(bare)
        else:
            raise ValueError("a part of the key is empty")
        at = found.end() + 1
        if len(parts) > MAX_DEPTH:
            raise ValueError(f"it has more than {MAX_DEPTH} parts")
        if at > len(text):
            return tuple(parts)
        if text[at - 1] != ".":
            break
    raise ValueError('it is no dotted key like `a.b` or `a."b.c"`')


def unquoted(quoted: str) -> str:
    """The text of a TOML string in double quotes. Raises `ValueError`."""
    if "\\" not in quoted:
        return quoted[1:-1]
    import tomllib  # a start without settings parses no TOML

    text = tomllib.loads(f"x = {quoted}")["x"]
    assert isinstance(text, str)
    return text


def join_key(path: Iterable[str]) -> str:
    """How a key path is written; the inverse of `split_key`."""
    parts = tuple(path)
    if all(map(_BARE.fullmatch, parts)):
        return ".".join(parts)
    from treadle.config.toml_edit import key_text  # a start without a config file loads no TOML

    return ".".join(map(key_text, parts))


def parse_overrides(texts: Iterable[str]) -> tuple[Table, list[ConfigError]]:
    """All `key=value` of a command line as one table, in which later ones win; and what cannot be read of them."""
    merged: Table = {}
    errors: list[ConfigError] = []
    for text in texts:
        try:
            merged = merge(merged, parse_override(text))
        except ConfigError as error:
            errors.append(error)
    return merged, errors


def parse_override(text: str) -> Table:
    """One `key=value`: the value is TOML, and when it is none, the text itself."""
    # A `=` in a quoted part of the key is part of it.
    found = re.match(r"""(?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[^="'])*=""", text)
    key, equals, value = (found.group()[:-1], "=", text[found.end() :]) if found else text.partition("=")
    if not equals:
        raise ConfigError(f"`{key}` has no value; write -c key=value", source="-c")
    try:
        path = split_key(key)
    except ValueError as error:
        raise ConfigError(f"{error}; write -c key=value", key=key.strip() or None, source="-c") from None
    try:
        return nest(path, parse_value(value))
    except ValueError as error:
        raise ConfigError(f"the value is {error}", key=key.strip(), source="-c") from None


def parse_value(text: str) -> Any:
    """A value as TOML has it; a text that is no TOML stands for itself. Raises `ValueError` for what is too deep, and
    for what nothing can store."""
    import tomllib  # a start without settings parses no TOML

    if (problem := text_problem(text)) is not None:
        raise ValueError(f"no text: it {problem}")
    text = text.strip()
    try:
        table = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    if is_too_deep(msgspec.json.encode(table)):
        raise ValueError(TOO_DEEP)
    # A text with line breaks could bring keys of its own.
    return table["value"] if table.keys() == {"value"} else text


def expand(overrides: Mapping[str, Any]) -> Table:
    """The `config` object of a thread as nested tables.

    Keys of the object itself may be dotted; below it a dot is only a character (paths and header names have them). A
    null leaves the setting as it is.
    """
    merged: Table = {}
    for key, value in overrides.items():
        try:
            path = split_key(key)
        except ValueError as error:
            raise ConfigError(f"{error}", key=key, source=THREAD) from None
        if value is not None:
            merged = merge(merged, nest(path, without_nulls(value)))
    return merged


def without_nulls(value: Any) -> Any:
    """A value without the members of its tables that are null."""
    if isinstance(value, Mapping):
        return {key: without_nulls(member) for key, member in value.items() if member is not None}
    return value


def nest(path: KeyPath, value: Any) -> Table:
    """A table with `value` at `path`."""
    for part in reversed(path):
        value = {part: value}
    assert isinstance(value, dict)
    return value


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> Table:
    """`over` laid on `base`: tables are merged, anything else is replaced. Neither is changed."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            value = merge(below, value)
        merged[key] = value
    return merged


def lookup(table: Mapping[str, Any], path: KeyPath) -> Any:
    """The value at a key path, None when there is none."""
    value: Any = table
    for part in path:
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value


def leaves(table: Mapping[str, Any], above: KeyPath = ()) -> Iterator[KeyPath]:
    """The key paths of all values that are no table, or an empty one."""
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, (*above, key))
        else:
            yield (*above, key)
