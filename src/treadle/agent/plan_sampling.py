"""One response of a model in plan mode: the plan in a message becomes an item of its own.

Owns what of a message is shown as which item; where it is cut is `proposed_plan`. The model's history keeps the message
as it was written.
"""

from __future__ import annotations

from functools import partial

from msgspec import structs

from treadle.agent.event import DeltaStream
from treadle.agent.proposed_plan import Piece, PlanCutter, cut
from treadle.agent.sampling import OnCall, Sampling
from treadle.agent.turn import Turn
from treadle.agent.turn_items import OpenItem
from treadle.llm import MessageItem, OutputItem, TextDelta
from treadle.protocol.app.item_notifications import PlanDeltaNotification
from treadle.protocol.app.items import AgentMessageThreadItem, KnownItem, PlanThreadItem


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
                self._complete_plan(plan)
            if message.strip() and item.id not in self._open:
                super()._item_started(structs.replace(item, text=""))
            self._message = None
        super()._item_done(item)

    def _show(self, pieces: list[Piece]) -> None:
        for piece in pieces if not self._silent else ():
            if piece.plan:
                self._plan_delta(piece)
            else:
                self._message_delta(piece.text)

    def _message_delta(self, text: str) -> None:
        assert self._message is not None
        if self._message.id not in self._open:
            self._blank += text
            if not self._blank.strip():
                return
            super()._item_started(self._message)
            text = self._blank
        super()._text_delta(TextDelta(self._message.id, text))

    def _plan_delta(self, piece: Piece) -> None:
        plan = self._plan or self._start_plan()
        if self._plan_number != piece.plan:  # another one instead of the one before
            self._plan_number = piece.plan
            plan.texts.clear()
        if piece.text:
            plan.texts.append(piece.text)
            self._thread.journal.append(plan.streams["plan", 0], piece.text)

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

    def _complete_plan(self, text: str) -> None:
        plan = self._plan or self._start_plan()
        self._open.discard(plan.item.id)
        self._turn.items.complete(structs.replace(plan.item, text=text))
        self._plan, self._plan_number = None, 0
