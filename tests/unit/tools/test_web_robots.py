"""`robots.txt`: what it allows us."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.tools import read_robots

RULES = """
# for everybody
User-agent: *
Disallow: /private
Allow: /private/open
Disallow: /*.pdf$
Disallow: /search*?q=
Disallow:

user-agent: other
user-agent: Treadle/1.0   # us
Disallow: /only-us

User-Agent: another
Disallow: /
"""
ALL = RULES.replace("Treadle", "somebody")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/", True),
        ("/private", False),
        ("/private/x", False),
        ("/privateer", False),
        ("/private/open/x", True),
        ("/a/b.pdf", False),
        ("/a/b.pdf?x", True),
        ("/search/all?q=x", False),
        ("/search/all", True),
        ("/%70rivate", False),
        ("/only-us", True),
    ],
)
def test_rules_for_all(path: str, allowed: bool) -> None:
    assert read_robots(ALL).allow(path) is allowed


def test_rules_for_us_are_the_only_ones() -> None:
    ours = read_robots(RULES)
    assert not ours.allow("/only-us/x")
    assert ours.allow("/private")
    assert read_robots(RULES + "\nuser-agent: treadle\nallow: /only-us/but-this").allow("/only-us/but-this")


@pytest.mark.parametrize("text", ["", "Disallow: /", "User-agent: *\nDisallow:", "<html>not found</html>", "\0"])
def test_no_rules_allow_everything(text: str) -> None:
    assert read_robots(text).allow("/x")


def test_of_two_rules_of_one_length_the_one_that_allows_holds() -> None:
    assert read_robots("user-agent: *\ndisallow: /a\nallow: /a").allow("/a")


@given(st.text(), st.text())
def test_anything_is_read(text: str, path: str) -> None:
    read_robots(text).allow(path)
    read_robots(f"user-agent: *\ndisallow: {text}").allow(path)


def test_a_pattern_of_wildcards_takes_no_time() -> None:
    rules = read_robots("user-agent: *\n" + f"disallow: /{'*a' * 200}b\n" * 50)
    began = time.process_time()
    assert rules.allow("/" + "a" * 5000)
    assert time.process_time() - began < 5
