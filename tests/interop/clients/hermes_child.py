"""`HermesChild`: the interpreter in which hermes-agent drives a server, see `hermes_driver`.

Owns the child and the lines between. One order at a time; what happens while it runs can be looked at and answered.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

from interop.clients.client_stage import WAIT_S, ClientStage

Json: TypeAlias = dict[str, Any]
DRIVER: Final = Path(__file__).with_name("hermes_driver.py")


class HermesChild:
    def __init__(self, library: Path, stage: ClientStage) -> None:
        self._log = stage.folder / "hermes.log"
        self.events: list[Json] = []
        self.asked: list[str] = []
        home = str(stage.home / ".codex")
        with self._log.open("wb") as stderr:
            self._child = subprocess.Popen(
                [sys.executable, str(DRIVER), str(library), str(stage.program), home, str(stage.workspace)],
                env=stage.env(HERMES_HOME=str(stage.home / ".hermes")),
                cwd=stage.workspace,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.communicate()

    def do(self, order: str, on_event: Callable[[Json], None] | None = None, **more: Any) -> Any:
        """Its result. `on_event` sees each notification when it comes."""
        self.order(order, **more)
        watchdog = threading.Timer(WAIT_S, self.close)  # reading has no deadline of its own
        watchdog.start()
        try:
            while "result" not in (line := self._line()):
                if "asked" in line:
                    self.asked.append(line["asked"])
                else:
                    self.events.append(line["event"])
                    if on_event is not None:
                        on_event(line["event"])
        finally:
            watchdog.cancel()
        return line["result"]

    def order(self, order: str, **more: Any) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps({"do": order, **more}).encode() + b"\n")
        self._child.stdin.flush()

    def open(self, choice: str = "deny") -> str:
        """A session with a thread of its own; the user makes this choice whenever she is asked."""
        self.events, self.asked = [], []
        thread_id: str = self.do("open", choice=choice)
        return thread_id

    def turn(self, text: str, on_event: Callable[[Json], None] | None = None) -> Json:
        result: Json = self.do("turn", on_event, text=text)
        return result

    def completed(self, kind: str) -> list[Json]:
        """The items of this type that the server has completed."""
        ended = [event["params"]["item"] for event in self.events if event["method"] == "item/completed"]
        return [item for item in ended if item["type"] == kind]

    def _line(self) -> Json:
        assert self._child.stdout is not None
        raw = self._child.stdout.readline()
        assert raw, f"hermes ended, or hung for {WAIT_S:g} s; it said:\n{self._log.read_text()}"
        line: Json = json.loads(raw)
        return line
