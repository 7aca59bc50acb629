"""A run as plain lines, as it happens: for logs, pipes and terminals that cannot be drawn on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from treadle.cli.run.run_text import FAILED, NOTE, RUNNING, WARNING, mark, session, title, took
from treadle.cli.terminal import Colors
from treadle.runners.run_events import ActionEvent, Event, StartedEvent

# What is remembered of running actions; an engine that never ends them does not fill the memory.
MAX_RUNNING = 1000


class RunView(Protocol):
    """Shows a run. Nothing is shown after `close`."""

    def show(self, event: Event) -> None:
        """Something happened."""

    def note(self, text: str) -> None:
        """Something to know that no engine said."""

    def close(self) -> None:
        """The run is over, or we leave: the terminal is as it was."""


class LineView:
    """A line when an action begins and one when it has ended.

    Args:
        write: Takes a line with its end.
        color: Whether with colours.
        clock: Seconds, from anywhere.
    """

    def __init__(
        self, write: Callable[[str], None], *, color: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write = write
        self._colors = Colors(color)
        self._clock = clock
        self._began: dict[str, float] = {}
        self._shown: dict[str, str] = {}

    def show(self, event: Event) -> None:
        if isinstance(event, StartedEvent):
            self._write(self._colors.bold(session(event)) + "\n")
        elif isinstance(event, ActionEvent) and event.action.kind != "turn":
            self._action(event)

    def note(self, text: str) -> None:
        self._write(self._colors.dim(text) + "\n")

    def close(self) -> None:
        pass

    def _action(self, event: ActionEvent) -> None:
        id, sign, text = event.action.id, mark(event), title(event.action)
        if event.phase == "completed":
            began = self._began.pop(id, None)
            self._shown.pop(id, None)
            duration = "" if began is None else took(self._clock() - began)
            self._line(sign, f"{text}{duration}")
        elif len(self._began) < MAX_RUNNING or id in self._began:
            self._began.setdefault(id, self._clock())
            if self._shown.get(id) != text:  # an update with nothing new in its title is not worth a line
                self._shown[id] = text
                self._line(sign, text)

    def _line(self, sign: str, text: str) -> None:
        colors = {FAILED: self._colors.red, WARNING: self._colors.red, NOTE: self._colors.dim}.get(sign, str)
        if sign == RUNNING:
            colors = self._colors.dim
        self._write(f"{colors(f'{sign} {text}')}\n")
