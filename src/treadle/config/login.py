"""Keys and tokens of the user, and where the key of a provider comes from.

- `Login`: `auth.json` in the home, in the form that Codex gives it: OpenAI's key or tokens, and who they belong to.
- `StoredKeys`: `keys.json` in the home, a key for each other provider.

Credentials are never shown: not in an error, not in a `repr`. Nothing is sent: tokens are taken as given, and their
claims are read for display only, unverified.
"""

from __future__ import annotations

import os
import re
import stat
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from treadle.config.home_files import PRIVATE, READING, locked, make_home, replace_file
from treadle.config.problems import ConfigError
from treadle.llm.known_providers import KEY_HEADERS, OPENAI, OPENAI_KEY_VARIABLE
from treadle.llm.provider import KeySource, ProviderConfig
from treadle.protocol.app.accounts import Account, ApiKeyAccount, AuthMode, ChatgptAccount
from treadle.protocol.app.base import Closed
from treadle.secrets import learn

LOGIN_FILE: Final = "auth.json"
KEYS_FILE: Final = "keys.json"
_MAX_LOGIN_BYTES: Final = 256 * 1024  # tokens are a few kilobytes
_MAX_KEYS_BYTES: Final = 1024 * 1024  # thousands of keys; more is something else
_UNUSABLE: Final = re.compile(r"[\x00-\x20\x7f-\uffff]")
_AUTH_CLAIMS: Final = "https://api.openai.com/auth"
_PROFILE_CLAIMS: Final = "https://api.openai.com/profile"

# --- auth.json ---


class _Tokens(Struct, frozen=True):
    access_token: str = ""
    account_id: str | None = None
    id_token: str | None = None

    def __repr__(self) -> str:
        return "_Tokens(…)"


class _Stored(Struct, frozen=True):
    """The file. Members that other programs store in it are ignored."""

    auth_mode: str | None = None
    OPENAI_API_KEY: str | None = None
    tokens: _Tokens | None = None

    def __repr__(self) -> str:
        return f"_Stored(auth_mode={self.auth_mode!r})"


class _Credential(Struct, frozen=True):
    """The credential in use. `bearer` is the secret."""

    mode: Closed[AuthMode]
    bearer: str
    account_id: str | None = None
    email: str | None = None
    plan: str = "unknown"

    def __post_init__(self) -> None:
        learn([self.bearer])

    def __repr__(self) -> str:
        return f"_Credential(mode={self.mode!r})"


class Login:
    """The login of a home. The file is read on first use, and again when it has changed.

    Tokens that a client supplies (`set_chatgpt_tokens`) live as long as this object: the client stores and renews them,
    so they are never written.
    """

    def __init__(self, home: Path) -> None:
        self.home: Path = home
        self.path: Path = home / LOGIN_FILE
        self._seen: tuple[int, ...] | None = None
        self._stored: _Credential | None = None
        self._brought: _Credential | None = None
        self._warning: str | None = None

    def __repr__(self) -> str:
        return f"Login({str(self.path)!r})"

    def api_key(self) -> str | None:
        """The bearer token of requests: the key, or the access token. None when nobody is logged in."""
        credential = self._current()
        return credential.bearer if credential else None

    def brought_key(self) -> str | None:
        """The token that a client has brought, if one has."""
        return self._brought.bearer if self._brought else None

    def auth_mode(self) -> Closed[AuthMode] | None:
        credential = self._current()
        return credential.mode if credential else None

    def account_id(self) -> str | None:
        """The workspace that a ChatGPT token is for."""
        credential = self._current()
        return credential.account_id if credential else None

    def plan_type(self) -> str | None:
        account = self.account()
        return account.plan_type if isinstance(account, ChatgptAccount) else None

    def account(self) -> Account | None:
        credential = self._current()
        if credential is None:
            return None
        if credential.mode == "apikey":
            return ApiKeyAccount()
        return ChatgptAccount(plan_type=credential.plan, email=credential.email)

    def warning(self) -> str | None:
        """Why an existing file counts as no login."""
        self._current()
        return self._warning

    def set_api_key(self, key: str) -> None:
        """Log in with a key, and store it in the file, for its owner alone."""
        key = usable_secret(key, "the API key")
        try:
            make_home(self.path.parent)
            data = msgspec.json.format(msgspec.json.encode({"auth_mode": "apikey", "OPENAI_API_KEY": key}), indent=2)
            replace_file(self.path, data + b"\n", PRIVATE)
        except OSError as error:
            raise ConfigError(f"the login cannot be stored ({error.strerror})", path=str(self.path)) from None
        self._brought = None
        self._seen = None

    def set_chatgpt_tokens(self, access_token: str, account_id: str | None, plan_type: str | None = None) -> None:
        """Log in with a token of a client."""
        token = usable_secret(access_token, "the access token")
        self._brought = _chatgpt("chatgptAuthTokens", _Tokens(token, account_id), plan_type)

    def logout(self) -> bool:
        """Remove all credentials; whether there was a login."""
        was = self._current() is not None
        self._brought = None
        self._seen = None
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise ConfigError(f"the login cannot be removed ({error.strerror})", path=str(self.path)) from None
        return was

    def _current(self) -> _Credential | None:
        if self._brought is not None:
            return self._brought
        seen: tuple[int, ...] = ()
        with suppress(OSError):
            found = os.stat(self.path)
            seen = (found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode)
        if seen != self._seen:
            self._stored, self._warning = self._read() if seen else (None, None)
            self._seen = seen
        return self._stored

    def _read(self) -> tuple[_Credential | None, str | None]:
        unreadable = f"{self.path}: it cannot be read, so nobody is logged in; log in again"
        try:
            if not stat.S_ISREG(os.stat(self.path).st_mode):
                return None, unreadable
            with open(self.path, "rb") as file:
                stored = msgspec.json.decode(file.read(_MAX_LOGIN_BYTES), type=_Stored)
        except OSError:
            return None, unreadable
        except (msgspec.DecodeError, RecursionError):  # its text could repeat what is in the file
            return None, f"{self.path}: it has not the form of a login, so nobody is logged in; log in again"
        key = (stored.OPENAI_API_KEY or "").strip()
        tokens = stored.tokens if stored.tokens is not None and stored.tokens.access_token else None
        wants_tokens = stored.auth_mode not in (None, "apikey") or not key
        if tokens is not None and wants_tokens:
            return _chatgpt("chatgpt", tokens, None), None
        if key and stored.auth_mode in (None, "apikey"):
            return _Credential("apikey", key), None
        return None, None


