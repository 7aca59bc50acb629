"""Rows of tables as records: in which form each back end keeps them, and whether what was read is what was written."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from treadle.store.batches import SEPARATOR
from treadle.store.contract import EventRecord, ItemRecord, ThreadRecord, TurnRecord

THREAD_COLUMNS: Final = ", ".join(ThreadRecord.__struct_fields__)
TURN_COLUMNS: Final = ", ".join(TurnRecord.__struct_fields__)
ITEM_COLUMNS: Final = ", ".join(ItemRecord.__struct_fields__)


class Unreadable(Exception):
    """A row is not what was written; the text says which."""


_json_only: Final = msgspec.json.Decoder(msgspec.Raw).decode


def sound(data: Any, what: str, thread_id: str) -> bytes:
    """The data when it is JSON, else `Unreadable`: it goes out as it is, and would break the message that it is in."""
    try:
        if isinstance(data, bytes):
            data.decode()
            _json_only(data)
            return data
    except (UnicodeDecodeError, msgspec.DecodeError):
        pass
    raise Unreadable(f"{what} of thread {thread_id} cannot be read")


# --- texts -----------------------------------------------------------------------------------------------------------

# Where a text may have no NUL, it is written with this before it, and so is the letter itself, which means nothing.
_ESCAPE: Final = "\ue000"


def text_in(text: str | None) -> str | None:
    """A text for a column that cannot have a NUL."""
    if text is None or ("\0" not in text and _ESCAPE not in text):
        return text
    return text.replace(_ESCAPE, f"{_ESCAPE}e").replace("\0", f"{_ESCAPE}0")


def text_out(text: str | None) -> str | None:
    """The text that was given to `text_in`."""
    if text is None or _ESCAPE not in text:
        return text
    return text.replace(f"{_ESCAPE}0", "\0").replace(f"{_ESCAPE}e", _ESCAPE)


def clean(text: str) -> str:
    """A text to look for, without what no database can take: a NUL would end it, and half a character is none."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8")


def like_letter(letter: str) -> str:
    """A letter for LIKE with the escape `!`, in a database that knows the cases of ASCII alone: any letter stands for
    one with others."""
    if letter.isascii():
        return f"!{letter}" if letter in "%_!" else letter
    return "_" if letter.lower() != letter.upper() else letter


def split(thread_id: str, first_seq: int, last_seq: int, frames: Any) -> list[EventRecord]:
    """The events of a row, as it was read. Raises `Unreadable` when it does not hold as many as it says."""
    if first_seq == last_seq:
        return [EventRecord(thread_id, last_seq, frames)]
    parts = frames.split(SEPARATOR) if isinstance(frames, bytes) else []
    if len(parts) != last_seq - first_seq + 1:
        raise Unreadable(f"the row of event {last_seq} of thread {thread_id} cannot be read")
    return [EventRecord(thread_id, number, part) for number, part in enumerate(parts, first_seq)]


# --- rows ------------------------------------------------------------------------------------------------------------


def thread_record(row: tuple[Any, ...]) -> ThreadRecord:
    return ThreadRecord(
        id=row[0],
        created_at=row[1],
        updated_at=row[2],
        recency_at=row[3],
        cwd=row[4],
        model=row[5],
        model_provider=row[6],
        source=row[7],
        state=row[8],
        originator=row[9],
        name=row[10],
        preview=row[11],
        forked_from_id=row[12],
        archived=row[13] == 1,
        listed=row[14] == 1,
        parent_thread_id=row[15],
    )


def turn_record(row: tuple[Any, ...]) -> TurnRecord:
    return TurnRecord(
        thread_id=row[0],
        number=row[1],
        id=row[2],
        status=row[3],
        started_at=row[4],
        completed_at=row[5],
        duration_ms=row[6],
        error=None if row[7] is None else sound(row[7], f"turn {row[1]}", row[0]),
        usage=None if row[8] is None else sound(row[8], f"turn {row[1]}", row[0]),
    )


def item_record(row: tuple[Any, ...]) -> ItemRecord:
    return ItemRecord(
        thread_id=row[0],
        number=row[1],
        turn=row[2],
        id=row[3],
        type=row[4],
        data=sound(row[5], f"item {row[1]}", row[0]),
        text=row[6],
        open=row[7] == 1,
        started_at_ms=row[8],
        completed_at_ms=row[9],
    )
