"""A program with a scheduler, to be killed: commands in and news out are lines of JSON.

    python scheduler_process.py HOME ENGINE

With an engine of `-`, runs are short, happen inside, and write to `HOME/ran` when they begin and to `HOME/ended` when
they end.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

from treadle.runners import (
    CodexRunner,
    CompletedEvent,
    Event,
    Job,
    JobHandle,
    ResumeToken,
    RunOptions,
    Scheduler,
    StartedEvent,
)


def say(**news: object) -> None:
    sys.stdout.write(json.dumps(news) + "\n")
    sys.stdout.flush()


class ShortRuns:
    def __init__(self, home: Path, id: str) -> None:
        self._home = home
        self._id = id

    def _note(self, file: str, text: str) -> None:
        with (self._home / file).open("a") as notes:
            notes.write(text + "\n")

    async def run(
        self, prompt: str, resume: ResumeToken | None = None, *, options: RunOptions | None = None
    ) -> AsyncGenerator[Event, None]:
        self._note("ran", f"{self._id} {prompt}")
        session = resume or ResumeToken("codex", f"session of {prompt}")
        await asyncio.sleep(0.001)
        yield StartedEvent("codex", session)
        await asyncio.sleep(0.001)
        self._note("ended", self._id)
        yield CompletedEvent("codex", ok=True, answer=prompt, resume=session)


def on_event(job: Job, event: Event) -> None:
    if isinstance(event, StartedEvent):
        say(started=job.id, session=event.resume.value)
    if isinstance(event, CompletedEvent):
        say(completed=job.id, ok=event.ok, answer=event.answer, error=event.error)


async def main(home: Path, engine: str) -> None:
    def runner_for(job: Job) -> ShortRuns | CodexRunner:
        return ShortRuns(home, job.id) if engine == "-" else CodexRunner(engine)

    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    handles: dict[str, JobHandle] = {}
    async with Scheduler(runner_for, home=home) as scheduler:
        recovery = await scheduler.recover("continue", on_event)
        say(
            queued=[handle.id for handle in recovery.queued],
            interrupted=[[found.job.id, found.continued] for found in recovery.interrupted],
            orphaned=[job.id for job in recovery.orphaned],
        )
        handles |= {handle.id: handle for handle in recovery.queued}
        while line := await reader.readline():
            id, after = json.loads(line)
            job = Job(engine="codex", prompt=id, id=id)
            handles[id] = await scheduler.submit(job, on_event, after=handles.get(after))
            say(submitted=id)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
