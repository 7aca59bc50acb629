"""The engine `treadle`: our own, driven like any other. `treadle exec --json` speaks as `codex exec --json` does."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from treadle.runners import codex
from treadle.runners.codex import CodexState
from treadle.runners.engine import Approve, Engine, Timeouts
from treadle.runners.resume import ResumeLine
from treadle.runners.runner import Runner

NAME: Final = "treadle"

ENGINE: Final[Engine[CodexState]] = replace(
    codex.ENGINE,
    name=NAME,
    program="treadle",
    install="pip install treadle",
    start=partial(codex.new_state, engine=NAME, label="treadle exec"),
    resume=ResumeLine(NAME, "treadle exec resume {}", "treadle(?: exec)? resume"),
)


class TreadleRunner(Runner):
    """Runs `treadle exec --json`.

    Args:
        treadle_cmd: The program, or a command line that the arguments are added to; this Treadle without it.
        extra_args: Words before `exec`, such as `["-c", "key=value"]`.
        env: Environment variables on top of the inherited ones.
        cwd: Where it works; else where this program is.
        model: The model; else the configured one.
        effort: How hard it thinks: `low`, `medium`, `high`, …
        timeouts: How long a run may take, where the defaults do not fit.
        approve: `treadle exec` asks nobody: leave it out.
    """

    def __init__(
        self,
        treadle_cmd: str | Sequence[str] | None = None,
        extra_args: Sequence[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        model: str | None = None,
        effort: str | None = None,
        timeouts: Timeouts | None = None,
        approve: Approve | None = None,
    ) -> None:
        super().__init__(
            ENGINE,
            [sys.executable, "-m", "treadle"] if treadle_cmd is None else treadle_cmd,
            extra_args,
            env=env,
            cwd=cwd,
            model=model,
            effort=effort,
            timeouts=timeouts,
            approve=approve,
        )
