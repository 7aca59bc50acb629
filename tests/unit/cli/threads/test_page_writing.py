"""Turns and items come from different lists, and make one page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import cast

import pytest

from thread_samples import heading, said, thread, turn, user
from treadle.cli import ThreadLibrary, page_pieces
from treadle.pages import JsonPage
from treadle.protocol.app import Thread, ThreadItem, decode


class Library:
    """What `page_pieces` asks of one."""

    def __init__(self, whole: Thread, *later: tuple[str, ThreadItem]) -> None:
        self._whole = whole
        self._later = later

    async def items(self, _: str, turns: Sequence[str | None]) -> AsyncIterator[tuple[str, ThreadItem]]:
        for one in self._whole.turns:
            for item in one.items if None in turns or one.id in turns else ():
                yield one.id, item
        for entry in self._later:
            yield entry


async def _written(library: Library, whole: Thread, last: int | None = None) -> str:
    known = cast("ThreadLibrary", library)
    return "".join([piece async for piece in page_pieces(known, heading(whole), JsonPage(), last=last)])


@pytest.mark.parametrize("sizes", [(), (0,), (2,), (1, 0, 0, 2), (0, 1, 0), (3, 1, 1)])
def test_every_turn_is_there_once_with_its_items(sizes: tuple[int, ...]) -> None:
    whole = thread(*(turn(number, *([said(f"{number}")] * size)) for number, size in enumerate(sizes, 1)))
    page = asyncio.run(_written(Library(whole), whole))
    assert decode(page.encode(), Thread) == whole


@pytest.mark.parametrize("sizes", [(), (2,), (1, 0, 2), (0, 1, 0), (2, 0, 0), (1, 2, 1, 1)])
def test_the_last_turns_are_there_alone_when_they_are_wanted(sizes: tuple[int, ...]) -> None:
    whole = thread(*(turn(number, *([said(f"{number}")] * size)) for number, size in enumerate(sizes, 1)))
    page = asyncio.run(_written(Library(whole), whole, last=2))
    assert decode(page.encode(), Thread).turns == whole.turns[-2:]


def test_a_turn_that_began_meanwhile_is_for_another_time() -> None:
    whole = thread(turn(1, user("a"), said("b")))
    page = asyncio.run(_written(Library(whole, ("turn-2", user("c"))), whole))
    assert decode(page.encode(), Thread) == whole
