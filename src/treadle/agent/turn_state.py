"""`TurnState`: how far a turn is, as it is kept and as clients see it; `TurnReport`: what it says beside its items."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import structs

from treadle.agent.ids import new_id, now_ms
from treadle.agent.state import Usage
from treadle.protocol.app.base import encode
from treadle.protocol.app.notifications import ErrorNotification, WarningNotification
from treadle.protocol.app.thread_notifications import ThreadTokenUsageUpdatedNotification
from treadle.protocol.app.turn_errors import TurnError
from treadle.protocol.app.turns import Turn as WireTurn
from treadle.store.contract import TurnRecord

if TYPE_CHECKING:
    from treadle.agent.aside import Aside
    from treadle.agent.thread import Thread
    from treadle.llm import TokenUsage
    from treadle.llm.catalogue import Price

Kind: TypeAlias = Literal["regular", "compact", "shell", "review"]
Status: TypeAlias = Literal["inProgress", "completed", "interrupted", "failed"]


class TurnState:
    """`begun` is whether the turn was announced; until then nobody but who asked for it knows it."""

    def __init__(self, number: int) -> None:
        self.id: str = new_id()
        self.number: int = number
        self.status: Status = "inProgress"
        self.error: TurnError | None = None
        self.begun: bool = False
        self.duration_ms: int | None = None
        self._started_ms = 0
        self._completed_ms: int | None = None
        self._began = 0.0  # by the clock that nobody sets

    def begin(self) -> None:
        self._started_ms = now_ms()
        self._began = time.monotonic()
        self.begun = True

    def fail(self, error: TurnError) -> None:
        self.status = "failed"
        self.error = error

    def end(self) -> None:
        self._completed_ms = max(now_ms(), self._started_ms)  # the clock may have been set back meanwhile
        self.duration_ms = int((time.monotonic() - self._began) * 1000) if self.begun else 0

    def record(self, thread_id: str, usage: Usage) -> TurnRecord:
        """As it is kept; `usage` is that of the thread, which counts when the turn is over."""
        return TurnRecord(
            thread_id=thread_id,
            number=self.number,
            id=self.id,
            status=self.status,
            started_at=self._started_ms // 1000 if self._started_ms else None,
            completed_at=None if self._completed_ms is None else self._completed_ms // 1000,
            duration_ms=self.duration_ms,
            error=None if self.error is None else encode(self.error),
            usage=None if self.status == "inProgress" else encode(usage),
        )

    def wire(self) -> WireTurn:
        return WireTurn(
            id=self.id,
            items=(),
            status=self.status,
            completed_at=None if self._completed_ms is None else self._completed_ms // 1000,
            duration_ms=self.duration_ms,
            error=self.error,
            items_view="notLoaded",
            root_turn_id=self.id,
            started_at=self._started_ms // 1000 if self._started_ms else None,
        )

    def fresh(self) -> WireTurn:
        """As it is given to whoever asked for it."""
        return structs.replace(self.wire(), started_at=None)


class TurnReport:
    """`pending_usage` is that of a response whose calls still run; `tokens` are those of the turn so far."""

    def __init__(self, thread: Thread, turn_id: str, aside: Aside | None = None) -> None:
        self._thread = thread
        self._turn_id = turn_id
        self._aside = aside
        self.pending_usage: TokenUsage | None = None
        self.tokens: int = 0

    def warning(self, message: str) -> None:
        self._thread.journal.emit("warning", WarningNotification(message=message, thread_id=self._thread.id))

    def error(self, error: TurnError, *, will_retry: bool) -> None:
        self._thread.journal.emit("error", self.error_params(error, will_retry=will_retry))

    def error_params(self, error: TurnError, *, will_retry: bool) -> ErrorNotification:
        return ErrorNotification(thread_id=self._thread.id, turn_id=self._turn_id, error=error, will_retry=will_retry)

    def usage(self) -> None:
        """Count a response that is over with its calls, once."""
        usage, self.pending_usage = self.pending_usage, None
        if usage is None:
            return
        thread = self._thread
        self.tokens += usage.total_tokens
        price = thread.model_facts.price if self._aside is None else self._aside.model_facts(thread).price
        cost = None if price is None else price.cost(usage)
        before, added = thread.state.usage, thread.state.usage.add(usage, self._turn_id, cost)
        if self._aside is not None:  # it costs, and the context of the thread is what it was
            added = structs.replace(added, last=before.last)
        thread.state = structs.replace(thread.state, usage=added)
        self._emit_usage()

    def review_cost(self, usage: TokenUsage | None, price: Price | None) -> None:
        """An automatic review costs something, but its tokens are not those of the conversation."""
        thread = self._thread
        cost = None if usage is None or price is None else price.cost(usage)
        thread.state = structs.replace(thread.state, usage=thread.state.usage.spend(self._turn_id, cost))

    def context_size(self, tokens: int) -> None:
        """After a compaction: nothing was used for it, but the context has another size, which is estimated."""
        thread = self._thread
        usage = thread.state.usage.resized(tokens, self._turn_id)
        thread.state = structs.replace(thread.state, usage=usage)
        self._emit_usage()

    def _emit_usage(self) -> None:
        params = usage_notification(self._thread, self._turn_id)
        self._thread.journal.emit("thread/tokenUsage/updated", params, self._thread.save())


def usage_notification(thread: Thread, turn_id: str) -> ThreadTokenUsageUpdatedNotification:
    usage = thread.state.usage.on_wire(thread.model_facts.usable_window)
    return ThreadTokenUsageUpdatedNotification(thread_id=thread.id, turn_id=turn_id, token_usage=usage)
