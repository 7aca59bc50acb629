"""`Follower`: one thread as a client hears it. It counts what is missing, what comes twice and texts that are torn.

No I/O: frames in, counts out. While it is held, live events wait until what was missed has been sent.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct


class Message(Struct, rename="camel"):
    """Any frame, as far as it is looked at."""

    id: int | None = None
    method: str | None = None
    params: Raw = Raw(b"{}")
    result: Raw = Raw(b"{}")
    error: Any = None
    seq: int | None = None


class Named(Struct):
    id: str = ""
    status: Any = None
    type: str = ""
    text: str = ""


class Params(Struct, rename="camel"):
    thread_id: str = ""
    turn: Named | None = None
    item: Named | None = None
    thread: Named | None = None
    item_id: str = ""
    delta: str = ""


read_message: Final = msgspec.json.Decoder(Message).decode
read_params: Final = msgspec.json.Decoder(Params).decode


class Follower:
    def __init__(self, thread: str) -> None:
        self.thread = thread
        self.seq = 0
        self.events = self.lost = self.doubled = self.torn = 0
        self.running: str | None = None
        self.began = asyncio.Event()  # some text of the running turn has come
        self._ends: dict[str, asyncio.Future[str]] = {}
        self._texts: dict[str, list[str]] = {}
        self._held: list[tuple[Message, Params]] | None = None

    def end_of(self, turn: str) -> asyncio.Future[str]:
        """How the turn ends; it may have been heard of already."""
        return self._ends.setdefault(turn, asyncio.get_running_loop().create_future())

    def forget(self, turn: str) -> None:
        self._ends.pop(turn, None)

    # --- coming back ---

    def hold(self) -> None:
        """The connection was cut: of what is under way the deltas are not known any more."""
        self._held = []
        self._texts.clear()

    def catch_up(self, missed: list[Message], seq: int) -> None:
        """What was missed up to `seq`, then what has come since."""
        for message in missed:
            if message.seq is not None and message.seq <= seq:
                self._take(message, read_params(message.params), live=False)
        self.lost += max(0, seq - self.seq)
        self.seq = max(self.seq, seq)
        held, self._held = self._held or [], None
        for message, params in held:
            # Every client hears these, also before it is subscribed: then they are among what was missed, too.
            if message.method != "thread/status/changed" or message.seq is None or message.seq > seq:
                self._take(message, params)

    # --- hearing ---

    def hear(self, message: Message, params: Params) -> None:
        if self._held is None:
            self._take(message, params)
        else:
            self._held.append((message, params))

    def _take(self, message: Message, params: Params, *, live: bool = True) -> None:
        """Deltas are not sent again: of what was missed, texts cannot be checked."""
        if params.item_id and params.delta:
            if params.item_id in self._texts:
                self._texts[params.item_id].append(params.delta)
            self.began.set()
            return
        if message.seq is not None and not self._count(message.seq):
            return
        if params.item is not None and live:
            self._follow_item(str(message.method), params.item)
        if params.turn is not None:
            self._follow_turn(str(message.method), params.turn)

    def _count(self, seq: int) -> bool:
        self.events += 1
        if seq <= self.seq:
            self.doubled += 1
            return False
        self.lost += seq - self.seq - 1
        self.seq = seq
        return True

    def _follow_item(self, method: str, item: Named) -> None:
        if item.type != "agentMessage":
            return
        if method == "item/started":
            self._texts[item.id] = []
        elif method == "item/completed" and item.id in self._texts:
            self.torn += "".join(self._texts.pop(item.id)) != item.text

    def _follow_turn(self, method: str, turn: Named) -> None:
        if method == "turn/started":
            self.running = turn.id
            self.began.clear()
        elif method == "turn/completed":
            self.running = None
            self._texts.clear()
            end = self.end_of(turn.id)
            if not end.done():
                end.set_result(str(turn.status))
