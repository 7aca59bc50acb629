"""The turn loop: ask the model, do what it calls for, ask again, until it is done.

It owns the order of these steps and when the context is compacted. What a response becomes is `sampling`, what a call
does is `tools`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from treadle.agent.compaction import compact
from treadle.agent.context import Context, build_context
from treadle.agent.sampling import Sampling, request_headers, sample, tell_wait
from treadle.agent.tools.toolbox import Toolbox
from treadle.agent.turn import Turn
from treadle.agent.turn_runtime import Runtime
from treadle.llm import ModelError, ModelRequest


class Loop:
    """The `Runtime` of every provider that is a model and no more."""

    async def run(self, turn: Turn) -> None:
        await turn.thread.load_history()
        if not turn.thread.context_is_full:
            await turn.input.take()  # else after the compaction, which is about what was before
        await converse(turn, await build_context(turn))


LOOP: Final[Runtime] = Loop()
# Words of clients for tiers of the API; the usual one is not named.
TIERS: Final[dict[str | None, str | None]] = {"fast": "priority", "default": None}


async def converse(turn: Turn, context: Context) -> str:
    """Until the model is done; what it said last."""
    try:
        async with asyncio.TaskGroup() as group:
            return await _loop(turn, context, Toolbox(turn, group))
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def _loop(turn: Turn, context: Context, toolbox: Toolbox) -> str:
    while True:
        if turn.thread.context_is_full and turn.aside is None:
            await compact(turn, context)
        await turn.input.take()
        sampling = await _ask(turn, context, toolbox)
        turn.report.pending_usage = sampling.usage
        go_on = toolbox.called or sampling.paused
        await toolbox.drain()
        turn.report.usage()
        if sampling.usage is None and turn.aside is None:  # the provider does not count, so we estimate
            turn.report.context_size(turn.thread.history_tokens)
        if go_on:
            continue
        if not turn.input:
            await turn.wait_side_tasks()
        if turn.try_finish():
            return sampling.text


async def _ask(turn: Turn, context: Context, toolbox: Toolbox) -> Sampling:
    async def request() -> ModelRequest:
        await toolbox.drain()  # of a response that broke off
        return model_request(turn, context)

    try:
        return await sample(turn, request, lambda: _reader(turn)(turn, toolbox.start))
    except ModelError as error:
        if error.kind == "context_too_long" and turn.aside is None:
            _note_full_context(turn)
        raise


def _reader(turn: Turn) -> type[Sampling]:
    if turn.settings.mode != "plan":
        return Sampling
    from treadle.agent.plan_sampling import PlanSampling  # loaded with the first turn that plans

    return PlanSampling


def _note_full_context(turn: Turn) -> None:
    """Whatever the provider has counted: the next turn begins with a compaction."""
    turn.report.context_size(turn.thread.model_facts.usable_window)


def model_request(turn: Turn, context: Context) -> ModelRequest:
    thread = turn.thread
    settings = turn.settings
    facts = thread.model_facts if turn.aside is None else turn.aside.model_facts(thread)
    return ModelRequest(
        model=settings.model,
        input=[*context.messages, *turn.history.items_for(thread.origin)],
        tools=context.tools,
        reasoning_effort=settings.effort,
        reasoning_summary=settings.summary or "auto",
        output_schema=turn.output_schema,
        max_output_tokens=facts.output_limit,
        prompt_cache_key=thread.id,
        headers=request_headers(turn),
        service_tier=TIERS.get(settings.service_tier, settings.service_tier),
        fair_key=thread.id,
        on_wait=partial(tell_wait, turn),
    )
