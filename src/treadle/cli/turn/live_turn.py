"""`LiveTurn`: a turn drawn on a terminal. A `TurnStory` says what is to be seen; this one has the clock and the screen.

While somebody is asked, nothing is drawn; what happens meanwhile is shown afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console, RenderableType
from rich.text import Text

from treadle.cli.live_area import LiveArea
from treadle.cli.streams import OutputFailed
from treadle.cli.turn.frame import Frame, confinement
from treadle.cli.turn.story import TurnStory
from treadle.cli.turn.turn_blocks import Hanging
from treadle.cli.visible import visible, visible_line
from treadle.protocol.app.turns import Turn


class LiveTurn:
    """Draws until `close`.

    Args:
        stream: The terminal.
        frame: What is said before and after.
        color: `auto`, `always` or `never`.
        holds_answer: Whether the last message is left to the caller.
        on_lost: Called when the terminal has gone away.
    """

    def __init__(
        self, stream: TextIO, frame: Frame, *, color: str, holds_answer: bool, on_lost: Callable[[], None]
    ) -> None:
        self._frame = frame
        self._holds_answer = holds_answer
        self._began = time.monotonic()
        self.story: TurnStory = TurnStory(self._began)
        self._kept: list[RenderableType] | None = None  # what happens while somebody is asked
        self._area = LiveArea(stream, self._lines, color=color, on_lost=on_lost)

    def started(self, started: Any) -> None:
        confined, network = confinement(started)
        self.story = TurnStory(self._began, confinement=confined, network=network, holds_answer=self._holds_answer)
        self._print([*_table(self._frame.facts(started)), ""])

    def show(self, method: str, params: Any) -> None:
        self._print(self.story.show(method, params, time.monotonic()))

    def note(self, text: str) -> None:
        self.story.note = visible(text)

    def ended(self, turn: Turn) -> None:
        used = Hanging(Text(), Text(self.story.used(turn.duration_ms), "dim"))
        self._area.close(used, *(_copied(*step) for step in self._frame.next_steps(turn.error).items()))

    def close(self) -> None:
        self._area.close()

    @contextmanager
    def aside(self) -> Iterator[Console]:
        """The screen for a question. Raises `OutputFailed` if it is gone."""
        self._kept = []
        self._area.pause()
        try:
            yield self._area.console
        except OSError as error:
            raise OutputFailed(f"the terminal is gone: {error.strerror}") from None
        finally:
            kept, self._kept = self._kept, None
            self._area.go_on()
            self._print(kept)

    def _lines(self, width: int, height: int) -> list[Text]:
        return self.story.live(time.monotonic(), width, height)

    def _print(self, blocks: list[RenderableType]) -> None:
        if self._kept is not None:
            self._kept += blocks
        else:
            self._area.print(*blocks)


def _table(facts: dict[str, str]) -> list[RenderableType]:
    return [Hanging(Text(f"{name:9}", "dim"), Text(visible_line(fact))) for name, fact in facts.items()]


def _copied(name: str, fact: str) -> Text:
    """Broken by the terminal alone: what is copied from there has no line ends in it."""
    return Text.assemble((f"{name:9}", "dim"), visible_line(fact), no_wrap=True, overflow="ignore")
