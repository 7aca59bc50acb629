"""`EngineRuntime`: turns on any engine that a runner can drive: claude, opencode, pi, codex, our own.

Each turn is one run of the program, which continues the session of the previous run. It owns that session and the run;
`EngineItems` translates what a run says. An engine has its own tools and its own rules: it cannot use the host's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from treadle.agent.ids import new_id
from treadle.errors import ArgumentValueError
from treadle.host.ask import AskPerson
from treadle.host.engine.engine_turn import EngineThread, EngineTurn
from treadle.host.fault_text import CLOSED
from treadle.host.faults import Fault, ResumeFailed, RuntimeFault
from treadle.host.one_thread import OneThread
from treadle.host.runtime import Opened, Opening, UserInput
from treadle.runners.engine import RunOptions
from treadle.runners.run_events import ResumeToken
from treadle.runners.runner import Runner

logger: Final = logging.getLogger(__name__)

PENDING: Final = "pending-"
"""How a thread id begins that stands for a session which the engine has not named yet."""
CLOSE_S: Final = 15.0
"""For an engine to end; it gets a signal and a moment, then it is killed."""
OPTIONS: Final = ("model", "effort", "cwd", "env", "timeouts")


class EngineRuntime(OneThread[EngineThread, EngineTurn]):
    """Runs turns on an engine.

    Args:
        engine: The name of an engine, such as `claude`, or a runner that has been set up.
        **choices: For an engine by its name, what its runner takes: `command`, `extra_args`, `model`, `effort`, `cwd`,
            `env`, `timeouts`.
    """

    def __init__(self, engine: str | Runner, **choices: Any) -> None:
        super().__init__()
        if isinstance(engine, str):
            # Only for an engine by its name: it reads the entry points.
            from treadle.runners.engine_registry import make_runner

            self._runner = make_runner(engine, **choices)
        elif choices:
            raise ArgumentValueError(next(iter(choices)), "a runner is used as it is: give it its choices itself")
        else:
            self._runner = engine

    def __repr__(self) -> str:
        return f"<EngineRuntime {self.name}>"

    @property
    def name(self) -> str:
        """The engine."""
        return self._runner.engine.name

    async def open(self, opening: Opening, ask: AskPerson) -> Opened:
        """Say which session it will be. The engine is not started before the first turn."""
        self._check_open()
        self._check_idle()
        if opening.sandbox is not None:
            problem = f"{self.name} cannot be told a sandbox from here: set it up in its own settings, and leave it out"
            raise RuntimeFault(Fault(kind="refused", message=problem))
        token = None if opening.resume is None else self._token(opening.resume)
        self._thread = EngineThread(runner=self._runner, opening=opening, ask=ask, token=token)
        self._thread.id = f"{PENDING}{new_id()}" if token is None else token.value
        model = opening.model or self._runner.options.model
        return Opened(thread_id=self._thread.id, model=model, provisional=token is None)

    def _token(self, value: str) -> ResumeToken:
        if value.startswith(PENDING) or not self._runner.engine.resume.fits(value):
            raise ResumeFailed(Fault(kind="refused", message=f"`{value}` is no session of {self.name}"))
        return ResumeToken(self.name, value)

    async def start_turn(self, user_input: UserInput, options: Mapping[str, Any]) -> str:
        """Start a run. `options` are `model`, `effort`, `cwd`, `env` and `timeouts`."""
        thread = self._ready()
        chosen = _options(options, self.name)
        prompt = thread.prompt(user_input)
        self._events.begin()
        self._turn = EngineTurn(thread, self._events, prompt, chosen)
        return self._turn.id

    async def steer(self, text: str) -> bool:
        """Nothing can be said to an engine that runs."""
        return False

    async def probe(self) -> None:
        """Come back when the engine is there and not stopped, or when none runs."""
        self._check_open()
        if (turn := self._running()) is not None:
            await turn.probe()

    async def compact(self) -> bool:
        """An engine sums up by itself, when it wants to."""
        return False

    async def close(self) -> None:
        """End the engine, with all that it started."""
        if self._closed:
            return
        self._closed = True
        self._events.close(CLOSED)
        if self._turn is not None:
            self._turn.task.cancel()
            _, left = await asyncio.wait([self._turn.task], timeout=CLOSE_S)
            if left:
                logger.warning("%s did not end within %g s", self.name, CLOSE_S)


def _options(options: Mapping[str, Any], engine: str) -> RunOptions:
    for name in options:
        if name not in OPTIONS:
            problem = f"{engine} has no option `{name}` for a turn; there are {', '.join(OPTIONS)}"
            raise RuntimeFault(Fault(kind="refused", message=problem))
    return RunOptions(**options)
