"""Records for tests of stores, with everything filled in that a test does not care about."""

from __future__ import annotations

from typing import Any

from treadle.store.contract import (
    CopyTurns,
    EventRecord,
    HistoryRecord,
    ItemRecord,
    QueuedRecord,
    Store,
    StoreError,
    ThreadRecord,
    TurnRecord,
    Write,
)

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


def queued(name: str, position: int, thread_id: str = A, data: bytes = b"{}") -> QueuedRecord:
    return QueuedRecord(thread_id, name, position, data)


async def keep(store: Store, *writes: Any) -> None:
    """Write to any number of threads, each under the claim that it has now."""
    by_thread: dict[str, list[Write]] = {}
    for write in writes:
        by_thread.setdefault(_thread_of(write), []).append(write)
    for thread_id, group in by_thread.items():
        loaded = await store.load(thread_id)
        await store.commit(thread_id, 0 if loaded is None else loaded.fence, group)


def _thread_of(write: Any) -> str:
    match write:
        case ThreadRecord():
            return write.id
        case CopyTurns():
            return write.target_id
    thread_id: str = write.thread_id
    return thread_id


async def refusal(store: Store, thread_id: str, fence: int, *writes: Any) -> StoreError:
    """How the store refuses these writes."""
    try:
        await store.commit(thread_id, fence, writes)
    except StoreError as error:
        return error
    raise AssertionError(f"this was written under fence {fence}: {writes}")


async def fence_of(store: Store, thread_id: str) -> int:
    loaded = await store.load(thread_id)
    assert loaded is not None
    return loaded.fence


async def filled(store: Store, turns: int = 4) -> None:
    """Turns of two items, two rows of history and two events each; every first item is a message."""
    await keep(store, thread())
    for number in range(1, turns + 1):
        first, second = 2 * number - 1, 2 * number
        await keep(
            store,
            turn(number),
            item(first, turn=number, text=f"question {number}"),
            item(second, turn=number),
            history(first, turn=number),
            history(second, turn=number),
            event(first),
            event(second),
        )
