"""What both earlier shapes have in common: their config, their clients and their results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.client.async_client import AsyncAppServerClient as NewAsyncClient
from treadle.client.client import AppServerClient as NewClient
from treadle.client.config import CodexConfig
from treadle.client.errors import CodexError
from treadle.client.exchange import wire_object
from treadle.client.result import Collector

if TYPE_CHECKING:
    from treadle.client.notification import Notification
    from treadle.client.router import Stream
    from treadle.protocol.app.items import ThreadItem
    from treadle.protocol.app.threads import ThreadTokenUsage
    from treadle.protocol.app.turns import Turn


@dataclass(slots=True, repr=False)
class AppServerConfig(CodexConfig):
    """`CodexConfig` under its earlier name; it introduces itself as the SDK did."""

    client_name: str = "codex_python_sdk"
    client_title: str = "Codex Python SDK"


@dataclass(slots=True)
class RunResult:
    """What `Thread.run` gives: the answer, or None when there is none, all items of the turn, and the tokens."""

    final_response: str | None
    items: list[ThreadItem]
    usage: ThreadTokenUsage | None


class RunCollector(Collector):
    """Takes the events of one turn."""

    def run_result(self) -> RunResult:
        """Raises `TurnFailed`, a `RuntimeError`, for a turn that failed."""
        whole = self.result()
        return RunResult(whole.final_response, self._items, whole.usage)


def completed_turn(last: Notification | None, turn_id: str) -> Turn:
    """The turn that the last event of its stream tells of, whatever came of it: bare, as servers told it then."""
    turn: Turn | None = getattr(last.payload, "turn", None) if last is not None else None
    if turn is None or turn.id != turn_id:
        raise CodexError(f"the stream of turn {turn_id} ended without its completion")
    return msgspec.structs.replace(turn, items=[])


def params_dict(params: Any) -> dict[str, Any]:
    """Params as a plain object with the names of the wire."""
    return wire_object(params) or {}


class AppServerClient(NewClient):
    """The blocking client, with the calls that a turn's stream was made of."""

    def __init__(self, config: CodexConfig | None = None, approval_handler: Any = None) -> None:
        super().__init__(config, approval_handler)
        self._registered: dict[str, Stream] = {}

    def register_turn_notifications(self, turn_id: str) -> None:
        """Say that somebody reads a turn."""
        if turn_id not in self._registered:
            self._registered[turn_id] = self.open_turn(turn_id)

    def unregister_turn_notifications(self, turn_id: str) -> None:
        """The reader of a turn has gone."""
        stream = self._registered.pop(turn_id, None)
        if stream is not None:
            self.close_turn(stream)

    def next_turn_notification(  # one id then, two now: both come here
        self, *ids: str, timeout: float | None = None
    ) -> Notification:
        """The next event of a turn, which the last of the ids names; waits for it."""
        return super().next_turn_notification("", ids[-1], timeout=timeout)


class AsyncAppServerClient(NewAsyncClient):
    """The same for asyncio."""

    def __init__(self, config: CodexConfig | None = None, approval_handler: Any = None) -> None:
        super().__init__(config, approval_handler)
        self._registered: dict[str, Stream] = {}

    def register_turn_notifications(self, turn_id: str) -> None:
        """Say that somebody reads a turn."""
        if turn_id not in self._registered:
            self._registered[turn_id] = self.open_turn(turn_id)

    def unregister_turn_notifications(self, turn_id: str) -> None:
        """The reader of a turn has gone."""
        stream = self._registered.pop(turn_id, None)
        if stream is not None:
            self.close_turn(stream)

    async def next_turn_notification(  # one id then, two now: both come here
        self, *ids: str, timeout: float | None = None
    ) -> Notification:
        """The next event of a turn, which the last of the ids names; waits for it."""
        return await super().next_turn_notification("", ids[-1], timeout=timeout)
