"""What is known of a turn: its time limits (`TurnWatch`), what has happened so far (`TurnProgress`), its tokens
(`UsageMeter`), and its outcome (`TurnResult`). Pure: all of it is given what happens and when, and has no clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias, assert_never

from msgspec.structs import replace

from treadle.host.faults import Fault, unexplained_fault
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
    Usage,
    UsageReported,
    begins_work,
)
from treadle.host.timeouts import Timeouts
from treadle.protocol.app.items import ThreadItem

Limit: TypeAlias = Literal["turn", "idle", "quiet"]


class NextCheck(NamedTuple):
    """When to check on a turn again, and which limit it will have reached if nothing happens until then."""

    at: float
    limit: Limit


class TurnWatch:
    """The watch over one turn. Times are seconds of one clock, and never go back.

    Args:
        timeouts: The limits.
        now: When the turn begins.
    """

    def __init__(self, timeouts: Timeouts, now: float) -> None:
        self._limits = timeouts
        self._began = now
        self._alive = now
        self._looked = now
        self._tool_ended = False
        self._open: set[str] = set()
        self._asked = 0
        self._asked_at = now

    def begin(self, now: float) -> None:
        """Begin to count now. Questions to people that are open stay open."""
        self._began = self._alive = self._looked = self._asked_at = now
        self._tool_ended = False
        self._open.clear()

    @property
    def working(self) -> bool:
        """Whether an item is open or a person is asked: something is under way that takes its own time."""
        return bool(self._open) or self._asked > 0

    def activity(self, now: float) -> None:
        """Anything that the runtime reports is a sign of life."""
        self._alive = self._looked = now

    def item_opened(self, item_id: str, now: float) -> None:
        self._open.add(item_id)
        self.activity(now)

    def item_closed(self, item_id: str, now: float, *, tool: bool) -> None:
        """An item has ended; it may not have been opened before."""
        self._open.discard(item_id)
        self._tool_ended = self._tool_ended or tool
        self.activity(now)

    def person_asked(self, now: float) -> None:
        if not self._asked:
            self._asked_at = now
        self._asked += 1
        self.activity(now)

    def person_answered(self, now: float) -> None:
        """One of those who were asked has answered, or need not any more."""
        self._asked -= 1
        if not self._asked:
            self._began += now - self._asked_at
        self.activity(now)

    def quiet_handled(self, now: float) -> None:
        """The silence was looked into: the next check is due after another such time. It is no sign of life."""
        self._looked = now

    def next_check(self) -> NextCheck | None:
        """When a limit is reached if nothing happens until then; None when none ever is."""
        if self._asked:
            return None
        limits = self._limits
        checks = [
            NextCheck(self._began + _span(limits.turn), "turn"),
            NextCheck(self._alive + _span(limits.idle), "idle"),
        ]
        if self._tool_ended and not self._open:
            checks.append(NextCheck(self._looked + _span(limits.quiet), "quiet"))
        # Of two at the same time the one that ends the turn.
        first = min(checks, key=lambda check: check.at)
        return first if math.isfinite(first.at) else None

    def due(self, now: float) -> Limit | None:
        """The limit that is reached."""
        check = self.next_check()
        return check.limit if check is not None and check.at <= now else None


def _span(limit: float | None) -> float:
    return math.inf if limit is None else limit


# --- what has happened -----------------------------------------------------------------------------------------------

# Items that are only words; all others are tools, also unknown ones.
_WORDS: Final = NOTHING_YET | {"agentMessage", "plan", "hookPrompt", "enteredReviewMode", "exitedReviewMode"}
_NOT_THE_ANSWER: Final = frozenset({"commentary", "partial_answer"})

MAX_NOTICES: Final = 50
"""Notices of one turn; nobody reads more."""


class TurnProgress:
    """What has happened in one turn.

    Args:
        watch: Its time limits.
        meter: Its tokens.
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
        """Unfinished items, with what there is of them. Of messages the last at most: one that broke off was written
        again."""
        done = self.ended is not None and self.ended.status == "completed"
        tools = [item for item in self.unfinished.values() if item.type != "agentMessage"]
        messages = [item for item in self.unfinished.values() if item.type == "agentMessage"]
        if done or not messages:
            return tools
        last: Any = messages[-1]
        return [*tools, replace(last, text=last.text + "".join(self._words.get(last.id, ())))]

    def fail(self, fault: Fault) -> None:
        """Note a fault. The first one is the reason of those that follow from it."""
        if self.fault is None:
            self.fault = fault
        elif fault.replace_runtime:
            self.fault = replace(self.fault, replace_runtime=True)

    def blame(self, fault: Fault) -> None:
        """Note the fault that the turn was ended for, whatever went wrong meanwhile."""
        self.fault = fault

    def take(self, event: RuntimeEvent, now: float) -> None:
        """Take an event.

        Args:
            event: What the runtime reports.
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
                root: Any = item.root
                if item.type == "agentMessage" and root.text and root.phase not in _NOT_THE_ANSWER:
                    self.answered = True
                self.items.append(item)
            case Delta(item_id, text, "text"):
                self._words.setdefault(item_id, []).append(text)
                self._watch.activity(now)
            case UsageReported(total):
                self._meter.report(total, before_work=not self.began_work)
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
                self.ended = event
                self.interrupted = event.status == "interrupted"
                if event.fault is not None:
                    self.fail(event.fault)
                elif event.status == "failed":
                    self.fail(unexplained_fault())
            case _:
                assert_never(event)

    def _saw(self, item: ThreadItem) -> None:
        if item.type not in _WORDS:
            self.used_tools, self.answered = True, False


def _item_id(item: ThreadItem) -> str:
    found = item.get("id") if isinstance(item, dict) else getattr(item, "id", None)
    return str(found)


# --- the outcome -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class TurnResult:
    """What came of a turn.

    Args:
        final_text: The answer; empty when there was none.
        projected_messages: What the agent said and did, as chat messages, without the user's own.
        tool_iterations: How many tools were used.
        interrupted: Whether it was ended before it was done.
        error: What went wrong and what to do about it, for people; None when nothing did.
        turn_id: The runtime's id of the turn.
        thread_id: The runtime's id of the thread.
        usage: The tokens of this turn; None when the runtime did not tell.
        should_retire: Whether the session is not to be used again.
        fault: The same as `error` in parts; None when nothing went wrong.
        notices: What people should know besides: a thread that could not be resumed, a runtime that was quiet.
        compacted: Whether the runtime summed up its thread meanwhile.
    """

    final_text: str = ""
    projected_messages: list[dict[str, Any]] = field(default_factory=list)
    tool_iterations: int = 0
    interrupted: bool = False
    error: str | None = None
    turn_id: str | None = None
    thread_id: str | None = None
    usage: Usage | None = None
    should_retire: bool = False
    fault: Fault | None = None
    notices: list[str] = field(default_factory=list)
    compacted: bool = False


class UsageMeter:
    """The tokens of a thread, turn by turn.

    The total at the beginning of a turn is the last one that was reported. Of a resumed thread it may be unknown: then
    a total that is reported before the model has said or done anything counts as that, and otherwise the first turn has
    no usage. The total is known from then on.
    """

    def __init__(self) -> None:
        self._total: Usage | None = None
        self._before: Usage | None = None
        self._reported = False

    def open(self, total: Usage | None) -> None:
        """A thread is opened.

        Args:
            total: What it has used so far; None when that is not known.
        """
        self._total = total

    def begin(self) -> None:
        """A turn begins."""
        self._before, self._reported = self._total, False

    def report(self, total: Usage, *, before_work: bool) -> None:
        """Take a total that the runtime has reported.

        Args:
            total: Of the whole thread.
            before_work: Whether nothing has been said or done in this turn yet.
        """
        if self._before is None and before_work:
            self._before = total
        else:
            self._reported = True
        self._total = total

    def spent(self) -> Usage | None:
        """What the turn has used; None when nothing was reported, or the total before is unknown."""
        if not self._reported or self._before is None or self._total is None:
            return None
        return self._total.since(self._before)
