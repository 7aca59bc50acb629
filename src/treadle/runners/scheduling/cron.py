"""`Cron`: when something is to happen again and again, as the five fields of crontab. Pure: no clock.

    ┌ minute (0-59)   ┌ hour (0-23)   ┌ day (1-31)   ┌ month (1-12, jan-dec)   ┌ weekday (0-7, sun-sat; 0 and 7: Sunday)
    30                9               *              *                         mon-fri

A field is `*`, a value, a range `a-b`, either of the last two or `*` with a step (`*/15`, `8-18/2`), or a list of
these. When day and weekday are both given, one of the two is enough, as in crontab.

Times are those of a wall clock, which is put forward and back. An expression for every hour follows the real time: it
has none in an hour that is left out, and twice as many in one that comes twice. All others happen once a day as often
as they say: a time that is left out is at the end of the gap, and of one that comes twice the first counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from treadle.errors import ArgumentValueError

_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: Final[Sequence[tuple[str, int, int, Mapping[str, int]]]] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day", 1, 31, {}),
    ("month", 1, 12, dict(zip(_MONTHS, range(1, 13), strict=True))),
    ("weekday", 0, 7, dict(zip(_DAYS, range(7), strict=True))),
)
_NAMED: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
_PART: Final = re.compile(r"(?:\*|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>\d{1,2}))?")
_LONGEST: Final = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
# The 29th of February may be eight years away.
_SEARCH_DAYS: Final = 366 * 8 + 1
_MINUTE: Final = timedelta(minutes=1)


class Cron:
    """An expression, in the time of a zone.

    Args:
        expression: The five fields, or one of `@hourly`, `@daily`, `@weekly`, `@monthly` and `@yearly`.
        zone: The name of a time zone, such as `Europe/Berlin`.

    Raises `ArgumentValueError`, which says which field is wrong and what it may be.
    """

    def __init__(self, expression: str, zone: str = "UTC") -> None:
        fields = _NAMED.get(expression.strip().lower(), expression).split()
        if len(fields) != len(_FIELDS):
            names = ", ".join(name for name, *_ in _FIELDS)
            problem = f"{expression!r} has {len(fields)} fields and not five ({names}), such as '30 9 * * mon-fri'"
            raise ArgumentValueError("cron", problem)
        self._minutes, self._hours, self._days, self._months, weekdays = (
            _values(field, *place) for field, place in zip(fields, _FIELDS, strict=True)
        )
        self._weekdays = {day % 7 for day in weekdays}
        # As in crontab: a field that begins with a star leaves the choice to the other.
        self._either = not fields[2].startswith("*") and not fields[4].startswith("*")
        self._hourly = len(self._hours) == 24
        if not self._either and all(min(self._days) > _LONGEST.get(month, 31) for month in self._months):
            raise ArgumentValueError("cron", f"{expression!r} never comes: no month that it names has that day")
        try:
            self._zone: tzinfo = UTC if zone == "UTC" else ZoneInfo(zone)  # which a machine may have no file for
        except (KeyError, ValueError, OSError):
            problem = f"{zone!r} is no time zone that is known here: name one such as 'Europe/Berlin', or 'UTC'"
            raise ArgumentValueError("zone", problem) from None

    def next(self, after: datetime) -> datetime:
        """The first time after a moment, in UTC.

        Args:
            after: The moment, with its time zone.
        """
        start = after.astimezone(self._zone)
        for days in range(_SEARCH_DAYS):
            day = start.date() + timedelta(days=days)
            by_day, by_weekday = day.day in self._days, day.isoweekday() % 7 in self._weekdays
            if day.month in self._months and (by_day or by_weekday if self._either else by_day and by_weekday):
                for moment in self._moments(day):
                    if moment > after:
                        return moment
        raise AssertionError("every expression that can be made comes in eight years")

    def _moments(self, day: date) -> Iterator[datetime]:
        """The times of a day, in their order."""
        if self._hourly:
            # From one midnight to the next as time passes, whatever the clock shows.
            moment, end = self._moment(day, 0, 0), self._moment(day + timedelta(days=1), 0, 0)
            while moment < end:
                if moment.astimezone(self._zone).minute in self._minutes:
                    yield moment
                moment += _MINUTE
        else:
            for hour in sorted(self._hours):
                yield from (self._moment(day, hour, minute) for minute in sorted(self._minutes))

    def _moment(self, day: date, hour: int, minute: int) -> datetime:
        """When the clock first shows a time; if it never does, the end of the gap."""
        shown = datetime(day.year, day.month, day.day, hour, minute, tzinfo=self._zone)
        moment = shown.astimezone(UTC)
        if moment.astimezone(self._zone).replace(tzinfo=None) == shown.replace(tzinfo=None):
            return moment
        # In a gap, Python gives the time as if the clock had not been put forward: that is behind the gap.
        offset = moment.astimezone(self._zone).utcoffset()
        while (moment - _MINUTE).astimezone(self._zone).utcoffset() == offset:
            moment -= _MINUTE
        return moment


def _values(field: str, name: str, least: int, most: int, names: Mapping[str, int]) -> set[int]:
    found: set[int] = set()
    for part in field.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise _wrong(field, name, least, most)
        first, last, step = match["first"], match["last"], int(match["step"] or 1)
        try:
            begin = least if first is None else names.get(first.lower(), -1) if first.isalpha() else int(first)
            end = most if first is None else begin
            if last is not None:
                end = names.get(last.lower(), -1) if last.isalpha() else int(last)
        except ValueError:
            raise _wrong(field, name, least, most) from None
        if first is not None and last is None and match["step"]:
            end = most  # `5/15` is from 5 on, as in crontab
        if not least <= begin <= end <= most or step < 1:
            raise _wrong(field, name, least, most)
        found.update(range(begin, end + 1, step))
    return found


def _wrong(field: str, name: str, least: int, most: int) -> ArgumentValueError:
    return ArgumentValueError(
        "cron",
        f"the {name} {field!r} is not understood: {least} to {most}, as `*`, `a`, `a-b`, `*/n` or a list of these",
    )
