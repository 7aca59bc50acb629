"""OAuth 2.1 with an MCP server: who gives tokens for it, and how one is asked for. Without state.

    MCP server ──401, WWW-Authenticate──▶ its metadata (RFC 9728) ──▶ authorization server: metadata (RFC 8414, OIDC)
        ──▶ registration (RFC 7591), unless the settings have a client id ──▶ the browser ──code──▶ token

What a server says of itself is not to be trusted: its addresses are https, or where the server itself is; what is
found at an address must say that it belongs there; and every answer is bounded. Errors do not repeat tokens.
"""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, urlencode, urljoin, urlsplit

import msgspec
from msgspec import Struct

from treadle.llm.provider import shown_url
from treadle.mcp.mcp_http import McpHttp
from treadle.mcp.mcp_messages import PROTOCOL_VERSIONS, McpError

CLIENT_NAME: Final = "Treadle"
REQUEST_S: Final = 20.0
MAX_ANSWER: Final = 256 * 1024
MAX_REDIRECTS: Final = 3
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
MAX_SAID: Final = 300  # of what a server says is wrong
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")  # what a header can carry
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,200}")
MAX_SCOPES: Final = 64
_HELLO: Final = msgspec.json.encode(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": PROTOCOL_VERSIONS[0],
            "capabilities": {},
            "clientInfo": {"name": CLIENT_NAME, "version": "1"},
        },
    }
)
_LIST: Final = b'{"jsonrpc":"2.0","id":2,"method":"tools/list"}'
_CHALLENGE: Final = re.compile(r'([A-Za-z_]+)\s*=\s*(?:"([^"]*)"|([^\s",]+))')

T = TypeVar("T")


class OAuthError(McpError):
    """A login or a renewal did not work; `refused` when the server has said no, so that trying again is of no use."""

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__("authentication", message)
        self.refused = refused


