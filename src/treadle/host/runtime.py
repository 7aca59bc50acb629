"""`Runtime`: the interface of what runs the turns of a session, and its events, on one screen.

    open ─▶ start_turn ─▶ next_event … TurnEnded ─▶ start_turn ─▶ … ─▶ close

A runtime has one thread and at most one turn at a time, and is used on one event loop. It has no timers and no policy:
the session decides when to give up. What is not understood is passed on or left out, and never ends a turn.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias

from msgspec import Struct

from treadle.client.tools import Tool
from treadle.host.approver import AskPerson
from treadle.host.faults import Fault
from treadle.protocol.app.items import ThreadItem

Message: TypeAlias = dict[str, Any]
"""A chat message: `role`, `content`, and as it needs `tool_calls`, `tool_call_id`, `name`, `reasoning`."""
UserInput: TypeAlias = str | Sequence[Mapping[str, Any]]
"""A text, or the parts of a message: `{"type": "text", "text": …}`, `{"type": "image_url", "image_url": {"url": …}}`,
`{"type": "local_image", "path": …}`."""


class Usage(Struct, frozen=True, kw_only=True):
    """Tokens and their price. Cached and written tokens are parts of `input_tokens`, thoughts of `output_tokens`.

    Args:
        input_tokens: All that was sent, with what came from the cache.
        cached_input_tokens: What of it came from the cache.
        cache_write_input_tokens: What of it was written to the cache.
        output_tokens: All that came, with the thoughts.
        reasoning_output_tokens: The thoughts.
        total_tokens: Both together.
        cost_usd: What it cost in dollars; None when a price is not known.
        context_tokens: How full the context was at the end; None when that is not known.
        context_window: How much fits in.
    """

    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_output_tokens: int = 0
    total_tokens: int = 0
    cost_usd: float | None = None
    context_tokens: int | None = None
    context_window: int | None = None

    @property
    def uncached_input_tokens(self) -> int:
        """What was sent and neither read from the cache nor written to it."""
        return max(0, self.input_tokens - self.cached_input_tokens - self.cache_write_input_tokens)

    def since(self, before: Usage | None) -> Usage:
        """What was used after `before`, a total of the same thread."""
        if before is None:
            return self
        cost = None if self.cost_usd is None else max(0.0, self.cost_usd - (before.cost_usd or 0.0))
        return Usage(
            input_tokens=max(0, self.input_tokens - before.input_tokens),
            cached_input_tokens=max(0, self.cached_input_tokens - before.cached_input_tokens),
            cache_write_input_tokens=max(0, self.cache_write_input_tokens - before.cache_write_input_tokens),
            output_tokens=max(0, self.output_tokens - before.output_tokens),
            reasoning_output_tokens=max(0, self.reasoning_output_tokens - before.reasoning_output_tokens),
            total_tokens=max(0, self.total_tokens - before.total_tokens),
            cost_usd=cost,
            context_tokens=self.context_tokens,
            context_window=self.context_window,
        )


class Opening(Struct, frozen=True, kw_only=True):
    """How a thread begins.

    Args:
        resume: The thread to go on with; a new one without it.
        history: What was said before, for a new thread: the runtime makes it part of what the model knows.
        before_thread: How many messages of the history are older than the thread of `resume`. The model was given them
            when that thread began; a runtime whose threads do not store instructions gives them again.
        instructions: The instructions of the host: memory, skills, who the model is.
        tools: The host's own tools, which run in this process.
        cwd: Where commands run.
        model: The model to ask; the runtime's own choice without it.
        sandbox: What commands may do with files: `read-only`, `workspace-write` or `danger-full-access`.
    """

    resume: str | None = None
    history: tuple[Message, ...] = ()
    before_thread: int = 0
    instructions: str | None = None
    tools: tuple[Tool, ...] = ()
    cwd: str | os.PathLike[str] | None = None
    model: str | None = None
    sandbox: str | None = None


class Opened(Struct, frozen=True, kw_only=True):
    """A thread that is open.

    Args:
        thread_id: Its id.
        model: The model that answers, when that is known.
        usage: Its total so far, when that is known.
        provisional: Whether the id only stands for it until a `ThreadNamed` comes: an engine names its session when it
            runs. Nobody can resume such an id.
    """

    thread_id: str
    model: str | None = None
    usage: Usage | None = None
    provisional: bool = False


# --- events ----------------------------------------------------------------------------------------------------------


class ThreadNamed(Struct, frozen=True):
    """The id of the thread, where the runtime learns it only when a turn runs: from now on it is this one, and not that
    of `Opened`."""

    thread_id: str


class ItemStarted(Struct, frozen=True):
    """An item begins."""

    item: ThreadItem


class ItemCompleted(Struct, frozen=True):
    """An item has ended, and will not change any more. It may come without an `ItemStarted`."""

    item: ThreadItem


class Delta(Struct, frozen=True):
    """A piece of something that grows: of an answer (`text`), of thoughts, or of what a command prints."""

    item_id: str
    text: str
    kind: Literal["text", "reasoning", "output"] = "text"


class UsageReported(Struct, frozen=True):
    """The tokens of the whole thread so far."""

    total: Usage


class Notice(Struct, frozen=True):
    """A message for people, such as that of a retry. It counts as a sign of life. With `keep` it still
    matters after the turn, and is in its result too.
    """

    message: str
    fault: Fault | None = None
    keep: bool = False


class SignOfLife(Struct, frozen=True):
    """A sign that the turn is alive, for what needs no event of its own."""


class Compacted(Struct, frozen=True):
    """The runtime has summed up its thread."""


class TurnEnded(Struct, frozen=True):
    """The last event of a turn. `fault` says why it failed; an `interrupted` one was ended early, by whomever."""

    status: Literal["completed", "interrupted", "failed"]
    fault: Fault | None = None


NOTHING_YET: Final = frozenset({"userMessage", "reasoning", "contextCompaction"})
"""Items of a runtime that has done nothing yet."""

RuntimeEvent: TypeAlias = (
    ThreadNamed | ItemStarted | ItemCompleted | Delta | UsageReported | Notice | SignOfLife | Compacted | TurnEnded
)


def begins_work(event: RuntimeEvent) -> bool:
    """Whether something was said or done that would be said or done twice if the turn were run again."""
    match event:
        case ItemStarted(item) | ItemCompleted(item):
            return item.type not in NOTHING_YET
        case Delta(kind=kind):
            return kind != "reasoning"
    return False


class Runtime(Protocol):
    """What runs the turns of one thread. Everything may raise `RuntimeFault`, and may be cancelled."""

    @property
    def name(self) -> str:
        """What it is called: `app_server`, `responses`, `chat_completions`, `anthropic`, or an engine."""

    async def open(self, opening: Opening, ask: AskPerson) -> Opened:
        """Start what is to be started, and open the thread. Raises `ResumeFailed`, after which it can be called again
        without `resume`; what was started already is used then. It can be called again too after a fault that is
        `retryable` and does not ask to `replace_runtime`."""

    async def start_turn(self, user_input: UserInput, options: Mapping[str, Any]) -> str:
        """Start a turn and give its id. When it raises, the runtime has not taken the input, unless it is dead."""

    async def next_event(self) -> RuntimeEvent:
        """The next event of the turn that was started last; waits for it. Cancelling the wait loses nothing."""

    async def interrupt(self) -> None:
        """Tell the turn to end; its `TurnEnded` follows. Nothing happens when none runs."""

    async def steer(self, text: str) -> bool:
        """Say something to the model in the middle of the turn. False when that is not possible any more, or never."""

    async def probe(self) -> None:
        """Come back when the runtime is alive. Whoever waits in vain draws conclusions."""

    async def compact(self) -> bool:
        """Begin to sum up the thread, as a turn whose events follow. False where the runtime cannot."""

    async def close(self) -> None:
        """End it with all that it started. It may be called at any time, and again; it does not raise."""
