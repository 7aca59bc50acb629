"""The turn loop: ask the model, run the tools that it calls, ask again, until it is done.

It owns the order of these steps, when the context counts as full, and compaction: the history becomes a summary of
itself, so that the conversation can go on. The old history stays in the store, for turns that are reverted later. What
a response becomes is `sampling`, what a call does is `tools`.

    regular_turn ─▶ converse ─▶ ┌─ context full? compact
                                ├─ take the input that waits
                                ├─ sample: one response, whose calls start while it is still being written
                                ├─ wait for the calls, count the usage
                                └─ calls or more to say? again ─▶ else no more input? the end
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from msgspec import structs

from treadle.agent.event import new_id
from treadle.agent.thread.model_history import history_after, user_message
from treadle.agent.tools.toolbox import Toolbox
from treadle.agent.turn.model_context import Context, build_context
from treadle.agent.turn.sampling import Sampling, report_wait, request_headers, sample
from treadle.agent.turn.turn import Turn, developer_message
from treadle.config import COMPACT_PROMPT
from treadle.llm import ModelError, ModelRequest
from treadle.protocol.app.items import ContextCompactionThreadItem
from treadle.protocol.app.turns import TurnLimit
from treadle.store.contract import Compaction

NO_MORE_TOOLS: Final = "You have used all the rounds of tool calls that this turn has. Answer now, with what you have."
AT_LIMIT: Final = (
    "The turn ended at its limit of tool calls ({limit} rounds, maxIterations); the model wanted to make more. Go on "
    "with another turn, or with a higher limit."
)
# Words of clients for tiers of the API; the usual one is not named.
TIERS: Final[dict[str | None, str | None]] = {"fast": "priority", "default": None}


async def regular_turn(turn: Turn) -> None:
    """The work of a turn that answers its input."""
    await turn.thread.load_history()
    if (moved := turn.thread.take_move()) is not None:
        turn.thread.journal.write(*turn.add_history([developer_message(moved)]))
    if (hooks := turn.thread.hooks) is not None and not await hooks.start_session(turn):
        turn.input.drop()
        return
    # Else after the compaction, which is about what was before.
    if not turn.thread.context_is_full and not await take_input(turn):
        return
    if (mcp := turn.thread.mcp) is not None:
        await mcp.prepare()
    await converse(turn, await build_context(turn))


async def compact_turn(turn: Turn) -> None:
    """The work of a turn that only compacts."""
    await turn.thread.load_history()
    await compact(turn, await build_context(turn))


async def converse(turn: Turn, context: Context) -> str:
    """Ask until the model is done; what it said last."""
    try:
        async with asyncio.TaskGroup() as group:
            return await _ask_until_done(turn, context, Toolbox(turn, group))
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def _ask_until_done(turn: Turn, context: Context, toolbox: Toolbox) -> str:
    thread = turn.thread
    rounds = 0  # of tool calls
    said = ""

    async def request() -> ModelRequest:
        if toolbox.called:  # by a response that broke off
            await toolbox.drain()
        mcp = None if turn.side is not None or toolbox.closed else thread.mcp
        asked = model_request(turn, context)
        if mcp is None:
            return asked
        await mcp.refresh()
        return structs.replace(asked, tools=(*asked.tools, *await mcp.specs()))

    def reader() -> Sampling:
        if turn.settings.mode != "plan":
            return Sampling(turn, toolbox.start)
        from treadle.agent.turn.proposed_plan import PlanSampling  # loaded with the first turn that plans

        return PlanSampling(turn, toolbox.start)

    wanted: bool | None = None  # whether the model has something to answer, beside what it is about to get
    while True:
        is_full = thread.context_is_full
        if wanted is None:
            wanted = not is_full
        if is_full and turn.side is None:
            await compact(turn, context)
        if not await take_input(turn) and not wanted:
            if turn.try_finish():
                return said
            continue
        if rounds == turn.budget.turn_iterations:  # one more request, for the answer
            toolbox.closed = True
            context = Context(
                context.messages, (), [developer_message(NO_MORE_TOOLS)] if rounds or context.tools else []
            )
        turn.check_budget()
        try:
            sampling = await sample(turn, request, reader)
        except ModelError as error:
            if error.kind == "context_too_long" and turn.side is None:
                # Whatever the provider has counted: the next turn begins with a compaction.
                turn.report.context_size(thread.model_facts.usable_window)
            raise
        said = sampling.text
        turn.report.pending_usage = sampling.usage
        wanted = go_on = toolbox.called or sampling.paused
        await toolbox.drain()
        turn.report.usage()
        turn.is_counted = turn.is_counted and sampling.usage is not None
        if turn.side is None:
            thread.look_for_window()
        if sampling.usage is None and turn.side is None:  # the provider does not count, so we estimate
            turn.report.context_size(thread.history_tokens)
        if go_on and toolbox.closed:
            limit = TurnLimit(kind="turnIterations", limit=rounds, used=rounds, thread_id=thread.id)
            turn.report.warning(AT_LIMIT.format(limit=rounds), limit)
            return said
        if go_on:
            rounds += 1
            continue
        if not turn.input:
            await turn.wait_side_tasks()
        if turn.side is None and not toolbox.closed and thread.state.children and thread.children.pending():
            continue
        hooks = thread.hooks if turn.side is None else None
        if hooks is not None and not turn.input and await hooks.stop(turn, said):
            wanted = True
            continue
        if turn.try_finish():
            return said


async def take_input(turn: Turn) -> bool:
    """Hand to the model what waits for it: what sub-agents have done, which was before, and what the user says. False
    when hooks have refused all of it."""
    reported = False
    if turn.thread.state.children and turn.side is None:
        reported = await turn.thread.children.deliver(turn)
    return await turn.input.take() or reported


def model_request(turn: Turn, context: Context) -> ModelRequest:
    thread = turn.thread
    settings = turn.settings
    facts = thread.model_facts if turn.side is None else turn.side.model_facts(thread)
    return ModelRequest(
        model=settings.model,
        input=[*context.messages, *turn.history.items_for(thread.origin), *context.last],
        tools=context.tools,
        reasoning_effort=settings.effort,
        reasoning_summary=settings.summary or "auto",
        output_schema=turn.output_schema,
        max_output_tokens=turn.max_output_tokens or facts.output_limit,
        prompt_cache_key=thread.session_id,
        headers=request_headers(turn),
        service_tier=TIERS.get(settings.service_tier, settings.service_tier),
        fair_key=thread.session_id,
        on_wait=partial(report_wait, turn),
    )


async def compact(turn: Turn, context: Context) -> None:
    """Ask the model for a summary and begin anew from it. Raises `ModelError`, and nothing is different then."""
    thread, hooks = turn.thread, turn.thread.hooks
    turn.check_budget()
    if hooks is not None and not await hooks.before_compaction(turn):
        turn.interrupt()
        await asyncio.sleep(0)
    item = ContextCompactionThreadItem(id=new_id())
    turn.items.start(item)

    async def request() -> ModelRequest:
        prompt = thread.services.config_for(thread.settings).compact_prompt or COMPACT_PROMPT
        asked = model_request(turn, context)
        return structs.replace(
            asked, input=[*asked.input, user_message(prompt)], tools=(), output_schema=None, service_tier=None
        )

    try:
        sampling = await sample(turn, request, lambda: Sampling(turn, silent=True))
    except ModelError:
        turn.items.drop(item.id)
        raise
    turn.report.pending_usage = sampling.usage
    turn.report.usage()
    assert thread.history is not None
    anew = history_after(sampling.text, thread.history.items)
    thread.history.replace([])
    start = thread.counters.history + 1
    thread.journal.write(*thread.add_history(anew, turn.number), Compaction(thread.id, turn.number, start))
    turn.report.context_size(thread.history.tokens)
    turn.items.complete(item)
    thread.note_session_source("compact")
    if hooks is not None:
        await hooks.after_compaction(turn)
