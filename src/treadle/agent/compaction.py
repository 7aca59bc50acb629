"""Compaction: the history becomes a summary of itself, so that the conversation can go on.

It owns when the context counts as full and what the new history is: what the user said, newest first as far as it
fits, and the summary. The old history stays in the store, for turns that are undone later.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from treadle.agent.context import Context
from treadle.agent.ids import new_id
from treadle.agent.sampling import Sampling, sample, tell_wait
from treadle.agent.turn import Turn, developer_message, facts_of
from treadle.llm import ModelError, ModelRequest
from treadle.protocol.app.items import ContextCompactionThreadItem
from treadle.store.model import Compaction

# What the user said is worth keeping word for word, within reason.
KEPT_USER_TOKENS: Final = 20_000


class _Part(Struct):
    type: str = ""
    text: str = ""


class _Message(Struct):
    type: str = ""
    role: str = ""
    content: list[_Part] | str = ""


_message = msgspec.json.Decoder(_Message)


def context_is_full(turn: Turn) -> bool:
    """Whether the next request should be preceded by a compaction."""
    return turn.thread.state.usage.last.total_tokens >= facts_of(turn.thread).auto_compact_limit


async def compact(turn: Turn, context: Context) -> None:
    """Ask the model for a summary and begin anew from it. Raises `ModelError`, and nothing is different then."""
    item = ContextCompactionThreadItem(id=new_id())
    turn.start_item(item)

    async def request() -> ModelRequest:
        return _request(turn, context)

    try:
        sampling = await sample(turn, request, lambda: Sampling(turn, silent=True))
    except ModelError:
        turn.drop_item(item.id)
        raise
    turn.unsaid_usage = sampling.usage
    turn.tell_usage()
    _begin_anew(turn, sampling.text)
    turn.complete_item(item)


async def compact_turn(turn: Turn) -> None:
    """The work of a turn that only compacts."""
    from treadle.agent.context import build_context

    await turn.thread.load_history()
    await compact(turn, await build_context(turn))


def _request(turn: Turn, context: Context) -> ModelRequest:
    from treadle.agent.conversation import request_headers
    from treadle.config import COMPACT_PROMPT

    thread = turn.thread
    prompt = thread.services.config_for(thread.settings).compact_prompt or COMPACT_PROMPT
    assert thread.history is not None
    return ModelRequest(
        model=thread.settings.model,
        input=[*context.messages, *thread.history.items_for(thread.origin), user_message(prompt)],
        reasoning_effort=thread.settings.effort,
        reasoning_summary=thread.settings.summary or "auto",
        max_output_tokens=facts_of(thread).output_limit,
        prompt_cache_key=thread.id,
        headers=request_headers(turn),
        departure=turn.ticket,
        fair_key=thread.id,
        on_wait=partial(tell_wait, turn),
    )


def _begin_anew(turn: Turn, summary: str) -> None:
    from treadle.config import SUMMARY_PREFIX

    thread = turn.thread
    assert thread.history is not None
    kept = kept_messages(thread.history.items)
    thread.history.replace([])
    start = thread.counters.history + 1
    # In the role of who wrote it: it may repeat what a web page or a file said, and that must not become an order.
    told = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": summary}]}
    # What the user said is last, so that the model answers to that, and not to its own words.
    writes = thread.remember([developer_message(SUMMARY_PREFIX), told, *kept], turn.number)
    thread.journal.write(*writes, Compaction(thread.id, turn.number, start))
    turn.tell_context_size(thread.history.tokens)


def kept_messages(items: Any) -> list[Raw]:
    """What the user said, without what a program said in the user's name, oldest first."""
    kept: list[Raw] = []
    room = KEPT_USER_TOKENS * 4
    for item in reversed(items):
        message = _read(item)
        if message.type != "message" or message.role != "user":
            continue
        room -= len(bytes(item))
        if room < 0 and kept:  # the newest may be what the turn is about, and is kept however long it is
            break
        kept.append(item)
    return kept[::-1]


def _read(item: Raw) -> _Message:
    try:
        return _message.decode(item)
    except (msgspec.DecodeError, RecursionError):
        return _Message()


def user_message(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
