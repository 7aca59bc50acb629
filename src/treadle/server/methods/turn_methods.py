"""`turn/*`, `thread/goal/*`, and the other methods that make the agent do something."""

from __future__ import annotations

from treadle.agent.stored_thread import StoredThread
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.base import Empty
from treadle.protocol.app.goals import (
    ThreadGoalClearParams,
    ThreadGoalClearResponse,
    ThreadGoalGetParams,
    ThreadGoalGetResponse,
    ThreadGoalSetParams,
    ThreadGoalSetResponse,
)
from treadle.protocol.app.thread_methods import (
    ThreadApproveGuardianDeniedActionParams,
    ThreadCompactStartParams,
    ThreadShellCommandParams,
)
from treadle.protocol.app.turns import (
    ReviewStartParams,
    ReviewStartResponse,
    TurnInterruptParams,
    TurnStartParams,
    TurnStartResponse,
    TurnSteerParams,
    TurnSteerResponse,
)
from treadle.server.app import AppServer
from treadle.server.client_base import Call
from treadle.server.methods.thread_lifecycle import fork_for_review
from treadle.server.refusals import check_thread_id


async def start(call: Call[TurnStartParams]) -> TurnStartResponse:
    threads = call.server.threads
    thread = threads.find(call.params.thread_id)
    threads.check_open()
    return await thread.start_turn(call.params, least_s=call.client.workarounds.turn_min_s)


async def review(call: Call[ReviewStartParams]) -> ReviewStartResponse:
    threads = call.server.threads
    thread = threads.find(call.params.thread_id)
    threads.check_open()
    if call.params.delivery == "detached":
        thread = await fork_for_review(call, thread)
    return await thread.start_review(call.params)


async def steer(call: Call[TurnSteerParams]) -> TurnSteerResponse:
    return await call.server.threads.find(call.params.thread_id).steer(call.params)


async def interrupt(call: Call[TurnInterruptParams]) -> Empty:
    await call.server.threads.find(call.params.thread_id).interrupt(call.params)
    return Empty()


async def compact(call: Call[ThreadCompactStartParams]) -> Empty:
    thread = call.server.threads.find(call.params.thread_id)
    call.server.threads.check_open()
    await thread.compact()
    return Empty()


async def shell_command(call: Call[ThreadShellCommandParams]) -> Empty:
    thread = call.server.threads.find(call.params.thread_id)
    call.server.threads.check_open()
    await thread.run_shell_command(call.params)
    return Empty()


async def approve_denied_action(call: Call[ThreadApproveGuardianDeniedActionParams]) -> Empty:
    await call.server.threads.find(call.params.thread_id).approve_denied_action(call.params.event)
    return Empty()


async def set_goal(call: Call[ThreadGoalSetParams]) -> ThreadGoalSetResponse:
    _check_goals(call.server)
    thread = call.server.threads.find(call.params.thread_id)
    return await thread.set_goal(call.params, may_start=not call.server.draining)


async def get_goal(call: Call[ThreadGoalGetParams]) -> ThreadGoalGetResponse:
    _check_goals(call.server)
    thread = await call.server.threads.find_or_stored(check_thread_id(call.params.thread_id))
    return ThreadGoalGetResponse(goal=await thread.goal() if isinstance(thread, StoredThread) else thread.goal)


async def clear_goal(call: Call[ThreadGoalClearParams]) -> ThreadGoalClearResponse:
    _check_goals(call.server)
    return await call.server.threads.find(call.params.thread_id).clear_goal()


def _check_goals(server: AppServer) -> None:
    if not server.shown_config.features.goals:
        raise RpcError(INVALID_REQUEST, "goals feature is disabled; take `features.goals = false` out of config.toml")
