"""`SessionQueues`: which job may run next. One at a time per session, in order of arrival.

Pure: no awaits, no clock, no files. Taking a job and marking it as running is one call, so a job is always either
waiting or running, and a cancellation always knows which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from treadle.errors import TreadleError
from treadle.runners.run_events import ResumeToken
from treadle.runners.scheduling.repeats import Rate

K = TypeVar("K", bound=Hashable)


class QueueFull(TreadleError):
    """A limit is reached: `limit` names it, `size` is its number. `retry_at`, in seconds since 1970, is when there is
    room again, where that is known."""

    def __init__(self, limit: str, size: int, message: str, retry_at: float | None = None) -> None:
        super().__init__(message)
        self.limit = limit
        self.size = size
        self.retry_at = retry_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much a scheduler takes on.

    Args:
        running: Jobs that run at once; each is a process with a model behind it. The others wait.
        queued: Jobs that wait, in all. One more is refused with `QueueFull`.
        depth: Jobs that wait for one session. One more is refused with `QueueFull`.
        rate: Jobs that one person (`Job.person`) may submit in some time. One more is refused with `QueueFull`.
        repeats: Jobs that are repeated. One more is refused with `QueueFull`.
    """

    running: int = 32
    queued: int = 1000
    depth: int = 100
    rate: Rate | None = None
    repeats: int = 100


class QueueStats(NamedTuple):
    """How many jobs run and wait, and over how many sessions those that wait are spread."""

    running: int
    queued: int
    sessions: int


@dataclass(slots=True)
class _QueuedJob(Generic[K]):
    """Where a waiting job stands: for a session, behind a job whose session is not known yet, or for neither."""

    session: ResumeToken | None
    behind: K | None
    ready: bool

    @property
    def line(self) -> ResumeToken | K | None:
        return self.session if self.behind is None else self.behind


class SessionQueues(Generic[K]):
    """Jobs by key. `add`, `confirm`, `take`, `learn`, `finish` is the life of one; `drop` ends it before `take`."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._waiting: dict[K, _QueuedJob[K]] = {}
        # A running job holds the session that it asked for and the one that its engine reported.
        self._running: dict[K, list[ResumeToken]] = {}
        self._held: Counter[ResumeToken] = Counter()

    def __contains__(self, key: K) -> bool:
        return key in self._waiting or key in self._running

    def add(
        self, key: K, *, session: ResumeToken | None = None, after: K | None = None, force: bool = False
    ) -> K | None:
        """Give a job its place in the order; it is not taken before `confirm`.

        With `after`, a job that runs or waits, it belongs to that one's session. Returns the job on whose session it
        still has to wait, if that is not known. Raises `QueueFull`, unless it is forced in.
        """
        behind: K | None = None
        if after in self._running:
            held = self._running[after]
            session, behind = (held[-1], None) if held else (None, after)
        elif after is not None:
            before = self._waiting[after]
            unknown = before.session is None and before.behind is None
            session, behind = (None, after) if unknown else (before.session, before.behind)
        queued: _QueuedJob[K] = _QueuedJob(session, behind, ready=False)
        if not force:
            self._check_room(queued)
        self._waiting[key] = queued
        return queued.behind

    def _check_room(self, queued: _QueuedJob[K]) -> None:
        line = queued.line
        depth = 0 if line is None else sum(other.line == line for other in self._waiting.values())
        if depth >= self._limits.depth:
            raise QueueFull(
                "depth",
                self._limits.depth,
                f"{depth} jobs wait for this session already, and the limit is {self._limits.depth}: "
                "wait for one of them, cancel one, or raise Limits(depth=…)",
            )
        # A job that would pass through the queue without waiting needs no place in it.
        free = len(self._running) + len(self._waiting) < self._limits.running
        runs_at_once = free and (line is None or (isinstance(line, ResumeToken) and line not in self._held))
        if len(self._waiting) >= self._limits.queued and not runs_at_once:
            raise QueueFull(
                "queued",
                self._limits.queued,
                f"{len(self._running)} jobs run and {len(self._waiting)} wait, and the limit is {self._limits.queued}: "
                "wait for one of them, cancel one, or raise Limits(queued=…)",
            )

    def confirm(self, key: K) -> None:
        """The job may be taken when it is its turn. A job that was dropped in the meantime stays dropped."""
        if key in self._waiting:
            self._waiting[key].ready = True

    def take(self) -> K | None:
        """The next job that may run, from now on running; None when nothing may."""
        if len(self._running) >= self._limits.running:
            return None
        passed: set[ResumeToken] = set()
        for key, queued in self._waiting.items():
            session = queued.session
            if queued.behind is not None or (session is not None and (session in self._held or session in passed)):
                continue
            if queued.ready:
                del self._waiting[key]
                self._running[key] = []
                if session is not None:
                    self._hold(key, session)
                return key
            if session is not None:
                # A later job for the same session does not overtake it.
                passed.add(session)
        return None

    def learn(self, key: K, session: ResumeToken) -> list[K]:
        """Note the session of a running job: later jobs for it wait. Returns those that waited for it to be known."""
        if session not in self._running[key]:
            self._hold(key, session)
        followers = [other for other, queued in self._waiting.items() if queued.behind == key]
        for follower in followers:
            queued = self._waiting[follower]
            queued.session, queued.behind = session, None
        return followers

    def _hold(self, key: K, session: ResumeToken) -> None:
        self._running[key].append(session)
        self._held[session] += 1

    def drop(self, key: K) -> list[K] | None:
        """Take a waiting job out. Returns those that went with it (see `finish`), or None when it was not waiting."""
        if self._waiting.pop(key, None) is None:
            return None
        return self._orphans(key)

    def finish(self, key: K) -> list[K]:
        """A running job has ended. Returns the jobs taken out with it: its session, which they need, is not known."""
        for session in self._running.pop(key):
            self._held[session] -= 1
            if not self._held[session]:
                del self._held[session]
        return self._orphans(key)

    def _orphans(self, key: K) -> list[K]:
        orphans = [other for other, queued in self._waiting.items() if queued.behind == key]
        for orphan in orphans:
            del self._waiting[orphan]
        return orphans

    def stats(self) -> QueueStats:
        lines = {queued.line for queued in self._waiting.values() if queued.line is not None}
        return QueueStats(len(self._running), len(self._waiting), len(lines))
