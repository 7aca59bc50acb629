"""Pages of a real server: what is read, what is refused, and where no request goes."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import zlib
from pathlib import Path
from typing import Any

import pytest

from kit.web_site import Asked, Site, moved, page, silent, site, unused_port
from treadle.http import HttpTarget
from treadle.tools import KnownRobots, WebClient, WebFailure, WebPage, read_address
from treadle.tools.web import pages

pytestmark = pytest.mark.anyio

HOME = frozenset({"127.0.0.1"})


def anywhere(_: HttpTarget) -> bool:
    return True


async def read(url: str, *, private: frozenset[str] = HOME, may_visit: Any = anywhere, **more: Any) -> WebPage:
    async with WebClient(private_hosts=private, **more) as client:
        return await client.page(read_address(url), may_visit)


async def problem(url: str, **more: Any) -> str:
    with pytest.raises(WebFailure) as caught:
        await read(url, **more)
    return caught.value.kind


def resolving(**hosts: list[list[str]]) -> tuple[Any, list[str]]:
    """A lookup with another answer each time, as a hostile name server gives them; and what it was asked."""
    asked: list[str] = []

    async def lookup(host: str, port: int) -> list[str]:
        asked.append(host)
        answers = hosts[host.replace(".", "_")]
        return answers.pop(0) if len(answers) > 1 else answers[0]

    return lookup, asked


# --- what is read -----------------------------------------------------------------------------------------------------


async def test_a_page_with_its_links() -> None:
    with site({"/a": page("<title>T</title><p>grüß <a href=b>b</a>")}) as there:
        found = await read(f"{there.url}/a#part")
        assert (found.title, found.text, found.url) == ("T", f"grüß [b]({there.url}/b)", f"{there.url}/a")
        (asked,) = there.asked
        assert asked[0] == "/a"
        assert {name.lower() for name in asked[1]} == {"host", "user-agent", "accept", "accept-encoding"}


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        ("text/plain", b"<b>as it is</b>", "<b>as it is</b>"),
        ("application/json; charset=utf-8", b'{"a": 1}', '{"a": 1}'),
        ("text/html; charset=utf-8", "<p>grüß".encode("latin-1"), "gr\ufffd\ufffd"),
        ("text/html; charset=latin-1", "<p>grüß".encode("latin-1"), "grüß"),
        ("text/html; charset=nonsense", "<p>grüß".encode(), "grüß"),
        ("", b"<p>x", "x"),
    ],
)
async def test_kinds_of_text(kind: str, body: bytes, text: str) -> None:
    with site({"/a": page(body, kind)}) as there:
        assert (await read(f"{there.url}/a")).text == text


@pytest.mark.parametrize(
    ("kind", "body"),
    [("image/png", b"\x89PNG"), ("application/octet-stream", b"abc"), ("text/html", b"MZ\0\0"), ("text/plain", b"a\0")],
)
async def test_what_is_no_text_is_not_read(kind: str, body: bytes) -> None:
    with site({"/a": page(body, kind)}) as there:
        assert await problem(f"{there.url}/a") == "content"


@pytest.mark.parametrize("status", [204, 401, 404, 500])
async def test_other_statuses(status: int) -> None:
    with site({"/a": lambda asked: asked.send(status, b"")}) as there:
        assert await problem(f"{there.url}/a") == "status"


async def test_compressed_pages() -> None:
    pages_ = {
        "/gzip": page(gzip.compress(b"<p>x"), content_encoding="gzip"),
        "/deflate": page(zlib.compress(b"<p>x"), content_encoding="deflate"),
        "/br": page(b"<p>x", content_encoding="br"),
        "/bad": page(b"<p>x", content_encoding="gzip"),
        "/short": page(gzip.compress(b"<p>x")[:-4], content_encoding="gzip"),
    }
    with site(pages_) as there:
        assert (await read(f"{there.url}/gzip")).text == "x"
        assert (await read(f"{there.url}/deflate")).text == "x"
        for path in ("br", "bad", "short"):
            assert await problem(f"{there.url}/{path}") == "broken"


async def test_a_small_body_that_becomes_a_huge_one_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MAX_BYTES", 1024 * 1024)
    bomb = gzip.compress(b"a" * (200 * 1024 * 1024), 9)
    assert len(bomb) < 300_000
    with site({"/a": page(bomb, "text/plain", content_encoding="gzip")}) as there:
        found = await read(f"{there.url}/a")
        assert found.cut
        assert len(found.text) == 1024 * 1024


async def test_a_body_without_an_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MAX_BYTES", 1024 * 1024)

    def endless(asked: Asked) -> None:
        asked.send_response(200)
        asked.send_header("content-type", "text/plain")
        asked.send_header("connection", "close")
        asked.end_headers()
        while not asked.server.closing.is_set():
            asked.wfile.write(b"x" * 65536)

    with site({"/a": endless}) as there:
        found = await read(f"{there.url}/a")
        assert found.cut
        assert len(found.text) == 1024 * 1024


async def test_a_slow_body_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, all of them never."""
    monkeypatch.setattr(pages, "TOTAL_S", 0.5)

    def slow(asked: Asked) -> None:
        asked.send_response(200)
        asked.send_header("content-type", "text/plain")
        asked.end_headers()
        while not asked.server.closing.wait(0.05):
            asked.wfile.write(b"x")

    with site({"/a": slow}) as there:
        assert await problem(f"{there.url}/a") == "timeout"