class Fetched(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


# --- requests ---------------------------------------------------------------------------------------------------------


async def _ask(
    http: McpHttp, url: str, *, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> Fetched:
    """A POST of the body, or a GET, which may be redirected within its origin. Raises `McpError`."""
    given = {"accept": "application/json", "user-agent": CLIENT_NAME, **(headers or {})}
    method = "GET" if body is None else "POST"
    try:
        async with asyncio.timeout(REQUEST_S):
            for _ in range(MAX_REDIRECTS):
                async with http.open(method, url, given, body) as response:
                    answer = Fetched(response.status, response.headers, await response.read(MAX_ANSWER))
                target = urljoin(url, answer.headers.get("location", ""))
                if body is not None or answer.status not in _REDIRECTS or _origin(target) != _origin(url):
                    return answer
                url = target
    except TimeoutError:
        raise OAuthError(f"{shown_url(url)} does not answer within {REQUEST_S:.0f} s") from None
    except ValueError:
        raise OAuthError(f"{shown_url(url)} redirects to nowhere") from None
    raise OAuthError(f"{shown_url(url)} redirects too often")


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower()


def _checked(url: str, server_url: str, what: str) -> str:
    """An address that a server has named: https, or where nothing leaves the machine that the user has named."""
    try:
        parts, server = urlsplit(url), urlsplit(server_url)
        usable = parts.scheme == "https" and bool(parts.hostname)
        here, of_here = parts.hostname in _LOOPBACK, server.hostname in _LOOPBACK
        if parts.scheme == "http" and server.scheme == "http":
            usable = parts.hostname == server.hostname or (here and of_here)
        if here and not of_here:  # what listens on this machine is none of its business
            usable = False
    except ValueError:
        usable = False
    if not usable or any(character <= " " for character in url):
        raise OAuthError(f"{what} is at {shown_url(url)!r}, which is no https address")
    return url


def _read(answer: Fetched, type_: type[T], url: str) -> T:
    try:
        return msgspec.json.decode(answer.body, type=type_)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise OAuthError(f"the answer of {shown_url(url)} cannot be used (HTTP {answer.status})") from None


class _Refusal(Struct, frozen=True):
    error: str = ""
    error_description: str = ""


def _refusal(answer: Fetched, url: str, what: str) -> OAuthError:
    try:
        said = msgspec.json.decode(answer.body, type=_Refusal)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        said = _Refusal()
    why = ": ".join(part for part in (said.error, said.error_description) if part) or f"HTTP {answer.status}"
    final = answer.status in (200, 400, 401, 403) and said.error not in ("temporarily_unavailable", "server_error")
    return OAuthError(f"{what} was refused by {shown_url(url)}: {why[:MAX_SAID]}", refused=final)


# --- discovery --------------------------------------------------------------------------------------------------------


class _ResourceMetadata(Struct, frozen=True):
    resource: str = ""
    authorization_servers: tuple[str, ...] = ()
    scopes_supported: tuple[str, ...] = ()


class AuthServer(Struct, frozen=True):
    """The metadata of an authorization server."""

    issuer: str = ""
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    registration_endpoint: str | None = None
    scopes_supported: tuple[str, ...] = ()
    code_challenge_methods_supported: tuple[str, ...] | None = None
    authorization_response_iss_parameter_supported: bool = False


class Found(Struct, frozen=True):
    """The authorization server of an MCP server, the resource that its tokens are for, and the scopes that it takes."""

    server: AuthServer
    resource: str
    scopes: tuple[str, ...] = ()


async def discover(http: McpHttp, server_url: str) -> Found:
    """Ask a server who gives tokens for it. Raises `McpError`."""
    challenge = await _challenge(http, server_url)
    metadata = await _resource_metadata(http, server_url, challenge.get("resource_metadata"))
    if metadata is None or not metadata.authorization_servers:
        # Servers of the protocol before 2025-06-18 give tokens themselves.
        issuer, strict = _origin(server_url), False
    else:
        issuer, strict = metadata.authorization_servers[0], True
    server = await _auth_server(
        http, _checked(issuer, server_url, "the authorization server"), server_url, strict=strict
    )
    scopes = scopes_of(challenge)
    if metadata is not None and not scopes:
        scopes = metadata.scopes_supported
    if scopes and "offline_access" in server.scopes_supported and "offline_access" not in scopes:
        scopes = (*scopes, "offline_access")  # else some give nothing to renew the token with
    if metadata is not None and metadata.resource:
        return Found(server, metadata.resource, scopes)
    # Credentials and keys in the URL are not for the authorization server.
    return Found(server, shown_url(server_url), scopes)


async def _challenge(http: McpHttp, server_url: str) -> dict[str, str]:
    """The parameters of `WWW-Authenticate`, with which a server refuses who is not logged in."""
    headers = {
        "accept": "text/event-stream, application/json",
        "content-type": "application/json",
        "user-agent": CLIENT_NAME,
    }
    try:
        async with asyncio.timeout(REQUEST_S):
            # Some have nothing to GET, and some greet everybody.
            for method, body in (("GET", None), ("POST", _HELLO), ("POST", _LIST)):
                async with http.open(method, server_url, headers, body) as response:
                    challenge = response.headers.get("www-authenticate")  # the body may have no end
                    headers |= {"mcp-session-id": response.headers.get("mcp-session-id", "")} if body == _HELLO else {}
                if challenge is not None:
                    return challenge_parameters(challenge)
    except TimeoutError:
        raise OAuthError(f"{shown_url(server_url)} does not answer within {REQUEST_S:.0f} s") from None
    return {}


def challenge_parameters(challenge: str) -> dict[str, str]:
    """The parameters of `WWW-Authenticate`."""
    return {name.lower(): quoted or plain for name, quoted, plain in reversed(_CHALLENGE.findall(challenge))}


def scopes_of(challenge: Mapping[str, str]) -> tuple[str, ...]:
    """The scopes that a server wants, those of the right form, and not more than anybody can read."""
    return tuple(scope for scope in challenge.get("scope", "").split() if _SCOPE.fullmatch(scope))[:MAX_SCOPES]


async def _resource_metadata(http: McpHttp, server_url: str, named: str | None) -> _ResourceMetadata | None:
    path = urlsplit(server_url).path.rstrip("/")
    well_known = urljoin(server_url, "/.well-known/oauth-protected-resource")
    for url in [named] if named else dict.fromkeys((well_known + path, well_known)):
        answer = await _ask(http, _checked(url, server_url, "the metadata of the server"))
        if answer.status != 200:
            continue
        metadata = _read(answer, _ResourceMetadata, url)
        if metadata.resource and not _is_within(server_url, metadata.resource):
            raise OAuthError(f"the metadata of {shown_url(server_url)} is that of {shown_url(metadata.resource)}")
        return metadata
    return None


def _is_within(url: str, resource: str) -> bool:
    """Whether a token for the resource is one for the URL: the same, or a folder above it."""
    path, folder = urlsplit(url).path.rstrip("/") + "/", urlsplit(resource).path.rstrip("/") + "/"
    return _origin(url) == _origin(resource) and path.startswith(folder)


async def _auth_server(http: McpHttp, issuer: str, server_url: str, *, strict: bool) -> AuthServer:
    origin, path = _origin(issuer), urlsplit(issuer).path.rstrip("/")
    places = [
        f"{origin}/.well-known/oauth-authorization-server{path}",
        f"{origin}/.well-known/openid-configuration{path}",
    ]
    if path:
        places.append(f"{origin}{path}/.well-known/openid-configuration")
    for url in places:
        answer = await _ask(http, url)
        if answer.status != 200:
            continue
        found = _read(answer, AuthServer, url)
        if strict and found.issuer.rstrip("/") != issuer.rstrip("/"):
            raise OAuthError(f"the authorization server {shown_url(issuer)} says that it is {shown_url(found.issuer)}")
        methods = found.code_challenge_methods_supported
        if methods is not None and "S256" not in methods:
            raise OAuthError(f"the authorization server {shown_url(issuer)} does not support PKCE with S256")
        _checked(found.authorization_endpoint, server_url, "the authorization endpoint")
        _checked(found.token_endpoint, server_url, "the token endpoint")
        return found
    if strict:
        raise OAuthError(f"{shown_url(server_url)} offers no login: {shown_url(issuer)} has no metadata of OAuth")
    # Where servers of the protocol before 2025-06-18 have it that describe nothing.
    return AuthServer(
        issuer=issuer,
        authorization_endpoint=f"{issuer}/authorize",
        token_endpoint=f"{issuer}/token",
        registration_endpoint=f"{issuer}/register",
    )


# --- the client, and its tokens ---------------------------------------------------------------------------------------


class OAuthClient(Struct, frozen=True):
    """The client as an authorization server knows it."""

    id: str
    secret: str | None = None
    basic: bool = False
    """Whether the secret is sent as a header, and not in the form."""

    def __repr__(self) -> str:
        return f"OAuthClient(id={self.id!r})"


class _Registered(Struct, frozen=True):
    client_id: str
    client_secret: str | None = None
    token_endpoint_auth_method: str | None = None


async def register(
    http: McpHttp, found: Found, server_url: str, redirect_uri: str, scopes: Sequence[str]
) -> OAuthClient:
    """Ask for a client id. Raises `McpError`."""
    endpoint = found.server.registration_endpoint
    if endpoint is None:
        what = f"the authorization server of {shown_url(server_url)} registers no clients by itself"
        raise OAuthError(f"{what}; register one there and write its id into oauth.client_id of the server")
    wanted: dict[str, Any] = {
        "client_name": CLIENT_NAME,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_method": "none",
        "response_types": ["code"],
        **({"scope": " ".join(scopes)} if scopes else {}),
        "application_type": "native",
    }
    url = _checked(endpoint, server_url, "the registration endpoint")
    answer = await _ask(http, url, body=msgspec.json.encode(wanted), headers={"content-type": "application/json"})
    if answer.status in (404, 405):
        why = f"there is no metadata of OAuth, and {shown_url(url)} answers with HTTP {answer.status}"
        raise OAuthError(f"{shown_url(server_url)} offers no login: {why}")
    if answer.status not in (200, 201):
        raise _refusal(answer, url, "the registration of a client")
    made = _read(answer, _Registered, url)
    return OAuthClient(made.client_id, made.client_secret, made.token_endpoint_auth_method == "client_secret_basic")


def challenge_of(verifier: str) -> str:
    """The code challenge of PKCE, S256."""
    return urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def authorization_url(
    found: Found, client: OAuthClient, *, redirect_uri: str, state: str, verifier: str, scopes: Sequence[str]
) -> str:
    """What the user has to open."""
    query = {
        "response_type": "code",
        "client_id": client.id,
        "state": state,
        "code_challenge": challenge_of(verifier),
        "code_challenge_method": "S256",
        "redirect_uri": redirect_uri,
        **({"scope": " ".join(scopes)} if scopes else {}),
        "resource": found.resource,
    }
    endpoint = found.server.authorization_endpoint
    return f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{urlencode(query)}"


class Granted(Struct, frozen=True):
    """What a token endpoint gives."""

    access_token: str
    token_type: str = "Bearer"
    expires_in: float | None = None
    refresh_token: str | None = None
    scope: str | None = None

    def __repr__(self) -> str:
        return f"Granted(expires_in={self.expires_in!r})"


async def ask_for_token(http: McpHttp, endpoint: str, client: OAuthClient, form: Mapping[str, str]) -> Granted:
    """Send a grant. Raises `OAuthError`, `refused` when the grant is of no use any more."""
    headers = {"content-type": "application/x-www-form-urlencoded"}
    fields = {**form, "client_id": client.id}
    if client.secret is not None and client.basic:
        credentials = f"{quote(client.id, safe='')}:{quote(client.secret, safe='')}"
        headers["authorization"] = "Basic " + b64encode(credentials.encode()).decode()
    elif client.secret is not None:
        fields["client_secret"] = client.secret
    answer = await _ask(http, endpoint, body=urlencode(fields).encode(), headers=headers)
    if answer.status != 200 or b'"access_token"' not in answer.body:  # some say no with 200
        raise _refusal(answer, endpoint, "the token")
    granted = _read(answer, Granted, endpoint)
    if granted.token_type.lower() != "bearer" or not _TOKEN.fullmatch(granted.access_token):
        raise OAuthError(f"the token of {shown_url(endpoint)} is of a kind that cannot be used")
    return granted
