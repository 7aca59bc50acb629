"""The drawing of tokens per turn."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from treadle.cli.threads.facts import Tokens
from treadle.cli.threads.html.token_chart import MAX_BARS, nice_ceiling, token_chart


def test_no_tokens_no_chart() -> None:
    assert token_chart([]) == ""
    assert token_chart([Tokens(), Tokens()]) == ""


def test_each_turn_has_its_bar_and_says_its_numbers() -> None:
    chart = token_chart([Tokens(1000, 400, 50), Tokens(), Tokens(2000, 0, 1900)])
    root = ElementTree.fromstring(chart)
    titles = [title.text for title in root.iter("title")]
    assert titles == [
        "turn 1: 600 input, 400 cached input, 50 output",
        "turn 2: 0 input, 0 cached input, 0 output",
        "turn 3: 2,000 input, 0 cached input, 1,900 output",
    ]
    first = next(root.iter("g"))
    heights = {rect.get("class"): float(rect.get("height") or 0) for rect in first.iter("rect")}
    assert heights["fresh"] / heights["cached"] == pytest.approx(1.5, rel=0.05)


def test_many_turns_share_bars_and_none_is_lost() -> None:
    chart = token_chart([Tokens(10, 0, 1)] * 10_000)
    root = ElementTree.fromstring(chart)
    titles = [str(title.text) for title in root.iter("title")]
    assert len(titles) <= MAX_BARS
    assert sum(int(re.findall(r"(\d+) output", title.replace(",", ""))[0]) for title in titles) == 10_000
    assert len(chart) < 30_000


@pytest.mark.parametrize(("highest", "top"), [(1, 1), (3, 4), (10, 10), (11, 20), (4_100, 6_000), (99_999, 100_000)])
def test_the_axis_ends_with_a_round_number(highest: int, top: int) -> None:
    assert nice_ceiling(highest) == top
