"""`run`: a real agent program without any of our code around it, as its makers mean it to be called headless."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from treadle.testing import EngineHome, EngineName

RUN_S: Final = 100.0

Line = dict[str, Any]


def arguments(engine: EngineName, resume: str | None = None, extra: Sequence[str] = ()) -> list[str]:
    """The command line without the program; the prompt goes to standard input."""
    word = {"codex": "resume", "claude": "--resume", "opencode": "--session", "pi": "--session"}[engine]
    again = [word, resume] if resume else []
    match engine:
        case "codex":
            return [*extra, "exec", "--json", "--skip-git-repo-check", "--color=never", *again, "-"]
        case "claude":
            return ["-p", "--output-format", "stream-json", "--verbose", *again, *extra]
        case "opencode":
            return ["run", "--format", "json", *again, *extra]
        case "pi":
            return ["--print", "--mode", "json", *again, *extra]
        case _:
            raise ValueError(f"{engine} is no program of others")


@dataclass(frozen=True)
class Ended:
    """What a run printed, and its exit code (negative: the signal that ended it)."""

    engine: EngineName
    argv: list[str]
    stdout: bytes
    stderr: str
    rc: int

    @cached_property
    def lines(self) -> list[Line]:
        return [json.loads(line) for line in self.stdout.splitlines()]

    @property
    def session(self) -> str:
        """The id to resume it with."""
        key = {"codex": "thread_id", "claude": "session_id", "opencode": "sessionID", "pi": "id"}[self.engine]
        return str(next(line[key] for line in self.lines if key in line))

    @property
    def answer(self) -> str | None:
        """The last text of the agent."""
        texts = [text for line in self.lines for text in _texts(self.engine, line)]
        return texts[-1] if texts else None


def _texts(engine: EngineName, line: Line) -> Iterator[str]:
    match engine, line:
        case "codex", {"type": "item.completed", "item": {"type": "agent_message", "text": text}}:
            yield text
        case "claude", {"type": "result", "result": text}:
            yield text
        case "opencode", {"type": "text", "part": {"text": text}}:
            yield text
        case "pi", {"type": "message_end", "message": {"role": "assistant", "content": blocks}}:
            yield from [block["text"] for block in blocks if block["type"] == "text"]


def run(
    home: EngineHome,
    engine: EngineName,
    program: Path,
    prompt: str,
    *,
    resume: str | None = None,
    extra: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    stop: tuple[Callable[[Line], bool], signal.Signals] | None = None,
    seconds: float = RUN_S,
) -> Ended:
    """Run it to its end. `stop` signals its process group at the first line that fits; after `seconds` it is killed."""
    argv = [str(program), *arguments(engine, resume, extra)]
    environ = {**home.env(engine), **(env or {})}
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as errors:
        given.write(prompt.encode())
        given.seek(0)
        child = subprocess.Popen(
            argv,
            cwd=home.project,
            env=environ,
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
        with _killed_after(child, seconds):
            stdout = b"".join(_stopped(child, stop))
            rc = child.wait(RUN_S)
        errors.seek(0)
        return Ended(engine, argv, stdout, errors.read().decode(errors="replace"), rc)


@contextmanager
def in_background(home: EngineHome, engine: EngineName, program: Path, prompt: str) -> Iterator[Future[Ended]]:
    """`run` in a thread, which has ended at the end of the block."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(run, home, engine, program, prompt)


def _stopped(
    child: subprocess.Popen[bytes], stop: tuple[Callable[[Line], bool], signal.Signals] | None
) -> Iterator[bytes]:
    assert child.stdout is not None
    for line in child.stdout:
        yield line
        if stop is not None and stop[0](json.loads(line)):
            os.killpg(child.pid, stop[1])
            stop = None


@contextmanager
def _killed_after(child: subprocess.Popen[bytes], seconds: float) -> Iterator[None]:
    timer = threading.Timer(seconds, child.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait(RUN_S)
        if child.stdout is not None:
            child.stdout.close()
