"""Compaction: the history becomes a summary of itself, so that the conversation can go on.

It owns when the context counts as full, and the turn that does it. What the new history is says `summary`. The old
history stays in the store, for turns that are undone later.
"""

from __future__ import annotations

from functools import partial

from treadle.agent.context import Context, build_context
from treadle.agent.ids import new_id
from treadle.agent.sampling import Sampling, request_headers, sample, tell_wait
from treadle.agent.summary import history_after, user_message
from treadle.agent.turn import Turn
from treadle.config import COMPACT_PROMPT
from treadle.llm import ModelError, ModelRequest
from treadle.protocol.app.items import ContextCompactionThreadItem
from treadle.store.contract import Compaction


async def compact(turn: Turn, context: Context) -> None:
    """Ask the model for a summary and begin anew from it. Raises `ModelError`, and nothing is different then."""
    item = ContextCompactionThreadItem(id=new_id())
    turn.items.start(item)

    async def request() -> ModelRequest:
        return _request(turn, context)

    try:
        sampling = await sample(turn, request, lambda: Sampling(turn, silent=True))
    except ModelError:
        turn.items.drop(item.id)
        raise
    turn.report.pending_usage = sampling.usage
    turn.report.usage()
    _begin_anew(turn, sampling.text)
    turn.items.complete(item)


async def compact_turn(turn: Turn) -> None:
    """The work of a turn that only compacts."""
    await turn.thread.load_history()
    await compact(turn, await build_context(turn))


def _request(turn: Turn, context: Context) -> ModelRequest:
    thread = turn.thread
    prompt = thread.services.config_for(thread.settings).compact_prompt or COMPACT_PROMPT
    assert thread.history is not None
    return ModelRequest(
        model=thread.settings.model,
        input=[*context.messages, *thread.history.items_for(thread.origin), user_message(prompt)],
        reasoning_effort=thread.settings.effort,
        reasoning_summary=thread.settings.summary or "auto",
        max_output_tokens=thread.model_facts.output_limit,
        prompt_cache_key=thread.id,
        headers=request_headers(turn),
        fair_key=thread.id,
        on_wait=partial(tell_wait, turn),
    )


def _begin_anew(turn: Turn, summary: str) -> None:
    thread = turn.thread
    assert thread.history is not None
    anew = history_after(summary, thread.history.items)
    thread.history.replace([])
    start = thread.counters.history + 1
    writes = thread.remember(anew, turn.number)
    thread.journal.write(*writes, Compaction(thread.id, turn.number, start))
    turn.report.context_size(thread.history.tokens)
