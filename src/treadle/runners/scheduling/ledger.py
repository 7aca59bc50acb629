"""`Ledger`: the sum of the lines of a journal: the unfinished jobs. Pure: lines in, lines out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import msgspec

from treadle.runners.run_events import ResumeToken
from treadle.runners.scheduling.jobs import Job


class Queued(msgspec.Struct, frozen=True, tag="queued", omit_defaults=True):
    """A job waits. A job that is there already waits again, in its old place.

    Args:
        job: The job.
        after: The id of the job whose session it needs, while that is not known.
        starts: How often it was started before.
    """

    job: Job
    after: str | None = None
    starts: int = 0


class Running(msgspec.Struct, frozen=True, tag="running"):
    """A job is being started."""

    id: str


class Session(msgspec.Struct, frozen=True, tag="session"):
    """The session of a running job became known."""

    id: str
    resume: ResumeToken


class Done(msgspec.Struct, frozen=True, tag="done"):
    """A job has ended, or was taken out."""

    id: str


Line: TypeAlias = Queued | Running | Session | Done

_decoder: Final[msgspec.json.Decoder[Line]] = msgspec.json.Decoder(Line)
_encoder: Final = msgspec.json.Encoder()


def encode(line: Line) -> bytes:
    return _encoder.encode(line) + b"\n"


def decode(data: bytes) -> Line:
    """Raises `msgspec.MsgspecError` or `UnicodeDecodeError` for what is no line."""
    return _decoder.decode(data)


@dataclass(frozen=True, slots=True)
class Entry:
    """A job that is not done.

    Args:
        job: The job. A follow-up's session is in it as soon as it is known.
        after: The id of the job whose session it still needs.
        running: Whether it was started and not heard of since.
        starts: How often it was started.
        session: The session of its run, if that is known.
    """

    job: Job
    after: str | None = None
    running: bool = False
    starts: int = 0
    session: ResumeToken | None = None


class Ledger:
    """Entries by id, in the order in which the jobs came."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> list[Entry]:
        return list(self._entries.values())

    def apply(self, line: Line) -> None:
        """Take a line in. One about a job that is not there says nothing: it may have been damaged."""
        match line:
            case Queued(job, after, starts):
                before = self._entries.get(after) if after is not None else None
                self._entries[job.id] = Entry(job, after, starts=starts)
                if before is not None and before.session is not None:
                    self._resolve(job.id, before.session)
            case Running(id) if id in self._entries:
                entry = self._entries[id]
                self._entries[id] = replace(entry, running=True, starts=entry.starts + 1, session=entry.job.resume)
            case Session(id, session) if id in self._entries:
                self._entries[id] = replace(self._entries[id], session=session)
                for other in [entry.job.id for entry in self._entries.values() if entry.after == id]:
                    self._resolve(other, session)
            case Done(id):
                self._entries.pop(id, None)

    def _resolve(self, id: str, session: ResumeToken) -> None:
        entry = self._entries[id]
        self._entries[id] = replace(entry, after=None, job=msgspec.structs.replace(entry.job, resume=session))

    def lines(self) -> Iterator[Line]:
        """The fewest lines that add up to the same."""
        for entry in self._entries.values():
            yield Queued(entry.job, entry.after, entry.starts - entry.running)
            if entry.running:
                yield Running(entry.job.id)
                if entry.session is not None and entry.session != entry.job.resume:
                    yield Session(entry.job.id, entry.session)
