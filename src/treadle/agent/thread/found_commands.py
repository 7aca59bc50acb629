"""Commands that an earlier server has started on other machines, found again after it has ended.

A thread notes each such command, with the session of the executor that it belongs to. Whoever has the thread next takes
the session up, if the executor still keeps it, reads what the command has written, and ends its item as if nothing had
been: the model can look at it by its number, clients see it among the terminals. What is not there any more stays as
readers have it, failed. All threads that have commands in a session share its connection. A machine that cannot be
reached now is asked again for a while, and so is one that says that the session is in use: it may not have noticed yet
that the server was killed. After that the thread asks the next time that it is loaded.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from msgspec import structs

from treadle.agent.event import DeltaStream
from treadle.agent.thread.authority import confined_to, rules_of
from treadle.agent.thread.terminals import Terminal
from treadle.agent.tools.command_call import last_report, outcome
from treadle.agent.turn.turn_items import OpenItem, TurnItems
from treadle.errors import INVALID_REQUEST, ExecError
from treadle.protocol.app.base import decode
from treadle.protocol.app.items import CommandExecutionThreadItem, KnownItem, ThreadItem
from treadle.protocol.app.notifications import CommandExecutionOutputDeltaNotification

if TYPE_CHECKING:
    from treadle.agent.thread.thread import Thread
    from treadle.agent.thread.thread_state import RemoteCommand
    from treadle.execution import Environment, Process
    from treadle.execution.remote_machine import RemoteMachine
    from treadle.tools.command.command_sessions import CommandSession

logger: logging.Logger = logging.getLogger(__name__)
# How long one that was unreachable may take to be there: it may be starting as well, or dial us only every half minute.
FIND_S: Final = 120.0
FIRST_PAUSE_S: Final = 0.25
LONGEST_PAUSE_S: Final = 5.0


async def find_commands(thread: Thread) -> None:
    """Take up all commands that the thread knows of and this server does not, and follow them until they end."""
    sessions: dict[tuple[str, str], dict[str, RemoteCommand]] = defaultdict(dict)
    for item_id, command in thread.state.commands.items():
        sessions[command.environment, command.session][item_id] = command
    async with asyncio.TaskGroup() as group:
        for (environment_id, session_id), commands in sessions.items():
            group.create_task(_find(thread, environment_id, session_id, commands))


async def _find(thread: Thread, environment_id: str, session_id: str, commands: dict[str, RemoteCommand]) -> None:
    """The commands of one session."""
    loop = asyncio.get_running_loop()
    until, pause = loop.time() + FIND_S, FIRST_PAUSE_S
    machine: RemoteMachine | None = None
    while True:
        try:
            machine = thread.services.machine(environment_id)
            environment = await machine.take_up(session_id)
            break
        except ExecError as error:
            # The executor has said so; an environment that nobody knows now may be named again.
            is_gone = machine is not None and error.code == INVALID_REQUEST
            if is_gone or machine is None or thread.closing or loop.time() > until:
                fields = {"thread": thread.id, "environment": environment_id, "reason": str(error), "gone": is_gone}
                logger.info("commands were not found again", fields)
                if is_gone:
                    await _forget(thread, commands)
                return
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_S)
    try:
        async with asyncio.TaskGroup() as group:
            for item_id, command in commands.items():
                group.create_task(_end(thread, environment, item_id, command))
    finally:
        await machine.leave(session_id, environment)


async def _forget(thread: Thread, item_ids: Iterable[str]) -> None:
    async with thread.lock, thread.writing():
        thread.journal.write(*thread.forget_commands(item_ids))
        await thread.journal.flush()


async def _end(thread: Thread, environment: Environment, item_id: str, command: RemoteCommand) -> None:
    process: Process | None = None
    try:
        process = await environment.take_up(command.process)
    except ExecError as error:
        fields = {"thread": thread.id, "item": item_id, "reason": error.message}
        logger.info("a command was not found again", fields)
        if environment.failure is not None:  # the connection was lost: the command may still be there
            return
    async with thread.lock, thread.writing():  # first: whoever had the thread before has its terminals cut by this
        found = None if process is None else await _take_up(thread, process, item_id, command)
        if found is None:
            thread.journal.write(*thread.forget_commands((item_id,)))
            await thread.journal.flush()
            return
    session, opened, items, item = found
    await session.wait_ended()
    thread.sessions.forget(session, last_report(session))
    async with thread.lock, thread.writing():
        if items.find(item_id) is opened:
            items.complete(structs.replace(item, **outcome(session)), *thread.forget_commands((item_id,)))
            await thread.journal.flush()


async def _take_up(
    thread: Thread, process: Process, item_id: str, command: RemoteCommand
) -> tuple[CommandSession, OpenItem, TurnItems, CommandExecutionThreadItem] | None:
    """The command as a terminal of the thread; None when its turn was taken back meanwhile."""
    records = await thread.store.items(thread.id, turns=(command.turn, command.turn))
    record = next((each for each in records if each.id == item_id and each.open), None)
    item = None if record is None else decode(record.data, ThreadItem)
    if record is None or not isinstance(item, CommandExecutionThreadItem):
        return None
    items = TurnItems(thread, command.turn_id, command.turn)
    opened = items.reopen(record.number, item)
    opened.in_background = True
    stream = DeltaStream(
        "item/commandExecution/outputDelta",
        lambda delta: CommandExecutionOutputDeltaNotification(
            thread_id=thread.id, turn_id=command.turn_id, item_id=item_id, delta=delta
        ),
    )
    known = process.log.last_seq  # what was written before was published before, as far as it was

    def grow(text: str) -> None:
        if process.log.last_seq > known:
            thread.journal.append(stream, text)

    session = thread.sessions.take_up(command.number, process, command.tty, grow)
    item = structs.replace(item, process_id=session.process_id)
    opened.look = lambda begun: _so_far(item, begun, session)
    thread.terminals.add(Terminal(session, items, opened, command.command, command.cwd))
    # Of no epoch: it is ended at once if the thread may do less by now than when it was started.
    settings = command.settings
    rules = None if command.unconfined else await asyncio.to_thread(rules_of, confined_to(settings), settings)
    thread.command_started(session, -1, settings, rules)
    return session, opened, items, item


def _so_far(item: CommandExecutionThreadItem, begun: KnownItem, session: CommandSession) -> KnownItem:
    if not session.running:
        return structs.replace(item, started_at_ms=begun.started_at_ms, **outcome(session))
    return structs.replace(item, started_at_ms=begun.started_at_ms, aggregated_output=session.aggregated or None)
