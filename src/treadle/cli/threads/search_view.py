"""What a search has found: where, and the words in what is around them. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from treadle.cli.threads.figures import when
from treadle.cli.threads.page import title_of
from treadle.cli.threads.thread_choice import SHORT
from treadle.cli.visible import visible, visible_line
from treadle.protocol.app.threads import Thread

if TYPE_CHECKING:
    from rich.console import Group

_MARKED: Final = re.compile(r"\[([^\[\]]*)\]")
_WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Hit:
    """`marked`: the words found are between `[` and `]` in the snippet."""

    thread: Thread
    item_id: str | None
    snippet: str
    marked: bool = False


def plain_snippet(hit: Hit, term: str) -> tuple[str, list[tuple[int, int]]]:
    """The text around the words on one line, and where in it the words are."""
    line = " ".join(hit.snippet.split())
    words = {_folded(word) for word in _WORD.findall(term)}
    if not hit.marked:
        shown = visible_line(line)
        return shown, [match.span() for match in _WORD.finditer(shown) if _folded(match.group()) in words]
    text, spans, end = "", [], 0
    for match in _MARKED.finditer(line):
        if {_folded(word) for word in _WORD.findall(match.group(1))} & words:  # else the brackets are of the text
            text += visible_line(line[end : match.start()])
            found = visible_line(match.group(1))
            spans.append((len(text), len(text) + len(found)))
            text, end = text + found, match.end()
    return text + visible_line(line[end:]), spans


def _folded(word: str) -> str:
    """As the search compares: without case and accents."""
    letters = unicodedata.normalize("NFKD", word.casefold())
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def hits_for_terminal(hits: Sequence[Hit], term: str, now: float) -> Group:
    """Each thread once, with what was found in it."""
    from rich.console import Group  # rich takes 60 ms
    from rich.padding import Padding
    from rich.text import Text

    by_thread: dict[str, list[Hit]] = {}
    for hit in hits:
        by_thread.setdefault(hit.thread.id, []).append(hit)
    shown: list[Text | Padding] = []
    for some in by_thread.values():
        thread = some[0].thread
        title = visible_line(title_of(thread))
        shown.append(
            Text.assemble(
                (thread.id[:SHORT], "cyan"), "  ", (title, "bold"), "  ", (when(thread.updated_at, now), "dim")
            )
        )
        for hit in some:
            text, spans = plain_snippet(hit, term)
            line = Text(text)
            for start, end in spans:
                line.stylize("bold yellow", start, end)
            shown.append(Padding(line, (0, 0, 0, 2)))
    return Group(*shown)


def hits_in_lines(hits: Sequence[Hit], term: str) -> str:
    """id, title, text: one line each, with tabs between them."""
    rows = [(hit.thread.id, title_of(hit.thread), plain_snippet(hit, term)[0]) for hit in hits]
    return "".join("\t".join(visible(cell).replace("\t", " ") for cell in row) + "\n" for row in rows)


def hits_as_json(hits: Sequence[Hit]) -> str:
    found = [
        {
            "threadId": hit.thread.id,
            "itemId": hit.item_id,
            "name": hit.thread.name,
            "preview": hit.thread.preview,
            "updatedAt": hit.thread.updated_at,
            "snippet": hit.snippet,
        }
        for hit in hits
    ]
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"
