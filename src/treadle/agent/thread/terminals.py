"""`Terminals`: the commands of a thread that run now, also those that outlived their turn, as clients see and end them.

It owns which item and turn each belongs to. The sessions themselves are those of `treadle.tools.command`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.thread_methods import (
    ThreadBackgroundTerminal,
    ThreadBackgroundTerminalsListParams,
    ThreadBackgroundTerminalsListResponse,
)

if TYPE_CHECKING:
    from treadle.agent.turn.turn_items import OpenItem, OpenItems, TurnItems
    from treadle.protocol.app.items import KnownItem
    from treadle.tools.command.command_sessions import CommandSession


class Terminal(Struct, frozen=True, eq=False):
    session: CommandSession
    items: TurnItems
    """Those of its turn."""
    opened: OpenItem
    command: str
    cwd: str

    def on_wire(self) -> ThreadBackgroundTerminal:
        return ThreadBackgroundTerminal(
            item_id=self.opened.item.id, process_id=self.session.process_id, command=self.command, cwd=self.cwd
        )

    @property
    def is_open(self) -> bool:
        """Whether the end of the command is still to be published."""
        return self.items.find(self.opened.item.id) is self.opened


class Terminals:
    def __init__(self) -> None:
        self._known: dict[CommandSession, Terminal] = {}
        self._ending: set[CommandSession] = set()

    def add(self, terminal: Terminal) -> None:
        if not terminal.session.closed:
            self._known[terminal.session] = terminal

    def closed(self, session: CommandSession) -> None:
        """A command has ended with all its children, and that is stored. To hold it here would hold its output and its
        turn in memory."""
        self._known.pop(session, None)
        self._ending.discard(session)

    def _listed(self) -> list[Terminal]:
        """The terminals that clients see, in the order of their numbers."""
        known = self._known.values()
        running = [each for each in known if each.session.running and each.session not in self._ending]
        return sorted(running, key=lambda terminal: terminal.session.id)

    def open_items(self) -> OpenItems:
        """The items of commands whose end is not stored yet."""
        return {(terminal.items.turn, terminal.opened.item.id): terminal.opened for terminal in self._known.values()}

    def left_open(self, turn: int) -> list[KnownItem]:
        """The open items of other turns, as far as they have come."""
        known = self._known.values()
        return [terminal.opened.so_far() for terminal in known if terminal.is_open and terminal.items.turn != turn]

    def page(self, params: ThreadBackgroundTerminalsListParams) -> ThreadBackgroundTerminalsListResponse:
        after = -1 if params.cursor is None else _number(params.cursor, "cursor")
        rest = [terminal for terminal in self._listed() if terminal.session.id > after]
        limit = len(rest) if params.limit is None else max(params.limit, 1)
        data = tuple(terminal.on_wire() for terminal in rest[:limit])
        return ThreadBackgroundTerminalsListResponse(
            data=data, next_cursor=data[-1].process_id if len(rest) > limit else None
        )

    def take(self, process_id: str) -> Terminal | None:
        """Take a terminal off the list, to be ended; None if there is no such one."""
        number = _number(process_id, "background terminal process id")
        for terminal in self._listed():
            if terminal.session.id == number:
                self._ending.add(terminal.session)
                return terminal
        return None

    def take_all(self) -> list[Terminal]:
        """All that are to be ended: they are listed no more."""
        taken = self._listed()
        self._ending.update(terminal.session for terminal in taken)
        return taken

    def cut(self, turn: int) -> None:
        """Turns from this one on are gone: how their commands end is nobody's news."""
        for terminal in self._known.values():
            if terminal.items.turn >= turn:
                terminal.items.forget(terminal.opened.item.id)


def _number(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise RpcError(INVALID_REQUEST, f"invalid {what}: {text[:200]!r} is not a number")
    return int(text)
