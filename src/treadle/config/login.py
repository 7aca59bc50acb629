"""The login: `auth.json` in the home, and who it belongs to.

It owns the user's credentials and never shows one. It sends nothing: tokens are taken as given, and their claims are
read for display only, unverified.
"""

from __future__ import annotations

import os
import re
import stat
from base64 import urlsafe_b64decode
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from treadle.config.atomic_write import PRIVATE, make_home, replace_file
from treadle.config.problems import ConfigError
from treadle.protocol.app.accounts import Account, ApiKeyAccount, AuthMode, ChatgptAccount
from treadle.protocol.app.base import Closed
from treadle.secrets import learn

FILE_NAME: Final = "auth.json"
_MAX_BYTES: Final = 256 * 1024  # tokens are a few kilobytes
_UNUSABLE: Final = re.compile(r"[\x00-\x20\x7f-\uffff]")
_AUTH_CLAIMS: Final = "https://api.openai.com/auth"
_PROFILE_CLAIMS: Final = "https://api.openai.com/profile"


class _Tokens(Struct, frozen=True):
    access_token: str = ""
    account_id: str | None = None
    id_token: str | None = None

    def __repr__(self) -> str:
        return "_Tokens(…)"


class _Stored(Struct, frozen=True):
    """The file. Members that other programs keep in it are ignored."""

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

    Tokens that a client supplies (`set_chatgpt_tokens`) live as long as this object: the client keeps and renews them,
    so they are never written.
    """

    def __init__(self, home: Path) -> None:
        self.home: Path = home
        self.path: Path = home / FILE_NAME
        self._seen: tuple[int, ...] | None = None
        self._stored: _Credential | None = None
        self._brought: _Credential | None = None
        self._warning: str | None = None

    def __repr__(self) -> str:
        return f"Login({str(self.path)!r})"

    def api_key(self) -> str | None:
        """What goes behind `Bearer`: the key, or the access token. None when nobody is logged in."""
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
        """Why a file that is there counts as no login."""
        self._current()
        return self._warning

    def set_api_key(self, key: str) -> None:
        """Log in with a key, and keep it in the file, for its owner alone."""
        key = usable_secret(key, "the API key")
        try:
            make_home(self.path.parent)
            data = msgspec.json.format(msgspec.json.encode({"auth_mode": "apikey", "OPENAI_API_KEY": key}), indent=2)
            replace_file(self.path, data + b"\n", PRIVATE)
        except OSError as error:
            raise ConfigError(f"the login cannot be kept ({error.strerror})", path=str(self.path)) from None
        self._brought = None
        self._seen = None

    def set_chatgpt_tokens(self, access_token: str, account_id: str | None, plan_type: str | None = None) -> None:
        """Log in with a token of a client."""
        token = usable_secret(access_token, "the access token")
        self._brought = _chatgpt("chatgptAuthTokens", _Tokens(token, account_id), plan_type)

    def logout(self) -> bool:
        """Forget all credentials; whether there was a login."""
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
        seen = self._stamp()
        if seen != self._seen:
            self._stored, self._warning = self._read() if seen else (None, None)
            self._seen = seen
        return self._stored

    def _stamp(self) -> tuple[int, ...]:
        """Changes with the file; empty when there is none."""
        try:
            found = os.stat(self.path)
        except OSError:
            return ()
        return (found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode)

    def _read(self) -> tuple[_Credential | None, str | None]:
        unreadable = f"{self.path}: it cannot be read, so nobody is logged in; log in again"
        try:
            if not stat.S_ISREG(os.stat(self.path).st_mode):
                return None, unreadable
            with open(self.path, "rb") as file:
                stored = msgspec.json.decode(file.read(_MAX_BYTES), type=_Stored)
        except OSError:
            return None, unreadable
        except (msgspec.DecodeError, RecursionError):  # its text could repeat what is in the file
            return None, f"{self.path}: it has not the form of a login, so nobody is logged in; log in again"
        return _credential(stored), None


def usable_secret(secret: str, what: str) -> str:
    """Without the blanks around it. Raises `ConfigError`, which does not repeat it."""
    secret = secret.strip()
    if not secret or _UNUSABLE.search(secret):
        raise ConfigError(f"{what} is empty or has characters that no key has; copy it again")
    return secret


def _credential(stored: _Stored) -> _Credential | None:
    key = (stored.OPENAI_API_KEY or "").strip()
    tokens = stored.tokens if stored.tokens is not None and stored.tokens.access_token else None
    wants_tokens = stored.auth_mode not in (None, "apikey") or not key
    if tokens is not None and wants_tokens:
        return _chatgpt("chatgpt", tokens, None)
    if key and stored.auth_mode in (None, "apikey"):
        return _Credential("apikey", key)
    return None


def _chatgpt(mode: Closed[AuthMode], tokens: _Tokens, plan: str | None) -> _Credential:
    claims = {**_claims(tokens.access_token), **_claims(tokens.id_token or "")}
    auth, profile = _member(claims, _AUTH_CLAIMS), _member(claims, _PROFILE_CLAIMS)
    return _Credential(
        mode,
        tokens.access_token,
        tokens.account_id or _text(auth.get("chatgpt_account_id")),
        _text(claims.get("email")) or _text(profile.get("email")),
        plan or _text(auth.get("chatgpt_plan_type")) or "unknown",
    )


def _claims(token: str) -> dict[str, Any]:
    """What a JWT says about itself; nothing when it is none."""
    try:
        body = token.split(".")[1]
        claims = msgspec.json.decode(urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (IndexError, ValueError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


def _member(claims: dict[str, Any], name: str) -> dict[str, Any]:
    member = claims.get(name)
    return member if isinstance(member, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
