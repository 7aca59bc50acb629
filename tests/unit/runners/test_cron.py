"""`Cron` against an oracle that looks at every minute, in zones whose clocks are put forward and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.errors import ArgumentValueError
from treadle.runners import Cron

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Asia/Kolkata")
MINUTE = timedelta(minutes=1)
# Around the days on which the clocks of these zones change, and ordinary ones.
DAYS = ("2026-03-08", "2026-03-29", "2026-04-05", "2026-10-04", "2026-10-25", "2026-11-01", "2026-09-06", "2026-02-28")


def numbers(least: int, most: int) -> st.SearchStrategy[frozenset[int]]:
    return st.frozensets(st.integers(least, most), min_size=1, max_size=3)


def written(values: frozenset[int] | None) -> str:
    return "*" if values is None else ",".join(map(str, sorted(values)))


def expected(
    minutes: frozenset[int],
    hours: frozenset[int] | None,
    weekdays: frozenset[int] | None,
    zone: ZoneInfo,
    after: datetime,
) -> datetime | None:
    """The first minute of the next three days, looked for one by one."""

    def wanted(shown: datetime) -> bool:
        day = weekdays is None or shown.isoweekday() % 7 in {number % 7 for number in weekdays}
        return day and shown.minute in minutes and (hours is None or shown.hour in hours)

    moment = after
    for _ in range(3 * 24 * 60):
        moment += MINUTE
        shown, before = moment.astimezone(zone), (moment - MINUTE).astimezone(zone)
        if hours is None:
            if wanted(shown):
                return moment
            continue
        left_out = before.replace(tzinfo=None) + MINUTE
        while left_out < shown.replace(tzinfo=None):  # the clock was put forward
            if wanted(left_out):
                return moment
            left_out += MINUTE
        if wanted(shown) and shown.fold == 0:
            return moment
    return None


@given(
    minutes=numbers(0, 59),
    hours=st.none() | numbers(0, 23) | numbers(0, 3),
    weekdays=st.none() | numbers(0, 7),
    zone=st.sampled_from(ZONES),
    day=st.sampled_from(DAYS),
    offset=st.integers(-26 * 60, 26 * 60),
)
def test_the_next_time_is_that_of_the_oracle(
    minutes: frozenset[int],
    hours: frozenset[int] | None,
    weekdays: frozenset[int] | None,
    zone: str,
    day: str,
    offset: int,
) -> None:
    after = datetime.fromisoformat(f"{day}T00:00+00:00") + offset * MINUTE
    found = Cron(f"{written(minutes)} {written(hours)} * * {written(weekdays)}", zone).next(after)
    wanted = expected(minutes, hours, weekdays, ZoneInfo(zone), after)
    assert found == wanted if wanted is not None else found > after + timedelta(days=3)


@pytest.mark.parametrize(
    ("expression", "zone", "after", "times"),
    [
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", ["2026-03-29T01:00", "2026-03-30T00:30"]),  # at 3:00, once
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", ["2026-10-25T00:30", "2026-10-26T01:30"]),  # the first 2:30
        ("30 * * * *", "Europe/Berlin", "2026-10-25T00:00", ["2026-10-25T00:30", "2026-10-25T01:30"]),  # both
        ("*/30 9-10 * * mon-fri", "UTC", "2026-11-20T10:00", ["2026-11-20T10:30", "2026-11-23T09:00"]),
        ("0 0 13 * FRI", "UTC", "2026-11-12T00:00", ["2026-11-13T00:00", "2026-11-20T00:00"]),  # one is enough
        ("0 0 */2 * fri", "UTC", "2026-11-12T00:00", ["2026-11-13T00:00", "2026-11-27T00:00"]),  # a star: both
        ("50/5 23 31 dec *", "UTC", "2026-01-01T00:00", ["2026-12-31T23:50", "2026-12-31T23:55", "2027-12-31T23:50"]),
        ("0 0 29 2 *", "UTC", "2096-03-01T00:00", ["2104-02-29T00:00"]),
        ("@weekly", "UTC", "2026-11-19T00:00", ["2026-11-22T00:00"]),
    ],
)
def test_times_that_one_would_get_wrong(expression: str, zone: str, after: str, times: list[str]) -> None:
    cron, moment = Cron(expression, zone), datetime.fromisoformat(after).replace(tzinfo=UTC)
    for time in times:
        moment = cron.next(moment)
        assert moment == datetime.fromisoformat(time).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("", "has 0 fields and not five"),
        ("0 9 * *", "has 4 fields and not five"),
        ("60 * * * *", "the minute '60' is not understood: 0 to 59"),
        ("0 24 * * *", "the hour '24'"),
        ("0 0 0 * *", "the day '0'"),
        ("0 0 * 13 *", "the month '13'"),
        ("0 0 * * 8", "the weekday '8'"),
        ("0 0 * * mon-", "the weekday 'mon-'"),
        ("0 0 * * fri-mon", "the weekday 'fri-mon'"),
        ("*/0 * * * *", "the minute '*/0'"),
        ("1,,2 * * * *", "the minute '1,,2'"),
        ("² * * * *", "the minute '²'"),
        ("-1 * * * *", "the minute '-1'"),
        ("@reboot", "has 1 fields"),
        ("0 0 30 2 *", "never comes"),
        ("0 0 31 apr,jun *", "never comes"),
    ],
)
def test_what_is_wrong_with_an_expression_is_said(expression: str, said: str) -> None:
    with pytest.raises(ArgumentValueError) as caught:
        Cron(expression)
    assert said in str(caught.value)


@pytest.mark.parametrize("zone", ["Mars/Base", "", "../etc/passwd", "/etc/passwd"])
def test_a_zone_that_is_not_known_is_refused(zone: str) -> None:
    with pytest.raises(ArgumentValueError, match="is no time zone"):
        Cron("@daily", zone)


@given(st.text(max_size=30))
def test_any_text_is_an_expression_or_an_error(text: str) -> None:
    try:
        Cron(text)
    except ArgumentValueError:
        return
