"""`TurnReport`: what a turn says beside its items: warnings, errors, and what it has used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from treadle.protocol.app.notifications import ErrorNotification, WarningNotification
from treadle.protocol.app.thread_notifications import ThreadTokenUsageUpdatedNotification
from treadle.protocol.app.turn_errors import TurnError

if TYPE_CHECKING:
    from treadle.agent.thread import Thread
    from treadle.llm import TokenUsage


class TurnReport:
    """`pending_usage` is that of a response whose calls still run; `tokens` are those of the turn so far."""

    def __init__(self, thread: Thread, turn_id: str) -> None:
        self._thread = thread
        self._turn_id = turn_id
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
        price = thread.model_facts.price
        cost = None if price is None else price.cost(usage)
        thread.state = structs.replace(thread.state, usage=thread.state.usage.add(usage, self._turn_id, cost))
        self._emit_usage()

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
