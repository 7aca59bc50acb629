"""A login to an MCP server, against an authorization server that holds us to the rules."""

from __future__ import annotations

import asyncio
import json
import stat
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from kit.oauth_server import OAuthServer, browse, oauth_server
from treadle.config import McpServerConfig, OAuthTable
from treadle.mcp import (
    McpError,
    McpHttp,
    OAuthError,
    OAuthLogin,
    ServerTokens,
    TokenFile,
    challenge_of,
    discover,
    oauth,
    oauth_keyring,
)

pytestmark = pytest.mark.anyio
DEADLINE_S = 60


@asynccontextmanager
async def login(server: OAuthServer, home: Path, **settings: Any) -> AsyncIterator[tuple[OAuthLogin, TokenFile]]:
    scopes, store = settings.pop("asked_scopes", None), settings.pop("store", None)
    config = McpServerConfig(name="web", url=server.url, **settings)
    file = TokenFile(home, "web", server.url, store)
    made = OAuthLogin(config, file, scopes=scopes)
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield made, file
    finally:
        await made.close()


async def log_in(server: OAuthServer, home: Path, **settings: Any) -> TokenFile:
    async with login(server, home, **settings) as (made, file):
        status, page = await asyncio.to_thread(browse, await made.begin())
        assert (status, "logged in" in page) == (200, True)
        await made.wait()
    return file


@pytest.fixture
async def http() -> AsyncIterator[McpHttp]:
    made = McpHttp()
    yield made
    await made.close()


def query_of(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


# --- logging in -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("resource_metadata", ["header", "well_known", "none"])
@pytest.mark.parametrize("metadata", ["rfc8414", "oidc"])
async def test_a_login_however_the_servers_are_found(
    tmp_path: Path, http: McpHttp, resource_metadata: str, metadata: str
) -> None:
    with oauth_server(resource_metadata=resource_metadata, metadata=metadata) as server:
        file = await log_in(server, tmp_path)
        tokens = file.read()
        assert tokens is not None
        assert {tokens.access_token} == server.access
        assert {tokens.refresh_token} == server.refreshes
        assert (tokens.resource, tokens.client.id) == (server.url, "cid")
        assert await ServerTokens(file, http).token() == tokens.access_token


async def test_the_address_and_the_requests_are_as_the_real_program_makes_them(tmp_path: Path) -> None:
    with oauth_server(resource_metadata="none") as server:
        async with login(server, tmp_path, scopes=("read",)) as (made, _):
            url = await made.begin()
            await asyncio.to_thread(browse, url)
            await made.wait()
        query = query_of(url)
        assert set(query) == {
            *("tenant", "response_type", "client_id", "state", "code_challenge", "code_challenge_method"),
            *("redirect_uri", "scope", "resource"),
        }
        assert (query["scope"], query["resource"], query["code_challenge_method"]) == ("read", server.url, "S256")
        back = urlsplit(query["redirect_uri"])
        assert back.hostname == "127.0.0.1"
        assert back.path.startswith("/callback/")
        (registered,) = [asked.body for asked in server.asked if asked.path == "/register"]
        assert registered == {
            "client_name": "Treadle",
            "redirect_uris": [query["redirect_uri"]],
            "grant_types": ["authorization_code", "refresh_token"],
            "token_endpoint_auth_method": "none",
            "response_types": ["code"],
            "scope": "read",
            "application_type": "native",
        }
        (form,) = server.forms()
        assert set(form) == {"grant_type", "code", "code_verifier", "client_id", "redirect_uri", "resource"}
        assert challenge_of(form["code_verifier"]) == query["code_challenge"]


async def test_an_authorization_server_in_a_folder(tmp_path: Path) -> None:
    for metadata in ("rfc8414", "oidc"):
        with oauth_server(issuer_path="/realms/one", metadata=metadata) as server:
            assert (await log_in(server, tmp_path)).read() is not None


@pytest.mark.parametrize("client_auth", ["none", "client_secret_post", "client_secret_basic"])
async def test_a_client_that_was_given_a_secret_uses_it(tmp_path: Path, http: McpHttp, client_auth: str) -> None:
    with oauth_server(client_secret="shh:secret-value", client_auth=client_auth, expires_in=1) as server:
        file = await log_in(server, tmp_path)
        assert await ServerTokens(file, http).token() in server.access, "renewed, as the same client"
        assert "shh:secret-value" not in repr(file.read())


async def test_a_client_id_of_the_settings_is_registered_with_a_plain_address(tmp_path: Path) -> None:
    with oauth_server(registration=False) as server:
        async with login(server, tmp_path, oauth=OAuthTable(client_id="mine"), oauth_resource="urn:mine") as (made, _):
            query = query_of(await made.begin())
        assert (query["client_id"], query["resource"]) == ("mine", "urn:mine")
        assert urlsplit(query["redirect_uri"]).path == "/callback"


async def test_the_callback_port_of_the_settings_is_used(tmp_path: Path, unused_port: int) -> None:
    with oauth_server() as server:
        async with login(server, tmp_path, oauth=OAuthTable(callback_port=unused_port)) as (made, _):
            assert urlsplit(query_of(await made.begin())["redirect_uri"]).port == unused_port
            async with login(server, tmp_path, oauth=OAuthTable(callback_port=unused_port)) as (other, _):
                with pytest.raises(OAuthError, match=f"port {unused_port}, where the browser comes back"):
                    await other.begin()


@pytest.fixture
def unused_port() -> int:
    from socket import create_server

    with create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "read offline_access"),  # what the server has asked for, and what it takes to stay logged in
        ({"scopes": ("write",)}, "write"),
        ({"scopes": ("write",), "asked_scopes": ["read", "write"]}, "read write"),
        ({"scopes": ()}, None),
    ],
)
async def test_what_a_login_asks_for(tmp_path: Path, settings: dict[str, Any], expected: str | None) -> None:
    with oauth_server() as server:
        async with login(server, tmp_path, **settings) as (made, _):
            assert query_of(await made.begin()).get("scope") == expected


