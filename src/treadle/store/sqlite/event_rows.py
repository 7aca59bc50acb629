"""How events lie in their table: those that were committed together share a row.

Pure. A row has the numbers of its first and its last event, and the frames of all with a newline between them: JSON has
none inside, unless somebody set it out over lines, and such a frame is alone in its row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from treadle.store.contract import EventRecord
from treadle.store.sqlite.failures import Unreadable

# Who wants one event reads the whole row: it must not be much more than a page of events that a client asks for.
MAX_COUNT: Final = 256
MAX_BYTES: Final = 64 * 1024
_SEPARATOR: Final = b"\n"


class EventRow(NamedTuple):
    """Numbers have no gaps in it."""

    thread_id: str
    first_seq: int
    last_seq: int
    frames: bytes


def join(events: Iterable[EventRecord]) -> Iterator[EventRow]:
    """The rows of these events, in their order; only numbers that follow each other share one."""
    held: list[EventRecord] = []
    size = 0
    for event in events:
        if held and not _fits(held, size, event):
            yield _row(held)
            held, size = [], 0
        held.append(event)
        size += len(event.frame)
    if held:
        yield _row(held)


def _fits(held: list[EventRecord], size: int, event: EventRecord) -> bool:
    last = held[-1]
    return (
        event.seq == last.seq + 1
        and event.thread_id == last.thread_id
        and len(held) < MAX_COUNT
        and size + len(event.frame) <= MAX_BYTES
        and _SEPARATOR not in event.frame
        and _SEPARATOR not in last.frame
    )


def _row(held: list[EventRecord]) -> EventRow:
    frames = _SEPARATOR.join([event.frame for event in held])
    return EventRow(held[0].thread_id, held[0].seq, held[-1].seq, frames)


def split(thread_id: str, first_seq: int, last_seq: int, frames: Any) -> list[EventRecord]:
    """The events of a row, as it was read. Raises `Unreadable` when it does not hold as many as it says."""
    if first_seq == last_seq:
        return [EventRecord(thread_id, last_seq, frames)]
    parts = frames.split(_SEPARATOR) if isinstance(frames, bytes) else []
    if len(parts) != last_seq - first_seq + 1:
        raise Unreadable(f"the row of event {last_seq} of thread {thread_id} cannot be read")
    return [EventRecord(thread_id, number, part) for number, part in enumerate(parts, first_seq)]
