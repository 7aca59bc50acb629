"""`TurnResult`: the outcome of a turn, and how it is assembled from the events of its stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, cast

from treadle.client.notification import Notification
from treadle.client.sdk_errors import CodexError, TurnFailed

if TYPE_CHECKING:
    from treadle.client.output_type import OutputType
    from treadle.protocol.app.items import ThreadItem
    from treadle.protocol.app.threads import ThreadTokenUsage
    from treadle.protocol.app.turn_errors import TurnError
    from treadle.protocol.app.turns import Turn, TurnStatus

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    OutputT = TypeVar("OutputT", default=Any)
else:
    from typing import TypeVar

    OutputT = TypeVar("OutputT")  # with a default only from Python 3.13 on


@dataclass(slots=True)
class TurnResult(Generic[OutputT]):
    """What came of a turn.

    Two results are equal when what the agent did and said is: which turn it was, and when, is not compared. A type
    checker knows `output`: `run(…, output_type=Answer)` gives a `TurnResult[Answer]`.

    Args:
        id: The id of the turn.
        status: How it ended: `completed` or `interrupted`. (One that failed raises `TurnFailed`.)
        error: What the server says went wrong, if something did.
        started_at: When it began, in Unix seconds.
        completed_at: When it ended, in Unix seconds.
        duration_ms: How long it took, in milliseconds.
        final_response: The answer of the agent, or None when it gave none.
        items: What the agent did and said; the user's own message is not among them.
        usage: The tokens of the thread so far; its `cost_usd` is what the turn has cost in dollars, and
            `thread_cost_usd` the thread, None when a price is not known.
        output: The answer as the `output_type` that was asked for; None without one, and for an interrupted turn.
    """

    id: str = field(default="", compare=False)
    status: TurnStatus = field(default=cast("TurnStatus", "completed"), compare=False)
    error: TurnError | None = field(default=None, compare=False)
    started_at: int | None = field(default=None, compare=False)
    completed_at: int | None = field(default=None, compare=False)
    duration_ms: int | None = field(default=None, compare=False)
    final_response: str | None = None
    items: list[ThreadItem] = field(default_factory=list)
    usage: ThreadTokenUsage | None = None
    output: OutputT = field(default=cast("Any", None))


class Collector:
    """Collects the events of one turn."""

    def __init__(self, turn_id: str) -> None:
        self._turn_id = turn_id
        self._items: list[Any] = []
        self._usage: ThreadTokenUsage | None = None
        self._turn: Turn | None = None

    def add(self, event: Notification) -> None:
        payload: Any = event.payload
        if event.method == "item/completed":
            if hasattr(payload, "item") and payload.turn_id == self._turn_id:
                self._items.append(payload.item)
        elif event.method == "thread/tokenUsage/updated":
            if hasattr(payload, "token_usage") and payload.turn_id == self._turn_id:
                self._usage = payload.token_usage
        elif event.method == "turn/completed" and hasattr(payload, "turn") and payload.turn.id == self._turn_id:
            self._turn = payload.turn

    def result(self, output_type: OutputType[OutputT] | None = None) -> TurnResult[OutputT]:
        """Raises `TurnFailed` for a turn that failed, and `OutputError` for a response of the wrong shape."""
        turn = self._turn
        if turn is None:
            raise CodexError(f"the stream of turn {self._turn_id} ended without its completion")
        if turn.status == "failed":
            told = turn.error.message if turn.error is not None else ""
            raise TurnFailed(told or "the turn failed, and the server does not say why", turn)
        response = final_response(self._items)
        output = output_type.read(response) if output_type is not None and turn.status == "completed" else None
        return TurnResult(
            id=turn.id,
            status=cast("TurnStatus", turn.status),
            error=turn.error,
            started_at=turn.started_at,
            completed_at=turn.completed_at,
            duration_ms=turn.duration_ms,
            final_response=response,
            items=[item for item in self._items if item.type != "userMessage"],
            usage=self._usage,
            output=cast("OutputT", output),
        )


def final_response(items: list[Any]) -> str | None:
    """The last message that is marked as the answer; else the last one without a mark, an empty one too."""
    messages = [item.root for item in items if item.type == "agentMessage" and hasattr(item.root, "text")]
    for wanted in ("final_answer", None):
        for message in reversed(messages):
            if message.phase == wanted:
                text: str = message.text
                return text
    return None
