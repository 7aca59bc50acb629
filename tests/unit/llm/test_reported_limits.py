"""What the headers of responses tell about limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.llm import ReportedLimit, read_limits

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("reset", "seconds"),
    [("1s", 1.0), ("6m0s", 360.0), ("20ms", 0.02), ("1h2m3.5s", 3723.5), ("12", 12.0), ("", 0.0), ("soon", 0.0)],
)
def test_openai(reset: str, seconds: float) -> None:
    headers = {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": reset,
        "x-ratelimit-remaining-tokens": "149984",
    }
    assert read_limits(headers, NOW) == [
        ReportedLimit("x-ratelimit-remaining-requests", "requests", 60, 59, seconds),
        ReportedLimit("x-ratelimit-remaining-tokens", "tokens", 149984, 149984, 0.0),
    ]


@pytest.mark.parametrize(
    ("date", "seconds"), [({}, 20.0), ({"date": "Tue, 14 Nov 2023 22:13:10 GMT"}, 30.0), ({"date": "no date"}, 20.0)]
)
def test_anthropic_dates_are_compared_with_the_clock_of_the_server(date: dict[str, str], seconds: float) -> None:
    headers = {
        "anthropic-ratelimit-input-tokens-limit": "40000",
        "anthropic-ratelimit-input-tokens-remaining": "0",
        "anthropic-ratelimit-input-tokens-reset": "2023-11-14T22:13:40Z",
        **date,
    }
    [reported] = read_limits(headers, NOW)
    assert reported == ReportedLimit("anthropic-ratelimit-input-tokens-remaining", "tokens", 40000, 0, seconds)
    written = {name.replace("input", "output"): value for name, value in headers.items()}
    [reported] = read_limits(written, NOW)
    assert reported == ReportedLimit("anthropic-ratelimit-output-tokens-remaining", "output tokens", 40000, 0, seconds)


NAMES = [
    f"{family}-{unit}-{what}" if family.startswith("a") else f"{family}-{what}-{unit}"
    for family in ("x-ratelimit", "anthropic-ratelimit")
    for unit in ("requests", "tokens", "input-tokens", "output-tokens")
    for what in ("limit", "remaining", "reset")
]


@given(st.dictionaries(st.sampled_from([*NAMES, "date"]), st.text() | st.from_regex(r"[0-9]{1,30}(\.[0-9]+)?[msh]*")))
def test_nonsense_is_not_there(headers: dict[str, str]) -> None:
    for reported in read_limits(headers, NOW):
        assert reported.left >= 0
        assert reported.limit >= 0
        assert reported.full_in_s >= 0
