"""The meaning of the writes in plain Python: what a store must hold after them."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from treadle.store import (
    Compaction,
    CopyTurns,
    Counters,
    CutTurns,
    DeleteThread,
    DropItem,
    DropQueued,
    EventRecord,
    HistoryRecord,
    ItemRecord,
    PruneEvents,
    QueuedRecord,
    ThreadRecord,
    TurnRecord,
)


class PlainThread:
    def __init__(self, record: ThreadRecord) -> None:
        self.record = record
        self.turns: dict[int, TurnRecord] = {}
        self.items: dict[int, ItemRecord] = {}
        self.history: dict[int, HistoryRecord] = {}
        self.compactions: dict[int, int] = {}
        self.events: dict[int, EventRecord] = {}
        self.queue: dict[str, QueuedRecord] = {}
        self.pruned = 0

    def counters(self) -> Counters:
        rows: list[Any] = [self.turns, self.items, self.history]
        return Counters(max(self.events, default=self.pruned), *(max(row, default=0) for row in rows))

    def model_input(self) -> list[HistoryRecord]:
        start = self.compactions[max(self.compactions)] if self.compactions else 0
        return [row for number, row in sorted(self.history.items()) if number >= start]


class PlainStore:
    def __init__(self) -> None:
        self.threads: dict[str, PlainThread] = {}

    def write(self, write: Any) -> None:
        match write:
            case ThreadRecord(id=thread_id):
                self.threads.setdefault(thread_id, PlainThread(write)).record = write
            case TurnRecord():
                self.threads[write.thread_id].turns[write.number] = write
            case ItemRecord():
                self.threads[write.thread_id].items[write.number] = write
            case HistoryRecord():
                self.threads[write.thread_id].history[write.number] = write
            case EventRecord():
                self.threads[write.thread_id].events[write.seq] = write
            case Compaction():
                self.threads[write.thread_id].compactions[write.turn] = write.start
            case DropItem():
                self.threads[write.thread_id].items.pop(write.number, None)
            case QueuedRecord():
                self.threads[write.thread_id].queue[write.id] = write
            case DropQueued():
                self.threads[write.thread_id].queue.pop(write.id, None)
            case CutTurns():
                self._cut(self.threads[write.thread_id], write.turn)
            case CopyTurns():
                self._copy(write)
            case PruneEvents():
                self._prune(self.threads[write.thread_id], write.seq)
            case DeleteThread():
                self.threads.pop(write.thread_id, None)
            case _:
                raise AssertionError(write)

    def _cut(self, thread: PlainThread, turn: int) -> None:
        thread.turns = {number: row for number, row in thread.turns.items() if number < turn}
        thread.items = {number: row for number, row in thread.items.items() if row.turn < turn}
        thread.history = {number: row for number, row in thread.history.items() if row.turn < turn}
        thread.compactions = {number: start for number, start in thread.compactions.items() if number < turn}

    def _copy(self, write: CopyTurns) -> None:
        source, target = self.threads[write.source_id], self.threads[write.target_id]
        last = 10**9 if write.last_turn is None else write.last_turn
        new = write.target_id
        target.turns = {n: replace(row, thread_id=new) for n, row in source.turns.items() if n <= last}
        target.items = {n: replace(row, thread_id=new) for n, row in source.items.items() if row.turn <= last}
        target.history = {n: replace(row, thread_id=new) for n, row in source.history.items() if row.turn <= last}
        target.compactions = {turn: start for turn, start in source.compactions.items() if turn <= last}

    def _prune(self, thread: PlainThread, seq: int) -> None:
        thread.pruned = max([thread.pruned, *(number for number in thread.events if number <= seq)])
        thread.events = {number: row for number, row in thread.events.items() if number > seq}
