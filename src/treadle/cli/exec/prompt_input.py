"""The prompt of `treadle exec` and `treadle run`: from the argument, standard input, or both."""

from __future__ import annotations

import os
import select
import stat
from typing import Final

from treadle.cli.exit_codes import REFUSED
from treadle.cli.problem import Problem
from treadle.cli.streams import write_stderr

# What a turn takes at most; more is refused before anything is run.
MAX_BYTES: Final = 1 << 20
# Who waits for a pipe that nobody closes is told so after this long.
PATIENCE_S: Final = 2.0


class PromptError(Problem):
    """There is no prompt, or it is too long."""

    def __init__(self, what: str, why: str, do: str) -> None:
        super().__init__(what, why=why, do=do, code=REFUSED)


def read_prompt(argument: str | None, descriptor: int = 0, *, appended: bool = True, command: str = "exec") -> str:
    """`-` or nothing: standard input is the prompt. Else what is piped in is `appended` to the argument, as a block."""
    if argument is None or argument == "-":
        if os.isatty(descriptor):
            write_stderr(f"treadle {command}: reading the prompt; end it with Ctrl-D")
        prompt = _read(descriptor, command)
    else:
        piped = _read(descriptor, command) if appended and _is_piped(descriptor) else ""
        prompt = f"{argument}\n\n<stdin>\n{piped.rstrip()}\n</stdin>" if piped.strip() else argument
    if not prompt.strip():
        why = "neither the command line nor standard input has a prompt"
        raise PromptError("there is nothing to do", why, f'treadle {command} "explain this project"')
    return prompt


def _is_piped(descriptor: int) -> bool:
    """Whether somebody has put something there; a terminal and /dev/null are neither."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def _read(descriptor: int, command: str) -> str:
    """All of it. Bytes that are no text are replaced: the rest is still worth reading."""
    pieces: list[bytes] = []
    size = 0
    while piece := _piece(descriptor, command):
        pieces.append(piece)
        size += len(piece)
        if size > MAX_BYTES:
            why = f"standard input has more than {MAX_BYTES} bytes"
            raise PromptError("the prompt is too long", why, "write it to a file, and name the file in the prompt")
    return b"".join(pieces).decode("utf-8", "replace")


def _piece(descriptor: int, command: str) -> bytes:
    if not os.isatty(descriptor) and not select.select([descriptor], [], [], PATIENCE_S)[0]:
        write_stderr(
            f"treadle {command}: waiting for the end of standard input; use </dev/null if there is nothing to read"
        )
    try:
        return os.read(descriptor, 1 << 16)
    except OSError as error:
        do = f'give the prompt as an argument: treadle {command} "…" </dev/null'
        raise PromptError("standard input cannot be read", str(error.strerror), do) from None
