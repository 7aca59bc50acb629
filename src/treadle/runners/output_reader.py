"""`OutputReader`: turns the output of one process into events. Pure: bytes in, events out.

It guarantees the event model whatever the engine prints: at most one `StartedEvent`, a session that has the shape of
one and does not change, and exactly one `CompletedEvent`, at the end, which is `ok` only with an answer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

from msgspec import structs

from treadle.runners.engine import Ending, Engine, GiveUp, Output, RunRequest, Waits
from treadle.runners.run_events import Action, ActionEvent, CompletedEvent, Event, ResumeToken, StartedEvent, TextDelta
from treadle.transport.stdio import LineFramer

logger: Final = logging.getLogger(__name__)


class OutputReader:
    """The lines of one run.

    Args:
        engine: Whose lines they are.
        request: What was asked.
    """

    def __init__(self, engine: Engine[Any], request: RunRequest) -> None:
        self._engine = engine
        self._request = request
        self._state = engine.start(request)
        self._framer = LineFramer()
        self._completed: CompletedEvent | None = None
        self._problem: str | None = None  # why it cannot go on
        self._notes = 0
        self.lines: int = 0
        self.session: ResumeToken | None = None
        self.said_all: bool = False
        """Whether the engine has reported the end of its run, and nothing after it."""
        self.waits: bool = False
        """Whether the last line reported that the engine waits."""

    def receive(self, data: bytes) -> Iterator[Output]:
        """The meaning of the bytes. Nothing more comes after a `GiveUp`."""
        for line in self._framer.receive(data):
            if self._problem is None:
                yield from self._line(line)
        if self._framer.ended and self._problem is None:
            yield self._give_up(f"{self._engine.name} printed a line that is too long: {self._framer.end_reason}")

    def end(self, ending: Ending) -> list[Event]:
        """The last events, when the process has ended; the last of them is the `CompletedEvent`."""
        events: list[Event] = []
        rest = self._framer.rest()
        if rest and self._problem is None:
            events += [out for out in self._line(rest) if isinstance(out, StartedEvent | ActionEvent | TextDelta)]
        completed = self._completed
        try:
            last: list[Event] = list(self._engine.finish(self._state, ending, completed))
        except Exception as error:
            logger.exception("%s: its end was not understood", self._engine.name)
            last = [self._not_understood(error)]
        for event in last:
            if isinstance(event, CompletedEvent):
                completed = event
            else:
                events.append(event)
        if completed is None:
            completed = self.failed(f"{self._engine.name} ended without an answer.")
        if completed.ok and not completed.answer.strip():
            why = f"{self._engine.name} ended without an answer."
            completed = structs.replace(completed, ok=False, error=why)
        if completed.resume is None or not self._is_session(completed.resume):
            completed = structs.replace(completed, resume=self._known())
        done = completed.ok and self.said_all
        reason = self._problem or (None if done else ending.stopped)
        events.append(completed if reason is None else structs.replace(completed, ok=False, error=reason))
        return events

    def carry(self) -> dict[str, Any] | None:
        """What the session's next run gets."""
        carried = self._engine.carry(self._state)
        return None if carried is None else dict(carried)

    def failed(self, error: str) -> CompletedEvent:
        """The end of a run that could not start."""
        return CompletedEvent(self._engine.name, ok=False, answer="", resume=self._known(), error=error)

    # --- inside ---

    def _line(self, line: bytes) -> Iterator[Output]:
        self.lines += 1
        self.waits = False
        try:
            outputs = list(self._engine.translate(self._state, line))
        except Exception as error:  # the engine's version may be newer than what we know of it
            logger.debug("%s: a line was not understood", self._engine.name, exc_info=True)
            outputs = [self._not_understood(error)]
        for output in outputs:
            if isinstance(output, CompletedEvent):
                self._completed = output
                self.said_all = True
            elif isinstance(output, StartedEvent):
                yield from self._started(output)
            elif isinstance(output, Waits):
                self.waits = True
            elif isinstance(output, GiveUp):
                yield self._give_up(output.reason)
                return
            else:
                if isinstance(output, ActionEvent):
                    self.said_all = False
                yield output

    def _started(self, event: StartedEvent) -> Iterator[Output]:
        known = self._known()
        if not self._is_session(event.resume):
            yield self._give_up(
                f"{self._engine.name} named its session {str(event.resume.value)[:80]!r}, which is no id of it: "
                f"{self._engine.resume.written}"
            )
        elif known is not None and known.value != event.resume.value:
            yield self._give_up(
                f"{self._engine.name} answered for another session ({event.resume.value}) than it was asked for "
                f"({known.value})"
            )
        elif self.session is None:
            self.session = event.resume
            yield event

    def _is_session(self, token: ResumeToken) -> bool:
        """Whether it can go on a command line and into a resume line: what an engine prints is not to be trusted."""
        return isinstance(token.value, str) and self._engine.resume.fits(token.value)

    def _give_up(self, reason: str) -> GiveUp:
        self._problem = reason
        return GiveUp(reason)

    def _known(self) -> ResumeToken | None:
        return self.session or self._request.resume

    def _not_understood(self, error: Exception) -> ActionEvent:
        self._notes += 1
        name = self._engine.name
        action = Action(f"{name}.unread.{self._notes}", "warning", f"a line of {name} was not understood")
        return ActionEvent(name, action, "completed", ok=False, message=type(error).__name__, level="warning")
