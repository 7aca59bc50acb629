"""`Repeat`: a job that is run again and again, and `Repeats`, which knows whose time has come. `Rate`: how many jobs a
person may submit, and `PersonRates`, which counts them. Pure: the time is an argument, in seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec

from treadle.arguments import seconds
from treadle.errors import ArgumentValueError
from treadle.runners.scheduling.cron import Cron
from treadle.runners.scheduling.jobs import Job

# So many persons, and those whose jobs do not count any more are looked for.
_MANY_PERSONS: Final = 1000


class Repeat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job that is run whenever its time comes. It is called as the job is.

    Args:
        job: What is run; each time as a job of its own, with the id `ID@2026-11-20T08:30Z`.
        cron: When: five fields, see `Cron`.
        zone: In the time of which zone.
        last: Until when its times have been seen to.
    """

    job: Job
    cron: str
    zone: str = "UTC"
    last: float = 0.0

    @property
    def id(self) -> str:
        """The id of the job."""
        return self.job.id

    @property
    def next_at(self) -> float:
        """When it is run next, in seconds since 1970."""
        return Cron(self.cron, self.zone).next(datetime.fromtimestamp(self.last, UTC)).timestamp()


class Repeats:
    """The repeats that are stored, each with its next time."""

    def __init__(self) -> None:
        self._repeats: dict[str, tuple[Repeat, float]] = {}

    def __len__(self) -> int:
        return len(self._repeats)

    def find(self, id: str) -> Repeat | None:
        return self._repeats[id][0] if id in self._repeats else None

    def all(self) -> list[Repeat]:
        return [repeat for repeat, _ in self._repeats.values()]

    def put(self, repeat: Repeat) -> None:
        """Add one, or replace that of its name. Raises `ArgumentValueError` when it has no next time."""
        self._repeats[repeat.id] = repeat, repeat.next_at

    def remove(self, id: str) -> None:
        del self._repeats[id]

    def next_at(self) -> float | None:
        """When the first of them is to run."""
        return min((at for _, at in self._repeats.values()), default=None)

    def due(self, now: float) -> list[tuple[Repeat, Job]]:
        """The repeats whose time has come, as they are from now on, and the job that each is now. Times that have
        passed meanwhile are one."""
        found = []
        for repeat, at in self._repeats.values():
            if at <= now:
                name = f"{repeat.id}@{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%MZ}"
                seen = msgspec.structs.replace(repeat, last=now)
                found.append((seen, msgspec.structs.replace(repeat.job, id=name)))
        return found


@dataclass(frozen=True, slots=True)
class Rate:
    """How many jobs a person may submit in some time.

    Args:
        jobs: So many.
        per_s: In any so many seconds.
    """

    jobs: int
    per_s: float

    def __post_init__(self) -> None:
        if isinstance(self.jobs, bool) or not isinstance(self.jobs, int) or self.jobs < 1:
            raise ArgumentValueError("jobs", f"jobs must be a number from 1 on, not {self.jobs!r}")
        if not seconds("per_s", self.per_s):
            raise ArgumentValueError("per_s", "per_s must be more than no time")


class PersonRates:
    """Until when each job of a person counts.

    Args:
        rate: The rate, if there is one.
        counted: What counted before: times by person.
    """

    def __init__(self, rate: Rate | None, counted: Mapping[str, Iterable[float]] | None = None) -> None:
        self._rate = rate
        self._until = {person: sorted(times) for person, times in (counted or {}).items()}

    def full_until(self, person: str, now: float) -> float | None:
        """When the person may submit the next job; None when that is now."""
        if self._rate is None:
            return None
        counting = [until for until in self._until.get(person, ()) if until > now]
        return counting[-self._rate.jobs] if len(counting) >= self._rate.jobs else None

    def count(self, person: str, now: float) -> float | None:
        """Count a job; gives until when it counts."""
        if self._rate is None:
            return None
        if len(self._until) > _MANY_PERSONS:
            self._until = {name: times for name, times in self._until.items() if times[-1] > now}
        until = now + self._rate.per_s
        times = [time for time in self._until.get(person, ()) if time > now]
        self._until[person] = [*times, until][-self._rate.jobs :]
        return until
