"""Records for tests, with everything filled in that a test does not care about."""

from __future__ import annotations

from typing import Any

from treadle.store import EventRecord, HistoryRecord, ItemRecord, ThreadRecord, TurnRecord

A = "0199a213-81a0-7e00-8000-00000000000a"
B = "0199a213-81a0-7e00-8000-00000000000b"
C = "0199a213-81a0-7e00-8000-00000000000c"


def thread(thread_id: str = A, **fields: Any) -> ThreadRecord:
    values: dict[str, Any] = {
        "id": thread_id,
        "created_at": 1_000,
        "updated_at": 2_000,
        "recency_at": 3_000,
        "cwd": "/work",
        "model": "a-model",
        "model_provider": "a-provider",
        "source": "cli",
        "state": b'{"effort":"low"}',
        "listed": True,
    }
    return ThreadRecord(**{**values, **fields})


def turn(number: int, thread_id: str = A, **fields: Any) -> TurnRecord:
    return TurnRecord(
        **{"thread_id": thread_id, "number": number, "id": f"turn-{number}", "status": "completed", **fields}
    )


def item(number: int, thread_id: str = A, **fields: Any) -> ItemRecord:
    values: dict[str, Any] = {
        "thread_id": thread_id,
        "number": number,
        "turn": 1,
        "id": f"item-{number}",
        "type": "agentMessage",
        "data": b'{"n":%d}' % number,
    }
    return ItemRecord(**{**values, **fields})


def history(number: int, thread_id: str = A, turn: int = 1, data: bytes = b"{}") -> HistoryRecord:
    return HistoryRecord(thread_id, number, turn, data)


def event(seq: int, thread_id: str = A, frame: bytes = b"{}") -> EventRecord:
    return EventRecord(thread_id, seq, frame)
