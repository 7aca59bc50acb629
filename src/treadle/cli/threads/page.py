"""`Page`: a thread in some format, written piece by piece, so that a long one is never in memory as a whole.

`Heading` is what is known before the first item is read. The pages are `HtmlPage`, `MarkdownPage`, `JsonPage` and
`TextPage`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo
from typing import Protocol

from treadle.cli.threads.facts import ThreadFacts, TurnFacts
from treadle.cli.threads.figures import count, duration, moment, money
from treadle.protocol.app.items import ThreadItem
from treadle.protocol.app.threads import Thread
from treadle.protocol.app.turns import Turn

_TITLE = 80


@dataclass(frozen=True, slots=True)
class Heading:
    """`turns` come without their items. Times are written in `zone`, else in local time."""

    thread: Thread
    turns: tuple[Turn, ...]
    facts: ThreadFacts
    zone: tzinfo | None = None

    @property
    def title(self) -> str:
        return title_of(self.thread)

    @property
    def worked_ms(self) -> int:
        return sum(turn.duration_ms or 0 for turn in self.turns)

    def rows(self) -> list[tuple[str, str]]:
        """What is known of the thread: a word and a text each."""
        thread = self.thread
        rows = [
            ("thread", thread.id),
            ("begun", moment(thread.created_at, self.zone)),
            ("last used", moment(thread.updated_at, self.zone)),
            ("model", _model(thread)),
            ("where", thread.cwd),
        ]
        if thread.git_info is not None and (thread.git_info.branch or thread.git_info.sha):
            rows.append(("git", " ".join(filter(None, (thread.git_info.branch, (thread.git_info.sha or "")[:12])))))
        if thread.forked_from_id:
            rows.append(("forked from", thread.forked_from_id))
        return rows

    def sums(self) -> list[tuple[str, str]]:
        """The figures of the whole thread that are known."""
        sums = [("turns", f"{len(self.turns):,}")]
        if self.worked_ms:
            sums.append(("working time", duration(self.worked_ms)))
        tokens = self.facts.tokens
        if tokens is not None and tokens.total:
            sums += [("tokens in", count(tokens.input)), ("tokens out", count(tokens.output))]
        if self.facts.cost_usd:
            sums.append(("cost", money(self.facts.cost_usd)))
        return sums


def _model(thread: Thread) -> str:
    if thread.model in (None, thread.model_provider):
        return thread.model_provider
    return f"{thread.model} ({thread.model_provider})"


def title_of(thread: Thread) -> str:
    """Its name, else how it begins."""
    words = " ".join((thread.name or thread.preview).split())
    return words if len(words) <= _TITLE else f"{words[: _TITLE - 1]}…"


def turn_figures(turn: Turn, facts: TurnFacts) -> list[str]:
    """How long it took and what it used, as far as that is known."""
    figures = [] if turn.duration_ms is None else [duration(turn.duration_ms)]
    if facts.tokens is not None and facts.tokens.total:
        figures.append(f"{count(facts.tokens.input)} in, {count(facts.tokens.output)} out")
    if facts.cost_usd:
        figures.append(money(facts.cost_usd))
    return figures


class Page(Protocol):
    """Each method gives the next piece of the text. Called in this order: head, then for each turn `turn_begun`, its
    items and `turn_ended`, then foot."""

    def head(self, heading: Heading) -> str: ...
    def turn_begun(self, number: int, turn: Turn) -> str: ...
    def item(self, item: ThreadItem) -> str: ...
    def turn_ended(self, turn: Turn) -> str: ...
    def foot(self) -> str: ...
