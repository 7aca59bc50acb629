"""`DrivenChild`: an interpreter with the library of a client in it, which drives a server as it is told.

Owns the child and the lines of JSON between. It is given one order at a time, and asides about what it is doing; a line
with `event` or `asked` tells what happens meanwhile, one with `result` ends the order.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from interop.clients.client_stage import WAIT_S, ClientStage

Json: TypeAlias = dict[str, Any]
Look: TypeAlias = Callable[[Json], None]


class DrivenChild:
    """`events` and `asked` are what happened since `forget`."""

    def __init__(self, command: Sequence[str], stage: ClientStage, **env: str) -> None:
        self._log = stage.folder / "client.log"
        self.events: list[Json] = []
        self.asked: list[str] = []
        with self._log.open("wb") as stderr:
            self._child = subprocess.Popen(
                command,
                env=stage.env(**env),
                cwd=stage.workspace,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._child.pid

    def close(self) -> None:
        self._end()
        self._child.communicate()

    def forget(self) -> None:
        self.events, self.asked = [], []

    def do(self, order: str, look: Look | None = None, **more: Any) -> Any:
        self.tell(order, **more)
        return self.result(look)

    def result(self, look: Look | None = None) -> Any:
        """Of the order that runs. `look` sees each event when it comes."""
        watchdog = threading.Timer(WAIT_S, self._end)  # reading has no deadline of its own
        watchdog.start()
        try:
            while "result" not in (line := self._line()):
                self._heard(line, look)
        finally:
            watchdog.cancel()
        return line["result"]

    def tell(self, order: str, **more: Any) -> None:
        """Without waiting for a result."""
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps({"do": order, **more}).encode() + b"\n")
        self._child.stdin.flush()

    def _heard(self, line: Json, look: Look | None) -> None:
        if "asked" in line:
            self.asked.append(line["asked"])
            return
        self.events.append(line["event"])
        if look is not None:
            look(line["event"])

    def _line(self) -> Json:
        assert self._child.stdout is not None
        raw = self._child.stdout.readline()
        assert raw, f"the client ended, or hung for {WAIT_S:g} s; it said:\n{self._log.read_text()}"
        line: Json = json.loads(raw)
        return line

    def _end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
