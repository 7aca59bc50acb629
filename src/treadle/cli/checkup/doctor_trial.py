"""`Trial`: runs engines against a mock model, in a home of their own.

It owns the environment: a model server on 127.0.0.1, a temporary folder, and environment variables that have nothing of
the user's but the PATH, so that neither a login nor the network is used.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from treadle.cli.checkup.check import Check
from treadle.cli.run.run_failure import failure_reason, stderr_lines
from treadle.runners.engine import Timeouts
from treadle.runners.engine_registry import find_engine
from treadle.runners.run_events import CompletedEvent
from treadle.runners.runner import Runner
from treadle.runners.status import EngineStatus, engine_statuses
from treadle.secrets import secrets_in
from treadle.testing import EngineHome, EngineModel
from treadle.testing.engines.engine_home import ENGINES, EngineName

PROMPT: Final = "treadle doctor"
ANSWER: Final = f"pong: {PROMPT}"
# opencode takes ten seconds when the machine is busy with others.
TRIAL_S: Final = 120.0


@contextmanager
def trial_environment() -> Iterator[Trial]:
    """The environment for trying out engines. What the runners keep goes into its temporary folder too."""
    with tempfile.TemporaryDirectory(prefix="treadle-doctor-", ignore_cleanup_errors=True) as folder:
        before = os.environ.get("TREADLE_HOME")
        os.environ["TREADLE_HOME"] = str(Path(folder) / "runs")
        try:
            with EngineModel() as model:
                yield Trial(EngineHome(folder, model))
        finally:
            if before is None:
                del os.environ["TREADLE_HOME"]
            else:
                os.environ["TREADLE_HOME"] = before


class Trial:
    """Tries out engines."""

    def __init__(self, home: EngineHome) -> None:
        self._home = home

    async def checks(self, status: EngineStatus) -> AsyncIterator[Check]:
        """One after the other, the last of them slow.

        Args:
            status: What was seen of the engine from outside.
        """
        if not status.installed:
            yield _missing(status)
            return
        yield Check("part of Treadle" if status.name == "treadle" else f"found {status.path}")
        yield await self._version(status)
        yield _login(status)
        if status.name not in ENGINES:
            yield Check("no round trip: nobody knows how to lead it to a mock model", "skipped")
        else:
            yield await self._round_trip(status.name, status)

    async def _version(self, status: EngineStatus) -> Check:
        everything = {name: value for engine in ENGINES for name, value in self._home.env(engine).items()}
        began = time.monotonic()
        [asked] = await engine_statuses([status.name], ask_in=everything)
        seconds = time.monotonic() - began
        if asked.problem is not None:
            return Check(
                asked.problem, "warning", f"if it does not work, install it anew: {status.install}", seconds=seconds
            )
        if asked.outdated:
            what = f"version {asked.version} is older than {asked.tested}, which Treadle is tested with"
            return Check(what, "warning", f"to update: {status.install}", seconds=seconds)
        return Check(f"version {asked.version}", seconds=seconds)

    async def _round_trip(self, name: EngineName, status: EngineStatus) -> Check:
        engine = find_engine(name)
        runner = Runner(
            replace(engine, drop_env=tuple(os.environ)),
            [sys.executable, "-m", "treadle"] if name == "treadle" else status.path,
            env=self._home.env(name),
            cwd=self._home.project,
            timeouts=Timeouts(total=TRIAL_S, idle=TRIAL_S),
        )
        began = time.monotonic()
        run = runner.run(PROMPT)
        completed: CompletedEvent | None = None
        async with aclosing(run):
            async for event in run:
                if isinstance(event, CompletedEvent):
                    completed = event
        seconds = time.monotonic() - began
        assert completed is not None
        if completed.ok and completed.answer.strip() == ANSWER:
            return Check("answers through a mock model", seconds=seconds)
        secrets = secrets_in(os.environ)
        reason = failure_reason(completed, secrets) if not completed.ok else f"it answered {completed.answer[:200]!a}"
        told = stderr_lines(run.stderr, secrets)
        advice = f"install it anew: {status.install}; `treadle run --engine {name} …` shows more"
        return Check(f"does not answer through a mock model: {reason}", "failed", advice, told, seconds)


def _missing(status: EngineStatus) -> Check:
    if status.problem is not None:
        return Check(status.problem, "failed", "correct or remove the package that offers it")
    return Check("not installed", "skipped", f"to get it: {status.install}")


def _login(status: EngineStatus) -> Check:
    if status.login:
        return Check(f"login: {status.login_at}")
    if status.login is False:
        return Check(f"not logged in: {status.login_at}", "warning", status.log_in and f"to log in: {status.log_in}")
    if not status.login_at:
        return Check("login: nobody knows", "skipped")
    return Check(f"login: {status.login_at}", "skipped", f"to use a real model: {status.log_in}")
