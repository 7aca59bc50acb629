"""`PendingInput`: what waits to be handed to the model in a turn: what the user said, or what a program has to tell.

It owns how much may wait, and the way from there into the model's history and onto the clients' screens.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from treadle.agent.ids import new_id
from treadle.agent.user_input import model_items, text_of
from treadle.errors import OVERLOAD_DATA, OVERLOADED, RpcError
from treadle.protocol.app.inputs import UserInput
from treadle.protocol.app.items import FunctionCallOutputThreadItem, UserMessageThreadItem
from treadle.protocol.app.turns import TurnToolOutput

if TYPE_CHECKING:
    from treadle.agent.thread import Thread
    from treadle.agent.turn_items import TurnItems

# Messages that may wait for the running response; each may be a mebibyte.
MAX_PENDING: Final = 64
MAX_PREVIEW: Final = 2_000


class Input(Struct, frozen=True):
    parts: tuple[UserInput, ...]
    client_id: str | None = None
    tool_output: TurnToolOutput | None = None

    @property
    def is_empty(self) -> bool:
        return not self.parts and self.tool_output is None


class PendingInput:
    """Of one turn, whose number it is."""

    def __init__(self, thread: Thread, number: int, items: TurnItems) -> None:
        self._thread = thread
        self._number = number
        self._items = items
        self._waiting: deque[Input] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, given: Input) -> None:
        """Raises `RpcError` when too much waits already. Nothing is not added."""
        if given.is_empty:
            return
        if len(self._waiting) >= MAX_PENDING:
            raise RpcError(
                OVERLOADED, f"{MAX_PENDING} messages wait for the model already; retry later.", OVERLOAD_DATA
            )
        self._waiting.append(given)

    def clear(self) -> None:
        self._waiting.clear()

    async def take(self) -> None:
        """Hand what waits to the model, and show it."""
        await self._thread.load_history()
        while self._waiting:
            given = self._waiting[0]  # until it was read: an interrupt meanwhile must not lose it
            if given.tool_output is not None:
                self._waiting.popleft()
                self._take_tool_output(given.tool_output)
                continue
            items = await model_items(given.parts, self._thread.settings.cwd)
            self._waiting.popleft()
            self._take_message(given, items)

    def _take_message(self, given: Input, items: list[dict[str, object]]) -> None:
        thread = self._thread
        writes = thread.remember(items, self._number)
        if not thread.record.listed:
            preview = thread.record.preview or text_of(given.parts)[:MAX_PREVIEW]
            writes.append(thread.save(preview=preview, listed=True))
        item = UserMessageThreadItem(id=new_id(), content=given.parts, client_id=given.client_id)
        self._items.show(item, *writes)

    def _take_tool_output(self, told: TurnToolOutput) -> None:
        item = FunctionCallOutputThreadItem(
            id=f"fco_{new_id()}", name=told.name, output=told.output, namespace=told.namespace
        )
        output = {"type": "function_call_output", "name": told.name, "output": told.output}
        if told.namespace is not None:
            output["namespace"] = told.namespace
        self._items.show(item, *self._thread.remember([output], self._number))