async def test_tokens_are_for_their_user_only_and_for_their_server_only(tmp_path: Path) -> None:
    with oauth_server() as server:
        file = await log_in(server, tmp_path / "home")
        assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700
        assert TokenFile(tmp_path / "home", "web", "http://127.0.0.1:1/mcp").read() is None
        assert TokenFile(tmp_path / "home", "other", server.url).read() is None
        # Nor by another name of the file.
        elsewhere = TokenFile(tmp_path / "home", "web", "http://127.0.0.1:1/mcp")
        elsewhere.path.write_bytes(file.path.read_bytes())
        assert elsewhere.read() is None
        assert server.access.pop() not in repr(file.read())


async def test_logged_out_is_logged_out(tmp_path: Path, http: McpHttp) -> None:
    with oauth_server() as server:
        file = await log_in(server, tmp_path)
        assert file.remove()
        assert not file.remove()
        assert await ServerTokens(file, http).token() is None


# --- scopes -----------------------------------------------------------------------------------------------------------


async def test_the_next_login_asks_for_what_was_lacking_once(tmp_path: Path, http: McpHttp) -> None:
    with oauth_server() as server:
        file = await log_in(server, tmp_path, scopes=("read",))
        await ServerTokens(file, http).want(("write", "read"))
        await ServerTokens(file, http).want(("admin", "write"))
        async with login(server, tmp_path, scopes=("read",)) as (made, _):
            assert query_of(await made.begin())["scope"] == "read write admin"
        async with login(server, tmp_path, asked_scopes=("mine",)) as (made, _):
            assert query_of(await made.begin())["scope"] == "mine"
        async with login(server, tmp_path) as (made, _):
            assert query_of(await made.begin())["scope"] == "read offline_access write admin"
        await log_in(server, tmp_path)
        async with login(server, tmp_path, scopes=("read",)) as (made, _):
            assert query_of(await made.begin())["scope"] == "read"


