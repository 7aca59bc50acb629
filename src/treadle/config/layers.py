"""Where settings come from: file, profile, environment, command line, thread; later ones win.

It owns the order, and knows the origin of each setting. Values are plain tables here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from treadle.config.model_choice import FoundKey
from treadle.config.overrides import KeyPath, Table, join_key, lookup, merge
from treadle.config.problems import ConfigError, ConfigWarning, kind_of

VARIABLES: Final = {"TREADLE_MODEL": "model", "TREADLE_MODEL_PROVIDER": "model_provider"}
# A proxy or a gateway is often named by this one, which the OpenAI clients read too.
BASE_URL_VARIABLE: Final = "OPENAI_BASE_URL"


class Layers(Struct, frozen=True, kw_only=True):
    """What each source says. `path` is the file, `text` its text, for finding the line of a key."""

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
        """All of them, one over the other; a profile that is not there adds nothing."""
        merged = merge(self.file, self._profile())
        for layer in (self.environment, self.flags, self.thread):
            merged = merge(merged, layer)
        return merged

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
        """Whether any of them says something at a key path."""
        return lookup(self.effective(), path) is not None

    def prefers(self, one: str, other: str) -> bool:
        """Whether the nearest source that says one of two keys says the first of them."""
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

    def named_by(self, key: str) -> str:
        """Who says what holds for a key, as one would say it after "because"."""
        where, source = self._origin((key,))
        if source is not None:
            return f"{source} names it"
        return f"the profile `{where[1]}` names it" if len(where) > 1 else "config.toml names it"

    def origin(self, path: KeyPath) -> str | None:
        """Who says what holds at a key path; None when nobody does."""
        if not self.has(path):
            return None
        where, source = self._origin(path)
        if source is not None:
            return source
        return f"the profile `{where[1]}`" if where != path else "config.toml"

    def _origin(self, path: KeyPath) -> tuple[KeyPath, str | None]:
        """The path at which the topmost source has the value, and the name of the source unless it is the file."""
        if lookup(self.thread, path) is not None:
            return path, "the configuration of the thread"
        if lookup(self.flags, path) is not None:
            return path, "-c"
        if lookup(self.environment, path) is not None:
            names = {**VARIABLES, BASE_URL_VARIABLE: "openai_base_url"}
            return path, f"the environment variable {next(name for name, key in names.items() if key == path[0])}"
        name = self.profile_name()
        in_profile = ("profiles", name, *path) if name is not None else path
        return (in_profile if lookup(self.file, in_profile) is not None else path), None

    def _place(self, path: KeyPath) -> tuple[int | None, int | None]:
        from treadle.config.toml_scan import locate  # a start without a config file parses no TOML

        return (self.text and locate(self.text, path)) or (None, None)


def from_environment(environ: Mapping[str, str]) -> Table:
    names = {**VARIABLES, BASE_URL_VARIABLE: "openai_base_url"}
    return {key: environ[name] for name, key in names.items() if environ.get(name)}
