"""Pages of stored turns: what a view shows, and cursors, which belong to one list of one thread."""

from __future__ import annotations

import json
from typing import Any

import pytest

from treadle.agent import make_cursor, read_cursor, turns_with_items, wire_turn
from treadle.errors import RpcError
from treadle.protocol.app import encode
from treadle.store import ItemRecord
from treadle.testing import A, item, turn


def test_a_cursor_comes_back() -> None:
    assert read_cursor(make_cursor("t", "turns", 7), "t", "turns") == 7
    assert read_cursor(None, "t", "turns") is None


def test_a_cursor_that_is_part_of_the_page() -> None:
    cursor = make_cursor("t", "turns", 7, with_it=True)
    assert (read_cursor(cursor, "t", "turns"), read_cursor(cursor, "t", "turns", descending=True)) == (6, 8)


@pytest.mark.parametrize(
    "text",
    [
        make_cursor("other", "turns", 7),
        make_cursor("t", "items", 7),
        "",
        "7",
        "{}",
        '{"thread":"t","kind":"turns","after":"7"}',
        '{"thread":"t","kind":"turns","after":7',
        "\ud800",
    ],
)
def test_what_is_no_cursor_of_this_list(text: str) -> None:
    with pytest.raises(RpcError, match="invalid cursor"):
        read_cursor(text, "t", "turns")


def test_a_long_one_is_not_told_back_whole() -> None:
    with pytest.raises(RpcError) as found:
        read_cursor("z" * 10_000, "t", "turns")
    assert len(found.value.message) < 300


class Items:
    """A store of items; `asked` are the turns that it was asked for."""

    def __init__(self, *items: ItemRecord) -> None:
        self.asked: list[tuple[int, int]] = []
        self._items = items

    async def items(self, thread_id: str, *, turns: tuple[int, int]) -> list[ItemRecord]:
        self.asked.append(turns)
        return [item for item in self._items if turns[0] <= item.turn <= turns[1]]


STORED = (
    item(1, turn=1, type="userMessage"),
    item(2, turn=1),
    item(3, turn=1, type="userMessage"),
    item(4, turn=1, type="commandExecution"),
    item(5, turn=1),
    item(6, turn=2, type="userMessage"),
)


async def pages(view: Any, *numbers: int) -> tuple[Items, list[tuple[str, list[int]]]]:
    store: Any = Items(*STORED)
    turns = await turns_with_items(store, A, [turn(number) for number in numbers], view)
    return store, [(made.id, [json.loads(encode(one))["n"] for one in made.items]) for made in turns]


@pytest.mark.anyio
async def test_turns_have_their_own_items_in_either_direction() -> None:
    store, forward = await pages("full", 1, 2, 3)
    assert forward == [("turn-1", [1, 2, 3, 4, 5]), ("turn-2", [6]), ("turn-3", [])]
    _, backward = await pages("full", 3, 2, 1)
    assert backward == forward[::-1]
    assert store.asked == [(1, 3)]


@pytest.mark.anyio
async def test_a_summary_has_the_first_question_and_the_last_answer() -> None:
    _, turns = await pages("summary", 1, 2)
    assert turns == [("turn-1", [1, 5]), ("turn-2", [6])]


@pytest.mark.anyio
async def test_items_that_nobody_wants_are_not_read() -> None:
    store, turns = await pages("notLoaded", 1, 2)
    assert (turns, store.asked) == ([("turn-1", []), ("turn-2", [])], [])
    store, turns = await pages("full")
    assert (turns, store.asked) == ([], [])


def test_a_turn_that_failed_says_why() -> None:
    failed = wire_turn(turn(1, status="failed", error=b'{"message":"too much"}', duration_ms=7))
    assert failed.error is not None
    assert (failed.error.message, failed.status, failed.duration_ms) == ("too much", "failed", 7)
    assert wire_turn(turn(2)).error is None