async def test_a_server_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "IDLE_S", 0.2)
    with site({"/a": silent}) as there:
        assert await problem(f"{there.url}/a") == "timeout"


async def test_nobody_is_there() -> None:
    assert await problem(f"http://127.0.0.1:{unused_port()}/") == "unreachable"


async def test_an_answer_that_is_no_http() -> None:
    def other(asked: Asked) -> None:
        asked.wfile.write(b"SSH-2.0-x\r\n")

    with site({"/a": other}) as there:
        assert await problem(f"{there.url}/a") == "broken"


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://e.com/", "file:///etc/passwd", "e.com", "", "http://", "http://me@e.com/", "http://me:word@e.com/"),
        *("http://[::1", "http://e.com:99999/", "gopher://e.com", "http://" + "a" * 9000),
    ],
)
async def test_urls_that_are_not_asked(url: str) -> None:
    with pytest.raises(WebFailure) as caught:
        read_address(url)
    assert caught.value.kind == "bad_url"
    assert "word" not in caught.value.message


# --- where no request goes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1", "0x7f000001", "2130706433", "[::1]", "0.0.0.0"])
async def test_this_machine_is_not_asked(host: str) -> None:
    with site({"/a": page("secret")}) as there:
        kind = await problem(f"http://{host}:{there.port}/a", private=frozenset())
        assert kind in ("not_public", "unreachable", "bad_url")
        assert there.asked == []


