"""Choosing one of many: what fits, what is marked, what the keys do, and what a terminal of 40 columns shows."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prompt_toolkit.data_structures import Size
from prompt_toolkit.formatted_text import fragment_list_to_text, to_formatted_text
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output.vt100 import Vt100_Output

from treadle.cli import MAX_CHOICES, Choice, Picker, PickList
from treadle.errors import TreadleError

pytestmark = pytest.mark.anyio

WAIT_S = 30.0
FRUIT = [Choice("red apple", 1), Choice("Green Apple", 2, "sour"), Choice("pear", 3, words="0199a6b2 deadbeef")]


# --- the list ---


@pytest.mark.parametrize(
    ("typed", "values"),
    [
        ("", [1, 2, 3]),
        ("APPLE", [1, 2]),
        ("apple gre", [2]),
        ("sour", [2]),
        ("dead", [3]),
        ("de", []),
        ("apple pear", []),
    ],
)
def test_all_words_have_to_fit_in_any_order(typed: str, values: list[int]) -> None:
    fruit = PickList(FRUIT)
    fruit.search(typed)
    assert [choice.value for choice in fruit.matches] == values
    assert (fruit.marked is None) == (not values)


def test_the_mark_stays_in_the_list_and_on_its_choice() -> None:
    fruit = PickList(FRUIT, marked=1)
    fruit.add(Choice("plum", 4))
    assert fruit.marked == FRUIT[1]
    fruit.move(100)
    assert fruit.marked is not None
    assert fruit.marked.value == 4
    fruit.move(-100)
    assert fruit.marked == FRUIT[0]
    fruit.search("pear")
    fruit.add(Choice("pear tree", 5))
    fruit.add(Choice("oak", 6))
    assert [choice.value for choice in fruit.matches] == [3, 5]
    fruit.search("nothing")
    fruit.move(1)
    assert fruit.marked is None
    assert fruit.rows(3) == []


@pytest.mark.parametrize(("marked", "shown"), [(0, range(5)), (500, range(498, 503)), (999, range(995, 1000))])
def test_the_rows_are_around_the_mark(marked: int, shown: range) -> None:
    numbers = PickList([Choice(str(number), number) for number in range(1000)], marked=marked)
    rows = numbers.rows(5)
    assert [choice.value for choice, _ in rows] == list(shown)
    assert [choice.value for choice, is_marked in rows if is_marked] == [marked]


# --- the keys ---


class Person:
    def __init__(self, picker: Picker, keyboard: PipeInput) -> None:
        self.picker = picker
        self.keyboard = keyboard

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not true():
                await asyncio.sleep(0.005)

    def rows(self) -> list[str]:
        return fragment_list_to_text(to_formatted_text(self.picker._rows())).split("\n")


@asynccontextmanager
async def choosing(columns: int = 80, **how: Any) -> AsyncIterator[tuple[Person, asyncio.Task[Choice | None]]]:
    with create_pipe_input() as keyboard:
        output = Vt100_Output(io.StringIO(), lambda: Size(rows=24, columns=columns), enable_cpr=False)
        picker = Picker("Which?", how.pop("choices", FRUIT), output=output, input=keyboard, **how)
        running = asyncio.create_task(picker.run())
        person = Person(picker, keyboard)
        await person.until(lambda: picker.app.is_running)
        try:
            yield person, running
        finally:
            picker.cancel()
            await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        ("\r", 1),
        ("\x1b[B\r", 2),
        ("\x1b[B\x1b[B\x1b[A\r", 2),
        ("apple\x1b[B\r", 2),
        ("xx\x7f\x7fpear\r", 3),
        ("nothing\r\x15\r", 1),
        ("\x1b[6~\r", 3),
        ("\x1b", None),
        ("\x03", None),
        ("\x04", None),
    ],
)
async def test_what_is_typed_searches_and_enter_takes(keys: str, value: int | None) -> None:
    async with choosing() as (person, running):
        person.keyboard.send_text(keys)
        taken = await asyncio.wait_for(running, WAIT_S)
        assert (None if taken is None else taken.value) == value


async def test_a_terminal_that_is_closed_chooses_nothing() -> None:
    async with choosing() as (person, running):
        person.keyboard.close()
        assert await asyncio.wait_for(running, WAIT_S) is None
        assert person.picker.input_ended


async def test_choices_come_while_one_looks_and_are_bounded() -> None:
    async def many() -> AsyncIterator[Choice]:
        for number in range(MAX_CHOICES + 10):
            yield Choice(f"plum {number}", number)

    async with choosing(choices=(), more=many()) as (person, running):
        await person.until(lambda: len(person.picker.list.choices) == MAX_CHOICES)
        person.keyboard.send_text("plum 4321\r")
        taken = await asyncio.wait_for(running, WAIT_S)
        assert taken is not None
        assert taken.value == 4321


async def test_a_list_that_breaks_off_can_still_be_chosen_from() -> None:
    async def broken() -> AsyncIterator[Choice]:
        yield Choice("plum", 4)
        raise TreadleError("the server is gone")

    async with choosing(choices=(), more=broken()) as (person, running):
        await person.until(lambda: bool(person.picker.list.choices))
        person.keyboard.send_text("\r")
        taken = await asyncio.wait_for(running, WAIT_S)
        assert taken is not None


async def test_the_preview_is_of_the_marked_one_and_asked_for_once() -> None:
    asked: list[int] = []

    async def preview(value: int) -> str:
        asked.append(value)
        if value == 2:
            raise TreadleError("no")
        return f"about {value}\x1b[2J"

    async with choosing(preview=preview) as (person, _):
        await person.until(lambda: "  about 1\\x1b[2J" in person.rows())
        person.keyboard.send_text("\x1b[B")
        await person.until(lambda: asked == [1, 2])
        person.keyboard.send_text("\x1b[A")
        await person.until(lambda: "  about 1\\x1b[2J" in person.rows())
        person.keyboard.send_text("\x1b[B\x1b[B")
        await person.until(lambda: asked == [1, 2, 3])


@pytest.mark.parametrize("columns", [20, 40, 100])
async def test_no_row_is_wider_than_the_terminal(columns: int) -> None:
    long = Choice("织机 " * 40, 1, "three months ago", about="word " * 100)
    async with choosing(columns, choices=[long, Choice("evil\x1b[2J\nname", 2, "now")]) as (person, _):
        rows = person.rows()
        assert max(len(row) + row.count("织") + row.count("机") for row in rows) < columns
        assert rows[0].startswith("❯ 织机")
        assert ("three months ago" in rows[0]) == (columns > 40)
        assert "\x1b" not in "".join(rows)
        assert rows[1].startswith("  evil\\x1b")


async def test_a_picture_of_several_is_as_wide_as_its_parts_on_every_terminal() -> None:
    family = "\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL}"
    thumb = "\N{THUMBS UP SIGN}\N{EMOJI MODIFIER FITZPATRICK TYPE-4}"
    async with choosing(choices=[Choice(f"{family} {thumb} क्\N{ZERO WIDTH JOINER}ष", about=family)]) as (person, _):
        rows = "\n".join(person.rows())
        assert "\N{WOMAN}\N{GIRL} \N{THUMBS UP SIGN} क्\N{ZERO WIDTH JOINER}ष" in rows  # which letters need
        assert rows.count("\N{WOMAN}\N{GIRL}") == 2


async def test_where_nothing_is_known_of_the_choices_there_is_no_preview() -> None:
    async with choosing(choices=[Choice("a"), Choice("b")]) as (person, _):
        assert [row.split()[0] for row in person.rows()] == ["❯", "b", "↑↓"]
