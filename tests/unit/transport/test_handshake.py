"""The HTTP part: who is let in, who is turned away and with what answer; and the client's check of the answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.http11 import Request as LibraryRequest
from websockets.http11 import Response as LibraryResponse
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from treadle.errors import ChannelClosed
from treadle.transport import MAX_HEAD, METRICS, AccessControl, BadRequest, Head, Upgrade, split_head

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="  # the example of RFC 6455, section 1.3
UPGRADE = {
    "Host": "h",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": KEY,
    "Sec-WebSocket-Version": "13",
}


def _head(start: str = "GET / HTTP/1.1", **changes: str | None) -> Head:
    """A good upgrade with some headers changed (`_` for `-`), or left out (None)."""
    headers: dict[str, str | None] = {name.lower(): value for name, value in UPGRADE.items()}
    headers.update({name.replace("_", "-"): value for name, value in changes.items()})
    return Head(start, {name: value for name, value in headers.items() if value is not None})


def _status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def _answer(gate: AccessControl, head: Head) -> tuple[int, str]:
    answer = bytes(gate.answer(head))
    top, _, body = answer.partition(b"\r\n\r\n")
    if _status(answer) != 101:
        assert f"content-length: {len(body)}\r\n" in top.decode().lower() + "\r\n"
        assert b"connection: close" in top.lower()
    return _status(answer), body.decode()


# --- heads -----------------------------------------------------------------------------------------------------------


def test_head_and_what_follows_it() -> None:
    split = split_head(b"GET / HTTP/1.1\r\nHost: a\r\nX-Y:  b c \r\nx-y:d\r\n\r\nrest\r\n\r\n")
    assert split is not None
    head, rest = split
    assert head == Head("GET / HTTP/1.1", {"host": "a", "x-y": "b c, d"})
    assert rest == b"rest\r\n\r\n"


@given(st.integers(0, 40))
def test_incomplete_head_waits(cut: int) -> None:
    whole = b"GET / HTTP/1.1\r\nHost: abcdefghijklm\r\n\r\n"
    split = split_head(whole[:cut])
    assert (split is None) is (cut < len(whole))


@pytest.mark.parametrize("line", [b"no colon", b": no name", b" folded: x", b"space : x", b"\tx: y"])
def test_malformed_header_lines_are_refused(line: bytes) -> None:
    with pytest.raises(BadRequest):
        split_head(b"GET / HTTP/1.1\r\n" + line + b"\r\n\r\n")


def test_long_head_is_refused_complete_or_not() -> None:
    start = b"GET / HTTP/1.1\r\nX: "
    fits = start + b"x" * (MAX_HEAD - len(start))
    assert split_head(fits) is None
    assert split_head(fits + b"\r\n\r\n") is not None
    for long in (fits + b"x", fits + b"x\r\n\r\n"):
        with pytest.raises(BadRequest, match="longer than"):
            split_head(long)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_bad_request(data: bytes) -> None:
    for head in (data, b"GET / HTTP/1.1\r\n" + data + b"\r\n\r\n", data + b"\r\n\r\n"):
        try:
            split = split_head(head)
        except BadRequest:
            continue
        if split is not None:
            _answer(AccessControl("secret"), split[0])


# --- the gate --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        _head(),
        _head("GET /?a=b HTTP/1.1"),
        _head(upgrade="WebSocket"),
        _head(connection="keep-alive, Upgrade"),
        _head(sec_websocket_extensions="permessage-deflate"),
        _head(sec_websocket_protocol="chat"),
        _head(authorization="Bearer not-needed"),
    ],
)
def test_upgrade_is_granted(head: Head) -> None:
    split = split_head(bytes(AccessControl().answer(head)))
    assert split is not None
    assert split[0].start == "HTTP/1.1 101 Switching Protocols"
    assert split[0].headers["sec-websocket-accept"] == ACCEPT
    assert not {"sec-websocket-extensions", "sec-websocket-protocol"} & set(split[0].headers)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (_head("POST / HTTP/1.1"), 400),
        (_head("HEAD / HTTP/1.1"), 400),
        (_head(upgrade=None), 400),
        (_head(upgrade="h2c"), 400),
        (_head(connection="close"), 400),
        (_head(sec_websocket_key=None), 400),
        (_head(sec_websocket_version="8"), 400),
        (_head(sec_websocket_version=None), 400),
        (Head("GET / HTTP/1.1", {}), 400),
        (_head("GET /other HTTP/1.1"), 404),
        (_head("GET /healthz HTTP/1.1"), 404),
        (_head("GET // HTTP/1.1"), 404),
        (_head("GET /readyz/ HTTP/1.1"), 404),
        (_head("GET / HTTP/2"), 400),
        (_head("GET /"), 400),
        (_head("GET"), 400),
        (_head(""), 400),
        (_head("\x16\x03\x01"), 400),
    ],
)
def test_anything_else_is_refused(head: Head, status: int) -> None:
    assert _answer(AccessControl(), head)[0] == status


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "", "http://127.0.0.1:1"])
@pytest.mark.parametrize("path", ["/", "/readyz", "/other"])
def test_web_pages_are_refused_everywhere(origin: str, path: str) -> None:
    for gate in (AccessControl(), AccessControl("secret")):
        head = _head(f"GET {path} HTTP/1.1", origin=origin, authorization="Bearer secret")
        assert _answer(gate, head)[0] == 403


@pytest.mark.parametrize(("method", "status"), [("GET", 200), ("HEAD", 200), ("POST", 405), ("get", 405)])
def test_health_needs_no_token(method: str, status: int) -> None:
    code, body = _answer(AccessControl("secret"), Head(f"{method} /readyz?x HTTP/1.1", {}))
    assert code == status
    assert status != 200 or body == ""


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (Head("GET /readyz HTTP/1.1", {}), 503),
        (Head("HEAD /readyz HTTP/1.1", {}), 503),
        (_head(authorization="Bearer secret"), 503),
        (_head(), 401),
        (_head("GET /secret/other HTTP/1.1"), 404),
    ],
)
def test_a_server_that_shuts_down_says_so_to_those_it_would_serve(head: Head, status: int) -> None:
    code, body = _answer(AccessControl("secret", draining=True), head)
    assert code == status
    assert ("shutting down" in body) is (status == 503)


def test_health_paths_are_those_asked_for() -> None:
    gate = AccessControl(health_paths=("/readyz", "/healthz"))
    assert _answer(gate, Head("GET /healthz HTTP/1.1", {}))[0] == 200
    assert _answer(AccessControl(health_paths=()), Head("GET /readyz HTTP/1.1", {}))[0] == 404


def test_metrics_are_for_those_who_may_connect() -> None:
    gate = AccessControl("secret", draining=True)  # and also while the server shuts down
    assert _answer(gate, Head("GET /metrics HTTP/1.1", {}))[0] == 401
    assert _answer(gate, Head("GET /metrics HTTP/1.1", {"authorization": "Bearer wrong"}))[0] == 401
    assert _answer(gate, Head("GET /metrics HTTP/1.1", {"authorization": "Bearer secret", "origin": "x"}))[0] == 403
    for head in (
        Head("GET /metrics HTTP/1.1", {"authorization": "Bearer secret"}),
        Head("GET /secret/metrics HTTP/1.1", {}),
    ):
        assert gate.answer(head) is METRICS
    assert AccessControl().answer(Head("GET /metrics HTTP/1.1", {})) is METRICS
    assert _answer(gate, Head("POST /secret/metrics HTTP/1.1", {}))[0] == 405


@pytest.mark.parametrize("authorization", ["Bearer secret", "bearer secret", "BEARER  secret "])
def test_right_token_is_let_in(authorization: str) -> None:
    assert _answer(AccessControl("secret"), _head(authorization=authorization))[0] == 101


@pytest.mark.parametrize(
    ("authorization", "text"),
    [
        (None, "missing"),
        ("", "missing"),
        ("Bearer", "missing"),
        ("Bearer ", "missing"),
        ("secret", "missing"),
        ("Basic secret", "missing"),
        ("Bearer Secret", "wrong"),
        ("Bearer secre", "wrong"),
        ("Bearer secret, Bearer secret", "wrong"),
        ("Bearer secr\xe9t", "wrong"),
    ],
)
def test_other_tokens_are_not(authorization: str | None, text: str) -> None:
    status, body = _answer(AccessControl("secret"), _head(authorization=authorization))
    assert status == 401
    assert body.startswith(f"{text} token: send it as ")
    assert "secret" not in body
    answer = bytes(AccessControl("secret").answer(_head(authorization=authorization)))
    assert b"www-authenticate: bearer" in answer.lower()


@pytest.mark.parametrize("authorization", [None, "Bearer", "Bearer ", "Bearer \t"])
def test_empty_token_lets_nobody_in(authorization: str | None) -> None:
    assert _answer(AccessControl(""), _head(authorization=authorization))[0] == 401


@pytest.mark.parametrize("path", ["/secret", "/secret/", "/secret?x=1"])
@pytest.mark.parametrize("authorization", [None, "Bearer wrong"])
def test_token_may_be_the_path(path: str, authorization: str | None) -> None:
    for gate in (AccessControl("secret"), AccessControl("secret", any_path=True)):
        assert _answer(gate, _head(f"GET {path} HTTP/1.1", authorization=authorization))[0] == 101


@pytest.mark.parametrize(
    "path", ["/", "//secret", "/secre", "/secret2", "/Secret", "/x/secret", "/?secret", "/s%65cret"]
)
def test_other_paths_are_no_token(path: str) -> None:
    for gate in (AccessControl("secret"), AccessControl("secret", any_path=True)):
        status, body = _answer(gate, _head(f"GET {path} HTTP/1.1"))
        assert status == 401
        assert "secret" not in body


@pytest.mark.parametrize(("any_path", "status"), [(True, 101), (False, 404)])
def test_what_follows_the_token_is_the_path(any_path: bool, status: int) -> None:
    gate = AccessControl("secret", any_path=any_path)
    assert _answer(gate, _head("GET /secret/other HTTP/1.1"))[0] == status
    assert _answer(gate, _head("GET /other HTTP/1.1", authorization="Bearer secret"))[0] == status
    assert _answer(gate, _head("GET /secret/readyz HTTP/1.1"))[0] == 200


def test_without_a_token_a_path_is_a_path() -> None:
    assert _answer(AccessControl(), _head("GET /secret HTTP/1.1"))[0] == 404


# --- the client ------------------------------------------------------------------------------------------------------


def _check(upgrade: Upgrade, response: bytes) -> None:
    split = split_head(response)
    assert split is not None
    upgrade.check(*split)


def test_our_two_halves_agree() -> None:
    for token in (None, "secret"):
        upgrade = Upgrade.new("host:1", "/?q", token)
        split = split_head(upgrade.request())
        assert split is not None
        assert split[1] == b""
        assert split[0].headers["host"] == "host:1"
        _check(upgrade, bytes(AccessControl(token).answer(split[0])))


def test_keys_are_fresh() -> None:
    assert Upgrade.new("h", "/", None).key != Upgrade.new("h", "/", None).key


@pytest.mark.parametrize(
    ("response", "text"),
    [
        (b"HTTP/1.1 401 Unauthorized\r\n\r\nwrong bearer token\n", "HTTP 401 Unauthorized: wrong bearer token"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "HTTP 404 Not Found"),
        (b"HTTP/1.1 200 OK\r\n\r\n\xff", "HTTP 200 OK"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "refused"),
        (b"\r\n\r\n", "refused"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "does not match"),
        (b"HTTP/1.1 101 x\r\nSec-WebSocket-Accept: " + ACCEPT.encode() + b"\r\n\r\n", "does not match"),
    ],
)
def test_anything_but_agreement_is_refused(response: bytes, text: str) -> None:
    with pytest.raises(ChannelClosed, match=text):
        _check(Upgrade.new("h", "/", None), response)


@pytest.mark.parametrize("token", ["", "two words", "line\n", "a\r\nX: y", "é"])
def test_token_that_would_break_the_request_is_refused(token: str) -> None:
    with pytest.raises(ChannelClosed, match="token") as caught:
        Upgrade.new("h", "/", token)
    assert not token or token not in str(caught.value)


# --- against the library ---------------------------------------------------------------------------------------------


def test_library_server_accepts_our_request() -> None:
    upgrade = Upgrade.new("host:1", "/", "secret")
    server = ServerProtocol()
    server.receive_data(upgrade.request())
    [request] = server.events_received()
    assert isinstance(request, LibraryRequest)
    assert request.headers["Authorization"] == "Bearer secret"
    server.send_response(server.accept(request))
    _check(upgrade, b"".join(server.data_to_send()))


def test_library_client_accepts_our_answer() -> None:
    client = ClientProtocol(parse_uri("ws://host:1/"))
    client.send_request(client.connect())
    split = split_head(b"".join(client.data_to_send()))
    assert split is not None
    client.receive_data(bytes(AccessControl().answer(split[0])))
    [response] = client.events_received()
    assert isinstance(response, LibraryResponse)
    assert client.handshake_exc is None
