"""The engine `treadle`: our own, driven like any other. `treadle exec --json` speaks as `codex exec --json` does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Unpack

from treadle.runners import codex
from treadle.runners.codex import CodexState
from treadle.runners.engine import Engine, RunChoices
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
        **choices: As `RunOptions`: `treadle exec` asks nobody, so leave `approve` out.
    """

    def __init__(
        self,
        treadle_cmd: str | Sequence[str] | None = None,
        extra_args: Sequence[str] = (),
        **choices: Unpack[RunChoices],
    ) -> None:
        super().__init__(
            ENGINE, [sys.executable, "-m", "treadle"] if treadle_cmd is None else treadle_cmd, extra_args, **choices
        )
