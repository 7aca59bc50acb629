"""`page_pieces`: a thread read page by page and written piece by piece."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from treadle.cli.threads.page import Heading, Page
from treadle.cli.threads.thread_library import ThreadLibrary
from treadle.protocol.app.threads import Thread


async def page_pieces(library: ThreadLibrary, thread: Thread, page: Page) -> AsyncGenerator[str, None]:
    heading = await library.heading(thread)
    yield page.head(heading)
    places = {turn.id: place for place, turn in enumerate(heading.turns)}
    at = -1  # the turn that is being written
    async for turn_id, item in library.items(thread.id):
        if turn_id not in places:  # begun since the turns were read
            break
        if places[turn_id] > at:
            yield _up_to(page, heading, at, places[turn_id])
            at = places[turn_id]
        yield page.item(item)
    if heading.turns:
        last = len(heading.turns) - 1
        yield _up_to(page, heading, at, last)
        yield page.turn_ended(heading.turns[last])
    yield page.foot()


def _up_to(page: Page, heading: Heading, at: int, place: int) -> str:
    """Ends the turn that is open, and begins those up to `place`: there may be some without items."""
    pieces = []
    for number in range(at + 1, place + 1):
        if number > 0:
            pieces.append(page.turn_ended(heading.turns[number - 1]))
        pieces.append(page.turn_begun(number + 1, heading.turns[number]))
    return "".join(pieces)
