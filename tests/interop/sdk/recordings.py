"""`Recordings`: what every scenario saw, played once in a test run, for whichever test and worker asks first.

Owns the folders of the plays and the locks between workers. A play that failed is kept too: who asks again gets the
same failure.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from interop.sdk.differences import Server
from interop.sdk.interpreter import Face, ScenarioFailed, SdkInterpreter
from interop.sdk.package import Package

# The real server needs a fixed port for it, so that two workers cannot play it at the same time.
ALONE: Final = ("server.browser_logins",)


@dataclass(frozen=True, slots=True)
class Recording:
    """`seen` is the value of the scenario, `sent` what the SDK asked, `unknown` what it had no model for."""

    seen: Any
    sent: list[list[Any]]
    unknown: list[str]
    wire: str
    """All that went to and fro, to be read by people."""


class Recordings:
    def __init__(self, folder: Path, sdk: SdkInterpreter, program_of: Callable[[Server], Path]) -> None:
        self._folder = folder
        self._sdk = sdk
        self._program_of = program_of

    def of(self, package: Package, scenario: str, server: Server, face: Face) -> Recording:
        """Raises `ScenarioFailed`."""
        name = "-".join((scenario, package, server, face))
        folder = self._folder / name
        answer = folder / "answer.json"
        with _locked(self._folder / f"{scenario if scenario in ALONE else name}.lock"):
            if not answer.exists():
                folder.mkdir()
                answer.write_text(json.dumps(self._play(package, scenario, server, face, folder)))
        told = json.loads(answer.read_text())
        wire = (folder / "wire.txt").read_text()
        if "failure" in told:
            raise ScenarioFailed(f"with {package}, {told['failure']}\n{wire}")
        return Recording(told["seen"], told["sent"], told["unknown"], wire)

    def _play(self, package: Package, scenario: str, server: Server, face: Face, folder: Path) -> dict[str, Any]:
        program = self._program_of(server)
        try:
            return self._sdk.play(scenario, program=program, folder=folder, face=face, package=package)
        except ScenarioFailed as failure:
            return {"failure": str(failure)}


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
