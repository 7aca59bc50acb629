# mypy: disable-error-code="import-not-found"
"""A running turn is steered, interrupted, or loses its server."""

from __future__ import annotations

import threading
from typing import Any

from openai_codex import InvalidRequestError, TransportClosedError

from interop.sdk.package import kill_server
from interop.sdk.stage import Events, Stage, items_of, now, roles_of


async def steered(stage: Stage) -> Any:
    gate = threading.Event()
    stage.model.enqueue_assistant_message("first half", deltas=["first ", "half"], gate=gate, gate_after=3)
    stage.model.enqueue_assistant_message("second answer")
    async with stage.codex() as codex:
        thread = await now(codex.thread_start())
        turn = await now(thread.turn("Start."))
        events = Events(turn)
        await events.until("item/agentMessage/delta")
        answer = await now(turn.steer("And also this."))
        gate.set()
        seen = await events.rest()
    requests = stage.model.requests()
    return {
        "turn": answer.turn_id == turn.id,
        "items": [item.type for item in items_of(seen)],
        "status": seen[-1].payload.turn.status.value,
        "requests": len(requests),
        "last": requests[-1].last_user_text,
        "answered": requests[-1].input_texts("assistant"),
    }


async def steered_during_a_command(stage: Stage) -> Any:
    stage.model.enqueue_function_call("exec_command", {"cmd": "read line < pipe; echo got $line"}, call_id="call-1")
    stage.model.enqueue_assistant_message("done")
    async with stage.codex() as codex:
        stage.make_pipe()
        thread = await now(codex.thread_start())
        turn = await now(thread.turn("Start."))
        events = Events(turn)
        while (await events.until("item/started")).payload.item.root.type != "commandExecution":
            pass
        await now(turn.steer("Meanwhile."))
        stage.feed_pipe("on")
        seen = await events.rest()
    last = stage.model.requests()[-1]
    return {
        "items": [item.type for item in items_of(seen)],
        "requests": len(stage.model.requests()),
        "output": "got on" in last.tool_outputs["call-1"],
        "last": last.last_user_text,
    }


async def interrupted(stage: Stage) -> Any:
    gate = threading.Event()
    stage.model.enqueue_assistant_message("never ends", deltas=["never ", "ends"], gate=gate, gate_after=3)
    stage.model.enqueue_assistant_message("Back.")
    async with stage.codex() as codex:
        thread = await now(codex.thread_start())
        turn = await now(thread.turn("Start."))
        events = Events(turn)
        await events.until("item/agentMessage/delta")
        await now(turn.interrupt())
        seen = await events.rest()
        gate.set()
        result = await now(thread.run("Go on."))
        turns = (await now(thread.read(include_turns=True))).thread.turns
    return {
        "status": seen[-1].payload.turn.status.value,
        "items": [item.type for item in items_of(seen)],
        "answer": result.final_response,
        "turns": [turn.status.value for turn in turns],
        "marked": roles_of(stage.model.requests()[-1], "<turn_aborted>"),
    }


async def interrupted_command(stage: Stage) -> Any:
    """`run` of an interrupted turn returns, with that status; the command of the turn is stopped."""
    stage.model.enqueue_function_call(
        "exec_command", {"cmd": "read line < pipe", "yield_time_ms": 30000}, call_id="call-1"
    )
    async with stage.codex() as codex:
        stage.make_pipe()
        thread = await now(codex.thread_start())
        turn = await now(thread.turn("Start."))
        await stage.wire.wait_for("item/started", 2)
        await now(turn.interrupt())
        result = await now(turn.run())
    return {"status": result.status.value, "answer": result.final_response}


async def interrupted_at_once(stage: Stage) -> Any:
    gate = threading.Event()
    stage.model.enqueue_assistant_message("Too late.", gate=gate)
    async with stage.codex() as codex:
        thread = await now(codex.thread_start())
        turn = await now(thread.turn("Start."))
        try:
            await now(turn.interrupt())
        except InvalidRequestError as error:
            refusal = error.message
        else:
            refusal = ""
        gate.set()
        result = await now(turn.run())
    return {"refusal": refusal, "status": result.status.value}


async def too_late(stage: Stage) -> Any:
    """What is refused: steering a turn that is over, or another than the one that runs."""
    stage.model.enqueue_assistant_message("Over.")
    gate = threading.Event()
    stage.model.enqueue_assistant_message("Running.", gate=gate)
    async with stage.codex() as codex:
        thread = await now(codex.thread_start())
        over = await now(thread.turn("One."))
        await now(over.run())
        refusals = [await _refusal(over.steer, "Hello?")]
        running = await now(thread.turn("Two."))
        await stage.wire.wait_for("turn/started", 2)
        refusals.append(await _refusal(over.steer, "Hello?"))
        refusals.append(await _refusal(over.interrupt))
        gate.set()
        result = await now(running.run())
    names = [text.replace(over.id, "OVER").replace(running.id, "RUNNING") for text in refusals]
    return {"refusals": names, "status": result.status.value}


async def _refusal(call: Any, *arguments: Any) -> str:
    try:
        await now(call(*arguments))
    except InvalidRequestError as error:
        return str(error.message)
    return ""


async def killed(stage: Stage) -> Any:
    """A server that dies in the middle of a turn: the SDK says so, and the next server knows how far it came."""
    stage.model.enqueue_assistant_message("Kept.")
    stage.model.enqueue_assistant_message("lost", gate=threading.Event(), gate_after=3)
    stage.model.enqueue_assistant_message("Here again.")
    async with stage.codex() as codex:
        thread = await now(codex.thread_start())
        await now(thread.run("One."))
        events = Events(await now(thread.turn("Two.")))
        await events.until("item/agentMessage/delta")
        kill_server(codex._client)
        try:
            await events.rest()
        except TransportClosedError:
            error = "TransportClosedError"
    async with stage.codex() as codex:
        thread = await now(codex.thread_resume(thread.id))
        turns = (await now(thread.read(include_turns=True))).thread.turns
        result = await now(thread.run("Three."))
    return {"error": error, "turns": [turn.status.value for turn in turns], "answer": result.final_response}
