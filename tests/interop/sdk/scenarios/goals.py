# mypy: disable-error-code="import-not-found"
"""Goals: the server starts turns by itself until the model says that the objective is reached.

The public classes do not show goals yet; these are the calls of the client below them.
"""

from __future__ import annotations

import threading
from itertools import groupby
from typing import Any

from openai_codex._goal import _AsyncGoalNotificationStream, _GoalNotificationStream

from interop.sdk.stage import Events, Stage, items_of, now


class _Goal:
    """A goal as something with a `stream`, as a turn has."""

    def __init__(self, stage: Stage, client: Any, state: Any) -> None:
        kind = _GoalNotificationStream if stage.face == "sync" else _AsyncGoalNotificationStream
        self._stream = kind(
            state,
            lambda: client.next_goal_notification(state),
            lambda: client.unregister_goal_operation(state),
            lambda: client.cancel_goal_operation(state),
        )

    def stream(self) -> Any:
        return self._stream


async def reached(stage: Stage) -> Any:
    stage.model.enqueue_assistant_message("Hello.")
    stage.model.enqueue_assistant_message("Half way.")
    stage.model.enqueue_function_call("update_goal", {"status": "complete"})
    stage.model.enqueue_assistant_message("All done.")
    async with stage.codex() as codex:
        thread = await now(codex.thread_start())
        await now(thread.run("Hello."))
        state, turn_id = await now(codex._client.start_goal_operation(thread.id, "Tie every knot."))
        events = await Events(_Goal(stage, codex._client, state)).rest()
    requests = stage.model.requests()
    started = [note["turn"]["id"] for note in stage.wire.received("turn/started")]
    return {
        "turns": [len(started), turn_id == started[1] == events[-1].payload.turn.id],
        "status": events[-1].payload.turn.status.value,
        "goal": [
            status for status, _ in groupby(n["goal"]["status"] for n in stage.wire.received("thread/goal/updated"))
        ],
        "answers": [item.text for item in items_of(events) if item.type == "agentMessage"],
        "objective": ["Tie every knot." in str(request.input) for request in requests],
        "offered": "update_goal" in requests[1].tool_names,
    }


async def given_up(stage: Stage) -> Any:
    """A goal that is cancelled is paused, and its turn interrupted; then the thread is free again."""
    stage.model.enqueue_assistant_message("Hello.")
    stage.model.enqueue_assistant_message("never", gate=threading.Event(), gate_after=3)
    stage.model.enqueue_assistant_message("Free again.")
    async with stage.codex() as codex:
        thread = await now(codex.thread_start())
        await now(thread.run("Hello."))
        client = codex._client
        state, _ = await now(client.start_goal_operation(thread.id, "Tie every knot."))
        await stage.wire.wait_for("item/agentMessage/delta", 2)
        await now(client.cancel_goal_operation(state))
        events = await Events(_Goal(stage, client, state)).rest()
        cleared = await now(client.thread_goal_clear(thread.id))
        result = await now(thread.run("Are you free?"))
    return {
        "status": events[-1].payload.turn.status.value,
        "goal": [
            status for status, _ in groupby(n["goal"]["status"] for n in stage.wire.received("thread/goal/updated"))
        ],
        "cleared": cleared.cleared,
        "answer": result.final_response,
    }
