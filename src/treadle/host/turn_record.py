"""`TurnRecord`: what is known of a turn so far, from the events of its runtime. Pure."""

from __future__ import annotations

from typing import Any, Final, assert_never

from msgspec.structs import replace

from treadle.host import session_faults
from treadle.host.faults import Fault
from treadle.host.runtime import (
    NOTHING_YET,
    Compacted,
    Delta,
    ItemCompleted,
    ItemStarted,
    Notice,
    RuntimeEvent,
    SignOfLife,
    ThreadNamed,
    TurnEnded,
    UsageReported,
    begins_work,
)
from treadle.host.turn_watch import TurnWatch
from treadle.host.usage import UsageMeter
from treadle.protocol.app.items import ThreadItem

# Items that are only words; all others are tools, also unknown ones.
_WORDS: Final = NOTHING_YET | {"agentMessage", "plan", "hookPrompt", "enteredReviewMode", "exitedReviewMode"}
_NOT_THE_ANSWER: Final = frozenset({"commentary", "partial_answer"})

MAX_NOTICES: Final = 50
"""Of one turn; nobody reads more."""


class TurnRecord:
    """What has happened in one turn.

    Args:
        watch: Told when something happens.
        meter: Told what the runtime tells of tokens.
    """

    def __init__(self, watch: TurnWatch, meter: UsageMeter) -> None:
        self._watch = watch
        self._meter = meter
        self.thread_id: str | None = None
        """The id of the thread, from a runtime that learns it only when it runs."""
        self.items: list[ThreadItem] = []
        self.unfinished: dict[str, ThreadItem] = {}
        """What was begun and has not ended, by id."""
        self._words: dict[str, list[str]] = {}
        """What was said so far in messages that have not ended, by id."""
        self.notices: list[str] = []
        self.compacted: bool = False
        self.interrupted: bool = False
        self.fault: Fault | None = None
        self.answered: bool = False
        """Whether the last thing that the model did was to give its answer."""
        self.began_work: bool = False
        """Whether something was said or done that would be said or done twice if the turn were run again."""
        self.used_tools: bool = False
        self.ended: TurnEnded | None = None

    def begun(self) -> list[ThreadItem]:
        """What has not ended, with what there is of it. Of messages the last at most: one that broke off and was said
        again is not said twice."""
        done = self.ended is not None and self.ended.status == "completed"
        tools = [item for item in self.unfinished.values() if item.type != "agentMessage"]
        messages = [item for item in self.unfinished.values() if item.type == "agentMessage"]
        if done or not messages:
            return tools
        last: Any = messages[-1]
        return [*tools, replace(last, text=last.text + "".join(self._words.get(last.id, ())))]

    def fail(self, fault: Fault) -> None:
        """It has gone wrong. The first fault is the reason of those that follow from it."""
        if self.fault is None:
            self.fault = fault
        elif fault.retire:
            self.fault = replace(self.fault, retire=True)

    def blame(self, fault: Fault) -> None:
        """It was ended because of this, whatever went wrong meanwhile."""
        self.fault = fault

    def take(self, event: RuntimeEvent, now: float) -> None:
        """Something has happened.

        Args:
            event: What the runtime tells.
            now: When.
        """
        self.began_work = self.began_work or begins_work(event)
        match event:
            case ItemStarted(item):
                self._watch.item_opened(_item_id(item), now)
                self.unfinished[_item_id(item)] = item
                self._saw(item)
            case ItemCompleted(item):
                self._watch.item_closed(_item_id(item), now, tool=item.type not in _WORDS)
                self.unfinished.pop(_item_id(item), None)
                self._words.pop(_item_id(item), None)
                self._saw(item)
                self.answered = self.answered or _is_answer(item)
                self.items.append(item)
            case Delta(item_id, text, "text"):
                self._words.setdefault(item_id, []).append(text)
                self._watch.activity(now)
            case UsageReported(total):
                self._meter.tell(total, before_work=not self.began_work)
                self._watch.activity(now)
            case Compacted():
                self.compacted = True
                self._watch.activity(now)
            case ThreadNamed(thread_id):
                self.thread_id = thread_id
                self._watch.activity(now)
            case Notice():
                if event.keep and event.message not in self.notices and len(self.notices) < MAX_NOTICES:
                    self.notices.append(event.message)
                self._watch.activity(now)
            case Delta() | SignOfLife():
                self._watch.activity(now)
            case TurnEnded():
                self._end(event)
            case _:
                assert_never(event)

    def _saw(self, item: ThreadItem) -> None:
        if item.type not in _WORDS:
            self.used_tools, self.answered = True, False

    def _end(self, event: TurnEnded) -> None:
        self.ended = event
        self.interrupted = event.status == "interrupted"
        if event.fault is not None:
            self.fail(event.fault)
        elif event.status == "failed":
            self.fail(session_faults.unexplained())


def _item_id(item: ThreadItem) -> str:
    found = item.get("id") if isinstance(item, dict) else getattr(item, "id", None)
    return str(found)


def _is_answer(item: ThreadItem) -> bool:
    root: Any = item.root
    return item.type == "agentMessage" and bool(root.text) and root.phase not in _NOT_THE_ANSWER
