"""The codex session of hermes-agent, told what to do by lines of JSON. Runs in a child that has hermes on its path.

Usage: hermes_driver.py FOLDER_OF_HERMES PROGRAM CODEX_HOME WORKSPACE

Each order is answered by one line with `result`; a notification of the server by one with `event`, as hermes sees it,
and a question to the user by one with `asked`. `interrupt` has no answer: it ends the turn that runs.
"""

from __future__ import annotations

import dataclasses
import json
import queue
import sys
import threading
from typing import Any

Order = dict[str, Any]


def say(**line: Any) -> None:
    print(json.dumps(line), flush=True)


class Driver:
    def __init__(self, program: str, codex_home: str, workspace: str) -> None:
        self._program = program
        self._codex_home = codex_home
        self._workspace = workspace
        self._session: Any = None
        self._orders: queue.Queue[Order] = queue.Queue()

    def read(self) -> None:
        """An interrupt must not wait for the turn that it ends."""
        for line in sys.stdin:
            order = json.loads(line)
            if order["do"] == "interrupt":
                self._session.request_interrupt()
            else:
                self._orders.put(order)
        self._orders.put({"do": "close"})

    def run(self) -> None:
        threading.Thread(target=self.read, daemon=True).start()
        while (order := self._orders.get())["do"] != "close":
            say(result=getattr(self, f"do_{order['do']}")(order))
        self.do_end({})

    def do_check(self, order: Order) -> Any:
        from agent.transports.codex_app_server import check_codex_binary  # type: ignore[import-not-found]

        return check_codex_binary(self._program)

    def do_open(self, order: Order) -> str:
        from agent.transports.codex_app_server_session import (  # type: ignore[import-not-found]
            CodexAppServerSession,
        )

        def decide(command: str, description: str, **options: Any) -> str:
            say(asked=command)
            choice: str = order["choice"]
            return choice

        self.do_end({})
        self._session = CodexAppServerSession(
            cwd=self._workspace,
            codex_bin=self._program,
            codex_home=self._codex_home,
            approval_callback=decide,
            on_event=lambda note: say(event=note),
        )
        thread_id: str = self._session.ensure_started()
        return thread_id

    def do_turn(self, order: Order) -> Any:
        return dataclasses.asdict(self._session.run_turn(order["text"], turn_timeout=40.0))

    def do_compact(self, order: Order) -> Any:
        return dataclasses.asdict(self._session.compact_thread(turn_timeout=40.0))

    def do_end(self, order: Order) -> None:
        if self._session is not None:
            self._session.close()
        self._session = None


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    Driver(*sys.argv[2:]).run()
