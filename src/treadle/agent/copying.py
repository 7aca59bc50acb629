"""Copying a thread from one store into another: a fork that is not to be kept."""

from __future__ import annotations

from msgspec import structs

from treadle.store.contract import Store, Write


async def copied_rows(source: Store, source_id: str, target_id: str, last_turn: int | None) -> list[Write]:
    """Turns, items and history, under another thread's id. What was compacted away is left out."""
    turns = [turn for turn in await source.turns(source_id) if last_turn is None or turn.number <= last_turn]
    if not turns:
        return []
    numbers = (turns[0].number, turns[-1].number)
    items = await source.items(source_id, turns=numbers)
    history = [entry for entry in await source.history(source_id) if entry.turn <= numbers[1]]
    return [
        *(structs.replace(turn, thread_id=target_id) for turn in turns),
        *(structs.replace(item, thread_id=target_id) for item in items),
        *(structs.replace(entry, thread_id=target_id, number=n) for n, entry in enumerate(history, start=1)),
    ]