def usable_secret(secret: str, what: str) -> str:
    """A secret without the blanks around it. Raises `ConfigError`, which does not repeat it."""
    secret = secret.strip()
    if not secret or _UNUSABLE.search(secret):
        raise ConfigError(f"{what} is empty or has characters that no key has; copy it again")
    return secret


def _chatgpt(mode: Closed[AuthMode], tokens: _Tokens, plan: str | None) -> _Credential:
    claims = {**_claims(tokens.access_token), **_claims(tokens.id_token or "")}
    auth, profile = (
        member if isinstance(member := claims.get(name), dict) else {} for name in (_AUTH_CLAIMS, _PROFILE_CLAIMS)
    )
    return _Credential(
        mode,
        tokens.access_token,
        tokens.account_id or _text(auth.get("chatgpt_account_id")),
        _text(claims.get("email")) or _text(profile.get("email")),
        plan or _text(auth.get("chatgpt_plan_type")) or "unknown",
    )


def _claims(token: str) -> dict[str, Any]:
    """The claims of a JWT, unverified; none for anything else."""
    try:
        body = token.split(".")[1]
        claims = msgspec.json.decode(urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (IndexError, ValueError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


# --- keys.json ---


class StoredKeys:
    """The keys of a home, by provider. The file is read anew each time: a login while a server runs is used at once."""

    def __init__(self, home: Path) -> None:
        self.path: Path = home / KEYS_FILE

    def __repr__(self) -> str:
        return f"StoredKeys({str(self.path)!r})"

    def get(self, provider: str) -> str | None:
        """The key of a provider. A file that cannot be read has no keys; `check` reports it."""
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
        """Raise `ConfigError` for a file that exists and cannot be used."""
        self._read()

    def set(self, provider: str, key: str) -> None:
        """Store a key, for the owner of the home alone."""
        key = usable_secret(key, "the API key")
        self._change(lambda keys: {**keys, provider: key})

    def remove(self, provider: str) -> bool:
        """Remove the key of a provider; whether there was one."""
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
            raise ConfigError(f"the key cannot be stored ({error.strerror})", path=str(self.path)) from None

    def _read(self) -> dict[str, str]:
        try:
            # Not blocking: the name could be that of a pipe.
            descriptor = os.open(self.path, READING)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise self._unusable(f"it cannot be read ({error.strerror})") from None
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise self._unusable("it is not a regular file")
            data = file.read(_MAX_KEYS_BYTES)
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
    """A function that gives the key of a provider when neither its table nor a variable that its table names has
    one."""

    def find() -> str | None:
        found = _stored_key(provider, login, environ)
        return None if found is None else found.secret

    return find


def find_credential(provider: ProviderConfig, login: Login, environ: Mapping[str, str]) -> Credential | None:
    """The key that a request to a provider would be sent with, in the order of `llm.provider.endpoint`."""
    if provider.env_key is not None and environ.get(provider.env_key, "").strip():
        return Credential("variable", provider.env_key)
    if provider.env_key is None and provider.experimental_bearer_token is not None:
        return Credential("config", f"model_providers.{provider.id}.experimental_bearer_token")
    if (stored := _stored_key(provider, login, environ)) is not None:
        return stored
    for name in provider.http_headers:
        if name.lower() in KEY_HEADERS:
            return Credential("config", f"model_providers.{provider.id}.http_headers")
    for name, variable in provider.env_http_headers.items():
        if name.lower() in KEY_HEADERS and environ.get(variable, "").strip():
            return Credential("variable", variable)
    return None


def _stored_key(provider: ProviderConfig, login: Login, environ: Mapping[str, str]) -> Credential | None:
    """The key of the login or of `keys.json`. The key of OpenAI is for OpenAI, and for a provider that says
    `requires_openai_auth`. Whoever sets the variable means this run, so it goes before what is stored; only tokens that
    a client has brought to this very server go before it."""
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
