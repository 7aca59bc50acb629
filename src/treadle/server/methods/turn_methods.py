"""`turn/*`, `thread/goal/*`, `thread/backgroundTerminals/*`, and the other methods that make the agent do something."""

from __future__ import annotations

from treadle.agent.thread.stored_thread import StoredThread
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.base import Empty
from treadle.protocol.app.thread_methods import (
    ThreadApproveGuardianDeniedActionParams,
    ThreadBackgroundTerminalsCleanParams,
    ThreadBackgroundTerminalsListParams,
    ThreadBackgroundTerminalsListResponse,
    ThreadBackgroundTerminalsTerminateParams,
    ThreadBackgroundTerminalsTerminateResponse,
    ThreadCompactStartParams,
    ThreadGoalClearParams,
    ThreadGoalClearResponse,
    ThreadGoalGetParams,
    ThreadGoalGetResponse,
    ThreadGoalSetParams,
    ThreadGoalSetResponse,
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
from treadle.server.clients import ServerCall
from treadle.server.methods.thread_lifecycle import fork_for_review
from treadle.server.routes import check_thread_id


async def start(call: ServerCall[TurnStartParams]) -> TurnStartResponse:
    threads = call.server.threads
    thread = threads.find(call.params.thread_id)
    threads.check_open()
    return await thread.start_turn(call.params, least_s=call.client.workarounds.turn_min_s)


async def review(call: ServerCall[ReviewStartParams]) -> ReviewStartResponse:
    threads = call.server.threads
    thread = threads.find(call.params.thread_id)
    threads.check_open()
    if call.params.delivery == "detached":
        thread = await fork_for_review(call, thread)
    return await thread.start_review(call.params)


async def steer(call: ServerCall[TurnSteerParams]) -> TurnSteerResponse:
    return await call.server.threads.find(call.params.thread_id).steer(call.params)


async def interrupt(call: ServerCall[TurnInterruptParams]) -> Empty:
    await call.server.threads.find(call.params.thread_id).interrupt(call.params)
    return Empty()


async def compact(call: ServerCall[ThreadCompactStartParams]) -> Empty:
    thread = call.server.threads.find(call.params.thread_id)
    call.server.threads.check_open()
    await thread.compact()
    return Empty()


async def shell_command(call: ServerCall[ThreadShellCommandParams]) -> Empty:
    thread = call.server.threads.find(call.params.thread_id)
    call.server.threads.check_open()
    await thread.run_shell_command(call.params)
    return Empty()


async def approve_denied_action(call: ServerCall[ThreadApproveGuardianDeniedActionParams]) -> Empty:
    await call.server.threads.find(call.params.thread_id).approve_denied_action(call.params.event)
    return Empty()


# --- thread/goal/* ----------------------------------------------------------------------------------------------------


async def set_goal(call: ServerCall[ThreadGoalSetParams]) -> ThreadGoalSetResponse:
    _check_goals(call.server)
    thread = call.server.threads.find(call.params.thread_id)
    return await thread.set_goal(call.params, may_start=not call.server.draining)


async def get_goal(call: ServerCall[ThreadGoalGetParams]) -> ThreadGoalGetResponse:
    _check_goals(call.server)
    thread = await call.server.threads.find_or_stored(check_thread_id(call.params.thread_id))
    return ThreadGoalGetResponse(goal=await thread.goal() if isinstance(thread, StoredThread) else thread.goal)


async def clear_goal(call: ServerCall[ThreadGoalClearParams]) -> ThreadGoalClearResponse:
    _check_goals(call.server)
    return await call.server.threads.find(call.params.thread_id).clear_goal()


def _check_goals(server: AppServer) -> None:
    if not server.shown_config.features.goals:
        raise RpcError(INVALID_REQUEST, "goals feature is disabled; take `features.goals = false` out of config.toml")


# --- thread/backgroundTerminals/* -------------------------------------------------------------------------------------


def list_terminals(call: ServerCall[ThreadBackgroundTerminalsListParams]) -> ThreadBackgroundTerminalsListResponse:
    return call.server.threads.find(call.params.thread_id).list_terminals(call.params)


def clean_terminals(call: ServerCall[ThreadBackgroundTerminalsCleanParams]) -> Empty:
    call.server.threads.find(call.params.thread_id).clean_terminals()
    return Empty()


def terminate_terminal(
    call: ServerCall[ThreadBackgroundTerminalsTerminateParams],
) -> ThreadBackgroundTerminalsTerminateResponse:
    return call.server.threads.find(call.params.thread_id).terminate_terminal(call.params)
