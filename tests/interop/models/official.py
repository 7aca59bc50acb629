"""`Official`: an official client in an interpreter of its own, asked line by line. The other side is `judge`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from interop.peers import installed
from interop.programs import ROOT

PACKAGE: Final = {"responses": "openai", "chat": "openai", "anthropic": "anthropic"}
"""Which client speaks a wire API."""


class Official:
    def __init__(self, child: subprocess.Popen[str], log: Path) -> None:
        self._child = child
        self._log = log

    def problems(self, api: str, body: dict[str, Any]) -> list[str]:
        """What the types of the client say against the body of a request."""
        found: list[str] = self._ask(do="body", api=api, body=body)
        return found

    def ask(self, api: str, base_url: str, body: dict[str, Any]) -> dict[str, Any]:
        """What the parser of the client understands. The server is asked twice: see `judge`."""
        found: dict[str, Any] = self._ask(do="ask", api=api, base_url=base_url, body=body)
        return found

    def _ask(self, **question: Any) -> Any:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps(question) + "\n")
        self._child.stdin.flush()
        line = self._child.stdout.readline()
        if not line:
            self._child.wait()
            raise AssertionError(f"the official client failed:\n{self._log.read_text()[-3000:]}")
        return json.loads(line)


@contextmanager
def running(package: str, folder: Path) -> Iterator[Official]:
    library = installed(package).parent
    log = folder / f"{package}.log"
    paths = (library, ROOT / "tests")
    env = {"HOME": str(folder), "PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(map(str, paths))}
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "interop.models.judge", package],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=folder,
            env=env,
            text=True,
        ) as child,
    ):
        try:
            yield Official(child, log)
        finally:
            child.kill()