async def test_a_public_name_with_a_private_address_is_not_asked() -> None:
    with site({"/a": page("secret")}) as there:
        for addresses in (["127.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["::ffff:127.0.0.1"], ["10.0.0.1"]):
            lookup, _ = resolving(evil_example=[addresses])
            kind = await problem(f"http://evil.example:{there.port}/a", private=frozenset(), lookup=lookup)
            assert kind == "not_public"
        assert there.asked == []


async def test_a_name_is_looked_up_once_and_its_checked_address_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that gives a public address to the check, and a private one to whoever asks again."""
    connected: list[str] = []

    async def sock_connect(_: object, __: object, address: tuple[str, int]) -> None:
        connected.append(address[0])
        raise ConnectionRefusedError(111, "refused")

    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_connect", sock_connect)
    lookup, asked = resolving(evil_example=[["93.184.216.34", "93.184.216.35"], ["127.0.0.1"]])
    with site({"/a": page("secret")}) as there:
        kind = await problem(f"http://evil.example:{there.port}/a", private=frozenset(), lookup=lookup)
        assert kind == "unreachable"
        assert there.asked == []
    assert asked == ["evil.example"]
    assert connected == ["93.184.216.34", "93.184.216.35"]


async def test_a_second_connection_is_checked_again() -> None:
    """After a redirect to the same name its addresses are others."""
    lookup, asked = resolving(one_example=[["127.0.0.1"], ["127.0.0.1"]], two_example=[["127.0.0.1"]])
    with site({"/a": lambda asked: asked.send(302, b"", location=f"http://two.example:{there.port}/b")}) as there:
        url = f"http://one.example:{there.port}/a"
        assert await problem(url, private=frozenset({"one.example"}), lookup=lookup) == "not_public"
        assert there.paths == ["/a"]
        assert there.asked[0][1]["Host"] == f"one.example:{there.port}"
        assert asked == ["one.example", "two.example"]


@pytest.mark.parametrize(
    "to",
    ["http://localhost:{port}/b", "http://[::1]:{port}/b", "http://169.254.169.254/latest/meta-data", "//0:{port}/b"],
)
async def test_a_redirect_to_a_private_address_is_not_followed(to: str) -> None:
    with site({"/b": page("secret")}) as there:
        there.pages["/a"] = moved(to.format(port=there.port))
        assert await problem(f"{there.url}/a") in ("not_public", "unreachable")
        assert there.paths == ["/a"]


@pytest.mark.parametrize("to", ["file:///etc/passwd", "javascript:x", "http://me:word@127.0.0.1/"])
async def test_a_redirect_to_what_is_no_page(to: str) -> None:
    with site({"/a": moved(to)}) as there:
        assert await problem(f"{there.url}/a") == "bad_url"


async def test_redirects_are_followed_where_it_may_be_visited() -> None:
    with site({"/a": moved("/b", 301), "/b": moved("c?x=1", 307), "/c": page("<p>there")}) as there:
        assert (await read(f"{there.url}/a")).text == "there"
        assert there.paths == ["/a", "/b", "/c?x=1"]
        there.pages["/b"] = moved(f"http://localhost:{there.port}/c")
        found = await read(f"{there.url}/a", may_visit=lambda target: target.host == "127.0.0.1")
        assert found.moved_to == f"http://localhost:{there.port}/c"
        assert there.paths[3:] == ["/a", "/b"]


async def test_redirects_have_an_end() -> None:
    with site({"/a": moved("/a")}) as there:
        assert await problem(f"{there.url}/a") == "redirects"
        assert len(there.asked) == pages.MAX_REDIRECTS + 1


async def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with site({"/a": page("<p>x")}) as there, site({}) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        assert (await read(f"{there.url}/a")).text == "x"
        assert proxy.asked == []


async def test_cookies_are_not_kept() -> None:
    with site({"/a": lambda asked: asked.send(302, b"", location="/b", set_cookie="a=b"), "/b": page("x")}) as there:
        await read(f"{there.url}/a")
        assert [headers.get("Cookie") for _, headers in there.asked] == [None, None]


# --- robots.txt -------------------------------------------------------------------------------------------------------


def with_robots(there: Site, text: str, status: int = 200) -> None:
    there.pages["/robots.txt"] = lambda asked: asked.send(status, text.encode(), content_type="text/plain")


async def test_robots_are_asked_once_and_heard() -> None:
    with site({"/a": page("<p>a"), "/b": page("<p>b"), "/c": moved("/b")}) as there:
        with_robots(there, "user-agent: *\ndisallow: /b")
        robots = KnownRobots()
        assert (await read(f"{there.url}/a", robots=robots)).text == "a"
        assert await problem(f"{there.url}/b", robots=robots) == "robots"
        assert await problem(f"{there.url}/c", robots=robots) == "robots"
        assert there.paths == ["/robots.txt", "/a", "/c"]


@pytest.mark.parametrize(("status", "allowed"), [(200, False), (404, True), (403, True), (500, False), (503, False)])
async def test_robots_that_are_not_there(status: int, allowed: bool) -> None:
    with site({"/a": page("<p>a")}) as there:
        with_robots(there, "user-agent: *\ndisallow: /", status)
        if allowed:
            assert (await read(f"{there.url}/a", robots=KnownRobots())).text == "a"
        else:
            assert await problem(f"{there.url}/a", robots=KnownRobots()) == "robots"
            assert there.paths == ["/robots.txt"]


async def test_robots_lead_nowhere_that_is_private() -> None:
    with site({"/a": page("<p>a")}) as there, site({}) as other:
        there.pages["/robots.txt"] = moved(f"http://localhost:{other.port}/")
        assert await problem(f"{there.url}/a", robots=KnownRobots()) == "not_public"
        assert other.asked == []


# --- over TLS ---------------------------------------------------------------------------------------------------------

# For 127.0.0.1, localhost and model.invalid, signed by itself.
PEM = Path(__file__).parents[1] / "unit" / "http" / "loopback.pem"


async def test_over_tls_the_certificate_is_that_of_the_name_though_an_address_was_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(PEM))
    named: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PEM)
    context.sni_callback = lambda _, name, __: named.append(name)
    hosts = frozenset({"model.invalid", "other.invalid"})
    lookup, asked = resolving(model_invalid=[["127.0.0.1"], ["169.254.169.254"]], other_invalid=[["127.0.0.1"]])
    with site({"/a": page("<p>x")}, context) as there:
        found = await read(f"https://model.invalid:{there.port}/a", private=hosts, lookup=lookup)
        assert (found.text, asked, named) == ("x", ["model.invalid"], ["model.invalid"])
        with pytest.raises(WebFailure, match="its certificate is not valid"):
            await read(f"https://other.invalid:{there.port}/a", private=hosts, lookup=lookup)
        # Without a yes for the host the address is looked at before anything is sent.
        assert (
            await problem(f"https://other.invalid:{there.port}/a", private=frozenset(), lookup=lookup) == "not_public"
        )
        assert named == ["model.invalid", "other.invalid"]
        assert there.paths == ["/a"]
