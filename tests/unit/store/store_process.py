"""`store_program` as a child of a test: it is dead and reaped when the test is over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import treadle

PROGRAM: Final = Path(__file__).with_name("store_program.py")
TESTS: Final = PROGRAM.parents[2]
SOURCE: Final = Path(treadle.__file__).resolve().parents[1]
DEADLINE_S: Final = 100.0


class StoreProcess:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def send(self, *words: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def read_line(self) -> str:
        """The next line; the test's own deadline ends a wait for one that does not come."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def hear(self) -> dict[str, Any]:
        line = self.read_line()
        assert line, f"the program ended with {self.process.wait(DEADLINE_S)}"
        message = json.loads(line)
        assert isinstance(message, dict)
        return message

    def ask(self, *words: object) -> dict[str, Any]:
        self.send(*words)
        return self.hear()

    def opened(self) -> StoreProcess:
        assert self.hear() == {"state": "starting"}
        assert self.hear() == {"state": "open"}
        return self

    def kill(self) -> list[str]:
        """SIGKILL; what it had still written, whole lines only."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(DEADLINE_S)
        assert self.process.stdout is not None
        return [line for line in self.process.stdout if line.endswith("\n")]


@contextmanager
def store_process(home: Path, *arguments: str, wrapper: Sequence[str] = ()) -> Iterator[StoreProcess]:
    process = subprocess.Popen(
        [*wrapper, sys.executable, str(PROGRAM), str(home), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{SOURCE}:{TESTS}"},
    )
    try:
        yield StoreProcess(process)
    finally:
        process.kill()
        process.wait(DEADLINE_S)
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()
