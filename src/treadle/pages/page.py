"""`Page`: a thread in some format, written piece by piece, so that a long one is never in memory as a whole.

`Heading` is what is known before the first item is read; `ThreadExtras` is what is not in the items (the plan of each
turn, the tokens, the cost), folded from the thread's events. The pages are `TextPage`, `MarkdownPage`, `HtmlPage`, and
here `JsonPage`; all but the last are a `BlockPage`. Pure.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from typing import Any, Final, Protocol

import msgspec
from msgspec import Raw, Struct

from treadle.pages.figures import clock, count, duration, moment, money
from treadle.pages.view_blocks import Block, MessageBlock, item_blocks
from treadle.protocol.app.base import convert, decode, encode
from treadle.protocol.app.items import ThreadItem
from treadle.protocol.app.notifications import (
    ThreadTokenUsageUpdatedNotification,
    TurnPlanStep,
    TurnPlanUpdatedNotification,
)
from treadle.protocol.app.threads import Thread, TokenUsageBreakdown
from treadle.protocol.app.turns import Turn


class Page(Protocol):
    """Each method gives the next piece of the text. Called in this order: head, then for each turn `turn_begun`, its
    items and `turn_ended`, then foot."""

    def head(self, heading: Heading) -> str: ...
    def turn_begun(self, number: int, turn: Turn) -> str: ...
    def item(self, item: ThreadItem) -> str: ...
    def turn_ended(self, turn: Turn) -> str: ...
    def foot(self) -> str: ...


# --- what is not in the items ----------------------------------------------------------------------------------------


class _EventFrame(Struct):
    method: str
    params: Raw = Raw(b"null")
    seq: int = 0


_read_frame = msgspec.json.Decoder(_EventFrame)


@dataclass(frozen=True, slots=True)
class Tokens:
    """`input` contains `cached`, and `output` contains `reasoning`, as models count them."""

    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0

    @property
    def total(self) -> int:
        return self.input + self.output

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            self.input + other.input,
            self.cached + other.cached,
            self.output + other.output,
            self.reasoning + other.reasoning,
        )

    def since(self, before: Tokens) -> Tokens:
        return Tokens(
            max(0, self.input - before.input),
            max(0, self.cached - before.cached),
            max(0, self.output - before.output),
            max(0, self.reasoning - before.reasoning),
        )


@dataclass(frozen=True, slots=True)
class TurnExtras:
    """What is known of a turn beside its items; None and () are: not known."""

    plan: tuple[TurnPlanStep, ...] = ()
    tokens: Tokens | None = None
    cost_usd: float | None = None


@dataclass(slots=True)
class ThreadExtras:
    """The facts of a thread and of its turns, from the events that `take` got so far."""

    turns: dict[str, TurnExtras] = field(default_factory=dict)
    tokens: Tokens | None = None
    cost_usd: float | None = None
    clean: Callable[[Raw], Any] = msgspec.json.decode
    """Reads the JSON of a plan."""
    seq: int = 0
    """The number of the last event that was taken."""

    def take(self, frames: Iterable[Raw]) -> None:
        """Notifications in their order. Those of other kinds are passed over without being read."""
        for raw in frames:
            frame = _read_frame.decode(raw)
            self.seq = max(self.seq, frame.seq)
            if frame.method == "turn/plan/updated":
                planned = convert(self.clean(frame.params), TurnPlanUpdatedNotification)
                self.turns[planned.turn_id] = replace(self.of(planned.turn_id), plan=planned.plan)
            elif frame.method == "thread/tokenUsage/updated":
                update = decode(frame.params, ThreadTokenUsageUpdatedNotification)
                usage, before = update.token_usage, self.of(update.turn_id)
                total = _tokens(usage.total)
                # What came before the first event that is left (those of a fork are with its source) is only in the
                # sum.
                more = _tokens(usage.last) if self.tokens is None else total.since(self.tokens)
                tokens = (before.tokens or Tokens()) + more
                self.turns[update.turn_id] = replace(before, tokens=tokens, cost_usd=usage.cost_usd)
                self.tokens, self.cost_usd = total, usage.thread_cost_usd

    def of(self, turn_id: str) -> TurnExtras:
        return self.turns.get(turn_id, TurnExtras())


def _tokens(usage: TokenUsageBreakdown) -> Tokens:
    return Tokens(usage.input_tokens, usage.cached_input_tokens, usage.output_tokens, usage.reasoning_output_tokens)


# --- what is known before the first item -----------------------------------------------------------------------------

# What `treadle exec` adds to a prompt of what was piped in.
_PIPED: Final = re.compile(r"\n\n<stdin>\n.*", re.DOTALL)
_TITLE: Final = 80


def title_of(thread: Thread) -> str:
    """The name of a thread, else how it begins."""
    return title_line(thread.name or thread.preview)


def title_line(text: str) -> str:
    """The beginning of a prompt on one line."""
    words = " ".join(without_input(text).split())
    return words if len(words) <= _TITLE else f"{words[: _TITLE - 1]}…"


def without_input(prompt: str) -> str:
    """A prompt without what was piped in."""
    return _PIPED.sub("", prompt)


@dataclass(frozen=True, slots=True)
class Heading:
    """`turns` come without their items. Times are written in `zone`, else in local time."""

    thread: Thread
    turns: tuple[Turn, ...]
    facts: ThreadExtras
    zone: tzinfo | None = None

    @property
    def title(self) -> str:
        return title_of(self.thread)

    def rows(self) -> list[tuple[str, str]]:
        """What is known of the thread: a word and a text each."""
        thread = self.thread
        model = thread.model_provider
        if thread.model not in (None, model):
            model = f"{thread.model} ({model})"
        rows = [
            ("thread", thread.id),
            ("begun", moment(thread.created_at, self.zone)),
            ("last used", moment(thread.updated_at, self.zone)),
            ("model", model),
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
        if worked_ms := sum(turn.duration_ms or 0 for turn in self.turns):
            sums.append(("working time", duration(worked_ms)))
        tokens = self.facts.tokens
        if tokens is not None and tokens.total:
            sums += [("tokens in", count(tokens.input)), ("tokens out", count(tokens.output))]
        if self.facts.cost_usd:
            sums.append(("cost", money(self.facts.cost_usd)))
        return sums

    def turn_figures(self, turn: Turn) -> str:
        """When the turn began, how long it took and what it used, as far as that is known."""
        facts = self.facts.of(turn.id)
        figures = [] if turn.started_at is None else [clock(turn.started_at, self.zone)]
        if turn.duration_ms is not None:
            figures.append(duration(turn.duration_ms))
        if facts.tokens is not None and facts.tokens.total:
            figures.append(f"{count(facts.tokens.input)} in, {count(facts.tokens.output)} out")
        if facts.cost_usd:
            figures.append(money(facts.cost_usd))
        return " · ".join(figures)


# --- the formats -----------------------------------------------------------------------------------------------------


class BlockPage(ABC):
    """What the pages for people share: an item is its blocks, and the plan of a turn stands below what the user said
    first, or at the end. They add `head`, `block`, `plan`, `turn_end` and `foot`."""

    heading: Heading

    def __init__(self) -> None:
        self._plan: Sequence[TurnPlanStep] = ()  # that of the turn, until it has its place

    def turn_begun(self, number: int, turn: Turn) -> str:
        self._plan = self.heading.facts.of(turn.id).plan
        return self.turn_head(number, self.heading.turn_figures(turn))

    def item(self, item: ThreadItem) -> str:
        pieces: list[str] = []
        for block in item_blocks(item, self.heading.thread.cwd):
            pieces.append(self.block(block))
            if isinstance(block, MessageBlock) and block.by == "user":
                pieces.append(self._take_plan())
        return "".join(pieces)

    def turn_ended(self, turn: Turn) -> str:
        return self._take_plan() + self.turn_end(turn)

    def _take_plan(self) -> str:
        plan, self._plan = self._plan, ()
        return self.plan(plan) if plan else ""

    @abstractmethod
    def turn_head(self, number: int, figures: str) -> str: ...
    @abstractmethod
    def block(self, block: Block) -> str: ...
    @abstractmethod
    def plan(self, steps: Sequence[TurnPlanStep]) -> str: ...
    @abstractmethod
    def turn_end(self, turn: Turn) -> str: ...


class JsonPage:
    """The `Thread` of the protocol with all turns and items, as one JSON object.

    What the protocol has elsewhere is added under names that its readers ignore: `plan` and `usage` of a turn, `usage`
    of the thread.
    """

    def __init__(self) -> None:
        self._heading: Heading | None = None
        self._turns = 0
        self._items = 0

    def head(self, heading: Heading) -> str:
        self._heading = heading
        usage = usage_members(heading.facts.tokens, heading.facts.cost_usd)
        return f"{_opened(heading.thread, 'turns', usage=usage)}\n"

    def turn_begun(self, number: int, turn: Turn) -> str:
        assert self._heading is not None
        facts = self._heading.facts.of(turn.id)
        comma = ",\n" if self._turns else ""
        self._turns += 1
        self._items = 0
        usage = usage_members(facts.tokens, facts.cost_usd)
        whole = msgspec.structs.replace(turn, items_view="full")
        return f"{comma}{_opened(whole, 'items', plan=facts.plan, usage=usage)}\n"

    def item(self, item: ThreadItem) -> str:
        comma = ",\n" if self._items else ""
        self._items += 1
        return comma + encode(item).decode()

    def turn_ended(self, turn: Turn) -> str:
        return "\n]}"

    def foot(self) -> str:
        return "\n]}\n"


def _opened(value: Any, last: str, **more: Any) -> str:
    """The object with its list `last` at the end, begun."""
    members = msgspec.json.decode(encode(value))
    members.pop(last, None)
    text = msgspec.json.encode({**members, **more}).decode()
    return f'{text[:-1]},"{last}":['


def usage_members(tokens: Tokens | None, cost_usd: float | None) -> dict[str, Any] | None:
    if tokens is None:
        return None
    return {
        "inputTokens": tokens.input,
        "cachedInputTokens": tokens.cached,
        "outputTokens": tokens.output,
        "reasoningOutputTokens": tokens.reasoning,
        "totalTokens": tokens.total,
        "costUsd": cost_usd,
    }
