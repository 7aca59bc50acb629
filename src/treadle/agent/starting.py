"""How turns begin: because a client asks for one, to compact, to run a command of the user, or for a goal.

All of it happens under the thread's lock. A turn that is active is joined by new input; one that is ending is waited
for.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from treadle.agent import thread_goal
from treadle.agent.thread import Thread
from treadle.agent.turn import Kind, Said, Turn, Work
from treadle.execution.sandbox.pinned_roots import Pin
from treadle.store.contract import StoreError

# A goal whose turns do nothing but talk is stopped after this many of them.
MAX_IDLE_GOAL_TURNS: Final = 5


async def start_turn(
    thread: Thread,
    said: Said,
    changes: dict[str, Any],
    *,
    output_schema: Any = None,
    not_before: float = 0.0,
) -> Turn:
    """The turn that will answer: a new one, or the active one, which gets the input as well."""
    from treadle.agent.conversation import converse

    pins = await thread.look_at_roots(changes)
    await _until_free(thread)
    if thread.turn is not None:
        await thread.acquire()
        try:
            thread.change_settings(changes, pins)
        finally:
            thread.release()
        if not said.is_empty:
            thread.turn.steer(said)
        return thread.turn
    turn = await _make(thread, converse, "regular", changes, pins)
    turn.output_schema = output_schema
    turn.not_before = not_before
    if not said.is_empty:
        turn.steer(said)
    turn.start()
    return turn


async def start_compaction(thread: Thread) -> Turn:
    """A turn that runs is interrupted for it."""
    from treadle.agent.compaction import compact_turn

    if thread.turn is not None:
        await thread.turn.abort()
    turn = await _make(thread, compact_turn, "compact", {})
    turn.start()
    return turn


async def start_shell_command(thread: Thread, command: str, timeout_ms: int | None) -> Turn:
    """In a turn of its own, or beside what the active turn does."""
    from treadle.agent.shell_command import run_shell_command, shell_work

    turn = thread.turn
    if turn is not None and turn.active and turn.kind == "regular":
        turn.spawn(run_shell_command(turn, command, timeout_ms))
        return turn
    if turn is not None:
        await turn.wait()
    turn = await _make(thread, shell_work(command, timeout_ms), "shell", {})
    turn.start()
    return turn


async def _until_free(thread: Thread) -> None:
    """Until there is no turn, or one that can be joined."""
    while thread.turn is not None and not (thread.turn.active and thread.turn.kind == "regular"):
        await thread.turn.wait()


async def _make(
    thread: Thread,
    work: Work,
    kind: Kind,
    changes: dict[str, Any],
    pins: Mapping[str, Pin] = MappingProxyType({}),
) -> Turn:
    from treadle.agent.context import look_ahead

    try:
        if kind == "regular":
            look_ahead(thread)
        await thread.acquire()
    except BaseException:
        thread.looked_ahead = None
        raise
    try:
        thread.change_settings(changes, pins)
        return Turn(thread, work, kind=kind)
    except BaseException:
        thread.release()
        raise


async def go_on_with_goal(thread: Thread, last: Turn) -> None:
    """After a turn, or when a goal was set: start the next turn, or stop."""
    async with thread.lock:
        if not thread_goal.wants_turn(thread):
            return
        thread.idle_goal_turns = 0 if last.called or last.kind != "regular" else thread.idle_goal_turns + 1
        if last.status == "completed" and thread.idle_goal_turns < MAX_IDLE_GOAL_TURNS:
            await start_goal_turn(thread)
            return
        why = "paused" if last.status == "interrupted" else "blocked"
        await thread.acquire()
        try:
            thread_goal.set_goal(thread, status=why)
            thread_goal.tell_goal(thread)
        finally:
            thread.release()


async def start_goal_turn(thread: Thread) -> None:
    from treadle.agent.conversation import converse

    turn = await _make(thread, converse, "regular", {})
    turn.start()


def after_turn(turn: Turn) -> None:
    """Called by the turn at its very end."""
    thread = turn.thread
    if thread_goal.wants_turn(thread) and not thread.closing:
        thread.services.spawn(_go_on(thread, turn), f"goal of {thread.id}")


async def _go_on(thread: Thread, turn: Turn) -> None:
    try:
        await go_on_with_goal(thread, turn)
    except StoreError:
        return  # the turn that would have followed could not be kept; the goal is still there for the next one
