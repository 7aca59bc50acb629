"""Turns and threads as HTML for inside of another page, such as the output of a notebook: the blocks of the exported
page, with its style for them alone. Nothing runs in it, and nothing is fetched. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final

from treadle.pages.figures import plural
from treadle.pages.html_page import HtmlPage, style
from treadle.pages.html_text import Pictures, escaped_line
from treadle.pages.page import Heading, ThreadExtras
from treadle.pages.view_blocks import item_blocks
from treadle.protocol.app.items import ThreadItem
from treadle.protocol.app.threads import Thread
from treadle.protocol.app.turns import Turn

# A notebook is stored with all that it shows.
MAX_PICTURES: Final = 2 * 1024 * 1024
MAX_TURNS: Final = 20


class InsetPage(HtmlPage):
    """The page without a document around it, and without links to places in it: a notebook has many of them."""

    def __init__(self) -> None:
        super().__init__()
        self.pictures: Pictures = Pictures(MAX_PICTURES)

    def head(self, heading: Heading) -> str:
        self.heading = heading
        title = escaped_line(heading.title) or "A conversation"
        figures = f"{plural(len(heading.turns), 'turn')} · {heading.thread.id}"
        return (
            f'<p class="kind">Treadle thread</p>\n<h1 dir="auto">{title}</h1>\n'
            f'<p class="where">{escaped_line(figures)}</p>\n'
        )

    def turn_head(self, number: int, figures: str) -> str:
        return f'<section class="turn">{_head(f"Turn {number}", figures)}'


def item_html(item: ThreadItem, page: InsetPage) -> str:
    """The blocks of one item, without the frame."""
    return "".join(page.block(block) for block in item_blocks(item))


def turn_html(items: Iterable[ThreadItem], turn: Turn, figures: str) -> str:
    """What came of a turn. `figures` stand beside its title."""
    page = InsetPage()
    blocks = "".join(item_html(item, page) for item in items)
    return framed(f'<section class="turn">{_head("Turn", figures)}{blocks}{page.turn_end(turn)}')


def thread_html(thread: Thread) -> str:
    """A thread with its last turns."""
    page = InsetPage()
    pieces = [page.head(Heading(thread, thread.turns, ThreadExtras()))]
    if (earlier := len(thread.turns) - MAX_TURNS) > 0:
        pieces.append(f'<p class="note">… {plural(earlier, "earlier turn")} …</p>\n')
    for number, turn in list(enumerate(thread.turns, start=1))[-MAX_TURNS:]:
        pieces += [page.turn_begun(number, turn), *map(page.item, turn.items), page.turn_ended(turn)]
    return framed("".join(pieces))


def running_html(pieces: Sequence[str], earlier: int, figures: str) -> str:
    """A turn while it runs: the blocks of its last items, and how many were before them."""
    left_out = f'<p class="note">… {plural(earlier, "earlier item")} …</p>\n' if earlier else ""
    return framed(f'<section class="turn">{_head("Turn", figures)}{left_out}{"".join(pieces)}</section>\n')


def framed(inner: str) -> str:
    """A piece of the page with the page's style around it."""
    return f'<div class="treadle-page"><style>{_inset_style()}</style>\n{inner}</div>\n'


def _head(title: str, figures: str) -> str:
    return f'<h2>{title}<span class="figures">{escaped_line(figures)}</span></h2>\n'


@cache
def _inset_style() -> str:
    """The style of the page, nested: its rules are for what is in the frame, those of the page for the frame."""
    rules = re.sub(r"^( *)(?::root|body) \{", r"\1& {", style(), flags=re.MULTILINE)
    return f".treadle-page {{\n& {{ max-width: 58rem; padding: 0.2rem 1rem; border-radius: 8px; }}{rules}}}\n"
