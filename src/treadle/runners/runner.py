"""`Runner`: an engine that can be run, and `Run`: one run of it.

A runner is an engine with the user's choices (which program, which model, where). `run` holds the session's lock around
`run_impl`, an attribute that can be replaced.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any, Final, Unpack

from treadle.arguments import text as text_argument
from treadle.arguments import texts, wrong_type
from treadle.errors import ArgumentValueError
from treadle.runners.engine import Ending, Engine, RunChoices, RunOptions, RunRequest, find_flag
from treadle.runners.engine_process import CANCELLED, EngineProcess
from treadle.runners.run_events import Action, ActionEvent, CompletedEvent, Event, ResumeToken, StartedEvent
from treadle.runners.session_lock import LockUnusable, SessionLock, SessionState, check_locks

# How often another program is asked whether it is done with the session: first, and at most.
POLL_S: Final = 0.02
MAX_POLL_S: Final = 0.5


class Runner:
    """Runs an engine.

    Args:
        engine: What is run.
        command: The program, or a command line that the engine's own arguments are added to; the engine's own program
            without it.
        extra_args: Words to add to the engine's arguments.
        choices: What can differ from run to run (see `RunOptions`), for all runs that choose nothing else.
    """

    def __init__(
        self,
        engine: Engine[Any],
        command: str | Sequence[str] | None = None,
        extra_args: Sequence[str] = (),
        **choices: Unpack[RunChoices],
    ) -> None:
        if command is None:
            command = engine.program
        self.engine: Engine[Any] = engine
        self.command: list[str] = [command] if isinstance(command, str) else texts("command", command)
        self.extra_args: list[str] = texts("extra_args", extra_args)
        flag = find_flag(self.extra_args, engine.own_flags)
        if flag is not None:
            problem = f"{flag} cannot be added to the arguments of {engine.name}: the runner decides that"
            raise ArgumentValueError("extra_args", problem)
        self.options: RunOptions = RunOptions(**choices)
        self.run_impl: Callable[..., AsyncIterator[Event]] = self._run_process

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.engine.name}: {self.command[0]}>"

    # --- running ---

    def run(self, prompt: str, resume: ResumeToken | None = None, options: RunOptions | None = None) -> Run:
        """Run the engine once. Nothing happens before the first event is asked for.

        Args:
            prompt: What it is to do.
            resume: The session to continue; a new one without it.
            options: What is different in this run.
        """
        text_argument("prompt", prompt)
        if resume is not None and not isinstance(resume, ResumeToken):
            raise wrong_type("resume", "a ResumeToken", resume)
        return Run(self, prompt, resume, options)

    def new_state(self, prompt: str, resume: ResumeToken | None, options: RunOptions | None = None) -> Any:
        """The engine's state for a run, as `build_args` takes it.

        Args:
            prompt: What it is to do.
            resume: The session to continue; a new one without it.
            options: What is different in this run.
        """
        return self.engine.start(self._request(prompt, resume, options))

    def build_args(
        self, prompt: str, resume: ResumeToken | None, *, state: Any, options: RunOptions | None = None
    ) -> list[str]:
        """The command line after the program.

        Args:
            prompt: What it is to do.
            resume: The session to continue; a new one without it.
            state: What `new_state` gave.
            options: What is different in this run.
        """
        if resume is not None and resume.value.startswith("-"):
            raise ArgumentValueError("resume", f"{resume.value!r} is no session: it would be taken for an option")
        return self.engine.arguments(self._request(prompt, resume, options))

    def _run_process(
        self, prompt: str, resume: ResumeToken | None, options: RunOptions | None = None
    ) -> AsyncIterator[Event]:
        request = self._request(prompt, resume, options)
        if resume is not None:
            request = replace(request, carried=SessionState.load(resume).carried)
        return EngineProcess(self.engine, self.command, request)

    def _request(self, prompt: str, resume: ResumeToken | None, options: RunOptions | None) -> RunRequest:
        chosen = (options or RunOptions()).over(self.options)
        cwd = os.path.abspath(os.path.expanduser(chosen.cwd or "."))
        return RunRequest(prompt=prompt, resume=resume, options=chosen, extra_args=self.extra_args, cwd=cwd)

    # --- resume lines ---

    def format_resume(self, token: ResumeToken) -> str:
        """The line that a person types to go on in the engine's own program, in backticks.

        Args:
            token: A session of this engine.
        """
        return self.engine.resume.format(token)

    def extract_resume(self, text: str | None) -> ResumeToken | None:
        """The session of the last such line in a text.

        Args:
            text: A message of a person.
        """
        return self.engine.resume.extract(text)


class Run:
    """One run: an async iterator over its events, the last of which is its `CompletedEvent`.

    A reader that stops in the middle ends the run: the engine is stopped and the session is free again. `aclose` does
    that and waits for it.
    """

    def __init__(self, runner: Runner, prompt: str, resume: ResumeToken | None, options: RunOptions | None) -> None:
        # Not a method of this class: a stream that refers to it would live until the garbage collector comes by.
        self._control = _Control()
        self._stream = _events(runner, prompt, resume, options, self._control)

    def __aiter__(self) -> Run:
        return self

    async def __anext__(self) -> Event:
        return await self._stream.__anext__()

    async def aclose(self) -> None:
        """Stop the engine, and wait until it and all that it started are gone."""
        await self._stream.aclose()

    def cancel(self) -> None:
        """Ask the engine to stop in its own way. The events go on to the `CompletedEvent`, which says so."""
        self._control.cancel()

    @property
    def stderr(self) -> str:
        """The last of what the engine wrote to its standard error, for people: no event has it."""
        return str(getattr(self._control.inner, "stderr", ""))

    @property
    def pid(self) -> int | None:
        """The engine's process; None before it was started, and where there is none."""
        return getattr(self._control.inner, "pid", None)

    @property
    def ending(self) -> Ending | None:
        """How the engine's process ended; None before that, and where there was none."""
        return getattr(self._control.inner, "ending", None)


