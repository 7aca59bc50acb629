"""Search finds what a plain look at every message finds, whichever way it takes."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.store import ItemRecord, ThreadQuery, ThreadRecord, apply
from treadle.store.sqlite import queries, schema
from treadle.testing import A, item, thread, turn

WORDS = ("loom", "loo", "wool", "we", "weft", "a")
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join), max_size=6)
THREADS = st.lists(st.tuples(st.booleans(), TEXTS), max_size=6)
PHRASE = st.lists(st.sampled_from([*WORDS, "lo", "wef"]), min_size=1, max_size=3).map(" ".join)


def _database(threads: Sequence[tuple[bool, list[str]]]) -> sqlite3.Connection:
    connection = schema.open_memory()
    # The first item of each thread first, then the second: the keys of the threads are mixed, as in life.
    records = [thread(f"{number:04}", created_at=number, archived=old) for number, (old, _) in enumerate(threads)]
    items: list[ItemRecord] = [
        item(index, f"{number:04}", id=f"{number}-{index}", text=texts[index - 1])
        for index in range(1, 7)
        for number, (_, texts) in enumerate(threads)
        if index <= len(texts)
    ]
    writes: list[ThreadRecord | ItemRecord] = [*records, *items]
    for write in writes:
        apply(connection, [write], "us")
    return connection


def _has(text: str, phrase: str) -> bool:
    """Whether these words follow each other, the last of which may be unfinished unless it is one letter."""
    words, wanted = text.split(), phrase.split()
    *whole, last = wanted
    return any(
        words[start : start + len(whole)] == whole
        and (words[end] == last if len(phrase) == 1 else words[end].startswith(last))
        for start in range(len(words))
        if (end := start + len(whole)) < len(words)
    )


@pytest.mark.parametrize("few", [0, 3, 1_000])
@given(
    threads=THREADS,
    phrase=PHRASE,
    limit=st.integers(1, 4),
    descending=st.booleans(),
)
def test_threads_with_a_phrase(
    few: int, threads: list[tuple[bool, list[str]]], phrase: str, limit: int, descending: bool
) -> None:
    expected = [
        (f"{number:04}", next(text for text in texts if _has(text, phrase)))
        for number, (old, texts) in enumerate(threads)
        if not old and any(_has(text, phrase) for text in texts)
    ]
    if descending:
        expected.reverse()
    with closing(_database(threads)) as connection, mock.patch.object(queries, "_FEW_MESSAGES", few):
        page = queries.threads(connection, ThreadQuery(phrase=phrase, limit=limit, descending=descending))
    assert list(zip([record.id for record in page.threads], page.texts, strict=True)) == expected[:limit]
    assert page.more == (len(expected) > limit)


# Letters whose cases SQLite does not know, that change their length with their case, that it takes for wildcards, and
# that are written in another way at the end of a word.
LETTERS = "aAbB%_!\\ \nßẞäÄåÅтТкКёЁπΠΣσςİ林"


@given(
    texts=st.lists(st.none() | st.text(LETTERS, max_size=12), max_size=12),
    part=st.text(LETTERS, min_size=1, max_size=5),
    first=st.integers(0, 5),
    limit=st.integers(1, 5),
    block=st.integers(1, 5),
)
@settings(max_examples=150, deadline=None)
def test_parts_of_messages(texts: list[str | None], part: str, first: int, limit: int, block: int) -> None:
    expected = [
        number
        for number, text in enumerate(texts, 1)
        if text is not None and number >= first and part.lower() in text.lower()
    ]
    with (
        closing(schema.open_memory()) as connection,
        mock.patch.object(queries, "_BLOCK_ITEMS", block),
    ):
        apply(connection, [thread(), turn(1)], "us")
        for number, text in enumerate(texts, 1):
            apply(connection, [item(number, text=text)], "us")
        found = queries.messages(connection, A, part, first, limit)
    assert [message.number for message in found] == expected[:limit]


def test_what_is_looked_for_in_blocks_is_in_them_in_any_case() -> None:
    """All of Unicode: a letter that becomes one of those that are folded has its bytes, but for what the fold drops."""
    for number in (*range(0xD800), *range(0xE000, sys.maxunicode + 1)):
        letter, lower = chr(number), chr(number).lower()
        if queries._FOLDED.search(lower):
            assert letter.encode().translate(queries._FOLD) == lower.encode().translate(queries._FOLD), hex(number)


_ONE_BY_ONE = """
SELECT items.thread_id, items.id, snippet(messages, 0, '[', ']', '…', 16)
FROM messages JOIN items ON items.key = messages.rowid JOIN threads ON threads.id = items.thread_id
WHERE messages MATCH ? AND threads.archived = 0 ORDER BY messages.rank, messages.rowid
"""


@given(threads=THREADS, word=st.sampled_from(WORDS), limit=st.integers(0, 9))
def test_the_best_messages(threads: list[tuple[bool, list[str]]], word: str, limit: int) -> None:
    with closing(_database(threads)) as connection:
        expected = connection.execute(_ONE_BY_ONE, (f'"{word}"',)).fetchall()
        found = queries.search(connection, word, limit)
    assert [(hit.thread_id, hit.item_id, hit.snippet) for hit in found] == expected[:limit]
