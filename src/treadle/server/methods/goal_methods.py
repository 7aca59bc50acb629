"""`thread/goal/*`."""

from __future__ import annotations

from treadle.agent import thread_goal
from treadle.agent.starting import start_goal_turn
from treadle.protocol.app.goals import ThreadGoalClearResponse, ThreadGoalGetResponse, ThreadGoalSetResponse
from treadle.server import refusals
from treadle.server.client_base import Call


async def set_goal(call: Call) -> None:
    """An active goal on an idle thread begins a turn by itself."""
    params, server = call.params, call.server
    thread = server.threads.find(params.thread_id)
    async with thread.lock:
        call.server.threads.check_loaded(thread)
        await thread.acquire()
        try:
            goal = thread_goal.set_goal(
                thread, objective=params.objective, status=params.status, token_budget=params.token_budget
            )
            thread.journal.write(thread.save())
            call.reply_when_kept(thread.journal, ThreadGoalSetResponse(goal=goal))
            thread_goal.tell_goal(thread)
        finally:
            thread.release()
        if thread_goal.wants_turn(thread) and not server.draining:
            thread.idle_goal_turns = 0
            await start_goal_turn(thread)


async def get_goal(call: Call) -> ThreadGoalGetResponse:
    server = call.server
    thread_id = refusals.check_thread_id(call.params.thread_id)
    thread = server.threads.get(thread_id)
    if thread is not None:
        return ThreadGoalGetResponse(goal=thread.state.goal)
    store = await server.store()
    loaded = await store.load(thread_id)
    if loaded is None:
        raise refusals.thread_not_found(thread_id)
    from treadle.agent.state import read_state

    return ThreadGoalGetResponse(goal=read_state(loaded.record.state, store.location).goal)


async def clear_goal(call: Call) -> None:
    thread = call.server.threads.find(call.params.thread_id)
    async with thread.lock:
        call.server.threads.check_loaded(thread)
        await thread.acquire()
        try:
            cleared = thread_goal.clear_goal(thread)
            thread.journal.write(thread.save())
            call.reply_when_kept(thread.journal, ThreadGoalClearResponse(cleared=cleared))
            if cleared:
                thread_goal.tell_cleared(thread)
        finally:
            thread.release()
