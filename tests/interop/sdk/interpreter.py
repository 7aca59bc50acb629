"""`SdkInterpreter`: a child that has both SDKs, kept over many scenarios because its import takes a second.

Owns the child and its end. The other side is `driver`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

from interop.programs import ROOT
from interop.sdk.package import OFFICIAL, Package

Face = Literal["sync", "async"]
Play = Callable[[str], Any]  # the fixture `play`: runs a scenario, gives what it saw
_STOP_SECONDS: Final = 10.0


class ScenarioFailed(AssertionError):
    """A scenario raised, or hung; the text is its traceback, or the stacks of all its threads."""


class SdkInterpreter:
    def __init__(self, library: Path, folder: Path) -> None:
        self._library = library
        self._folder = folder
        self._child: subprocess.Popen[str] | None = None

    def play(
        self, scenario: str, *, program: Path, folder: Path, face: Face, package: Package = OFFICIAL
    ) -> dict[str, Any]:
        """Run one scenario; what it saw, what the SDK sent, and which notifications it had no model for."""
        child = self._child or self._start()
        assert child.stdin is not None
        assert child.stdout is not None
        request = {
            "scenario": scenario,
            "package": package,
            "program": str(program),
            "folder": str(folder),
            "face": face,
        }
        with suppress(BrokenPipeError):
            child.stdin.write(json.dumps(request) + "\n")
            child.stdin.flush()
        line = child.stdout.readline()
        if not line:
            self.close()
            raise ScenarioFailed(f"the interpreter of the SDK ended in {scenario}; it said:\n{self._log.read_text()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ScenarioFailed(f"{scenario} raised:\n{answer['error']}")
        return answer

    def close(self) -> None:
        """End the child and all that it started: they are one process group. May be called again."""
        if self._child is None:
            return
        child, self._child = self._child, None
        assert child.stdin is not None
        with suppress(BrokenPipeError):
            child.stdin.close()
        try:
            child.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        if child.stdout is not None:
            child.stdout.close()

    @property
    def _log(self) -> Path:
        return self._folder / "interpreter.log"

    def _start(self) -> subprocess.Popen[str]:
        paths = (self._library.parent, ROOT / "src", ROOT / "tests")
        env = {
            "HOME": str(self._folder),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
        }
        with self._log.open("w") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "interop.sdk.driver"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self._folder,
                env=env,
                text=True,
                start_new_session=True,
            )
        return self._child
