"""`Terminals`: the commands of a thread that run now, also those that outlived their turn, as clients see and end them.

It owns which item and turn each belongs to. The sessions themselves are those of `treadle.tools.command`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import Struct

from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.terminals import (
    ThreadBackgroundTerminal,
    ThreadBackgroundTerminalsListParams,
    ThreadBackgroundTerminalsListResponse,
)

if TYPE_CHECKING:
    from treadle.agent.turn_items import TurnItems
    from treadle.tools.command.command_sessions import CommandSession


class Terminal(Struct, frozen=True, eq=False):
    session: CommandSession
    items: TurnItems
    """Those of its turn."""
    item_id: str
    command: str
    cwd: str

    def on_wire(self) -> ThreadBackgroundTerminal:
        return ThreadBackgroundTerminal(
            item_id=self.item_id, process_id=self.session.process_id, command=self.command, cwd=self.cwd
        )


class Terminals:
    def __init__(self) -> None:
        self._known: dict[CommandSession, Terminal] = {}

    def add(self, terminal: Terminal) -> None:
        if not terminal.session.closed:
            self._known[terminal.session] = terminal

    def closed(self, session: CommandSession) -> None:
        """It has ended with all its children. To remember it would keep its output and its turn in memory."""
        self._known.pop(session, None)

    def _running(self) -> list[Terminal]:
        """Those that can be seen, in the order of their numbers."""
        running = [terminal for terminal in self._known.values() if terminal.session.running]
        return sorted(running, key=lambda terminal: terminal.session.id)

    def item_ids(self) -> frozenset[str]:
        return frozenset(terminal.item_id for terminal in self._running())

    def page(self, params: ThreadBackgroundTerminalsListParams) -> ThreadBackgroundTerminalsListResponse:
        after = -1 if params.cursor is None else _number(params.cursor, "cursor")
        rest = [terminal for terminal in self._running() if terminal.session.id > after]
        limit = len(rest) if params.limit is None else max(params.limit, 1)
        data = tuple(terminal.on_wire() for terminal in rest[:limit])
        return ThreadBackgroundTerminalsListResponse(
            data=data, next_cursor=data[-1].process_id if len(rest) > limit else None
        )

    async def terminate(self, process_id: str) -> bool:
        """End one with its descendants. Whether there was one."""
        number = _number(process_id, "background terminal process id")
        found = [terminal for terminal in self._running() if terminal.session.id == number]
        await _end(found)
        return bool(found)

    async def clean(self) -> None:
        """End all with their descendants."""
        await _end(self._running())

    def cut(self, turn: int) -> None:
        """Turns from this one on are gone: how their commands end is nobody's news."""
        for terminal in self._known.values():
            if terminal.items.turn >= turn:
                terminal.items.forget(terminal.item_id)


async def _end(terminals: list[Terminal]) -> None:
    """Each end has a deadline of its own."""
    async with asyncio.TaskGroup() as group:
        for terminal in terminals:
            group.create_task(terminal.session.terminate())


def _number(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise RpcError(INVALID_REQUEST, f"invalid {what}: {text[:200]!r} is not a number")
    return int(text)
