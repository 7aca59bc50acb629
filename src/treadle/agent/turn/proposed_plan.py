"""Plan mode: the plan in an answer is what stands between `<proposed_plan>` and `</proposed_plan>`, each alone on its
line. It becomes an item of its own; the model's history has the message as it was written.

A plan that is not closed goes on to the end; of several plans in an answer the last one counts.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final, NamedTuple

from msgspec import structs

from treadle.agent.event import DeltaStream
from treadle.agent.turn.sampling import OnCall, Sampling
from treadle.agent.turn.turn import Turn
from treadle.agent.turn.turn_items import OpenItem
from treadle.llm import MessageItem, OutputItem, TextDelta
from treadle.protocol.app.items import AgentMessageThreadItem, KnownItem, PlanThreadItem
from treadle.protocol.app.notifications import PlanDeltaNotification

_OPEN: Final = "<proposed_plan>"
_CLOSE: Final = "</proposed_plan>"
_LINES: Final = re.compile(r"[^\n]*\n|[^\n]+")


class Piece(NamedTuple):
    """A part of the answer. `plan` is the number of the plan that it belongs to, from 1; 0 for the message itself."""

    text: str
    plan: int


class PlanCutter:
    """Takes an answer as it arrives. The beginning of a line is held back as long as it may become a tag."""

    def __init__(self) -> None:
        self._held = ""
        self._in_line = False  # the line has begun and is no tag
        self._inside = False
        self._plans = 0
        self._pieces: list[Piece] = []

    def feed(self, text: str) -> list[Piece]:
        for line in _LINES.findall(text):
            self._take(line)
        return self._given()

    def finish(self) -> list[Piece]:
        """What was held back when the answer was over."""
        if self._held.strip() == self._tag:
            self._turn_over()
        self._release()
        return self._given()

    @property
    def _tag(self) -> str:
        return _CLOSE if self._inside else _OPEN

    def _take(self, line: str) -> None:
        self._held += line
        if not self._in_line and self._held.strip() == self._tag:
            if line.endswith("\n"):
                self._turn_over()
            return
        if self._in_line or line.endswith("\n") or not self._tag.startswith(self._held.lstrip()):
            self._in_line = not line.endswith("\n")
            self._release()

    def _turn_over(self) -> None:
        self._held = ""
        self._inside = not self._inside
        if self._inside:
            self._plans += 1
            self._pieces.append(Piece("", self._plans))  # it has begun, whatever is in it

    def _release(self) -> None:
        if not self._held:
            return
        plan = self._plans if self._inside else 0
        if self._pieces and self._pieces[-1].plan == plan:
            self._held = self._pieces.pop().text + self._held
        self._pieces.append(Piece(self._held, plan))
        self._held = ""

    def _given(self) -> list[Piece]:
        pieces, self._pieces = self._pieces, []
        return pieces


def cut(text: str) -> tuple[str, str | None]:
    """A whole answer: the message without plans, and the plan."""
    cutter = PlanCutter()
    pieces = [*cutter.feed(text), *cutter.finish()]
    last = max((piece.plan for piece in pieces), default=0)
    message = "".join(piece.text for piece in pieces if not piece.plan)
    return message, "".join(piece.text for piece in pieces if piece.plan == last) if last else None


class PlanSampling(Sampling):
    """A message is begun with its first word, because it may be nothing but the plan."""

    def __init__(self, turn: Turn, on_call: OnCall | None = None, *, silent: bool = False) -> None:
        super().__init__(turn, on_call, silent=silent)
        self._message: MessageItem | None = None
        self._cutter = PlanCutter()
        self._blank = ""  # the space before the first word
        self._plan: OpenItem | None = None
        self._plan_number = 0

    def _shown(self, item: OutputItem) -> KnownItem | None:
        shown = super()._shown(item)
        return structs.replace(shown, text=cut(shown.text)[0]) if isinstance(shown, AgentMessageThreadItem) else shown

    def _item_started(self, item: OutputItem) -> None:
        if not isinstance(item, MessageItem):
            super()._item_started(item)
            return
        self._message, self._cutter, self._blank = item, PlanCutter(), ""

    def _text_delta(self, event: TextDelta) -> None:
        if self._message is not None and self._message.id == event.item_id:
            self._show(self._cutter.feed(event.delta))

    def _item_done(self, item: OutputItem) -> None:
        if isinstance(item, MessageItem) and not self._silent:
            if self._message is not None:
                self._show(self._cutter.finish())
            message, plan = cut(item.text)
            if plan is not None:
                growing = self._plan or self._start_plan()
                self._open.discard(growing.item.id)
                self._turn.items.complete(structs.replace(growing.item, text=plan))
                self._plan, self._plan_number = None, 0
            if message.strip() and item.id not in self._open:
                super()._item_started(structs.replace(item, text=""))
            self._message = None
        super()._item_done(item)

    def _show(self, pieces: list[Piece]) -> None:
        for piece in pieces if not self._silent else ():
            if piece.plan:
                plan = self._plan or self._start_plan()
                if self._plan_number != piece.plan:  # another one instead of the one before
                    self._plan_number = piece.plan
                    plan.texts.clear()
                if piece.text:
                    plan.texts.append(piece.text)
                    self._thread.journal.append(plan.streams["plan", 0], piece.text)
                continue
            message, text = self._message, piece.text
            assert message is not None
            if message.id not in self._open:
                self._blank += text
                if not self._blank.strip():
                    continue
                super()._item_started(message)
                text = self._blank
            super()._text_delta(TextDelta(message.id, text))

    def _start_plan(self) -> OpenItem:
        before = sum(isinstance(item, PlanThreadItem) for item in self._turn.items.all())
        plan_id = f"{self._turn.id}-plan" if not before else f"{self._turn.id}-plan-{before + 1}"
        plan = self._plan = self._turn.items.start(PlanThreadItem(id=plan_id, text=""))
        self._open.add(plan_id)
        ids = {"thread_id": self._thread.id, "turn_id": self._turn.id, "item_id": plan_id}
        plan.streams["plan", 0] = DeltaStream("item/plan/delta", partial(PlanDeltaNotification, **ids))
        texts = plan.texts
        plan.look = lambda item: structs.replace(item, text="".join(texts))
        return plan
