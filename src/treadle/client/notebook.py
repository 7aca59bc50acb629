"""`LiveTurn`: a turn in the output of a notebook's cell, drawn anew in place as it goes on.

IPython is never imported here first: where it is not loaded, or runs in a terminal, nothing is drawn.
"""

from __future__ import annotations

import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from treadle.pages.figures import count, duration, money
from treadle.pages.inset import InsetPage, item_html, running_html, turn_html
from treadle.protocol.app.turns import Turn

if TYPE_CHECKING:
    from treadle.client.notification import Notification
    from treadle.client.turn_values import TurnResult

# Often enough to see a text grow. Each drawing is stored by the notebook's server until the next one comes.
TICK_S: Final = 0.25
# Each drawing has all that is shown: of a long turn the last items are enough.
MAX_ITEMS: Final = 30


def live_turn() -> LiveTurn | None:
    """A turn to be drawn; None where there is no notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return LiveTurn() if hasattr(shell, "kernel") else None


class LiveTurn:
    """What is known of a turn so far."""

    def __init__(self) -> None:
        self._page = InsetPage()
        self._done: list[str] = []
        self._open: dict[str, Any] = {}  # items that have begun, by their ids
        self._begun = self._drawn = time.monotonic()
        self._display: Any = import_module("IPython.display").display
        self._handle: Any = None
        self._draw(_Drawing(running_html([], 0, "begins …")))

    def add(self, event: Notification) -> None:
        """Take a notification of the turn, and draw if it is time to."""
        payload: Any = event.payload
        item = getattr(payload, "item", None)
        if event.method == "item/started" and item is not None and item.type != "userMessage":
            self._open[item.id] = item
        elif event.method == "item/agentMessage/delta" and getattr(payload, "item_id", None) in self._open:
            item = self._open[payload.item_id]
            self._open[item.id] = replace(item, text=item.text + payload.delta)
        elif event.method == "item/completed" and item is not None and item.type != "userMessage":
            self._open.pop(getattr(item, "id", ""), None)
            self._done.append(item_html(item, self._page))
        else:
            return
        now = time.monotonic()
        if now - self._drawn >= TICK_S:
            self._drawn = now
            shown = [*self._done[-MAX_ITEMS:], *(item_html(item, InsetPage()) for item in self._open.values())]
            figures = f"running · {duration(int((now - self._begun) * 1000))}"
            self._draw(_Drawing(running_html(shown, max(0, len(self._done) - MAX_ITEMS), figures)))

    def end(self, result: TurnResult[Any] | None) -> None:
        """Draw what came of it; without a result, that it did not come to its end."""
        stopped = running_html(self._done[-MAX_ITEMS:], max(0, len(self._done) - MAX_ITEMS), "it has not ended well")
        self._draw(_Drawing(stopped) if result is None else _Drawing(result_html(result)))

    def _draw(self, drawing: _Drawing) -> None:
        if self._display is None:
            return
        try:
            if self._handle is None:
                self._handle = self._display(drawing, display_id=True)
            else:
                self._handle.update(drawing)
        except Exception:  # whatever is wrong with the notebook: the turn goes on
            self._display = None


class _Drawing:
    """What IPython displays."""

    def __init__(self, html: str) -> None:
        self._html = html

    def __repr__(self) -> str:
        return "a turn, which is shown as HTML"

    def _repr_html_(self) -> str:
        return self._html


def result_html(result: TurnResult[Any]) -> str:
    """A result as a notebook shows it."""
    figures = [] if result.duration_ms is None else [duration(result.duration_ms)]
    if (used := result.turn_usage) is not None:
        figures.append(f"{count(used.input_tokens)} in, {count(used.output_tokens)} out")
        figures += [money(used.cost_usd)] if used.cost_usd else []
    turn = Turn(id=result.id, items=(), status=result.status, error=result.error)
    return turn_html(result.items, turn, " · ".join(figures))
