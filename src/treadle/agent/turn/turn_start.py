"""How turns begin: because a client asks for one, to compact, to review, to run a command of the user, for a message
that waited in the queue, or for a goal.

All of it happens under the thread's lock. A turn that is active is joined by new input; one that is ending is waited
for. After a turn, what the user has said (the queue) comes before what the goal wants.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from msgspec import UnsetType

from treadle.agent.thread import thread_refusals
from treadle.agent.thread.thread import Thread
from treadle.agent.turn.pending_input import Input
from treadle.agent.turn.turn import NO_LIMITS, Kind, SideConversation, Turn, Work
from treadle.agent.turn.turn_loop import compact_turn, regular_turn
from treadle.config.file_settings import Budget
from treadle.execution.sandbox.sandbox_roots import Pin
from treadle.store.contract import QueuedRecord, StoreError

if TYPE_CHECKING:
    from treadle.agent.turn.code_review import Review

# A goal whose turns do nothing but talk is stopped after this many of them.
MAX_IDLE_GOAL_TURNS: Final = 5


async def start_turn(
    thread: Thread,
    given: Input,
    changes: dict[str, Any],
    *,
    output_schema: Any = None,
    budget: Budget = NO_LIMITS,
    max_output_tokens: int | None = None,
    not_before: float = 0.0,
    root_turn_id: str | None = None,
) -> Turn:
    """The turn that will answer: a new one, or the active one, which gets the input as well."""
    pins = await thread.look_at_roots(changes)
    if thread.turn is not None and thread.turn.active and thread.turn.kind == "review":
        # A reviewer takes as long as it takes: nobody should wait for it without knowing.
        what = "start a turn during a review: wait for its end, or interrupt it"
        raise thread_refusals.not_steerable(thread.turn.kind, what)
    while thread.turn is not None and not (thread.turn.active and thread.turn.kind == "regular"):
        await thread.turn.wait()
    if thread.turn is not None:
        async with thread.writing():
            thread.change_settings(changes, pins)
        thread.turn.steer(given)
        return thread.turn
    engine = thread.settings.engine
    if engine is not None and (output_schema, budget, max_output_tokens) != (None, NO_LIMITS, None):
        raise thread_refusals.engine_cannot(engine, "be given an output schema or limits for a turn")
    turn = await _make(thread, _regular_work(engine), "regular", changes, pins)
    turn.output_schema = output_schema
    turn.budget = budget
    turn.max_output_tokens = max_output_tokens
    turn.not_before = not_before
    if root_turn_id is not None:
        turn.state.root_id = root_turn_id
    turn.steer(given)
    turn.start()
    return turn


def _regular_work(engine: str | None) -> Work:
    """The work of a turn that answers its input: by the model of the thread, or by its engine."""
    if engine is None:
        return regular_turn
    from treadle.agent.turn.engine_turn import engine_turn  # few threads have an engine

    return engine_turn


async def start_compaction(thread: Thread) -> None:
    """A turn that runs is interrupted for it."""
    if thread.turn is not None:
        await thread.turn.abort()
    (await _make(thread, compact_turn, "compact")).start()


async def start_review(thread: Thread, review: Review) -> Turn:
    """A turn that runs is interrupted for it."""
    from treadle.agent.turn.code_review import ReviewWork, reviewer  # loaded with the first of them

    if thread.turn is not None:
        await thread.turn.abort()
    turn = await _make(thread, ReviewWork(review), "review", side=reviewer())
    turn.start()
    return turn


async def start_shell_command(thread: Thread, command: str, timeout_ms: int | None) -> None:
    """In a turn of its own, or beside what the active turn does."""
    from treadle.agent.tools.command_call import run_shell_command, shell_work  # loaded with the first of them

    turn = thread.turn
    if turn is not None and turn.active and turn.kind in ("regular", "review"):
        turn.spawn(run_shell_command(turn, command, timeout_ms))
        return
    if turn is not None:
        await turn.wait()
    (await _make(thread, shell_work(command, timeout_ms), "shell")).start()


async def start_queued(thread: Thread, record: QueuedRecord) -> Turn:
    """With the thread idle. The message leaves the queue when the turn shows it."""
    from treadle.agent.thread.thread_queue import input_of  # loaded with the first queue

    given = input_of(record, thread.store.location)
    turn = await _make(thread, _regular_work(thread.settings.engine), "regular")
    turn.steer(given)
    turn.start()
    return turn


async def start_goal(thread: Thread) -> None:
    """The first turn for a goal that a client has set, if nothing else runs by now."""
    async with thread.lock:
        if thread.goal.wants_turn and not thread.closing:
            thread.goal.idle_turns = 0
            (await _make(thread, _regular_work(thread.settings.engine), "regular")).start()


async def _make(
    thread: Thread,
    work: Work,
    kind: Kind,
    changes: Mapping[str, Any] = MappingProxyType({}),
    pins: Mapping[str, Pin] = MappingProxyType({}),
    side: SideConversation | None = None,
) -> Turn:
    thread.services.refresh_config()
    await thread.acquire()  # which the end of the turn releases
    try:
        thread.change_settings(changes, pins)
        turn = Turn(thread, work, kind=kind, side=side)
    except BaseException:
        thread.release()
        raise
    turn.on_end = _after_turn
    return turn


# --- turns that follow by themselves ---------------------------------------------------------------------------------


def _after_turn(turn: Turn) -> None:
    thread = turn.thread
    if (agent := thread.state.agent) is not None:
        wakes = turn.state.status != "interrupted"
        thread.services.agents.ended(agent.parent_id, thread.id, turn.id, wakes=wakes)

    async def follow() -> None:
        try:
            if not await _send_queued(thread) and not await _wake(thread):
                await _go_on_with_goal(thread, turn)
        except StoreError:
            return  # the turn that would have followed could not be stored; message and goal are there for the next one

    if not thread.closing and (_may_send(thread) or thread.goal.wants_turn or _wants_waking(thread)):
        thread.services.spawn(follow(), f"what follows turn {turn.id}")


def send_queued_soon(thread: Thread) -> None:
    """The next message of the queue, when nothing runs and nobody has made the queue wait."""

    async def send() -> None:
        try:
            await _send_queued(thread)
        except StoreError:
            return  # it could not be stored that the message was sent, so it was not; it waits for the next occasion

    if _may_send(thread):
        thread.services.spawn(send(), f"queue of {thread.id}")


def wake_soon(thread: Thread) -> None:
    """A turn for the ends of sub-agents, when nothing runs and somebody wanted that."""

    async def wake() -> None:
        try:
            await thread.children.look()
            await _wake(thread)
        except StoreError:
            return  # the model gets it with its next turn, whatever makes that begin

    if thread.state.children and not thread.closing and thread.turn is None:
        thread.services.spawn(wake(), f"what sub-agents have done for {thread.id}")


def _wants_waking(thread: Thread) -> bool:
    if thread.turn is not None or thread.closing or thread.services.draining or not thread.state.children:
        return False
    return thread.children.wants_turn


async def _wake(thread: Thread) -> bool:
    """Whether a turn was begun for what sub-agents have done."""
    if not _wants_waking(thread):
        return False
    async with thread.lock:
        if not _wants_waking(thread):
            return False
        thread.goal.idle_turns = 0
        (await _make(thread, _regular_work(thread.settings.engine), "regular")).start()
        return True


def _may_send(thread: Thread) -> bool:
    waits = thread.queued and not thread.state.queue_held
    return waits and thread.turn is None and not thread.closing and not thread.services.draining


async def _send_queued(thread: Thread) -> bool:
    """Whether a turn was begun with the next message."""
    if not thread.queued:
        return False
    async with thread.lock:
        if not _may_send(thread):
            return False
        async with thread.writing():
            waiting = await thread.queue.waiting()
            thread.note_queue(bool(waiting))
            if waiting:
                await start_queued(thread, waiting[0])
                thread.queue.publish_changed()
        return bool(waiting)


async def _go_on_with_goal(thread: Thread, last: Turn) -> None:
    """After a turn: start the next one, or stop."""
    async with thread.lock:
        goal = thread.goal
        if not goal.wants_turn:
            return
        if not last.called and thread.state.children and thread.children.any_running:
            return  # the model waits for them: the end of the first begins the next turn
        goal.idle_turns = 0 if last.called or last.kind != "regular" else goal.idle_turns + 1
        if last.state.status == "completed" and goal.idle_turns < MAX_IDLE_GOAL_TURNS:
            (await _make(thread, _regular_work(thread.settings.engine), "regular")).start()
            return
        error = last.state.error
        status = "blocked" if error is None or isinstance(error.limit, UnsetType) else "budgetLimited"
        async with thread.writing():
            goal.set(status="paused" if last.state.status == "interrupted" else status)
            goal.publish()
