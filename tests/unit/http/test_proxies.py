"""Proxies of the environment: the same choice as httpx2 makes."""

from __future__ import annotations

import ssl

import httpx2
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from treadle.http import HttpUnusable, read_url, target

VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")

TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # made once, it takes long


def set_only(patch: pytest.MonkeyPatch, settings: dict[str, str]) -> None:
    for name in VARIABLES:
        patch.delenv(name, raising=False)
    for name, value in settings.items():
        patch.setenv(name, value)


def chosen_by_httpx2(url: str) -> str | None:
    """The address of the proxy."""
    client = httpx2.Client(verify=TLS)
    transport = client._transport_for_url(httpx2.URL(url))
    assert isinstance(transport, httpx2.HTTPTransport)
    proxy = getattr(transport._pool, "_proxy_url", None)
    return None if proxy is None else f"{proxy.host.decode()}:{proxy.port}"


def chosen(url: str) -> str | None:
    proxy = target.proxy_for(read_url(url))
    return None if proxy is None else f"{proxy.host}:{proxy.port}"


ENTRIES = st.sampled_from(
    [
        *(
            "example.com",
            ".example.com",
            "*.example.com",
            "EXAMPLE.com",
            "example.com:8080",
            "other.com:1",
            "com",
            "ple.com",
        ),
        *("127.0.0.1", "127.0.0.0/8", "127.0.0.1/32", "10.0.0.0/8", "1.2.3.4/x", "127.0.0.1:8080", "127.0.0.1/"),
        *("::1", "[::1]", "::1/64", "[::1]/128", "[::1]:8080", "fe80::/10", "localhost", "LOCALHOST", "localhost:8080"),
        *("http://example.com", "https://", "all://example.com", "https://example.com:8080", "http://127.0.0.1/x"),
        *("", " ", "a/b", "x y", "*", "example.com:x", "all://*.example.com"),
    ]
)
URLS = st.sampled_from(
    [
        f"{scheme}://{host}{port}/v1"
        for scheme in ("http", "https")
        for host in ("example.com", "www.example.com", "wwwexample.com", "127.0.0.1", "[::1]", "localhost", "müller.de")
        for port in ("", ":80", ":8080")
    ]
)


@settings(deadline=None)
@given(st.lists(ENTRIES, max_size=4), st.sets(st.sampled_from(["http", "https", "all"])), URLS)
@example(["example.com:8080", "http://example.com"], {"all"}, "http://example.com:8080/v1")
def test_the_choice_is_that_of_httpx2(no_proxy: list[str], kinds: set[str], url: str) -> None:
    settings = {f"{kind}_proxy": f"http://{kind}.proxy:3128" for kind in kinds}
    with pytest.MonkeyPatch.context() as patch:
        set_only(patch, {**settings, "no_proxy": ",".join(no_proxy)})
        assert chosen(url) == chosen_by_httpx2(url)


@pytest.mark.parametrize("entry", ["müller.de", ".de", "xn--mller-kva.de"])
def test_names_in_other_scripts(monkeypatch: pytest.MonkeyPatch, entry: str) -> None:
    set_only(monkeypatch, {"all_proxy": "http://proxy", "no_proxy": entry})
    assert chosen("http://müller.de/v1") is None
    assert chosen("http://xn--mller-kva.de/v1") is None
    assert chosen("http://example.com/v1") is not None


def test_a_proxy_may_come_without_a_scheme_and_with_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    set_only(monkeypatch, {"ALL_PROXY": "us%40er:secret@proxy:3128"})
    proxy = target.proxy_for(read_url("https://example.com/"))
    assert proxy is not None
    assert (proxy.scheme, proxy.host, proxy.port, proxy.user, proxy.password) == (
        *("http", "proxy", 3128),
        *("us@er", "secret"),
    )
    assert "secret" not in repr(proxy)


@pytest.mark.parametrize(
    ("proxy", "said"),
    [
        ("socks5://u:secret@proxy:1080", "SOCKS proxy, which is not supported"),
        ("socks5h://proxy", "SOCKS proxy, which is not supported"),
        ("ftp://u:secret@proxy", "is no http or https URL"),
        ("http://u:secret@[::1", "is no http or https URL"),
        ("http://", "is no http or https URL"),
    ],
)
def test_a_proxy_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch, proxy: str, said: str) -> None:
    set_only(monkeypatch, {"https_proxy": proxy})
    with pytest.raises(HttpUnusable, match=said) as caught:
        target.proxy_for(read_url("https://example.com/"))
    assert "secret" not in str(caught.value)
    assert target.proxy_for(read_url("http://example.com/")) is None


def test_without_settings_nothing_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    set_only(monkeypatch, {})
    assert not target.may_be_set()
    set_only(monkeypatch, {"HTTPS_PROXY": "x"})
    assert target.may_be_set()
