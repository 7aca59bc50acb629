"""A search by SearXNG: what it is asked, and what is read of its answer."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.tools import is_within, read_results, results_text, search_url


@pytest.mark.parametrize(
    ("endpoint", "path"),
    [
        ("http://127.0.0.1:8888", "/search"),
        ("http://127.0.0.1:8888/", "/search"),
        ("https://h/searx/search", "/searx/search"),
        ("https://h/searx/", "/searx"),
    ],
)
def test_where_a_search_is_asked_for(endpoint: str, path: str) -> None:
    url = urlsplit(search_url(endpoint, "a b&format=html#\ud800"))
    assert url.path == path
    assert parse_qs(url.query) == {"q": ["a b&format=html#?"], "format": ["json"]}


def answer(*results: Any) -> bytes:
    return json.dumps({"query": "x", "results": results, "answers": [1]}).encode()


def test_results() -> None:
    body = answer(
        {"url": "https://e.com/1", "title": "One\n\x1b[31m", "content": "first   text", "score": 1.5},
        {"url": "https://e.com/1", "title": "again"},
        {"url": "javascript:alert(1)", "title": "no"},
        {"url": "file:///etc/passwd"},
        {"url": "https://e.com/a b"},
        {"url": None},
        {"url": 7},
        "nothing",
        {"url": "http://other.org/", "title": "x" * 5000, "content": "y" * 5000},
    )
    found = read_results(body, count=10)
    assert found is not None
    assert [result.url for result in found] == ["https://e.com/1", "http://other.org/"]
    assert (found[0].title, found[0].snippet) == ("One [31m", "first text")
    assert len(found[1].title) == 200
    assert len(found[1].snippet) == 600
    assert results_text(found).startswith("1. One [31m\nhttps://e.com/1\nfirst text\n\n2. x")
    assert read_results(body, count=1) == found[:1]
    assert read_results(body, count=10, domains=["com"]) == found[:1]
    assert read_results(body, count=10, domains=["nowhere.org"]) == []


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"results": 1}', b"\xff", b"[" * 100_000])
def test_what_is_no_answer(body: bytes) -> None:
    assert read_results(body, count=10) is None


@given(
    st.binary()
    | st.lists(st.dictionaries(st.sampled_from(["url", "title", "content"]), st.text())).map(
        lambda results: answer(*results)
    )
)
def test_anything_is_read(body: bytes) -> None:
    read_results(body, count=3, domains=["e.com"])


@pytest.mark.parametrize(
    ("host", "domain", "within"),
    [
        ("e.com", "e.com", True),
        ("a.e.com", "e.com", True),
        ("E.com.", "e.COM", True),
        ("a.e.com", ".e.com", True),
        ("ae.com", "e.com", False),
        ("e.com.evil.org", "e.com", False),
        ("e.com", "", False),
        ("e.com", ".", False),
    ],
)
def test_domains(host: str, domain: str, within: bool) -> None:
    assert is_within(host, domain) is within
