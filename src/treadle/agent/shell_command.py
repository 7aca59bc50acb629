"""`thread/shellCommand`: a command of the user's own, outside of the sandbox. The model sees it in the next turn."""

from __future__ import annotations

import asyncio
from typing import Final

from msgspec import structs

from treadle.agent.event import DeltaStream
from treadle.agent.ids import new_id
from treadle.agent.tools.command_call import env_policy, outcome
from treadle.agent.turn import Turn, Work, developer_message
from treadle.errors import ExecError
from treadle.protocol.app.item_notifications import CommandExecutionOutputDeltaNotification
from treadle.protocol.app.items import CommandExecutionThreadItem, KnownItem
from treadle.tools.command.command_actions import command_actions
from treadle.tools.command.command_sessions import CommandSession, CommandSpec
from treadle.tools.command.command_shell import shell_argv, shown

TIMEOUT_S: Final = 3600.0
SHOWN_TOKENS: Final = 10_000


def shell_work(command: str, timeout_ms: int | None) -> Work:
    async def work(turn: Turn) -> None:
        await turn.thread.load_history()
        await run_shell_command(turn, command, timeout_ms)

    return work


async def run_shell_command(turn: Turn, command: str, timeout_ms: int | None) -> None:
    thread = turn.thread
    cwd = thread.settings.cwd
    argv = shell_argv(command)
    item = CommandExecutionThreadItem(
        id=new_id(),
        command=shown(argv),
        command_actions=command_actions(command, cwd),
        cwd=cwd,
        status="inProgress",
        source="userShell",
    )
    opened = turn.items.start(item)
    stream = DeltaStream(
        "item/commandExecution/outputDelta",
        lambda delta: CommandExecutionOutputDeltaNotification(
            thread_id=thread.id, turn_id=turn.id, item_id=item.id, delta=delta
        ),
    )
    try:
        spec = CommandSpec(command=argv, cwd=cwd, env_policy=env_policy(turn))
        session = await thread.sessions.start(spec, lambda text: thread.journal.append(stream, text))
    except ExecError as error:
        turn.items.complete(structs.replace(item, status="failed", aggregated_output=error.message))
        return
    opened.look = lambda begun: _so_far(begun, session)
    try:
        ended = await session.wait(TIMEOUT_S if timeout_ms is None else timeout_ms / 1000)
        if not ended:
            await session.terminate("ended: it took too long")
    except asyncio.CancelledError:
        try:
            await session.terminate()
        finally:
            _complete(turn, item, session, command)
        raise
    _complete(turn, item, session, command)


def _so_far(item: KnownItem, session: CommandSession) -> KnownItem:
    return structs.replace(item, aggregated_output=session.aggregated or None)


def _complete(turn: Turn, item: CommandExecutionThreadItem, session: CommandSession, command: str) -> None:
    turn.thread.sessions.forget(session)
    done = structs.replace(item, **outcome(session))
    output = session.take_output(SHOWN_TOKENS).text
    note = (
        f"<user_shell_command>\nThe user ran this command:\n{command}\n"
        f"Exit code: {session.exit_code}\nOutput:\n{output}\n</user_shell_command>"
    )
    turn.items.complete(done, *turn.thread.remember([developer_message(note)], turn.number))
