"""What to do with the jobs that a scheduler left behind: a plan made from the journal. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import msgspec

from treadle.errors import ArgumentValueError
from treadle.runners.run_events import ResumeToken
from treadle.runners.scheduling.jobs import Job, JobHandle
from treadle.runners.scheduling.ledger import Done, Entry, Line, Queued

CONTINUE: Final = "continue"


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A job that was running when its scheduler ended.

    Args:
        job: The job, as it was submitted.
        session: The session of its run, if that had become known.
        starts: How often it has been started. One that ends its scheduler every time is worth a look.
        continued: Whether it goes on. Without a session it cannot; it can be submitted again, if that does no harm.
    """

    job: Job
    session: ResumeToken | None
    starts: int
    continued: bool = False


Choice: TypeAlias = Literal["drop", "continue"]
Policy: TypeAlias = Choice | Callable[[Interrupted], Choice]


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was found in the journal.

    Args:
        queued: The jobs that wait or run again, those that go on among them, in their old order.
        interrupted: The jobs that were running.
        orphaned: Follow-ups of an interrupted job whose session nobody knows; they were dropped.
    """

    queued: list[JobHandle]
    interrupted: list[Interrupted]
    orphaned: list[Job]


@dataclass(slots=True)
class Plan:
    """What to queue (a job, and the id of the one that it follows), what to report, what to write down before."""

    jobs: list[tuple[Job, str | None]] = field(default_factory=list)
    interrupted: list[Interrupted] = field(default_factory=list)
    orphaned: list[Job] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)


def plan_recovery(entries: Sequence[Entry], policy: Policy) -> Plan:
    """Raises `ArgumentValueError` for a choice that there is not."""
    plan = Plan()
    planned: set[str] = set()
    for entry in entries:
        if entry.running:
            job = _interrupted(plan, entry, policy)
        elif entry.after is not None and entry.after not in planned:
            plan.orphaned.append(entry.job)
            job = None
        else:
            job = entry.job
        if job is None:
            plan.lines.append(Done(entry.job.id))
        else:
            plan.jobs.append((job, entry.after))
            planned.add(job.id)
    return plan


def _interrupted(plan: Plan, entry: Entry, policy: Policy) -> Job | None:
    found = Interrupted(entry.job, entry.session, entry.starts)
    choice = policy(found) if callable(policy) else policy
    if choice not in ("drop", "continue"):
        raise ArgumentValueError("interrupted", f'an interrupted job can "drop" or "continue", not {choice!r}')
    if choice == "drop" or entry.session is None:
        plan.interrupted.append(found)
        return None
    plan.interrupted.append(Interrupted(entry.job, entry.session, entry.starts, continued=True))
    job = msgspec.structs.replace(entry.job, prompt=CONTINUE, resume=entry.session)
    plan.lines.append(Queued(job, starts=entry.starts))
    return job
