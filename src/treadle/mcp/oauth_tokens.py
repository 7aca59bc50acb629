"""`TokenFile`: the tokens of one MCP server on disk, and `ServerTokens`: the one that a request is sent with.

Each server, by name and URL, has a file of its own in `mcp_tokens` of the home, for its owner alone: tokens of one URL
are never sent to another, whatever a project calls its servers. Its secret members may be in the keyring instead.

A token is renewed by one process at a time, the others wait for it and take what it has got: authorization servers give
each refresh token once, and take a second use for theft. The lock is a file beside it that stays, so that all lock the
same one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec
from msgspec import Struct

from treadle.config.home_files import PRIVATE, make_home, replace_file
from treadle.mcp.mcp_http import McpHttp
from treadle.mcp.mcp_messages import McpError
from treadle.mcp.oauth import Granted, OAuthClient, OAuthError, ask_for_token
from treadle.mcp.oauth_keyring import SERVICE, find_keyring, off_loop, use_keyring
from treadle.secrets import learn

logger: logging.Logger = logging.getLogger(__name__)

FOLDER: Final = "mcp_tokens"
MAX_BYTES: Final = 256 * 1024
# A token that is as good as expired would be refused under way.
EARLY_S: Final = 60.0
# As long as a renewal may take, and a little.
LOCK_S: Final = 45.0
_LOCK_AGAIN_S: Final = 0.05


class OAuthTokens(Struct, frozen=True, kw_only=True):
    """The file. `expires_at` is in seconds since 1970; None for a token that says nothing of it."""

    server: str
    url: str
    token_endpoint: str
    client: OAuthClient
    resource: str
    access_token: str
    refresh_token: str | None = None
    expires_at: float | None = None
    scope: str | None = None
    wanted: str | None = None
    """Scopes beyond that, which the server has asked for: the next login asks for them."""
    key: str | None = None
    """Under which the keyring has the secret members, which are empty in the file then."""

    def __post_init__(self) -> None:
        learn(filter(None, (self.access_token, self.refresh_token, self.client.secret)))

    def __repr__(self) -> str:
        return f"OAuthTokens(server={self.server!r}, url={self.url!r})"

    @property
    def is_locked(self) -> bool:
        """Whether the secret members are in the keyring alone."""
        return self.key is not None and not self.access_token

    def renewed(self, granted: Granted, now: float) -> OAuthTokens:
        return msgspec.structs.replace(
            self,
            access_token=granted.access_token,
            refresh_token=granted.refresh_token or self.refresh_token,
            expires_at=None if granted.expires_in is None else now + granted.expires_in,
            scope=granted.scope or self.scope,
        )


class _Secrets(Struct, frozen=True, omit_defaults=True):
    """What the keyring has of `OAuthTokens`, as JSON."""

    access_token: str
    refresh_token: str | None = None
    client_secret: str | None = None

    def __repr__(self) -> str:
        return "_Secrets()"


class TokenFile:
    """Where the tokens of a server are. Reading takes no lock: the file is replaced as a whole. Tokens in the keyring
    have a new key each time that they are stored, so what was read of one stays true."""

    def __init__(self, home: Path, server: str, url: str, store: str | None = None) -> None:
        """`store`: where to write them, as the settings have it; None for where they are."""
        mark = sha256(f"{server}\0{url}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
        self.path: Path = home / FOLDER / f"{mark}.json"
        self._server = server
        self._url = url
        self._store = store
        self._known: tuple[str | None, _Secrets] | None = None  # by the key of the keyring

    def __repr__(self) -> str:
        return f"TokenFile({str(self.path)!r})"

    def read(self) -> OAuthTokens | None:
        """The tokens, without what the keyring has; None when nobody is logged in, or the file cannot be used."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            logger.warning("the tokens of an MCP server cannot be read", {"server": self._server, "error": str(error)})
            return None
        with open(descriptor, "rb") as file:
            data = file.read(MAX_BYTES)
        try:
            tokens = msgspec.json.decode(data, type=OAuthTokens)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            logger.warning("the tokens of an MCP server are not in their form", {"server": self._server})
            return None
        if (tokens.server, tokens.url) != (self._server, self._url):
            return None
        if tokens.key is None or self._known is None or self._known[0] != tokens.key:
            return tokens
        secrets = self._known[1]
        return msgspec.structs.replace(
            tokens,
            access_token=secrets.access_token,
            refresh_token=secrets.refresh_token,
            client=msgspec.structs.replace(tokens.client, secret=secrets.client_secret),
        )

    def load(self) -> OAuthTokens | None:
        """The tokens of `read`, with what is in the keyring, so it may take its time. Raises `OAuthError`."""
        tokens = self.read()
        if tokens is None or not tokens.is_locked:
            return tokens
        key = tokens.key
        found: str | None = use_keyring("give the token", lambda ring: ring.get_password(SERVICE, key))
        if found is None:  # somebody has removed it there, which is a way to log out
            return None
        try:
            self._known = key, msgspec.json.decode(found, type=_Secrets)
        except msgspec.DecodeError:
            raise OAuthError(f"what the keyring has for `{self._server}` is no token") from None
        return self.read()

    def check(self) -> None:
        """Raises `OAuthError` when tokens cannot be written where the settings want them. May take its time."""
        find_keyring(self._store or "file")

    def write(self, tokens: OAuthTokens) -> None:
        """Store them, which may take its time. Raises `OAuthError`."""
        before = self.read()
        store = self._store or ("file" if before is None or before.key is None else "keyring")
        client, key = tokens.client, None
        if find_keyring(store) is not None:
            key = f"{self.path.stem}-{uuid4().hex}"
            secrets = _Secrets(tokens.access_token, tokens.refresh_token, client.secret)
            text = msgspec.json.encode(secrets).decode()
            use_keyring("take the token", lambda ring: ring.set_password(SERVICE, key, text))
            client = msgspec.structs.replace(client, secret=None)
            tokens = msgspec.structs.replace(tokens, access_token="", refresh_token=None, client=client)
            self._known = key, secrets
        self._replace(msgspec.structs.replace(tokens, key=key))
        self._forget(before)

    def want(self, scopes: Sequence[str]) -> None:
        """Note, under the lock, that the next login has to ask for more scopes. Raises `OAuthError`."""
        known, self._known = self._known, None  # else what the keyring has would be in the file
        tokens = self.read()
        if tokens is not None:
            wanted = " ".join(dict.fromkeys([*(tokens.wanted or "").split(), *scopes]))
            self._replace(msgspec.structs.replace(tokens, wanted=wanted))
        self._known = known

    def _replace(self, tokens: OAuthTokens) -> None:
        try:
            make_home(self.path.parent.parent)
            make_home(self.path.parent)
            replace_file(self.path, msgspec.json.format(msgspec.json.encode(tokens), indent=2) + b"\n", PRIVATE)
        except OSError as error:
            raise OAuthError(f"the token cannot be stored in {self.path.parent} ({error.strerror})") from None

    def remove(self) -> bool:
        """Log out; whether anybody was logged in. May take its time. Raises `OAuthError`."""
        before = self.read()
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise OAuthError(f"{self.path} cannot be removed ({error.strerror})") from None
        self._forget(before)
        return True

    def _forget(self, tokens: OAuthTokens | None) -> None:
        """What the keyring has of tokens that the file has no more."""
        if tokens is None or (key := tokens.key) is None:
            return
        try:
            use_keyring("remove the token", lambda ring: ring.delete_password(SERVICE, key))
        except OAuthError as error:
            logger.warning("an old token stays in the keyring", {"server": self._server, "reason": error.message})

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Against the other processes that would renew it, and the other threads of this one. Raises `OAuthError`."""
        import fcntl  # only for who renews

        loop = asyncio.get_running_loop()
        try:
            make_home(self.path.parent)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self.path.with_suffix(".lock"), flags, PRIVATE)
        except OSError as error:
            raise OAuthError(f"{self.path.parent} cannot be written ({error.strerror})") from None
        try:
            end = loop.time() + LOCK_S
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if loop.time() >= end:
                        raise OAuthError(f"another process has been renewing the token for {LOCK_S:.0f} s") from None
                await asyncio.sleep(_LOCK_AGAIN_S)
            yield
        finally:
            os.close(descriptor)


class ServerTokens:
    """A `TokenSource`: the token of a server, as `TokenFile` has it, renewed when it has expired or was refused."""

    def __init__(self, file: TokenFile, http: McpHttp, *, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._http = http
        self._clock = clock
        self._renewing: asyncio.Task[str | None] | None = None

    async def token(self, *, refused: str | None = None) -> str | None:
        """The token to send; None when somebody has to log in. Raises `McpError` when it could not be renewed now."""
        tokens = await self._load()
        if tokens is None or self._usable(tokens, refused):
            return None if tokens is None else tokens.access_token
        if self._renewing is None:
            self._renewing = asyncio.get_running_loop().create_task(self._renewed(refused), name="renewal of a token")
            self._renewing.add_done_callback(self._renewal_ended)
        # A turn that is interrupted must not lose what the server gives only once.
        return await asyncio.shield(self._renewing)

    def _renewal_ended(self, task: asyncio.Task[str | None]) -> None:
        self._renewing = None
        if not task.cancelled():
            task.exception()  # whoever waited has got it

    async def _renewed(self, refused: str | None) -> str | None:
        async with self._file.locked():
            tokens = await self._load()  # somebody may have renewed it, or logged out
            if tokens is None or self._usable(tokens, refused):
                return None if tokens is None else tokens.access_token
            return await self._renew(tokens)

    def _usable(self, tokens: OAuthTokens, refused: str | None) -> bool:
        if tokens.access_token == refused:
            return False
        return tokens.expires_at is None or tokens.expires_at - EARLY_S > self._clock()

    async def _renew(self, tokens: OAuthTokens) -> str | None:
        if tokens.refresh_token is None:
            return None
        form = {"grant_type": "refresh_token", "refresh_token": tokens.refresh_token, "resource": tokens.resource}
        try:
            granted = await ask_for_token(self._http, tokens.token_endpoint, tokens.client, form)
        except McpError as error:
            if not isinstance(error, OAuthError) or not error.refused:
                raise McpError("start", f"the token of `{tokens.server}` cannot be renewed: {error.message}") from None
            logger.warning("a login to an MCP server has ended", {"server": tokens.server, "reason": error.message})
            with suppress(OAuthError):  # what is left is of no use, and would be tried again and again
                await off_loop(self._file.remove)
            return None
        renewed = tokens.renewed(granted, self._clock())
        await off_loop(lambda: self._file.write(renewed))
        return renewed.access_token

    async def _load(self) -> OAuthTokens | None:
        tokens = self._file.read()
        return await off_loop(self._file.load) if tokens is not None and tokens.is_locked else tokens

    async def want(self, scopes: Sequence[str]) -> None:
        """The server wants more scopes than the login has. Raises `OAuthError`."""
        async with self._file.locked():
            self._file.want(scopes)
