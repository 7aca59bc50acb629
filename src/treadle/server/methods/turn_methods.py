"""`turn/*`, and the other methods that make the agent do something."""

from __future__ import annotations

import asyncio

from treadle.agent.starting import start_compaction, start_shell_command, start_turn
from treadle.agent.thread import Thread
from treadle.agent.turn import Said, Turn
from treadle.agent.user_input import check_input
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.base import Empty
from treadle.protocol.app.turns import TurnStartResponse, TurnSteerResponse
from treadle.server.client_base import Call
from treadle.server.thread_settings import setting_changes


async def start(call: Call) -> None:
    params, server = call.params, call.server
    thread = server.threads.find(params.thread_id)
    server.threads.check_open()
    check_input(params.input)
    if params.tool_output is not None and params.input:
        raise RpcError(INVALID_REQUEST, "`toolOutput` cannot be combined with nonempty `input`")
    async with thread.lock:
        server.threads.check_loaded(thread)
        turn = await start_turn(
            thread,
            Said(params.input, params.client_user_message_id, params.tool_output),
            setting_changes(params, thread.settings.cwd),
            output_schema=params.output_schema,
            not_before=_not_before(call),
        )
        call.reply_when_kept(thread.journal, TurnStartResponse(turn=turn.fresh()))


def _not_before(call: Call) -> float:
    quirk = call.client.quirks.turn_min_s
    return asyncio.get_running_loop().time() + quirk if quirk else 0.0


def _active(thread: Thread, what: str) -> Turn:
    if thread.turn is None or not thread.turn.active:
        raise RpcError(INVALID_REQUEST, f"no active turn to {what}")
    return thread.turn


async def steer(call: Call) -> TurnSteerResponse:
    params = call.params
    thread = call.server.threads.find(params.thread_id)
    async with thread.lock:
        call.server.threads.check_loaded(thread)
        if not params.input:
            raise RpcError(INVALID_REQUEST, "input must not be empty")
        check_input(params.input)
        turn = _active(thread, "steer")
        if turn.id != params.expected_turn_id:
            text = f"expected active turn id `{params.expected_turn_id}` but found `{turn.id}`"
            raise RpcError(INVALID_REQUEST, text)
        if turn.kind != "regular":
            data = {"codexErrorInfo": {"activeTurnNotSteerable": {"turnKind": turn.kind}}}
            raise RpcError(INVALID_REQUEST, f"cannot steer a {turn.kind} turn", data)
        turn.steer(Said(params.input, params.client_user_message_id))
        return TurnSteerResponse(turn_id=turn.id)


async def interrupt(call: Call) -> None:
    """Not under the lock: what holds it may be waiting for the very turn that is to end."""
    params = call.params
    thread = call.server.threads.find(params.thread_id)
    turn = _active(thread, "interrupt")
    if params.turn_id and turn.id != params.turn_id:
        raise RpcError(INVALID_REQUEST, f"expected active turn id {params.turn_id} but found {turn.id}")
    turn.interrupt(lambda: call.reply(Empty()))
    await turn.wait()


async def compact(call: Call) -> None:
    server = call.server
    thread = server.threads.find(call.params.thread_id)
    server.threads.check_open()
    async with thread.lock:
        call.server.threads.check_loaded(thread)
        call.reply(Empty())
        await start_compaction(thread)


async def shell_command(call: Call) -> None:
    params, server = call.params, call.server
    thread = server.threads.find(params.thread_id)
    server.threads.check_open()
    if not params.command.strip():
        raise RpcError(INVALID_REQUEST, "command must not be empty")
    async with thread.lock:
        call.server.threads.check_loaded(thread)
        call.reply(Empty())
        await start_shell_command(thread, params.command, params.timeout_ms)
