"""`StoredKeys`: a key for each provider, in `keys.json` of the home; and where the key of a provider comes from.

OpenAI's key is not here but in `auth.json` (`login`), which has the form that Codex gives it. A key is shown nowhere:
not in an error, not in a `repr`. It sends nothing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

from treadle.config.atomic_write import PRIVATE, make_home, replace_file
from treadle.config.document import locked
from treadle.config.login import Login, usable_secret
from treadle.config.problems import ConfigError
from treadle.llm.known_providers import KEY_HEADERS, OPENAI, OPENAI_KEY_VARIABLE
from treadle.llm.provider import KeySource, ProviderConfig

FILE_NAME: Final = "keys.json"
_MAX_BYTES: Final = 1024 * 1024  # thousands of keys; more is something else


class StoredKeys:
    """The keys of a home, by provider. The file is read anew each time: a login while a server runs is used at once."""

    def __init__(self, home: Path) -> None:
        self.path: Path = home / FILE_NAME

    def __repr__(self) -> str:
        return f"StoredKeys({str(self.path)!r})"

    def get(self, provider: str) -> str | None:
        """A file that cannot be read has no keys; `check` says so."""
        try:
            return self._read().get(provider)
        except ConfigError:
            return None

    def providers(self) -> list[str]:
        try:
            return sorted(self._read())
        except ConfigError:
            return []

    def secrets(self) -> list[str]:
        """The keys themselves: for taking them out of what is shown."""
        try:
            return list(self._read().values())
        except ConfigError:
            return []

    def check(self) -> None:
        """Raise `ConfigError` for a file that is there and cannot be used."""
        self._read()

    def set(self, provider: str, key: str) -> None:
        """Keep a key, for the owner of the home alone."""
        key = usable_secret(key, "the API key")
        self._change(lambda keys: {**keys, provider: key})

    def remove(self, provider: str) -> bool:
        """Forget the key of a provider; whether there was one."""
        if self.get(provider) is None:
            return False
        self._change(lambda keys: {name: key for name, key in keys.items() if name != provider})
        return True

    def _change(self, change: Callable[[Mapping[str, str]], dict[str, str]]) -> None:
        try:
            make_home(self.path.parent)
            with locked(self.path.parent):
                data = msgspec.json.format(msgspec.json.encode(change(self._read())), indent=2)
                replace_file(self.path, data + b"\n", PRIVATE)
        except OSError as error:
            raise ConfigError(f"the key cannot be kept ({error.strerror})", path=str(self.path)) from None

    def _read(self) -> dict[str, str]:
        try:
            # Not blocking: the name could be that of a pipe.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise self._unusable(f"it cannot be read ({error.strerror})") from None
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise self._unusable("it is not a regular file")
            data = file.read(_MAX_BYTES)
        try:
            return msgspec.json.decode(data, type=dict[str, str])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # its text could repeat what is in the file
            raise self._unusable("it has not the form of a list of keys") from None

    def _unusable(self, problem: str) -> ConfigError:
        return ConfigError(f"{problem}; move it away and log in again", path=str(self.path))


class Credential(Struct, frozen=True):
    """A key, and where it was found: in a `variable`, in a `file` of the home, or in `config.toml`."""

    kind: Literal["variable", "file", "config"]
    where: str
    secret: str = ""

    def __repr__(self) -> str:
        return f"Credential(kind={self.kind!r}, where={self.where!r})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("kind", self.kind), ("where", self.where)]


def key_source(provider: ProviderConfig, login: Login, environ: Mapping[str, str]) -> KeySource:
    """What gives the key of a provider when neither its table nor a variable that its table names has one."""

    def find() -> str | None:
        kept = _kept(provider, login, environ)
        return None if kept is None else kept.secret

    return find


def find_credential(provider: ProviderConfig, login: Login, environ: Mapping[str, str]) -> Credential | None:
    """With which key a request to a provider would be sent, in the order of `llm.provider.endpoint`."""
    if provider.env_key is not None and environ.get(provider.env_key, "").strip():
        return Credential("variable", provider.env_key)
    if provider.env_key is None and provider.experimental_bearer_token is not None:
        return Credential("config", f"model_providers.{provider.id}.experimental_bearer_token")
    return _kept(provider, login, environ) or _in_headers(provider, environ)


def _kept(provider: ProviderConfig, login: Login, environ: Mapping[str, str]) -> Credential | None:
    """The key of OpenAI is for OpenAI, and for a provider that says `requires_openai_auth`. Whoever sets the variable
    means this run, so it goes before what is kept; only tokens that a client has brought to this very server go
    before it."""
    stored = StoredKeys(login.home)
    own = stored.get(provider.id)
    if own is None and not provider.requires_openai_auth:
        return None
    if provider.requires_openai_auth and (brought := login.brought_key()):
        return Credential("variable", "the tokens of the client", brought)
    variable = environ.get(OPENAI_KEY_VARIABLE, "").strip() if provider.id == OPENAI else ""
    if variable:
        return Credential("variable", OPENAI_KEY_VARIABLE, variable)
    if own is not None:
        return Credential("file", str(stored.path), own)
    logged_in = login.api_key()
    return None if logged_in is None else Credential("file", str(login.path), logged_in)


def _in_headers(provider: ProviderConfig, environ: Mapping[str, str]) -> Credential | None:
    for name in provider.http_headers:
        if name.lower() in KEY_HEADERS:
            return Credential("config", f"model_providers.{provider.id}.http_headers")
    for name, variable in provider.env_http_headers.items():
        if name.lower() in KEY_HEADERS and environ.get(variable, "").strip():
            return Credential("variable", variable)
    return None
