"""Cursors of pages: they belong to one list of one thread, and what is not ours is refused."""

from __future__ import annotations

import pytest

from treadle.agent.thread_pages import make_cursor, read_cursor
from treadle.errors import RpcError


def test_a_cursor_comes_back() -> None:
    assert read_cursor(make_cursor("t", "turns", 7), "t", "turns") == 7
    assert read_cursor(None, "t", "turns") is None


@pytest.mark.parametrize(
    "text",
    [
        make_cursor("other", "turns", 7),
        make_cursor("t", "items", 7),
        "",
        "7",
        "{}",
        '{"thread":"t","kind":"turns","after":"7"}',
        '{"thread":"t","kind":"turns","after":7',
        "\ud800",
    ],
)
def test_what_is_no_cursor_of_this_list(text: str) -> None:
    with pytest.raises(RpcError, match="invalid cursor"):
        read_cursor(text, "t", "turns")


def test_a_long_one_is_not_told_back_whole() -> None:
    with pytest.raises(RpcError) as found:
        read_cursor("z" * 10_000, "t", "turns")
    assert len(found.value.message) < 300
