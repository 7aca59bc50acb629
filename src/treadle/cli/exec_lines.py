"""`JsonLines`: a turn for programs, one event a line. It owns the lines; `ExecEvents` says what is in them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec

from treadle.cli.exec_events import Events, ExecEvents
from treadle.protocol.app.turns import Turn


class JsonLines:
    """Shows what `View` shows. `write` takes whole lines, as bytes."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._events = ExecEvents()
        self._early: Events | None = []  # the thread is told first, whatever came before it was known

    def started(self, started: Any) -> None:
        early, self._early = self._early or [], None
        self._print([*self._events.started(started.thread.id), *early])

    def show(self, method: str, params: Any) -> None:
        events = self._events.receive(method, params)
        if self._early is not None:
            self._early += events
        else:
            self._print(events)

    def note(self, text: str) -> None:
        """Not for programs."""

    def ended(self, turn: Turn) -> None:
        """Was said by the last event."""

    def _print(self, events: Events) -> None:
        for event in events:
            self._write(_encoded(event) + b"\n")


def _encoded(event: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(event)
    except UnicodeEncodeError:  # half a character, from a file name that is no text; JSON can write it as a number
        return json.dumps(event).encode()
