"""How turns begin: because a client asks for one, to compact, to review, to run a command of the user, for a message
that waited in the queue, or for a goal.

All of it happens under the thread's lock. A turn that is active is joined by new input; one that is ending is waited
for.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from treadle.agent import thread_goal, thread_refusals
from treadle.agent.aside import Aside
from treadle.agent.compaction import compact_turn
from treadle.agent.pending_input import Input
from treadle.agent.thread import Thread
from treadle.agent.turn import Turn, Work
from treadle.agent.turn_state import Kind
from treadle.execution.sandbox.pinned_roots import Pin
from treadle.store.contract import QueuedRecord, StoreError

if TYPE_CHECKING:
    from treadle.agent.review import Review

# A goal whose turns do nothing but talk is stopped after this many of them.
MAX_IDLE_GOAL_TURNS: Final = 5


async def start_turn(
    thread: Thread,
    given: Input,
    changes: dict[str, Any],
    *,
    output_schema: Any = None,
    not_before: float = 0.0,
) -> Turn:
    """The turn that will answer: a new one, or the active one, which gets the input as well."""
    pins = await thread.look_at_roots(changes)
    _check_review(thread)
    await _until_free(thread)
    if thread.turn is not None:
        await thread.acquire()
        try:
            thread.change_settings(changes, pins)
        finally:
            thread.release()
        thread.turn.steer(given)
        return thread.turn
    turn = await _make_regular(thread, changes, pins)
    turn.output_schema = output_schema
    turn.not_before = not_before
    turn.steer(given)
    turn.start()
    return turn


async def start_compaction(thread: Thread) -> None:
    """A turn that runs is interrupted for it."""
    if thread.turn is not None:
        await thread.turn.abort()
    turn = await _make(thread, compact_turn, "compact")
    turn.start()


async def start_review(thread: Thread, review: Review) -> Turn:
    """A turn that runs is interrupted for it."""
    from treadle.agent.review import ReviewWork, reviewer  # loaded with the first of them

    if thread.turn is not None:
        await thread.turn.abort()
    turn = await _make(thread, ReviewWork(review), "review", aside=reviewer())
    turn.start()
    return turn


async def start_shell_command(thread: Thread, command: str, timeout_ms: int | None) -> None:
    """In a turn of its own, or beside what the active turn does."""
    from treadle.agent.shell_command import run_shell_command, shell_work  # loaded with the first of them

    turn = thread.turn
    if turn is not None and turn.active and turn.kind in ("regular", "review"):
        turn.spawn(run_shell_command(turn, command, timeout_ms))
        return
    if turn is not None:
        await turn.wait()
    turn = await _make(thread, shell_work(command, timeout_ms), "shell")
    turn.start()


async def start_goal_turn(thread: Thread) -> None:
    turn = await _make_regular(thread)
    turn.start()


def _check_review(thread: Thread) -> None:
    """A reviewer takes as long as it takes: nobody should wait for it without knowing."""
    turn = thread.turn
    if turn is not None and turn.active and turn.kind == "review":
        raise thread_refusals.not_steerable(
            turn.kind, "start a turn during a review: wait for its end, or interrupt it"
        )


async def _until_free(thread: Thread) -> None:
    """Until there is no turn, or one that can be joined."""
    while thread.turn is not None and not (thread.turn.active and thread.turn.kind == "regular"):
        await thread.turn.wait()


async def _make_regular(
    thread: Thread, changes: Mapping[str, Any] = MappingProxyType({}), pins: Mapping[str, Pin] = MappingProxyType({})
) -> Turn:
    return await _make(thread, _run_regular, "regular", changes, pins)


async def _run_regular(turn: Turn) -> None:
    """By the runtime of the settings as they are now: another server may have changed them before this turn."""
    await turn.thread.services.runtime_for(turn.thread.settings).run(turn)


async def _make(
    thread: Thread,
    work: Work,
    kind: Kind,
    changes: Mapping[str, Any] = MappingProxyType({}),
    pins: Mapping[str, Pin] = MappingProxyType({}),
    aside: Aside | None = None,
) -> Turn:
    await thread.acquire()
    try:
        thread.change_settings(changes, pins)
        turn = Turn(thread, work, kind=kind, aside=aside)
    except BaseException:
        thread.release()
        raise
    turn.on_end = _after_turn
    return turn


# --- turns that follow by themselves ---------------------------------------------------------------------------------


def _after_turn(turn: Turn) -> None:
    """What the user has said comes before what the goal wants."""
    thread = turn.thread
    if not thread.closing and (_may_send(thread) or thread_goal.wants_turn(thread)):
        thread.services.spawn(_go_on(thread, turn), f"what follows turn {turn.id}")


async def _go_on(thread: Thread, last: Turn) -> None:
    try:
        if not await _send_queued(thread):
            await go_on_with_goal(thread, last)
    except StoreError:
        return  # the turn that would have followed could not be kept; message and goal are still there for the next one


def send_queued_soon(thread: Thread) -> None:
    """The next message of the queue, when nothing runs and nobody has made the queue wait."""
    if _may_send(thread):
        thread.services.spawn(_try_to_send(thread), f"queue of {thread.id}")


def _may_send(thread: Thread) -> bool:
    waits = thread.queued and not thread.state.queue_held
    return waits and thread.turn is None and not thread.closing and not thread.services.draining


async def _try_to_send(thread: Thread) -> None:
    try:
        await _send_queued(thread)
    except StoreError:
        return  # it could not be kept that the message was sent, so it was not; it waits for the next occasion


async def _send_queued(thread: Thread) -> bool:
    """Whether a turn was begun with the next message."""
    if not thread.queued:
        return False
    from treadle.agent.thread_queue import publish_changed, waiting_in  # loaded with the first queue

    async with thread.lock:
        if not _may_send(thread):
            return False
        await thread.acquire()
        try:
            waiting = await waiting_in(thread)
            thread.queued = bool(waiting)
            if waiting:
                await start_queued(thread, waiting[0])
                publish_changed(thread)
        finally:
            thread.release()
        return bool(waiting)


async def start_queued(thread: Thread, record: QueuedRecord) -> Turn:
    """With the thread idle. The message leaves the queue when the turn shows it."""
    from treadle.agent.thread_queue import input_of

    given = input_of(record, thread.store.location)
    turn = await _make_regular(thread)
    turn.steer(given)
    turn.start()
    return turn


async def go_on_with_goal(thread: Thread, last: Turn) -> None:
    """After a turn: start the next one, or stop."""
    async with thread.lock:
        if not thread_goal.wants_turn(thread):
            return
        thread.idle_goal_turns = 0 if last.called or last.kind != "regular" else thread.idle_goal_turns + 1
        if last.state.status == "completed" and thread.idle_goal_turns < MAX_IDLE_GOAL_TURNS:
            await start_goal_turn(thread)
            return
        why = "paused" if last.state.status == "interrupted" else "blocked"
        await thread.acquire()
        try:
            thread_goal.set_goal(thread, status=why)
            thread_goal.publish_goal(thread)
        finally:
            thread.release()
