"""A runner that says what the test tells it to, when the test tells it to."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress

from treadle.runners import CompletedEvent, Event, Job, ResumeToken, RunOptions, StartedEvent

ENGINE = "codex"


def token(value: str) -> ResumeToken:
    return ResumeToken(ENGINE, value)


def done(answer: str = "done", *, ok: bool = True, error: str | None = None) -> CompletedEvent:
    return CompletedEvent(ENGINE, ok=ok, answer=answer, error=error)


class ScriptedRun:
    """Events come from a queue that the test fills; an exception in it is raised, None ends the iteration."""

    def __init__(self, prompt: str, resume: ResumeToken | None, options: RunOptions | None) -> None:
        self.prompt = prompt
        self.resume = resume
        self.options = options
        self.script: asyncio.Queue[Event | Exception | None] = asyncio.Queue()
        self.closed = asyncio.Event()
        self._events = self._all()

    def say(self, *events: Event | Exception | None) -> None:
        for event in events:
            self.script.put_nowait(event)

    def start(self, session: str) -> None:
        self.say(StartedEvent(ENGINE, token(session)))

    def finish(self, answer: str = "done") -> None:
        self.say(done(answer))

    async def _all(self) -> AsyncGenerator[Event, None]:
        try:
            while (event := await self.script.get()) is not None:
                if isinstance(event, Exception):
                    raise event
                yield event
        finally:
            self.closed.set()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events

    async def aclose(self) -> None:
        await self._events.aclose()


class PoliteRun(ScriptedRun):
    """Can be asked to stop, and then says how it ended."""

    asked = 0

    def cancel(self) -> None:
        self.asked += 1
        self.say(done(ok=False, error="stopped in order"))


class DeafRun(ScriptedRun):
    """Can be asked to stop, and doesn't."""

    def cancel(self) -> None:
        pass


class StuckRun(ScriptedRun):
    """Does not even end when it is closed, until the test lets it."""

    release: asyncio.Event

    async def _all(self) -> AsyncGenerator[Event, None]:
        self.release = asyncio.Event()
        try:
            yield await self.script.get()  # type: ignore[misc]
        finally:
            while not self.release.is_set():
                with suppress(asyncio.CancelledError):
                    await self.release.wait()


class ScriptedRunner:
    """Runs by their prompts."""

    def __init__(self, kind: type[ScriptedRun] = ScriptedRun) -> None:
        self.kind = kind
        self.runs: dict[str, ScriptedRun] = {}
        self.order: list[str] = []
        self._begun: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def __call__(self, job: Job) -> ScriptedRunner:
        return self

    def run(self, prompt: str, resume: ResumeToken | None = None, *, options: RunOptions | None = None) -> ScriptedRun:
        self.order.append(prompt)
        self.runs[prompt] = self.kind(prompt, resume, options)
        self._begun[prompt].set()
        return self.runs[prompt]

    async def begun(self, prompt: str) -> ScriptedRun:
        """The run with this prompt, when there is one."""
        await self._begun[prompt].wait()
        return self.runs[prompt]
