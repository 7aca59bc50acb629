"""`file:` URIs: the accepted forms, the refused ones with their codes, and the round trip of every possible name."""

from __future__ import annotations

import os
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.errors import INVALID_PARAMS, INVALID_REQUEST, ExecError
from treadle.execution import native_path, path_from_uri, uri_from_path

NAMES = (
    st.binary(min_size=1, max_size=12)
    .filter(lambda name: b"\0" not in name and b"/" not in name)
    .filter(lambda name: name not in (b".", b".."))
)


@given(st.lists(NAMES, max_size=5))
def test_every_path_survives_the_round_trip(names: list[bytes]) -> None:
    path = os.fsdecode(b"/" + b"/".join(names))
    uri = uri_from_path(path)
    assert path_from_uri(uri) == path
    assert uri.isascii()
    assert uri.startswith("file:///")
    assert uri == "file:///" or not uri.endswith("/")


@given(st.text(max_size=40))
def test_any_text_gives_a_path_or_an_exec_error(text: str) -> None:
    for uri in (text, f"file:{text}", f"file:///{text}"):
        try:
            path = path_from_uri(uri)
        except ExecError as error:
            refused: ExecError = error
        else:
            assert path.startswith("/")
            assert path_from_uri(uri_from_path(path)) == path
            continue
        assert refused.code in (INVALID_PARAMS, INVALID_REQUEST)
        assert refused.message.isascii()


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///a/b", "/a/b"),
        ("file:/a/b", "/a/b"),
        ("file://localhost/a", "/a"),
        ("file://LOCALHOST/a", "/a"),
        ("FILE:///a", "/a"),
        ("file:///", "/"),
        ("file://", "/"),
        ("file:", "/"),
        ("file:///a/", "/a"),
        ("file:///a//b", "/a/b"),
        ("file:////a", "/a"),
        ("file:///a/../b", "/b"),
        ("file:///a/%2E%2e/b", "/b"),
        ("file:///a/.%2E/../../b", "/b"),
        ("file:///a/./%2e/b", "/a/b"),
        ("file:///a/b/..", "/a"),
        ("file:///a b", "/a b"),
        ("file:///a%20b%25c", "/a b%c"),
        ("file:///caf%C3%A9", "/café"),
        ("file:///café", "/café"),
        ("file:///%FF%fe/q", "/\udcff\udcfe/q"),
        ("file:///a%2Fb", "/a/b"),
        ("file:///100%/%zz", "/100%/%zz"),
        ("file:///a\\b", "/a/b"),
        ("file:///a/C:/b", "/a/C:/b"),
        ("file:///C%3A/b", "/C:/b"),
    ],
)
def test_accepted(uri: str, path: str) -> None:
    assert path_from_uri(uri) == path


@pytest.mark.parametrize(
    "uri",
    [
        "/a/b",
        "a",
        "",
        "http://x/a",
        "ftp:/a",
        "://a",
        "file:///a?x=1",
        "file:///a#f",
        "file:///a\nb",
        "file:///a ",
        "file:///\ud800",
    ],
)
def test_refused_as_no_path_uri(uri: str) -> None:
    for field in ("path", "cwd"):
        with pytest.raises(ExecError) as caught:
            path_from_uri(uri, field=field)
        assert caught.value.code == INVALID_PARAMS


@pytest.mark.parametrize(
    "uri",
    [
        "file://host/a",
        "file:///C:/a",
        "file:///c|/a",
        "file:///a/../C:/b",
        "file://C:/a",
        "file:///%00/bad/path/L3RtcA",
        "file:///a%00b",
        "file:///a/b%2F..%2F..%2Fc",
        "file:///a/%2F.%2Fc",
    ],
)
def test_refused_on_this_host_with_the_code_of_the_field(uri: str) -> None:
    with pytest.raises(ExecError) as caught:
        path_from_uri(uri)
    assert caught.value.code == INVALID_REQUEST
    with pytest.raises(ExecError) as caught:
        path_from_uri(uri, field="cwd")
    assert caught.value.code == INVALID_PARAMS


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("/", "file:///"),
        ("/a/", "file:///a"),
        ("//a///b", "file:///a/b"),
        ("/a/../b/.", "file:///b"),
        ("/spa ce%é.txt", "file:///spa%20ce%25%C3%A9.txt"),
        ("/a?b#c", "file:///a%3Fb%23c"),
        ("/\udcff", "file:///%FF"),
        ("/C:/x", "file:///C%3A/x"),
    ],
)
def test_canonical_form(path: str, uri: str) -> None:
    assert uri_from_path(path) == uri
    assert uri_from_path(PurePosixPath(path)) == uri


@pytest.mark.parametrize("path", ["a/b", "", ".", "/a\0b", "/\ud800"])
def test_relative_and_impossible_paths_are_refused(path: str) -> None:
    for function in (native_path, uri_from_path):
        with pytest.raises(ExecError) as caught:
            function(path)
        assert caught.value.code == INVALID_PARAMS


def test_a_hostile_uri_is_not_repeated_whole() -> None:
    with pytest.raises(ExecError) as caught:
        path_from_uri("x" * 100_000)
    assert len(caught.value.message) < 1000
