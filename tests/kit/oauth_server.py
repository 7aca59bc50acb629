"""An MCP server that wants a login, and the authorization server beside it, in a thread: it holds clients to the rules
(PKCE, one use of each code and of each refresh token, redirect URI, resource), and its user agrees at once.

`Shape` says how they are. `browse` is what a user does with the address of a login.
"""

from __future__ import annotations

import json
import sys
import threading
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import urlopen

DEADLINE_S = 30


@dataclass
class Shape:
    """How the servers are."""

    resource_metadata: str = "header"  # header, well_known, none
    metadata: str = "rfc8414"  # rfc8414, oidc, none
    issuer_path: str = ""
    registration: bool = True
    client_secret: str | None = None
    client_auth: str = "none"  # none, client_secret_post, client_secret_basic
    scopes: tuple[str, ...] = ("read", "write")
    expires_in: float | None = 3600
    refresh: bool = True
    error: str | None = None  # the user says no
    iss: bool = False
    call_scope: str | None = None  # what it takes to call a tool
    more: dict[str, Any] = field(default_factory=dict)  # members of the metadata


@dataclass
class Asked:
    """A request that came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


class OAuthServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, shape: Shape) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.shape = shape
        self.origin = f"http://127.0.0.1:{self.server_port}"
        self.url = f"{self.origin}/mcp"
        self.issuer = self.origin + shape.issuer_path
        self.asked: list[Asked] = []
        self.codes: dict[str, dict[str, str]] = {}
        self.access: set[str] = set()
        self.scopes: dict[str, str] = {}  # of each token
        self.refreshes: set[str] = set()
        self.stolen: list[str] = []  # refresh tokens that were used a second time
        self.count = 0
        self.lock = threading.Lock()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a client that has enough of an answer
            super().handle_error(request, client_address)

    @property
    def last_access(self) -> str:
        return [token for token in self.scopes if token.startswith("access")][-1]

    def forms(self) -> list[dict[str, str]]:
        """What the token endpoint was sent."""
        return [asked.body for asked in self.asked if asked.path == "/token"]

    def new(self, kind: str) -> str:
        self.count += 1
        return f"{kind}-{self.count}-of-the-mock"

    def revoke(self) -> None:
        """From now on no access token is taken."""
        self.access.clear()


@contextmanager
def oauth_server(**shape: Any) -> Iterator[OAuthServer]:
    server = OAuthServer(Shape(**shape))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join(DEADLINE_S)
        server.server_close()


def browse(url: str) -> tuple[int, str]:
    """Open an address as a browser does: status and page of where it leads."""
    try:
        with urlopen(url, timeout=DEADLINE_S) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


class _Handler(BaseHTTPRequestHandler):
    server: OAuthServer
    protocol_version = "HTTP/1.1"
    timeout = DEADLINE_S

    def log_message(self, format: str, *args: object) -> None:
        return

    def do_GET(self) -> None:
        self._answer(None)

    def do_DELETE(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length", "0")))
        kind = self.headers.get("content-type", "")
        body: Any = json.loads(data) if "json" in kind else {k: v[0] for k, v in parse_qs(data.decode()).items()}
        self._answer(body)

    def _answer(self, body: Any) -> None:
        server, shape = self.server, self.server.shape
        headers = {name.lower(): value for name, value in self.headers.items()}
        path = urlsplit(self.path).path
        with server.lock:
            server.asked.append(Asked(self.command, self.path, headers, body))
            well_known = {
                "/.well-known/oauth-authorization-server" + shape.issuer_path: "rfc8414",
                "/.well-known/openid-configuration" + shape.issuer_path: "oidc",
                shape.issuer_path + "/.well-known/openid-configuration": "oidc",
            }
            if path == "/mcp":
                self._mcp(body)
            elif path.startswith("/.well-known/oauth-protected-resource") and shape.resource_metadata != "none":
                found = {"resource": server.url, "authorization_servers": [server.issuer]}
                self._send(200, {**found, "scopes_supported": list(shape.scopes)})
            elif well_known.get(path) == shape.metadata:
                self._send(200, self._metadata())
            elif path == "/register" and shape.registration:
                self._register(body)
            elif path == "/authorize":
                self._authorize({name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()})
            elif path == "/token":
                self._token(body, headers)
            else:
                self._send(404, {"error": "not_found"})

    def _send(self, status: int, body: Any, **headers: str) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    # --- the MCP server ---

    def _mcp(self, body: Any) -> None:
        server = self.server
        if self.headers.get("authorization", "").removeprefix("Bearer ") not in server.access:
            challenge = 'Bearer error="invalid_token"'
            if server.shape.resource_metadata == "header":
                place = f"{server.origin}/.well-known/oauth-protected-resource/mcp"
                challenge += f', resource_metadata="{place}", scope="read"'
            self._send(401, {"error": "invalid_token"}, www_authenticate=challenge)
        elif (
            (needed := server.shape.call_scope) is not None
            and (body or {}).get("method") == "tools/call"
            and needed not in server.scopes[self.headers["authorization"].removeprefix("Bearer ")].split()
        ):
            challenge = f'Bearer error="insufficient_scope", scope="{needed}"'
            self._send(403, {"error": "insufficient_scope"}, www_authenticate=challenge)
        elif self.command != "POST":
            self._send(405 if self.command == "GET" else 200, None)
        elif "id" not in body:
            self._send(202, None)
        else:
            results: dict[str, Any] = {
                "initialize": {
                    "protocolVersion": body.get("params", {}).get("protocolVersion"),
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "locked", "version": "1"},
                },
                "tools/list": {
                    "tools": [
                        {
                            "name": "hello",
                            "description": "say hello",
                            "inputSchema": {"type": "object", "properties": {}},
                            "annotations": {"readOnlyHint": True},
                        }
                    ]
                },
                "tools/call": {"content": [{"type": "text", "text": "hello via http"}]},
            }
            result = results.get(body["method"], {})
            self._send(200, {"jsonrpc": "2.0", "id": body["id"], "result": result}, mcp_session_id="S1")

    # --- the authorization server ---

    def _metadata(self) -> dict[str, Any]:
        server, shape = self.server, self.server.shape
        return {
            "issuer": server.issuer,
            "authorization_endpoint": f"{server.origin}/authorize?tenant=1",
            "token_endpoint": f"{server.origin}/token",
            **({"registration_endpoint": f"{server.origin}/register"} if shape.registration else {}),
            "scopes_supported": [*shape.scopes, "offline_access"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": shape.iss,
            **shape.more,
        }

    def _register(self, body: dict[str, Any]) -> None:
        shape = self.server.shape
        secret = {} if shape.client_secret is None else {"client_secret": shape.client_secret}
        made = {"client_id": "cid", "token_endpoint_auth_method": shape.client_auth, **secret}
        self._send(201, {**body, **made})

    def _authorize(self, query: dict[str, str]) -> None:
        server, shape = self.server, self.server.shape
        back = {"state": query["state"], **({"iss": server.issuer} if shape.iss else {})}
        if shape.error is not None:
            back |= {"error": shape.error, "error_description": "the user said no"}
        else:
            back["code"] = server.new("code")
            server.codes[back["code"]] = query
        self._send(302, None, location=f"{query['redirect_uri']}?{urlencode(back)}")

    def _token(self, form: dict[str, str], headers: Mapping[str, str]) -> None:
        server, shape = self.server, self.server.shape
        if shape.client_auth == "client_secret_post" and form.get("client_secret") != shape.client_secret:
            return self._send(401, {"error": "invalid_client"})
        if shape.client_auth == "client_secret_basic" and not headers.get("authorization", "").startswith("Basic "):
            return self._send(401, {"error": "invalid_client"})
        if form["grant_type"] == "refresh_token":
            used = form["refresh_token"]
            if used not in server.refreshes:
                server.stolen.append(used)
                return self._send(
                    400, {"error": "invalid_grant", "error_description": "the refresh token is not valid"}
                )
            server.refreshes.discard(used)
            scope = server.scopes[used]
        else:
            asked = server.codes.pop(form["code"], None)
            if asked is None:
                return self._send(400, {"error": "invalid_grant", "error_description": "the code is not valid"})
            digest = urlsafe_b64encode(sha256(form["code_verifier"].encode()).digest()).decode().rstrip("=")
            for name in ("redirect_uri", "client_id", "resource"):
                if form.get(name) != asked.get(name):
                    return self._send(400, {"error": "invalid_grant", "error_description": f"{name} differs"})
            if digest != asked["code_challenge"] or asked["code_challenge_method"] != "S256":
                return self._send(400, {"error": "invalid_grant", "error_description": "PKCE failed"})
            scope = asked.get("scope", "")
        granted: dict[str, Any] = {"access_token": server.new("access"), "token_type": "bearer"}
        server.access.add(granted["access_token"])
        if shape.expires_in is not None:
            granted["expires_in"] = shape.expires_in
        if shape.refresh:
            granted["refresh_token"] = server.new("refresh")
            server.refreshes.add(granted["refresh_token"])
            server.scopes[granted["refresh_token"]] = scope
        server.scopes[granted["access_token"]] = scope
        return self._send(200, granted)
