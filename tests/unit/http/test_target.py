"""URLs: what is read here is read as httpx2 reads it, and what is not, by httpx2."""

from __future__ import annotations

import subprocess
import sys

import httpx2
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from treadle.http import BadUrl, HttpTarget, read_url

PIECES = st.sampled_from(
    ["a", "B", "v1", ".", "..", "/", "?", "%41", "%", "ü", " ", "{", "~", "@", ":", "=", "&", "'", "#", "-", "|", "+"]
)
HOSTS = st.sampled_from(
    ["h", "H", "a.b-c.de", "127.0.0.1", "127.1", "1.2.3.4", "1.2.3.999", "[::1]", "müller.de", "xn--mller-kva.de", "9a"]
)
PORTS = st.sampled_from(["", ":", ":1", ":80", ":443", ":8080", ":65535"])


@settings(deadline=None)
@given(st.sampled_from(["http", "https"]), HOSTS, PORTS, st.lists(PIECES).map("".join))
@example("http", "h", ":0080", "/x")
def test_urls_mean_what_they_mean_to_httpx2(scheme: str, host: str, port: str, rest: str) -> None:
    url = f"{scheme}://{host}{port}/{rest}/responses"
    try:
        expected = httpx2.URL(url)
    except httpx2.InvalidURL:
        with pytest.raises(BadUrl):
            read_url(url)
        return
    read = read_url(url)
    assert (read.scheme, read.host, read.port) == (expected.scheme, expected.raw_host.decode(), expected.port)
    assert (read.path, read.authority) == (expected.raw_path, expected.netloc)


def test_parts() -> None:
    assert read_url("HTTP://H:80/") == read_url("http://h/")
    read = read_url("https://us%40er:p%3Aw@[::1]:8443/v1?x=1")
    assert read == HttpTarget("https", "::1", 8443, b"/v1?x=1", "us@er", "p:w")
    assert read.origin == ("https", "::1", 8443)
    assert (read.authority, read.tunnel) == (b"[::1]:8443", b"[::1]:8443")
    assert read.basic == b"Basic dXNAZXI6cDp3"
    assert "p:w" not in repr(read)
    plain = read_url("https://h/")
    assert (plain.authority, plain.tunnel, plain.basic) == (b"h", b"h:443", None)


@pytest.mark.parametrize("url", ["ftp://h/", "h", "", "http://", "http://h:x/", "http://h:99999/", "http://h\n/"])
def test_what_cannot_be_used(url: str) -> None:
    with pytest.raises(BadUrl):
        read_url(url)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:80/v1/responses", "https://api.example.com/v1/responses?api-version=2025-01-01&x=a%20b"],
)
def test_usual_urls_load_nothing(url: str) -> None:
    code = f"import sys; from treadle.http.target import read_url; read_url({url!r})\nsys.exit('httpx2' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
