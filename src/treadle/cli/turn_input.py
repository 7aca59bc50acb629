"""What commands that run a turn read and write around it: the folder, the prompt, images, a JSON Schema, a time limit,
and the file that the answer goes to. Refused with what to type, before a turn is paid for.
"""

from __future__ import annotations

import json
import os
import select
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from treadle.arguments import text_problem
from treadle.cli.problem import Problem
from treadle.cli.streams import REFUSED, OutputFailed, write_stderr
from treadle.config.home_files import replace_file

# What a turn takes at most; more is refused before anything is run.
MAX_BYTES: Final = 1 << 20
# After this long, a person who waits for a pipe that nobody closes gets a hint.
PATIENCE_S: Final = 2.0


class Seconds(click.ParamType[float]):
    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            number = 0
        if not 0 < number < 1e9:
            self.fail(f"{value!r} is no number of seconds", param, ctx)
        return number


def working_folder(path: str) -> str:
    """The absolute path of a directory. Raises `Problem` for anything else."""
    if not os.path.isdir(path):
        why = "it is a file" if os.path.exists(path) else "it does not exist"
        raise Problem(f"{path} is no directory", why=why, do="--cd DIR with one that is there", code=REFUSED)
    return os.path.abspath(path)


def read_schema(path: str | None) -> Any:
    """The JSON Schema in a file. Raises `Problem` for what is none."""
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except OSError as error:
        do = "--output-schema FILE with a file that is there"
        raise Problem(f"the schema {path} cannot be read", why=str(error.strerror), do=do, code=REFUSED) from None
    except (ValueError, RecursionError) as error:
        do = f"python3 -m json.tool {path} shows the place"
        raise Problem(f"the schema {path} is no JSON", why=str(error), do=do, code=REFUSED) from None


def readable_images(paths: Sequence[str]) -> tuple[str, ...]:
    """The absolute paths of files; whether they are images is seen when they are sent. Raises `Problem`."""
    for path in paths:
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            do = "--image FILE with a file that is there and yours to read"
            raise Problem(f"the image {path} cannot be read", why=str(error.strerror), do=do, code=REFUSED) from None
    return tuple(map(os.path.abspath, paths))


def answer_file(name: str | None) -> Path | None:
    """Where the answer goes too. Raises `Problem` if that cannot be written, before a turn is paid for."""
    if name is None:
        return None
    path = Path(name).absolute()
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        why = "it is a directory, or its directory is not there or not yours to write"
        raise Problem(f"{name} cannot be written", why=why, do="-o FILE with another name", code=REFUSED)
    return path


def write_answer(path: Path, answer: str) -> None:
    """Write the answer to its file, whole or not at all. Raises `OutputFailed`."""
    mask = os.umask(0o077)
    os.umask(mask)
    try:
        replace_file(path, answer.encode("utf-8", "replace"), 0o644 & ~mask)
    except OSError as error:
        raise OutputFailed(f"the answer could not be written to {path}: {error.strerror}") from None


# --- the prompt ---


class PromptError(Problem):
    """The prompt is missing, or cannot be sent."""

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
    problem = text_problem(prompt)
    if problem is not None:
        raise PromptError(
            "the prompt is no text", f"it {problem}", "write it to a file, and name the file in the prompt"
        )
    return prompt


def _is_piped(descriptor: int) -> bool:
    """Whether somebody has put something there; a terminal and /dev/null are neither."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def _read(descriptor: int, command: str) -> str:
    """Read a descriptor to its end. Bytes that are no text are replaced: the rest is still worth reading."""
    pieces: list[bytes] = []
    size = 0
    while True:
        if not os.isatty(descriptor) and not select.select([descriptor], [], [], PATIENCE_S)[0]:
            write_stderr(
                f"treadle {command}: waiting for the end of standard input; use </dev/null if there is nothing to read"
            )
        try:
            piece = os.read(descriptor, 1 << 16)
        except OSError as error:
            do = f'give the prompt as an argument: treadle {command} "…" </dev/null'
            raise PromptError("standard input cannot be read", str(error.strerror), do) from None
        if not piece:
            break
        pieces.append(piece)
        size += len(piece)
        if size > MAX_BYTES:
            why = f"standard input has more than {MAX_BYTES} bytes"
            raise PromptError("the prompt is too long", why, "write it to a file, and name the file in the prompt")
    return b"".join(pieces).decode("utf-8", "replace")