class _Control:
    """What `Run` and its stream share."""

    def __init__(self) -> None:
        self.inner: AsyncIterator[Event] | None = None
        self.cancelled = False
        self.waiting: asyncio.Timeout | None = None

    def cancel(self) -> None:
        self.cancelled = True
        if self.waiting is not None and not self.waiting.expired():
            self.waiting.reschedule(asyncio.get_running_loop().time())
        else:
            self.cancel_inner()

    def cancel_inner(self) -> None:
        cancel = getattr(self.inner, "cancel", None)
        if cancel is not None:
            cancel()


async def _events(
    runner: Runner, prompt: str, resume: ResumeToken | None, options: RunOptions | None, control: _Control
) -> AsyncGenerator[Event, None]:
    name = runner.engine.name
    if resume is not None and resume.engine != name:
        yield CompletedEvent(name, ok=False, answer="", error=f"{resume} is no session of {name}")
        return
    lock: SessionLock | None = None
    inner: AsyncIterator[Event] | None = None
    try:
        check_locks()
    except LockUnusable as error:
        yield CompletedEvent(name, ok=False, answer="", resume=resume, error=str(error))
        return
    try:
        if resume is not None:
            lock = SessionLock(resume)
            async for event in _acquire(lock, name, resume, control):
                yield event
                if isinstance(event, CompletedEvent):
                    return
        inner = runner.run_impl(prompt, resume) if options is None else runner.run_impl(prompt, resume, options)
        control.inner = inner
        if control.cancelled:
            control.cancel_inner()
        last: CompletedEvent | None = None
        async for event in inner:
            if isinstance(event, CompletedEvent):
                last = event
                break
            if isinstance(event, StartedEvent) and lock is None:
                lock = SessionLock(event.resume)
                async for notice in _acquire(lock, name, event.resume, control):
                    if isinstance(notice, CompletedEvent):
                        last = notice
                        break
                    yield notice
                if last is not None:
                    break
            yield event
    finally:
        try:
            close = getattr(inner, "aclose", None)
            if close is not None:
                await close()
        finally:
            if lock is not None:
                lock.release()
    # Last: whoever reads the end may use the session at once, so the process is gone and the lock released before.
    yield last or CompletedEvent(name, ok=False, answer="", resume=resume, error=f"{name} ended without an answer.")


async def _acquire(lock: SessionLock, name: str, token: ResumeToken, control: _Control) -> AsyncGenerator[Event, None]:
    """Acquire the lock: a note while another program has the session, a `CompletedEvent` when it cannot be had."""
    action = Action(f"{name}.session", "note", "waiting for another program that runs this session")
    waited = False
    delay = POLL_S
    try:
        if control.cancelled:
            raise TimeoutError
        async with asyncio.timeout(None) as control.waiting:
            await lock.queue()
        while not lock.take():
            if not waited:
                waited = True
                yield ActionEvent(name, action, "started")
            async with asyncio.timeout(None) as control.waiting:
                await asyncio.sleep(delay)
            delay = min(delay * 2, MAX_POLL_S)
    except TimeoutError:
        yield CompletedEvent(name, ok=False, answer="", resume=token, error=f"{CANCELLED} before it started")
        return
    except LockUnusable as error:
        yield CompletedEvent(name, ok=False, answer="", resume=token, error=str(error))
        return
    finally:
        control.waiting = None
    if waited:
        yield ActionEvent(name, action, "completed", ok=True)
