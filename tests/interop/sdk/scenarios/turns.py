# mypy: disable-error-code="import-not-found"
"""Turns from their start to their result: `run`, `turn().stream()`, several at once."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from interop.sdk.stage import Events, Stage, items_of, now, text_of
from treadle.testing import MockModel, Usage

USAGE = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens", "total_tokens")


async def hello(stage: Stage) -> Any:
    usage = Usage(input_tokens=11, cached_input_tokens=3, output_tokens=7, reasoning_output_tokens=2)
    stage.model.enqueue_assistant_message("Hello, user.", usage=usage)
    async with stage.codex() as codex:
        name = codex.metadata.serverInfo.name
        thread = await now(codex.thread_start())
        result = await now(thread.run("Say hello."))
    completed = stage.wire.received("turn/completed")[0]["turn"]
    return {
        "client": name,
        "status": result.status.value,
        "answer": result.final_response,
        "error": result.error,
        "items": [item.root.type for item in result.items],
        "usage": [getattr(result.usage.last, name) for name in USAGE],
        "asked": stage.model.single_request().last_user_text,
        "timed": [type(value).__name__ for value in (result.started_at, result.completed_at, result.duration_ms)],
        "completed": {"items": [item["type"] for item in completed["items"]], "itemsView": completed["itemsView"]},
    }


async def conversation(stage: Stage) -> Any:
    stage.model.enqueue_assistant_message("Noted.")
    stage.model.enqueue_assistant_message("It was blue.")
    async with stage.codex() as codex:
        thread = await now(codex.thread_start())
        await now(thread.run("My colour is blue."))
        result = await now(thread.run("Which colour?"))
    second = stage.model.requests()[1]
    return {
        "answer": result.final_response,
        "said": [text for text in second.input_texts("user") if not text.startswith("<")],
        "answered": second.input_texts("assistant"),
        "total": result.usage.total.total_tokens,
    }


async def phases(stage: Stage) -> Any:
    """A message of the last phase is the answer, whatever comes after; without one there is none."""
    answers = []
    async with stage.codex() as codex:
        thread = await now(codex.thread_start())
        for phase in (None, "final_answer", "commentary"):
            stage.model.enqueue_assistant_message(f"as {phase}", phase=phase)
            result = await now(thread.run("Go on."))
            answers.append([result.final_response, [item.root.type for item in result.items]])
    return answers


async def command(stage: Stage) -> Any:
    stage.model.enqueue_function_call("exec_command", {"cmd": "echo to-the-model"}, call_id="call-1")
    stage.model.enqueue_assistant_message("It said so.")
    async with stage.codex() as codex:
        thread = await now(codex.thread_start())
        result = await now(thread.run("Run it."))
    command = next(item.root for item in result.items if item.root.type == "commandExecution")
    return {
        "items": [item.root.type for item in result.items],
        "answer": result.final_response,
        "command": [command.id, command.status.value, command.exit_code, command.aggregated_output],
        "mentions": "echo to-the-model" in command.command,
        "told": "to-the-model" in stage.model.requests()[1].tool_outputs["call-1"],
        "cwd": getattr(command.cwd, "root", command.cwd) == str(stage.workspace),
    }


async def patched(stage: Stage) -> Any:
    (stage.workspace / "old.txt").write_text("one\ntwo\n")
    text = "*** Begin Patch\n*** Update File: old.txt\n@@\n one\n-two\n+three\n*** End Patch\n"
    stage.model.enqueue_custom_call("apply_patch", text, call_id="call-1")
    stage.model.enqueue_assistant_message("Patched.")
    async with stage.codex() as codex:
        thread = await now(codex.thread_start())
        events = await Events(await now(thread.turn("Patch."))).rest()
    change = next(item for item in items_of(events) if item.type == "fileChange")
    diffs = [event.payload.diff for event in events if event.method == "turn/diff/updated"]
    return {
        "items": [item.type for item in items_of(events)],
        "change": [change.id, change.status.value, [part.kind.root.type for part in change.changes]],
        "diff": change.changes[0].diff,
        "path": change.changes[0].path == str(stage.workspace / "old.txt"),
        "text": (stage.workspace / "old.txt").read_text(),
        "turn diff": [line for line in diffs[-1].splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")],
    }


async def streamed(stage: Stage) -> Any:
    stage.model.enqueue_assistant_message("one two three", deltas=["one ", "two ", "three"])
    async with stage.codex() as codex:
        thread = await now(codex.thread_start())
        turn = await now(thread.turn("Count."))
        events = await Events(turn).rest()
    return {
        "methods": [event.method for event in events],
        "text": text_of(events),
        "items": [item.type for item in items_of(events)],
        "same": {event.payload.turn_id for event in events if hasattr(event.payload, "turn_id")} == {turn.id},
        "status": events[-1].payload.turn.status.value,
    }


async def reasoning(stage: Stage) -> Any:
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    done = {**item, "summary": [{"type": "summary_text", "text": "I think."}]}
    message = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "So.", "annotations": []}],
    }
    usage = Usage().to_wire()
    stage.model.enqueue_sse(
        [
            {"type": "response.created", "response": {"id": "resp_1"}},
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            {"type": "response.reasoning_summary_part.added", "item_id": "rs_1", "output_index": 0, "summary_index": 0},
            {
                "type": "response.reasoning_summary_text.delta",
                "item_id": "rs_1",
                "output_index": 0,
                "summary_index": 0,
                "delta": "I think.",
            },
            {"type": "response.output_item.done", "output_index": 0, "item": done},
            {"type": "response.output_item.done", "output_index": 1, "item": message},
            {"type": "response.completed", "response": {"id": "resp_1", "output": [done, message], "usage": usage}},
        ]
    )
    async with stage.codex() as codex:
        thread = await now(codex.thread_start())
        events = await Events(await now(thread.turn("Think."))).rest()
    return {
        "methods": [event.method for event in events if event.method.startswith("item/")],
        "summary": next(item.summary for item in items_of(events) if item.type == "reasoning"),
        "answer": items_of(events)[-1].text,
    }


async def interleaved(stage: Stage) -> Any:
    """Two turns on two threads: each handle sees only its own, and other requests are answered meanwhile."""
    gates = [threading.Event(), threading.Event()]
    async with stage.codex() as codex:
        streams = []
        for number, gate in enumerate(gates):
            stage.model.enqueue_assistant_message(
                f"{number}a{number}b", deltas=[f"{number}a", f"{number}b"], gate=gate, gate_after=3
            )
            thread = await now(codex.thread_start())
            streams.append(Events(await now(thread.turn(f"turn {number}"))))
            await stage.model.arrived(number + 1)
        first = [(await stream.until("item/agentMessage/delta")).payload.delta for stream in streams]
        models = await now(codex.models())
        texts = []
        for stream, gate in reversed(list(zip(streams, gates, strict=True))):
            gate.set()
            texts.append(text_of(await stream.rest()))
    return {"first": first, "texts": texts, "models": len(models.data) > 0}


async def at_once(stage: Stage) -> Any:
    """Many threads run at the same time; every answer goes to its own."""
    model = MockModel(on_empty=lambda request: f"re: {request.last_user_text}")
    with model:
        stage.configure(base_url=model.base_url)
        async with stage.codex() as codex:
            threads = [await now(codex.thread_start()) for _ in range(4)]
            if stage.face == "sync":
                runs = [asyncio.to_thread(thread.run, f"{i}") for i, thread in enumerate(threads)]
            else:
                runs = [thread.run(f"{i}") for i, thread in enumerate(threads)]
            results = await asyncio.gather(*runs)
    return [result.final_response for result in results]


async def joined(stage: Stage) -> Any:
    """A second `turn` while one runs joins it: the same turn, and both handles see its end. Or it is refused."""
    gate = threading.Event()
    stage.model.enqueue_function_call("exec_command", {"cmd": "true"}, gate=gate, gate_after=1)
    stage.model.enqueue_assistant_message("Both done.")
    async with stage.codex() as codex:
        thread = await now(codex.thread_start())
        one = await now(thread.turn("first"))
        await stage.wire.wait_for("turn/started")
        try:
            two = await now(thread.turn("second"))
        except RuntimeError as error:
            gate.set()
            end = (await Events(one).rest())[-1].payload.turn
            return {"refused": "already has active turn" in str(error), "ends": [end.status.value]}
        gate.set()
        ends = [(await Events(turn).rest())[-1].payload.turn for turn in (one, two)]
    asked = stage.model.requests()[-1].input_texts("user")
    return {
        "same": one.id == two.id,
        "ends": [turn.status.value for turn in ends],
        "asked": [text for text in asked if text in ("first", "second")],
        "started": len(stage.wire.received("turn/started")),
    }


async def low_level(stage: Stage) -> Any:
    """What the client below the public classes offers: `stream_text`, `turn_start`, `wait_for_turn_completed`."""
    stage.model.enqueue_assistant_message("ab", deltas=["a", "b"])
    gate = threading.Event()
    stage.model.enqueue_assistant_message("c", gate=gate)
    async with stage.codex() as codex:
        client = codex._client
        thread = (await now(client.thread_start({}))).thread
        stream = client.stream_text(thread.id, "Spell.")
        deltas = [part.delta async for part in stream] if stage.face == "async" else [part.delta for part in stream]
        started = await now(client.turn_start(thread.id, "And on."))
        gate.set()
        completed = await now(client.wait_for_turn_completed(started.turn.id))
    return {"deltas": deltas, "status": completed.turn.status.value, "started": started.turn.status.value}


async def failed(stage: Stage) -> Any:
    """A model that answers with an error fails the turn, and only that turn."""
    stage.model.enqueue_error(400, {"error": {"message": "no such thing", "type": "invalid_request_error"}})
    stage.model.enqueue_assistant_message("Fine again.")
    async with stage.codex() as codex:
        thread = await now(codex.thread_start())
        try:
            await now(thread.run("Break."))
        except RuntimeError as error:
            message = str(error)
        status = (await now(thread.read())).thread.status.root.type
        result = await now(thread.run("Again."))
        turns = (await now(thread.read(include_turns=True))).thread.turns
    return {
        "message": "no such thing" in message,
        "status": status,
        "answer": result.final_response,
        "errors": [error["willRetry"] for error in stage.wire.received("error")],
        "turns": [turn.status.value for turn in turns],
        "read": "no such thing" in turns[0].error.message,
    }
