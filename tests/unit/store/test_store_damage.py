"""A damaged file: the error says which file, which part and what to do; what is sound can still be read and written."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from treadle.store import CutTurns, EventRecord, SqliteStore, StoreError, ThreadQuery, failure, open_sqlite
from treadle.testing import A, B, commit, event, history, item, thread, turn

pytestmark = pytest.mark.anyio

PAGE = 4096
ROWS = 60


async def filled(home: Path) -> Path:
    """Two threads; the file."""
    async with await open_sqlite(home) as store:
        for thread_id in (A, B):
            await commit(store, thread(thread_id))
            for number in range(1, ROWS):
                await commit(store, *rows(number, thread_id))
    return home / "threads.db"


def rows(number: int, thread_id: str) -> list[Any]:
    data = b'{"text":"%b"}' % (b"x" * 200)
    return [
        turn(number, thread_id, usage=b'{"total":{}}'),
        item(number, thread_id, turn=number, data=data, text="some words"),
        history(number, thread_id, turn=number, data=data),
        event(number, thread_id, frame=data),
    ]


async def claim_and_write(store: SqliteStore, thread_id: str, writes: list[Any]) -> None:
    await store.commit(thread_id, (await store.claim(thread_id, -1)).fence, writes)


async def refusal(asked: Awaitable[Any]) -> StoreError:
    with pytest.raises(StoreError) as refused:
        await asked
    return refused.value


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("items SET data = x'ff00' WHERE number = 7", "item 7 of thread"),
        ("items SET data = x'' WHERE number = 7", "item 7 of thread"),
        ("items SET data = x'22ff22' WHERE number = 7", "item 7 of thread"),
        ("items SET data = 5 WHERE number = 7", "item 7 of thread"),
        ("items SET type = CAST(x'ff' AS TEXT) WHERE number = 7", "a text in it is no text"),
        ("history SET data = zeroblob(9) WHERE number = 7", "the model's history of thread"),
        ("events SET frames = x'7b' WHERE last_seq = 7", "event 7 of thread"),
        ("events SET first_seq = 6 WHERE last_seq = 7", "the row of event 7 of thread"),
        ("turns SET usage = x'7b' WHERE number = 7", "turn 7 of thread"),
    ],
)
async def test_a_row_that_is_not_what_was_written(tmp_path: Path, change: str, what: str) -> None:
    path = await filled(tmp_path)
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE {change} AND thread_id = ?", (A,))
    connection.close()
    async with await open_sqlite(tmp_path) as store:
        error = await refusal(everything(store, A))
        assert error.kind == "damaged"
        assert error.message.startswith(f"{path} is damaged: {what}")
        assert "sqlite3" in error.message
        assert ".recover" in error.message
        # The other thread is as it was, and this one can go on.
        await everything(store, B)
        for thread_id in (A, B):
            await claim_and_write(store, thread_id, rows(ROWS, thread_id))
            assert (await store.events(thread_id, ROWS - 1, 9)).last_seq == ROWS


async def everything(store: SqliteStore, thread_id: str) -> None:
    await store.load(thread_id)
    await store.turns(thread_id)
    await store.items(thread_id)
    await store.history(thread_id)
    await store.events(thread_id, 0, 1000)


async def test_whatever_is_damaged_the_error_is_one_that_a_person_can_act_on(tmp_path: Path) -> None:
    """Pages overwritten at random, the one with the schema too."""
    sound = (await filled(tmp_path / "sound")).read_bytes()
    rng = random.Random(1)
    seen: list[StoreError] = []
    for number in range(40):
        home = tmp_path / str(number)
        home.mkdir()
        (home / "threads.db").write_bytes(damaged(sound, rng, first=number % 4 == 0))
        seen += await used(home)
    assert len(seen) > 40
    for error in seen:
        # SQLite takes some damage of its free pages for a full disk.
        assert error.kind in ("damaged", "full") or "is no database" in error.message, error.message
        assert "threads.db" in error.message
        assert "Error" not in error.message, error.message
        assert error.message.isprintable(), error.message


def damaged(sound: bytes, rng: random.Random, *, first: bool) -> bytes:
    data = bytearray(sound)
    start = 100 if first else rng.randrange(1, len(data) // PAGE) * PAGE
    size = PAGE - 100 if first else PAGE
    match rng.randrange(3):
        case 0:
            data[start : start + size] = rng.randbytes(size)
        case 1:
            at = start + rng.randrange(size - 80)
            data[at : at + 80] = rng.randbytes(80)
        case _:
            data[start + 200 : start + size] = b"\xff" * (size - 200)
    return bytes(data)


async def used(home: Path) -> list[StoreError]:
    """Reads and writes of all kinds; what they were refused with. Nothing else may come out of them."""
    try:
        store = await open_sqlite(home)
    except StoreError as error:
        return [error]
    found: list[StoreError] = []
    async with store:
        for thread_id in (A, B):
            for asked in (
                store.load(thread_id),
                store.turns(thread_id),
                store.items(thread_id),
                store.history(thread_id),
                store.events(thread_id, 0, 1000),
                store.item(thread_id, "item-7"),
                claim_and_write(store, thread_id, [*rows(ROWS, thread_id), *rows(3, thread_id)[:2]]),
                claim_and_write(store, thread_id, [CutTurns(thread_id, 40)]),
                store.threads(ThreadQuery()),
                store.search("words"),
            ):
                try:
                    await asked
                except StoreError as error:
                    found.append(error)
    return found


async def test_what_cannot_be_written_is_said_in_words(tmp_path: Path) -> None:
    async with await open_sqlite(tmp_path) as store:
        await commit(store, thread())
        half = await refusal(store.commit(A, 0, [thread(name="half a \ud83d")]))
        assert half.message == "this cannot be stored: a text in it holds half a character (a lone surrogate)"
        large = await refusal(store.commit(A, 0, [EventRecord(A, 2**70, b"{}")]))
        assert large.message == "this cannot be stored: a number in it is too large"


def test_a_message_of_sqlite_that_is_no_text_is_a_damaged_file() -> None:
    error = failure(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "/home/threads.db")
    assert error.kind == "damaged"
    assert error.message.startswith("/home/threads.db is damaged: ")