async def test_scopes_of_a_server_are_read_with_care() -> None:
    challenge = oauth.challenge_parameters('Basic realm="x", Bearer error="insufficient_scope", scope="a \x07b c"')
    assert oauth.scopes_of(challenge) == ("a", "c")
    assert len(oauth.scopes_of({"scope": "x " * 10_000})) == oauth.MAX_SCOPES
    assert oauth.scopes_of({"scope": "x" * 10_000}) == ()


# --- the keyring ------------------------------------------------------------------------------------------------------


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A stand-in for the package `keyring`; what it keeps, by key."""
    kept: dict[str, str] = {}
    made = ModuleType("keyring")
    made.get_password = lambda service, key: kept.get(key)  # type: ignore[attr-defined]
    made.set_password = lambda service, key, text: kept.__setitem__(key, text)  # type: ignore[attr-defined]
    made.delete_password = lambda service, key: kept.__delitem__(key)  # type: ignore[attr-defined]
    made.get_keyring = object  # type: ignore[attr-defined]
    fail = ModuleType("keyring.backends.fail")
    fail.Keyring = type("Keyring", (), {})  # type: ignore[attr-defined]
    for name, module in {"keyring": made, "keyring.backends": ModuleType("b"), fail.__name__: fail}.items():
        monkeypatch.setitem(sys.modules, name, module)
    return kept


@pytest.mark.parametrize("store", ["keyring", "auto"])
async def test_tokens_in_the_keyring_are_not_in_the_file(
    tmp_path: Path, http: McpHttp, ring: dict[str, str], store: str
) -> None:
    with oauth_server(client_secret="the-client-secret", client_auth="client_secret_post") as server:
        await log_in(server, tmp_path, store=store)
        assert len(ring) == 1
        file = TokenFile(tmp_path, "web", server.url)
        for secret in (*server.access, *server.refreshes, "the-client-secret"):
            assert secret not in file.path.read_text()
        [first] = server.access
        source = ServerTokens(file, http)
        assert await source.token() == first
        await source.want(("write",))
        assert first not in file.path.read_text()
        # Renewed by another process than that which has logged in: it stays in the keyring, and the old one goes.
        server.revoke()
        second = await ServerTokens(TokenFile(tmp_path, "web", server.url), http).token(refused=first)
        assert second is not None
        assert second not in file.path.read_text()
        assert len(ring) == 1
        assert await source.token() == second, "which the first notices"
        assert file.remove()
        assert (ring, await source.token()) == ({}, None)


async def test_what_is_removed_from_the_keyring_is_logged_out(
    tmp_path: Path, http: McpHttp, ring: dict[str, str]
) -> None:
    with oauth_server() as server:
        file = await log_in(server, tmp_path, store="keyring")
        ring.clear()
        assert await ServerTokens(TokenFile(tmp_path, "web", server.url), http).token() is None
        await log_in(server, tmp_path, store="file")
        assert server.last_access in file.path.read_text()
        assert ring == {}


async def test_without_the_keyring_nobody_is_sent_to_the_browser(
    tmp_path: Path, http: McpHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    with oauth_server() as server:
        with pytest.raises(OAuthError, match="the package `keyring` is not installed: pip install keyring"):
            await log_in(server, tmp_path, store="keyring")
        assert server.asked == []
        file = await log_in(server, tmp_path, store="auto")
        assert server.last_access in file.path.read_text()


async def test_a_keyring_that_is_locked_says_so(
    tmp_path: Path, http: McpHttp, ring: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with oauth_server() as server:
        await log_in(server, tmp_path, store="keyring")

        def refuse(service: str, key: str) -> str:
            raise RuntimeError("the secret that it will not tell")

        monkeypatch.setattr(sys.modules["keyring"], "get_password", refuse)
        with pytest.raises(McpError, match="could not give the token \\(RuntimeError\\); is it locked") as failed:
            await ServerTokens(TokenFile(tmp_path, "web", server.url), http).token()
        assert "secret that" not in str(failed.value)


async def test_a_keyring_that_never_answers_holds_up_nobody_for_ever(
    tmp_path: Path, http: McpHttp, ring: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with oauth_server() as server:
        await log_in(server, tmp_path, store="keyring")
        asked = threading.Event()
        monkeypatch.setattr(
            sys.modules["keyring"], "get_password", lambda service, key: asked.wait(DEADLINE_S) and None
        )
        monkeypatch.setattr(oauth_keyring, "ACCESS_S", 0.01)
        with pytest.raises(McpError, match="the keyring did not answer"):
            await ServerTokens(TokenFile(tmp_path, "web", server.url), http).token()
        assert "treadle keyring" in {thread.name for thread in threading.enumerate() if thread.daemon}
        asked.set()


# --- logins that fail -------------------------------------------------------------------------------------------------


async def test_a_user_who_says_no(tmp_path: Path) -> None:
    with oauth_server(error="access_denied") as server:
        async with login(server, tmp_path) as (made, file):
            assert "refused" in (await asyncio.to_thread(browse, await made.begin()))[1]
            with pytest.raises(OAuthError, match="access_denied: the user said no"):
                await made.wait()
            assert file.read() is None


async def test_nobody_but_the_right_answer_ends_a_login(tmp_path: Path) -> None:
    with oauth_server() as server:
        async with login(server, tmp_path) as (made, file):
            url = await made.begin()
            query = query_of(url)
            back, state = query["redirect_uri"], query["state"]
            forged = [
                f"{back}?{urlencode({'code': 'theirs', 'state': 'guessed'})}",
                f"{back}?code=theirs",
                f"{back}x?{urlencode({'code': 'theirs', 'state': state})}",
                f"{back.rpartition('/')[0]}?{urlencode({'code': 'theirs', 'state': state})}",
            ]
            statuses = [(await asyncio.to_thread(browse, each))[0] for each in forged]
            assert statuses == [400, 400, 404, 404]
            await _garbage(urlsplit(back).port or 0)
            await asyncio.to_thread(browse, url)
            await made.wait()
            assert file.read() is not None


async def _garbage(port: int) -> None:
    for data in (b"", b"\x00\xff\r\n\r\n", b"GET " + b"/" * 40_000, b"POST / HTTP/1.1\r\n\r\n"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        writer.write_eof()
        await reader.read()
        writer.close()


@pytest.mark.parametrize(("iss", "accepted"), [("right", True), ("wrong", False), ("none", False)])
async def test_an_answer_of_another_authorization_server_is_not_taken(tmp_path: Path, iss: str, accepted: bool) -> None:
    with oauth_server(iss=True) as server:
        async with login(server, tmp_path) as (made, _):
            query = query_of(await made.begin())
            named = {"right": {"iss": server.issuer}, "wrong": {"iss": "https://other.example"}, "none": {}}[iss]
            answer = {"code": "c", "state": query["state"], **named}
            await asyncio.to_thread(browse, f"{query['redirect_uri']}?{urlencode(answer)}")
            # The one that is accepted gets as far as the token endpoint, which does not know this code.
            with pytest.raises(
                OAuthError, match="the code is not valid" if accepted else "another authorization server"
            ):
                await made.wait()
            assert len(server.forms()) == accepted


async def test_a_login_that_nobody_finishes_ends(tmp_path: Path) -> None:
    with oauth_server() as server:
        async with login(server, tmp_path) as (made, _):
            await made.begin()
            with pytest.raises(OAuthError, match="nobody has logged in to `web` within 0 s"):
                await made.wait(0.01)


@pytest.mark.parametrize(
    ("shape", "settings", "message"),
    [
        ({"metadata": "none"}, {}, "offers no login: .* has no metadata of OAuth"),
        (
            {"metadata": "none", "resource_metadata": "none", "registration": False},
            {},
            "offers no login: there is no metadata of OAuth, and .*/register answers with HTTP 404",
        ),
        ({"registration": False}, {}, "register one there and write its id into oauth.client_id"),
        ({"more": {"code_challenge_methods_supported": ["plain"]}}, {}, "does not support PKCE with S256"),
        ({"more": {"issuer": "https://other.example"}}, {}, "says that it is https://other.example"),
        ({"more": {"authorization_endpoint": "file:///etc/passwd"}}, {}, "the authorization endpoint is at"),
        ({"more": {"authorization_endpoint": "javascript:alert(1)"}}, {}, "the authorization endpoint is at"),
        ({"more": {"token_endpoint": "http://192.0.2.1/token"}}, {}, "the token endpoint is at"),
        ({"more": {"registration_endpoint": "ftp://127.0.0.1/x"}}, {}, "the registration endpoint is at"),
        ({"more": {"authorization_endpoint": 5}}, {}, "cannot be used"),
        ({"more": {"padding": "x" * 300_000}}, {}, "is larger than 262144 bytes"),
    ],
)
async def test_servers_that_cannot_be_logged_in_to(
    tmp_path: Path, shape: dict[str, Any], settings: dict[str, Any], message: str
) -> None:
    with oauth_server(**shape) as server:
        async with login(server, tmp_path, **settings) as (made, _):
            with pytest.raises(McpError, match=message):
                await made.begin()


async def test_a_server_that_is_not_there(http: McpHttp, unused_port: int) -> None:
    with pytest.raises(McpError, match="nothing listens there"):
        await discover(http, f"http://127.0.0.1:{unused_port}/mcp")


async def test_a_program_has_no_login(tmp_path: Path) -> None:
    made = OAuthLogin(McpServerConfig(name="p", command="p"), TokenFile(tmp_path, "p", ""))
    with pytest.raises(OAuthError, match="`p` is a program"):
        await made.begin()


@pytest.mark.parametrize(
    ("url", "server", "usable"),
    [
        ("https://auth.example/x", "https://mcp.example/mcp", True),
        ("https://auth.example/x", "http://127.0.0.1:1/mcp", True),
        ("http://localhost:2/x", "http://127.0.0.1:1/mcp", True),
        ("http://mcp.example:8/x", "http://mcp.example/mcp", True),
        ("http://127.0.0.1:2/x", "https://mcp.example/mcp", False),  # a stranger sends us to our own machine
        ("http://127.0.0.1:2/x", "http://mcp.example/mcp", False),
        ("http://auth.example/x", "https://mcp.example/mcp", False),
        ("file:///etc/passwd", "http://127.0.0.1:1/mcp", False),
        ("https://localhost:2/x", "https://mcp.example/mcp", False),
        ("https://localhost:2/x", "http://127.0.0.1:1/mcp", True),
        ("https:///x", "https://mcp.example/mcp", False),
        ("https://auth.example/x y", "https://mcp.example/mcp", False),
        ("https://[bad/x", "https://mcp.example/mcp", False),
        ("", "https://mcp.example/mcp", False),
    ],
)
async def test_addresses_that_a_server_may_name(url: str, server: str, usable: bool) -> None:
    if usable:
        assert oauth._checked(url, server, "it") == url
    else:
        with pytest.raises(OAuthError, match="it is at"):
            oauth._checked(url, server, "it")


@pytest.mark.parametrize(
    ("resource", "usable"),
    [("/mcp", True), ("/mcp/", True), ("", True), ("/other", False), ("/mc", False), ("/mcp/deeper", False)],
)
async def test_metadata_of_another_resource_is_not_taken(resource: str, usable: bool) -> None:
    assert oauth._is_within("https://a.example/mcp", f"https://a.example{resource}") == usable
    assert not oauth._is_within("https://a.example/mcp", f"https://b.example{resource}")


# --- renewing ---------------------------------------------------------------------------------------------------------


async def test_a_token_that_expires_is_renewed_before_it_is_sent(tmp_path: Path, http: McpHttp) -> None:
    now = [0.0]
    with oauth_server(expires_in=3600) as server:
        file = await log_in(server, tmp_path)
        first = file.read()
        assert first is not None
        assert first.expires_at is not None
        tokens = ServerTokens(file, http, clock=lambda: now[0])
        now[0] = first.expires_at - 61
        assert await tokens.token() == first.access_token
        now[0] = first.expires_at - 59
        second = await tokens.token()
        assert second != first.access_token
        assert second in server.access
        form = server.forms()[-1]
        assert form == {
            "grant_type": "refresh_token",
            "refresh_token": first.refresh_token,
            "resource": server.url,
            "client_id": "cid",
        }


async def test_a_token_that_is_refused_is_renewed_once_for_all_who_ask(tmp_path: Path, http: McpHttp) -> None:
    with oauth_server() as server:
        file = await log_in(server, tmp_path)
        old = await ServerTokens(file, http).token()
        server.revoke()
        # Each has its own lock, as each process has.
        sources = [ServerTokens(TokenFile(tmp_path, "web", server.url), http) for _ in range(5)]
        async with asyncio.timeout(DEADLINE_S):
            renewed = await asyncio.gather(*(source.token(refused=old) for source in sources for _ in range(3)))
        assert len(set(renewed)) == 1
        assert set(renewed) == server.access
        assert server.stolen == []
        assert [form["grant_type"] for form in server.forms()] == ["authorization_code", "refresh_token"]


async def test_whoever_is_interrupted_does_not_lose_the_new_token(tmp_path: Path, http: McpHttp) -> None:
    with oauth_server() as server:
        file = await log_in(server, tmp_path)
        source = ServerTokens(file, http)
        old = await source.token()
        asking = asyncio.create_task(source.token(refused=old))
        async with asyncio.timeout(DEADLINE_S):
            while len(server.forms()) < 2:  # the old refresh token is used up then
                await asyncio.sleep(0)
            asking.cancel()
            renewed = await source.token(refused=old)
        assert renewed in server.access
        assert server.stolen == []
        assert len(server.forms()) == 2


async def test_a_login_that_has_ended_there_has_ended_here(tmp_path: Path, http: McpHttp) -> None:
    with oauth_server() as server:
        file = await log_in(server, tmp_path)
        old = await ServerTokens(file, http).token()
        server.revoke()
        server.refreshes.clear()
        assert await ServerTokens(file, http).token(refused=old) is None
        assert file.read() is None


async def test_without_a_refresh_token_somebody_has_to_log_in_again(tmp_path: Path, http: McpHttp) -> None:
    with oauth_server(refresh=False, expires_in=None) as server:
        file = await log_in(server, tmp_path)
        token = await ServerTokens(file, http).token()
        assert token in server.access
        assert await ServerTokens(file, http).token(refused=token) is None


async def test_a_server_that_cannot_renew_now_may_later(tmp_path: Path, http: McpHttp) -> None:
    with oauth_server() as server:
        file = await log_in(server, tmp_path)
        old = await ServerTokens(file, http).token()
    with pytest.raises(McpError, match=r"the token of `web` cannot be renewed: .* nothing listens there"):
        await ServerTokens(file, http).token(refused=old)
    assert file.read() is not None


async def test_a_file_that_cannot_be_used_is_no_login(tmp_path: Path, http: McpHttp) -> None:
    file = TokenFile(tmp_path, "web", "http://127.0.0.1:1/mcp")
    file.path.parent.mkdir()
    for data in (b"", b"{}", b"\xff", json.dumps({"access_token": "x"}).encode()):
        file.path.write_bytes(data)
        assert await ServerTokens(file, http).token() is None
