"""Addresses: what is accepted, how it reads back, what counts as this machine."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from treadle.transport import Address, AddressError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("ws://127.0.0.1:8765", Address("ws", "127.0.0.1", 8765, "/")),
        ("ws://host", Address("ws", "host", 80, "/")),
        ("ws://host:", Address("ws", "host", 80, "/")),
        ("ws://host:0", Address("ws", "host", 0, "/")),
        ("ws://host:65535/", Address("ws", "host", 65535, "/")),
        ("ws://host:1/a/b?c=d", Address("ws", "host", 1, "/a/b?c=d")),
        ("ws://[::1]:99", Address("ws", "::1", 99, "/")),
        ("ws://[::1]/x", Address("ws", "::1", 80, "/x")),
        ("wss://host", Address("wss", "host", 443, "/")),
        ("wss://host:8443/p", Address("wss", "host", 8443, "/p")),
        ("unix:///run/treadle.sock", Address("unix", path="/run/treadle.sock")),
        ("unix:///with space/and:colon", Address("unix", path="/with space/and:colon")),
        ("stdio://", Address("stdio")),
        ("stdio", Address("stdio")),
    ],
)
def test_parse(text: str, address: Address) -> None:
    assert Address.parse(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host:80",
        "http://host",
        "WS://host",
        "ws",
        "ws:",
        "ws:host",
        "ws://",
        "ws://:80",
        "ws:///path",
        "ws://host:port",
        "ws://host:-1",
        "ws://host:65536",
        "ws://host:999999999999",
        "ws://host:1:2",
        "ws://host:²",
        "ws://host:٣",
        "ws://host?x=1",
        "ws://::1:80",
        "ws://[::1",
        "ws://[::1]80",
        "ws://[::1]x:80",
        "ws://[]:80",
        "ws://host/a b",
        "ws://host/\r\nX-Evil: 1",
        "ws://ho\nst:80",
        "unix://relative/path",
        "unix:/path",
        "unix://",
        "stdio://x",
        "stdio:///dev/tty",
    ],
)
def test_refused(text: str) -> None:
    with pytest.raises(AddressError):
        Address.parse(text)


def test_password_is_refused_and_not_repeated() -> None:
    with pytest.raises(AddressError) as caught:
        Address.parse("ws://me:hunter2@host:80")
    assert "hunter2" not in str(caught.value)


@given(st.text())
@example("ws://" + "9" * 5000)
@example("ws://h:" + "9" * 5000)
@example("ws://[")
@example("[?]")
def test_no_text_raises_anything_else(text: str) -> None:
    for candidate in (text, f"ws://{text}", f"unix://{text}", f"ws://h:{text}"):
        try:
            address = Address.parse(candidate)
        except AddressError:
            continue
        assert Address.parse(address.url) == address


@pytest.mark.parametrize(
    ("text", "loopback"),
    [
        ("ws://127.0.0.1:1", True),
        ("ws://127.9.9.9:1", True),
        ("ws://localhost:1", True),
        ("ws://[::1]:1", True),
        ("unix:///x", True),
        ("stdio://", True),
        ("ws://0.0.0.0:1", False),
        ("ws://[::]:1", False),
        ("ws://10.0.0.1:1", False),
        ("ws://example.org:1", False),
        ("ws://127.1:1", False),
        ("ws://localhost.example.org:1", False),
    ],
)
def test_is_loopback(text: str, loopback: bool) -> None:
    assert Address.parse(text).is_loopback is loopback


@pytest.mark.parametrize(
    ("text", "url", "authority"),
    [
        ("ws://host:1", "ws://host:1", "host:1"),
        ("ws://[::1]:1/", "ws://[::1]:1", "[::1]:1"),
        ("wss://host/p", "wss://host:443/p", "host:443"),
    ],
)
def test_text_of_an_address(text: str, url: str, authority: str) -> None:
    address = Address.parse(text)
    assert address.url == url
    assert address.authority == authority


@pytest.mark.parametrize(
    "text", ["ws://host:1/hunter2", "wss://host/hunter2/x", "ws://host:1/?hunter2", "ws://[::1]:1/hunter2#hunter2"]
)
def test_what_may_be_a_secret_is_not_shown(text: str) -> None:
    address = Address.parse(text)
    assert "hunter2" in address.url
    for said in (str(address), repr(address), f"{address}"):
        assert "hunter2" not in said
        assert "host" in said or "[::1]:1" in said


@pytest.mark.parametrize(
    "text",
    [
        "http://host/hunter2",
        "host:1/hunter2",
        "ws://host:99999/hunter2",
        "ws://host/hunter2 ",
        "ws://host?hunter2",
        "ws://host#hunter2",
        "ws:///hunter2",
        "WS://host/hunter2",
    ],
)
def test_what_may_be_a_secret_is_not_shown_when_the_address_is_wrong(text: str) -> None:
    with pytest.raises(AddressError) as caught:
        Address.parse(text)
    assert "hunter2" not in str(caught.value)
